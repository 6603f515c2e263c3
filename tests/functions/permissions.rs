//! The agent as the ServiceAccount of `manifests/rbac.yaml`, on a cluster with RBAC.

use std::time::Duration;

use devcluster::{Action, Call, Options};
use serde_json::{Value, json};

use mainstay_testkit::quotas::refused;
use mainstay_testkit::{
    functions::{API, DEPLOYMENTS, inline},
    knative::KNATIVE,
    world::{NAMESPACE, World, config_map},
};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// Namespace of the agent's ServiceAccount.
const HOME: &str = "mainstay-system";

/// Returns a world with the objects of `manifests/rbac.yaml` except these. Its agent uses the token of its
/// ServiceAccount.
pub(crate) fn with_permissions(without: &[&str]) -> World {
    let world = World::with_functions_on(Options { rbac: true, ..Options::default() });
    world.create("v1", "namespaces", "", json!({"metadata": {"name": HOME}}));
    grant(&world, "manifests/rbac.yaml", without);
    let call = Call::new("v1", "serviceaccounts", HOME, "mainstay", Action::Create(json!({}))).on("token");
    let answer = world.try_as("test", call).unwrap();
    world.gate.bear(answer["status"]["token"].as_str().unwrap());
    world
}

/// Creates the objects of a manifest except these.
pub(crate) fn grant(world: &World, path: &str, without: &[&str]) {
    let manifest = std::fs::read_to_string(path).unwrap();
    for document in manifest.split("\n---\n") {
        let object: Value = serde_yaml::from_str(document).unwrap();
        if without.contains(&object["metadata"]["name"].as_str().unwrap()) {
            continue;
        }
        create_rights(world, object);
    }
}

/// Creates a ServiceAccount, or an object with permissions.
pub(crate) fn create_rights(world: &World, object: Value) {
    let (version, plural) = match object["kind"].as_str().unwrap() {
        "ServiceAccount" => ("v1", "serviceaccounts"),
        "ClusterRole" => (RBAC, "clusterroles"),
        "ClusterRoleBinding" => (RBAC, "clusterrolebindings"),
        "Role" => (RBAC, "roles"),
        "RoleBinding" => (RBAC, "rolebindings"),
        other => panic!("{other} has no permissions"),
    };
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    world.create(version, plural, &namespace, object);
}

fn deployment() -> &'static str {
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {app: web}}\n  \
     template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: web, image: 'web:1'}]}\n"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_has_all_permissions_that_it_uses() {
    let mut world = with_permissions(&[]);
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r}\nrules:\n- {apiGroups: [''], \
                resources: [pods], verbs: [get]}\n";
    world.remote.file("map.yaml", config_map("map", "1")).file("web.yaml", deployment());
    world.remote.file("other.yaml", config_map("other", "1")).file("role.yaml", role);
    world.remote.file("ns.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: made}\n").commit("one");
    world.synced(json!({})).await;
    assert!(world.get("apps/v1", "deployments", "web").is_some());

    world.edit("v1", "configmaps", "map", json!({"data": {"key": "theirs"}}));
    world.until("reverted", |w| w.data("map") == "1").await;
    world.delete("v1", "configmaps", "map");
    world.until("made again", |w| w.data("map") == "1").await;
    world.remote.remove("other.yaml");
    world.commit("demo", "without the other").await;
    world.until("pruned", |w| w.data("other") == "absent").await;

    world.function("hello", inline("module.exports = { main: () => 'hi' }"));
    world.runs("hello").await;
    assert_eq!(world.child("hello", DEPLOYMENTS)["status"]["readyReplicas"], 1);
    world.delete_function("hello");
    world.until("gone", |w| w.function_now("hello").is_none()).await;
    assert_eq!(world.gate.forbidden(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_needs_no_more_than_its_own_role_for_functions_and_its_bookkeeping() {
    let mut world = with_permissions(&["mainstay-applies"]);
    // The agent checks for unused images.
    world.functions.retention.settle = Duration::from_millis(300);
    let mut registry: Value = serde_yaml::from_str(&deployment().replace("web", "serverless-docker-registry")).unwrap();
    registry["spec"]["template"]["spec"]["initContainers"] = json!([{"name": "sweep", "image": "mainstay"}]);
    world.create(DEPLOYMENTS.0, DEPLOYMENTS.1, NAMESPACE, registry);
    world.remote.file("map.yaml", config_map("map", "1")).commit("one");
    world.synced(json!({"prevent": true})).await;
    world.condition_is("demo", "Prevented", "True").await;
    world.function("hello", inline("module.exports = { main: () => 'hi' }"));
    world.runs("hello").await;
    let noted = |w: &World| w.get("v1", "configmaps", "mainstay-image-retention").is_some();
    world.until("what is in use is written down", noted).await;
    assert_eq!(world.gate.forbidden(), [""; 0]);

    // A refused apply is reported and has no other effect.
    world.remote.file("account.yaml", "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: s}\n");
    world.remote.file("map.yaml", config_map("map", "2"));
    world.try_commit("demo", "an account").await;
    let user = format!("system:serviceaccount:{HOME}:mainstay");
    world.until("reported", |w| w.condition("demo", "Ready").starts_with("False")).await;
    let said = world.status("demo").to_string();
    assert!(said.contains(&format!("User \\\"{user}\\\" cannot")), "{said}");
    world.until("the rest is applied", |w| w.data("map") == "2").await;
    assert!(world.get("v1", "serviceaccounts", "s").is_none());
    let forbidden = world.gate.forbidden();
    let about = format!("/namespaces/{NAMESPACE}/serviceaccounts");
    assert!(forbidden.iter().all(|asked| asked.contains(&about)), "{forbidden:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_may_watch_quotas() {
    let world = refused(with_permissions(&["mainstay-applies"])).await;
    world.levers().clear_faults();
    world.delete("v1", "resourcequotas", "small");
    world.runs("hello").await;
    let forbidden = world.gate.forbidden();
    assert!(forbidden.iter().all(|asked| asked.contains("/jobs/")), "but for what was refused: {forbidden:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_are_copied_with_the_rights_of_their_component_and_missing_rights_are_reported() {
    let mut world = with_permissions(&["mainstay-applies"]);
    let (name, other) = ("serverless-registry-config", "mainstay-tests-other");
    world.create("v1", "namespaces", "", json!({"metadata": {"name": other}}));
    let metadata = json!({
        "name": name, "namespace": NAMESPACE, "labels": {"serverless.kyma-project.io/config": "credentials"},
    });
    world.create("v1", "secrets", NAMESPACE, json!({"metadata": metadata, "stringData": {"registryAddress": "x"}}));
    world.start();
    let told = |w: &World| {
        let events = w.server.objects("v1", "events", Some(NAMESPACE));
        let notes = events.iter().filter(|e| e["reason"] == "NotPropagated");
        notes.map(|e| e["message"].as_str().unwrap()).any(|note| note.contains("manifests/propagation"))
    };
    world.until("it is told", told).await;
    grant(&world, "manifests/propagation/rbac.yaml", &[]);
    let copy = |w: &World| w.server.object("v1", "secrets", other, name);
    world.until("it is copied", |w| copy(w).is_some()).await;
    world.delete("v1", "secrets", name);
    world.until("it is gone", |w| copy(w).is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_acts_as_a_service_account_by_one_right_and_names_that_where_it_lacks_it() {
    let needs = "ClusterRole mainstay-impersonates of manifests/rbac.yaml";
    let cases = [
        (&["mainstay-applies"][..], "True", ""),
        (&["mainstay-applies", "mainstay-impersonates"], "False ApplyFailed", needs),
    ];
    for (without, begins, says) in cases {
        let mut world = with_permissions(without);
        let metadata = json!({"name": "deployer", "namespace": NAMESPACE});
        world.create("v1", "serviceaccounts", NAMESPACE, json!({"metadata": metadata}));
        let verbs = ["get", "list", "create", "patch", "delete"];
        let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs});
        world.create(RBAC, "roles", NAMESPACE, json!({"metadata": metadata, "rules": [rule]}));
        let binding = json!({
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "deployer"},
            "subjects": [{"kind": "ServiceAccount", "name": "deployer", "namespace": NAMESPACE}],
        });
        world.create(RBAC, "rolebindings", NAMESPACE, binding);
        world.remote.file("map.yaml", config_map("map", "1")).commit("one");
        world.sync("demo", json!({"serviceAccountName": "deployer"}));
        world.start();
        let is = |w: &World| {
            let ready = w.condition("demo", "Ready");
            ready.starts_with(begins) && ready.contains(says)
        };
        world.until(&format!("Ready is {begins} and says {says:?}"), is).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apirules_are_served_with_the_rights_of_their_component_and_missing_rights_are_reported() {
    const API: &str = "gateway.kyma-project.io/v1alpha1";
    const ROUTES: (&str, &str) = ("networking.istio.io/v1beta1", "virtualservices");
    let mut world = with_permissions(&["mainstay-applies"]);
    let definitions = ("apiextensions.k8s.io/v1", "customresourcedefinitions");
    let mut all = vec![serde_json::to_value(mainstay_api::api_rule::definition()).unwrap()];
    for document in serde_yaml::Deserializer::from_str(devcluster::gateway::DEFINITIONS) {
        all.push(serde::Deserialize::deserialize(document).unwrap());
    }
    for one in all {
        world.create(definitions.0, definitions.1, "", one);
    }
    grant(&world, "manifests/exposure/rbac.yaml", &[]);
    world.start();
    world.create("v1", "services", NAMESPACE, json!({"metadata": {"name": "web", "namespace": NAMESPACE}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}));
    let strategy = json!({"handler": "noop"});
    let spec = json!({
        "gateway": "kyma-gateway.kyma-system.svc.cluster.local", "service": {"host": "web", "name": "web", "port": 80},
        "rules": [{"path": "/.*", "methods": ["GET"], "accessStrategies": [strategy]}],
    });
    world.create(API, "apirules", NAMESPACE, json!({"apiVersion": API, "kind": "APIRule", "metadata": {"name": "web", "namespace": NAMESPACE}, "spec": spec}));
    let code = |w: &World| w.get(API, "apirules", "web").map(|rule| rule["status"]["APIRuleStatus"]["code"].clone());
    world.until("it is served", |w| code(w) == Some(json!("OK"))).await;
    let open = json!([{"path": "/", "methods": ["GET"], "accessStrategies": [{"handler": "allow"}]}]);
    world.edit(API, "apirules", "web", json!({"spec": {"rules": open}}));
    world
        .until("its check is gone", |w| w.server.objects("oathkeeper.ory.sh/v1alpha1", "rules", None).is_empty())
        .await;
    assert_eq!(world.gate.forbidden(), [""; 0]);

    // The same check with Istio's policies.
    let kinds = [crate::exposure::istio::AUTHENTICATIONS, crate::exposure::istio::POLICIES];
    for kind in kinds {
        world.define(crate::exposure::definition(kind));
    }
    world.undefine("rules.oathkeeper.ory.sh");
    crate::exposure::istio::label_namespace(&world, json!({"istio-injection": "enabled"}));
    let config = json!({"trusted_issuers": ["https://issuer.example.com"]});
    let closed = json!([{"path": "/", "methods": ["GET"], "accessStrategies": [{"handler": "jwt", "config": config}]}]);
    let count = |w: &World, n: usize| kinds.iter().all(|kind| w.server.objects(kind.0, kind.1, None).len() == n);
    world.edit(API, "apirules", "web", json!({"spec": {"rules": closed}}));
    world.until("policies check it", |w| count(w, 1) && code(w) == Some(json!("OK"))).await;
    world.edit(API, "apirules", "web", json!({"spec": {"rules": open}}));
    world.until("they are gone", |w| count(w, 0)).await;
    assert_eq!(world.gate.forbidden(), [""; 0]);

    // The agent loses the permission to write policies.
    let role = json!([
        {"op": "replace", "path": "/rules/3/verbs", "value": ["get", "list", "watch"]},
    ]);
    let call = Call::new(
        RBAC,
        "clusterroles",
        "",
        "mainstay-exposes",
        Action::Patch(devcluster::verbs::patch::Form::Json, role),
    );
    world.try_as("test", call).unwrap();
    let service = world.server.objects(ROUTES.0, ROUTES.1, None).pop().unwrap();
    world.delete(ROUTES.0, ROUTES.1, service["metadata"]["name"].as_str().unwrap());
    let told = |w: &World| w.get(API, "apirules", "web").unwrap()["status"].to_string().contains("manifests/exposure");
    world.until("it is told", told).await;
}

#[test]
fn without_its_component_the_agent_has_no_right_that_only_knative_takes() {
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    let base = read("manifests/rbac.yaml");
    assert!(!base.contains("knative") && !base.contains("endpoints"));
    let component = read("manifests/knative/rbac.yaml");
    assert!(component.contains("serving.knative.dev") && component.contains("endpoints"));
    assert!(!read("manifests/kustomization.yaml").contains("knative"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_run_on_knative_with_the_rights_of_its_component_and_missing_rights_are_reported() {
    let mut world = with_permissions(&["mainstay-applies"]);
    world.knative_is_installed();
    world.knative_runs();
    world.start();
    let (label, mut function) = (json!({"mainstay.dev/serving": "knative"}), inline("1"));
    function["minReplicas"] = json!(0);
    let metadata = json!({"name": "hello", "namespace": NAMESPACE, "labels": label});
    let function = json!({"apiVersion": API, "kind": "Function", "metadata": metadata, "spec": function});
    world.create(API, "functions", NAMESPACE, function);
    world.says("hello", "Running", "False ServiceFailed: Knative Services cannot be watched").await;
    let said = world.said("hello", "Running");
    assert!(said.ends_with("manifests/knative has the required permissions"), "{said}");
    grant(&world, "manifests/knative/rbac.yaml", &[]);
    world.says("hello", "Running", "True ServiceReady").await;
    world.delete(KNATIVE.0, KNATIVE.1, "hello");
    world.until("it is back", |w| w.get(KNATIVE.0, KNATIVE.1, "hello").is_some()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usages_of_bindings_are_served_with_the_rights_of_their_component_and_functions_run_without_them() {
    const USAGES: (&str, &str) = ("servicecatalog.kyma-project.io/v1alpha1", "servicebindingusages");
    let mut world = with_permissions(&["mainstay-applies"]);
    for document in serde_yaml::Deserializer::from_str(devcluster::service_catalog::DEFINITIONS) {
        let definition: Value = serde::Deserialize::deserialize(document).unwrap();
        world.create("apiextensions.k8s.io/v1", "customresourcedefinitions", "", definition);
    }
    let spec =
        json!({"serviceBindingRef": {"name": "redis"}, "usedBy": {"kind": "serverless-function", "name": "hello"}});
    let metadata = json!({"name": "hello", "namespace": NAMESPACE});
    world.create(
        USAGES.0,
        USAGES.1,
        NAMESPACE,
        json!({"apiVersion": USAGES.0, "kind": "ServiceBindingUsage", "metadata": metadata, "spec": spec}),
    );
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    assert!(world.get(USAGES.0, USAGES.1, "hello").unwrap()["status"].is_null());
    world.stop().await;
    let forbidden = world.gate.forbidden().len();
    assert_ne!(forbidden, 0, "it asks for what it may not see");
    grant(&world, "manifests/bindings/rbac.yaml", &[]);
    world.start();
    let ready = |w: &World| w.get(USAGES.0, USAGES.1, "hello").unwrap()["status"]["conditions"][0].clone();
    world.until("it is told", |w| ready(w)["reason"] == "ServiceBindingGetError").await;
    let metadata = json!({"name": "redis", "namespace": NAMESPACE});
    let all = [
        (
            "serviceinstances",
            "ServiceInstance",
            json!({"serviceClassExternalName": "redis", "servicePlanExternalName": "micro"}),
        ),
        ("servicebindings", "ServiceBinding", json!({"instanceRef": {"name": "redis"}})),
    ];
    for (plural, kind, spec) in all {
        let api = "servicecatalog.k8s.io/v1beta1";
        world.create(
            api,
            plural,
            NAMESPACE,
            json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}),
        );
    }
    world.until("it is bound", |w| ready(w)["status"] == "True").await;
    assert_eq!(world.gate.forbidden().len(), forbidden, "{:?}", world.gate.forbidden());
}
