//! The page of a Function in a browser: its source, and the objects that belong to it.

use devcluster::service_catalog;
use mainstay_testkit::{definitions::of_stream, world::NAMESPACE};
use serde_json::{Value, json};

use super::{
    READS, WRITES,
    chromium::Tab,
    pages::{Desk, FUNCTIONS, HOSTILE, looks_right},
    trees::overseer,
    users::URL,
};

const TRIGGERS: (&str, &str) = ("eventing.knative.dev/v1alpha1", "triggers");
const SUBSCRIPTIONS: (&str, &str) = ("eventing.kyma-project.io/v1alpha2", "subscriptions");
pub(super) const RULES: (&str, &str) = ("gateway.kyma-project.io/v1alpha1", "apirules");
const USAGES: (&str, &str) = ("servicecatalog.kyma-project.io/v1alpha1", "servicebindingusages");
const BINDINGS: (&str, &str) = ("servicecatalog.k8s.io/v1beta1", "servicebindings");
const EVENTING: &str = include_str!("../../../manifests/eventing/crd.yaml");
pub(super) const EXPOSURE: &str = include_str!("../../../manifests/exposure/crd.yaml");

const SOURCE: &str = "// greets\nmodule.exports = {\n\tmain: (event) => `Hello ${event.data} ${1 + 41}`,\n};\n";

/// Creates a Function with this spec.
pub(super) fn function(desk: &Desk, name: &str, spec: Value) -> Value {
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let function = json!({"apiVersion": FUNCTIONS.0, "kind": "Function", "metadata": metadata, "spec": spec});
    desk.users.world.create(FUNCTIONS.0, FUNCTIONS.1, NAMESPACE, function)
}

fn make(desk: &Desk, (api_version, plural): (&str, &str), kind: &str, name: &str, spec: Value) {
    let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    desk.users.world.create(api_version, plural, NAMESPACE, object);
}

fn define(desk: &Desk) {
    for (kind, documents) in [
        (USAGES, service_catalog::DEFINITIONS),
        (BINDINGS, service_catalog::DEFINITIONS),
        (TRIGGERS, EVENTING),
        (SUBSCRIPTIONS, EVENTING),
        (RULES, EXPOSURE),
    ] {
        let name = format!("{}.{}", kind.1, kind.0.split_once('/').unwrap().0);
        desk.users.world.define(of_stream(&name, documents));
    }
}

/// Creates the objects that belong to the Function `greeter`, and some that belong to another one.
pub(super) fn belongings(desk: &Desk, uid: &Value) {
    define(desk);
    let labels = json!({"serverless.kyma-project.io/function-name": "greeter"});
    let owner = json!([{"apiVersion": FUNCTIONS.0, "kind": "Function", "name": "greeter", "uid": uid}]);
    let container = json!({"name": "function", "image": "example.org/greeter:1"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "greeter-serving", "labels": labels, "ownerReferences": owner},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    });
    desk.users.world.create("apps/v1", "deployments", NAMESPACE, deployment);
    let copied = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "copied-label", "labels": labels}, "spec": {"ports": [{"port": 80}]}});
    desk.users.world.create("v1", "services", NAMESPACE, copied);
    for (name, function) in [("own", "greeter"), ("other", "another")] {
        let subscriber = json!({"ref": {"apiVersion": "v1", "kind": "Service", "name": function}});
        let filter = json!({"attributes": {"type": format!("{name}.created"), "source": "shop"}});
        make(
            desk,
            TRIGGERS,
            "Trigger",
            &format!("{name}-trigger"),
            json!({"broker": "default", "filter": filter, "subscriber": subscriber}),
        );
        let sink = format!("http://{function}.{NAMESPACE}.svc.cluster.local");
        let spec = json!({"sink": sink, "source": "shop", "types": [format!("{name}.paid.v1")]});
        make(desk, SUBSCRIPTIONS, "Subscription", &format!("{name}-subscription"), spec);
        let rule =
            json!({"path": "/orders/.*", "methods": ["GET", "POST"], "accessStrategies": [{"handler": "allow"}]});
        let spec = json!({
            "gateway": "kyma-gateway.kyma-system.svc.cluster.local", "rules": [rule],
            "service": {"name": function, "port": 80, "host": format!("{name}.example.com")},
        });
        make(desk, RULES, "APIRule", &format!("{name}-rule"), spec);
        make(
            desk,
            BINDINGS,
            "ServiceBinding",
            &format!("{name}-binding"),
            json!({"instanceRef": {"name": "redis"}, "secretName": format!("{name}-login")}),
        );
        let spec = json!({
            "serviceBindingRef": {"name": format!("{name}-binding")}, "usedBy": {"kind": "serverless-function", "name": function},
            "parameters": {"envPrefix": {"name": format!("{}_", name.to_uppercase())}},
        });
        make(desk, USAGES, "ServiceBindingUsage", &format!("{name}-usage"), spec);
    }
    desk.users.world.set_secret("own-login", json!({"password": "hunter2"}));
}

/// Asserts that the list of APIRules, Triggers and Subscriptions shows their states, the failed one first.
async fn served(desk: &Desk, tab: &Tab) {
    desk.status(RULES, "own-rule", &json!({"APIRuleStatus": {"code": "ERROR", "desc": "no such gateway"}}));
    desk.status(SUBSCRIPTIONS, "own-subscription", &json!({"ready": true}));
    tab.click("header a", "APIs and events").await;
    tab.until("document.querySelector('h1')?.innerText === 'APIRules, Triggers and Subscriptions'").await;
    tab.shows("6 objects").await;
    let rows = "Array.from(document.querySelectorAll('tbody tr')).map((row) => row.children[0].innerText.trim().split(' ').pop() + ' ' \
                + row.children[1].innerText).join()";
    assert_eq!(
        tab.value(rows).await,
        "Failed APIRule,Progressing APIRule,Progressing Trigger,Progressing Trigger,Progressing Subscription,Ready Subscription"
    );
    tab.shows("APIRuleStatus is ERROR").await;
    looks_right(tab, "served").await;
    // A change appears without a reload.
    tab.until("document.getElementById('live').innerText === 'Live'").await;
    tab.value("window.isSame = true").await;
    desk.status(RULES, "own-rule", &json!({"APIRuleStatus": {"code": "OK", "desc": ""}}));
    tab.until("!document.body.innerText.includes('APIRuleStatus is ERROR')").await;
    assert_eq!(tab.value("window.isSame").await, true, "it was not loaded again");
    tab.click("tbody a", &format!("{NAMESPACE}/own-rule")).await;
    tab.until("document.querySelector('h1')?.innerText.startsWith('APIRule own-rule')").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_shows_its_source_and_the_objects_that_belong_to_it() {
    let desk = Desk::new().await;
    let env = json!([
        {"name": "GREETING", "value": "Hello"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "own-login", "key": "password"}}},
        {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "mode"}}},
    ]);
    let deps = "{\"dependencies\": {\"axios\": \"1.7.0\"}}";
    let spec =
        json!({"runtime": "nodejs22", "source": SOURCE, "deps": deps, "env": env, "minReplicas": 2, "maxReplicas": 4});
    let uid = function(&desk, "greeter", spec)["metadata"]["uid"].clone();
    belongings(&desk, &uid);
    let tab = desk.user(&overseer(&desk.users)).await;
    tab.open(&format!("{URL}/function/{NAMESPACE}/greeter")).await;
    for text in [
        "GREETING",
        "key password of Secret own-login",
        "key mode of ConfigMap settings",
        "wanted 2 to 4",
        "Deployment greeter-serving",
        "own-login",
        "OWN_",
        "own-trigger",
        "source=shop, type=own.created",
        "own-subscription",
        "type=own.paid.v1",
        "own.example.com",
        "GET, POST /orders/.*: allow",
    ] {
        tab.shows(text).await;
    }
    let page = tab.value("document.body.innerText").await.as_str().unwrap().to_owned();
    for text in ["other-", "other.example.com", "copied-label", "hunter2", "may not list"] {
        assert!(!page.contains(text), "{text}: {page}");
    }
    let code = |class: &str| {
        format!(
            "Array.from(document.querySelectorAll('#source ~ .pair .{class}')).map((one) => one.innerText).join('; ')"
        )
    };
    assert_eq!(tab.value(&code("co")).await, "// greets; \"dependencies\":; \"axios\":");
    assert_eq!(tab.value(&code("st")).await, "`Hello ${event.data} ${1 + 41}`; \"1.7.0\"");
    assert_eq!(tab.value("document.querySelector('#source ~ .pair pre').textContent").await, SOURCE);
    looks_right(&tab, "function-belonging").await;
    served(&desk, &tab).await;

    // A user without these rights sees the rest, and why it is incomplete.
    let reader = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    reader.open(&format!("{URL}/function/{NAMESPACE}/greeter")).await;
    reader.shows("because you may not list them: jobs.batch").await;
    reader.shows("Deployment greeter-serving").await;
    let page = reader.value("document.body.innerText").await.as_str().unwrap().to_owned();
    assert!(!page.contains("own-trigger"), "{page}");
    reader.open(&format!("{URL}/served")).await;
    reader.shows("0 objects").await;
    reader.shows("APIRule objects cannot be read").await;
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_of_git_shows_its_place_and_hostile_code_runs_no_script() {
    let desk = Desk::new().await;
    let git =
        json!({"type": "git", "source": "shop", "reference": "main", "baseDir": "functions/a", "runtime": "python312"});
    function(&desk, "from-git", git);
    let commit = "c0ffee".repeat(7)[..40].to_owned();
    desk.status(FUNCTIONS, "from-git", &json!({"commit": commit, "queue": 3}));
    let url = json!({"url": "https://user:hunter2@github.com/team/shop"});
    make(&desk, (FUNCTIONS.0, "gitrepositories"), "GitRepository", "shop", url);
    let long = format!("# {HOSTILE}\n'''{HOSTILE}\n{}", HOSTILE.repeat(3000));
    function(&desk, "hostile", json!({"runtime": "python312", "source": long, "deps": format!("{HOSTILE}==1")}));
    let tab = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    tab.open(&format!("{URL}/function/{NAMESPACE}/from-git")).await;
    for text in [
        "Follows\nmain",
        "Directory\nfunctions/a",
        "Commit\nc0ffeec0ffee",
        "position 3, 2 builds wait before it",
        "You may not change this object",
    ] {
        tab.shows(text).await;
    }
    let link =
        "Array.from(document.querySelectorAll('#source ~ dl a')).map((one) => decodeURIComponent(one.pathname)).join()";
    assert_eq!(tab.value(link).await, format!("/gitrepository/{NAMESPACE}/shop,/team/shop/commit/{commit}"));
    let writer = desk.user(&desk.users.account(NAMESPACE, "writer", WRITES)).await;
    writer.open(&format!("{URL}/function/{NAMESPACE}/from-git")).await;
    writer.click("a.button", "Rebuild").await;
    writer.shows("A failed build does not wait for its next attempt.").await;
    writer.click("main button", "Rebuild").await;
    writer.shows("Requested.").await;
    let live = desk.users.world.get(FUNCTIONS.0, FUNCTIONS.1, "from-git").unwrap();
    assert!(live["metadata"]["annotations"]["mainstay.dev/rebuild"].is_string(), "{live}");
    tab.open(&format!("{URL}/function/{NAMESPACE}/hostile")).await;
    tab.shows("Only its first 128 KiB are shown.").await;
    let strange = "document.querySelectorAll('script:not([src]), img, svg, [onerror], [style]').length";
    assert_eq!((tab.value(strange).await, tab.value("typeof window.ran").await), (json!(0), json!("undefined")));
    looks_right(&tab, "function-hostile").await;
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}
