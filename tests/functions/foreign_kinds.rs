//! Checks objects of other projects' kinds against the projects' own CRDs, if `.ci/real` has them. Every write uses
//! strict validation, the server keeps all fields, and applying again changes nothing.

use crate::exposure::ExposureWorld as _;
use std::collections::BTreeMap;

use devcluster::verbs::patch::Form;
use devcluster::{Action, Call};
use serde_json::{Value, json};

use crate::exposure::istio::{AUTHENTICATIONS, POLICIES, label_namespace};
use crate::exposure::{ROUTES, RULES, SERVICES, path, with_rules, world_with};
use mainstay_testkit::definitions::{definition, of_stream};
use mainstay_testkit::functions::{API, inline};
use mainstay_testkit::knative::{KNATIVE, is_real};
use mainstay_testkit::program::Program;
use mainstay_testkit::world::{NAMESPACE, World};

/// Returns the objects of these kinds that an agent has sent since the gate started recording, by path.
fn sent(world: &World, kinds: &[(&str, &str)]) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for heard in world.gate.heard() {
        let Some((path, query)) = heard.asked.strip_prefix("PATCH ").and_then(|asked| asked.split_once('?')) else {
            continue;
        };
        let parts: Vec<&str> = path.split('/').collect();
        let ["", "apis", group, _, "namespaces", _, plural, _] = parts[..] else { continue };
        let is_of = |kind: &&(&str, &str)| kind.1 == plural && kind.0.starts_with(&format!("{group}/"));
        if kinds.iter().any(|kind| is_of(&kind)) {
            assert!(query.contains("fieldValidation=Strict"), "{path}?{query}");
            let mut object: Value = serde_json::from_slice(&heard.sent).unwrap();
            // The resource version requires that the object does not exist yet. A server does not store this value.
            object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            all.insert(path.to_owned(), object);
        }
    }
    all
}

/// Returns an object by its path.
fn live(world: &World, path: &str) -> Value {
    let [_, _, group, version, _, namespace, plural, name] = parts(path);
    let found = world.server.object(&format!("{group}/{version}"), plural, namespace, name);
    Value::clone(&found.unwrap_or_else(|| panic!("{path} is not there")))
}

/// Returns the paths of sent values that are missing or different in the object.
fn lost(sent: &Value, live: &Value, at: &str) -> Vec<String> {
    match (sent, live) {
        (Value::Object(fields), Value::Object(_)) => {
            fields.iter().flat_map(|(name, value)| lost(value, &live[name.as_str()], &format!("{at}.{name}"))).collect()
        }
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => {
            items.iter().zip(others).enumerate().flat_map(|(n, (a, b))| lost(a, b, &format!("{at}[{n}]"))).collect()
        }
        _ if sent == live => Vec::new(),
        // Knative's admission removes an empty value of a variable.
        (Value::String(text), Value::Null) if text.is_empty() && is_real() => Vec::new(),
        _ => vec![format!("{at}: {sent} is {live}")],
    }
}

fn versions(world: &World, paths: &BTreeMap<String, Value>) -> Vec<Value> {
    paths.keys().map(|path| live(world, path)["metadata"]["resourceVersion"].clone()).collect()
}

/// Makes the agent serve an APIRule with these paths until its status has this condition. Returns the created objects.
async fn judge(kinds: &[(&str, &str)], rules: &[Value], condition: &str) -> Vec<Value> {
    let mut world = world_with(kinds).await;
    world.service(NAMESPACE, "my-function", "127.0.0.1:9".parse().unwrap());
    world.gate.record();
    world.start();
    world.api_rule(with_rules(json!(rules)));
    world.rule_is_said(condition).await;
    world.quiet().await;
    let all = is_kept(&world, kinds);
    // Another agent applies all objects again.
    let before = versions(&world, &all);
    world.kill().await;
    world.gate.record();
    world.start();
    world.until("all of it is sent again", |w| sent(w, kinds).len() == all.len()).await;
    world.quiet().await;
    assert_eq!(versions(&world, &all), before, "nothing changes");
    all.into_values().collect()
}

/// Checks that all sent objects of these kinds are stored completely, and that applying them again changes nothing.
fn is_kept(world: &World, kinds: &[(&str, &str)]) -> BTreeMap<String, Value> {
    let all = sent(world, kinds);
    assert!(!all.is_empty(), "nothing was sent");
    let losses: Vec<String> = all.iter().flat_map(|(path, sent)| lost(sent, &live(world, path), path)).collect();
    assert_eq!(losses, [""; 0]);
    for (path, sent) in &all {
        let before = live(world, path);
        let managers = before["metadata"]["managedFields"].as_array().unwrap();
        let manager = managers.iter().find(|entry| entry["operation"] == "Apply").unwrap()["manager"].as_str().unwrap();
        let [_, _, group, version, _, namespace, plural, name] = parts(path);
        let again = Action::Patch(Form::Apply, sent.clone());
        let call = Call::new(&format!("{group}/{version}"), plural, namespace, name, again);
        let after = world.try_as(manager, call).unwrap();
        assert_eq!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"], "{path}");
    }
    all
}

/// Splits `/apis/GROUP/VERSION/namespaces/NAMESPACE/PLURAL/NAME`.
fn parts(path: &str) -> [&str; 8] {
    path.split('/').collect::<Vec<_>>().try_into().unwrap()
}

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// Returns open paths with all features of a path.
fn open_paths() -> Vec<Value> {
    vec![
        path("/open", &["GET"], "allow", Value::Null),
        path("/all", &METHODS, "noop", json!({})),
        // Paths that are not valid exact paths in the Gateway API.
        path("/twice//slashed", &["GET"], "noop", json!({})),
        path("/escaped%2Fslash", &["GET"], "noop", json!({})),
        path("/no%zzescape", &["GET"], "noop", json!({})),
        path("/a/[a-z]{1,3}/(b|c)+/.*", &["GET", "POST"], "noop", json!({})),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn istio_and_oathkeeper_keep_what_is_made_for_them() {
    let jwt = json!({
        "trusted_issuers": ["https://issuer.example.com"], "jwks_urls": ["https://issuer.example.com/keys"],
        "required_scope": ["read", "write"], "allowed_algorithms": ["RS256"], "target_audience": null,
        "token_from": {"header": "X-Token"},
    });
    let introspection = json!({
        "introspection_url": "https://issuer.example.com/introspect", "required_scope": ["read"],
        "cache": {"enabled": true, "ttl": "5m"}, "pre_authorization": {"enabled": false, "scope": []},
    });
    let mut several = path("/several", &["GET"], "jwt", jwt);
    several["accessStrategies"]
        .as_array_mut()
        .unwrap()
        .push(json!({"handler": "oauth2_introspection", "config": introspection}));
    several["mutators"] = json!([
        {"handler": "header", "config": {"headers": {"X-User": "{{ print .Subject }}", "X-Empty": ""}}}, {"handler": "noop"},
        {"handler": "id_token", "config": {"claims": "{\"aud\": [\"a\"]}"}},
    ]);
    let mut paths = open_paths();
    paths.push(several);
    for handler in ["unauthorized", "anonymous", "cookie_session", "oauth2_client_credentials"] {
        paths.push(path(&format!("/{handler}"), &["GET"], handler, Value::Null));
    }
    let made = judge(&[SERVICES, RULES], &paths, "True Served").await;
    assert_eq!(made.len(), paths.len(), "a route, and a Rule for each path but the open one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn istio_alone_keeps_what_is_made_for_it() {
    let made = judge(&[SERVICES], &open_paths(), "True Served").await;
    assert_eq!(made[0]["spec"]["http"].as_array().unwrap().len(), open_paths().len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn istio_alone_keeps_what_checks_tokens() {
    let kinds = [SERVICES, AUTHENTICATIONS, POLICIES];
    let mut world = world_with(&kinds).await;
    world.service(NAMESPACE, "my-function", "127.0.0.1:9".parse().unwrap());
    world.edit("v1", "services", "my-function", json!({"spec": {"selector": {"app": "my-function"}}}));
    label_namespace(&world, json!({"istio-injection": "enabled"}));
    world.gate.record();
    world.start();
    let jwt = json!({
        "trusted_issuers": ["https://issuer.example.com"], "jwks_urls": ["https://issuer.example.com/keys"],
        "required_scope": ["read", "write"], "target_audience": ["us"],
    });
    let elsewhere = |issuer: &str, place: Value| {
        let mut other = jwt.clone();
        (other["trusted_issuers"], other["token_from"]) = (json!([issuer]), place);
        other
    };
    let rules = [
        path("/open", &["GET"], "allow", Value::Null),
        path("/one", &METHODS, "jwt", jwt.clone()),
        path("/below/.*", &["GET"], "jwt", elsewhere("https://b.example.com", json!({"header": "X-Token"}))),
        path("/parameter", &["GET"], "jwt", elsewhere("https://c.example.com", json!({"query_parameter": "token"}))),
    ];
    world.api_rule(with_rules(json!(rules)));
    world.rule_is_said("True Served").await;
    world.quiet().await;
    assert_eq!(is_kept(&world, &kinds).len(), 5, "a route, whose tokens are read, and a policy for each path");
    label_namespace(&world, json!({"istio-injection": null}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_api_keeps_what_is_made_for_it() {
    let made = judge(&[ROUTES], &open_paths(), "Unknown NotAccepted").await;
    assert_eq!(made[0]["spec"]["rules"].as_array().unwrap().len(), open_paths().len());
    // More paths than one route supports.
    let many: Vec<Value> = (0..40).map(|at| path(&format!("/{at}"), &METHODS, "noop", json!({}))).collect();
    assert_eq!(judge(&[ROUTES], &many, "Unknown NotAccepted").await.len(), 3);
}

/// References in the configuration of a Function, in both schemas.
const REFERS: &str = "triggers:
    - eventTypeVersion: v1
      source: orders
      type: created
apiRules:
    - service:
          host: hello.example.org
      rules:
          - methods: [GET, POST]
          - path: /jwt
            methods: [GET]
            accessStrategies:
                - handler: jwt
                  config:
                      jwksUrls: [https://issuer.example.com/keys]
                      trustedIssuers: [https://issuer.example.com]
                      requiredScope: [read]
";
const OLDER: &str = "subscriptions:
    - name: older
      protocol: \"\"
      filter:
          filters:
              - eventSource: {property: source, type: exact, value: \"\"}
                eventType: {property: type, type: exact, value: sap.kyma.custom.shop.order.created.v1}
";
const NEWER: &str = "schemaVersion: v1
subscriptions:
    - name: newer
      source: shop
      types: [order.created.v1]
      typeMatching: standard
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_of_a_function_configuration_are_kept_as_printed() {
    let world = World::with_functions().await;
    let api_rules = include_str!("../../manifests/exposure/crd.yaml");
    world.define_only(vec![
        // Knative's own CRD is of a later version.
        of_stream("triggers.eventing.knative.dev", mainstay_eventing::DEFINITIONS),
        definition("subscriptions.eventing.kyma-project.io", mainstay_eventing::DEFINITIONS),
        definition("apirules.gateway.kyma-project.io", api_rules),
    ]);
    let program = Program::of(&world).await;
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("hello").display().to_string();
    let run = async |arguments: &[&str]| {
        let (code, out, error) = program.run(arguments).await;
        assert_eq!(code, 0, "{arguments:?}: {out}{error}");
        out
    };
    run(&["function", "init", "--name", "hello", "-n", NAMESPACE, "--dir", &directory]).await;
    let file = format!("{directory}/config.yaml");
    let bare = std::fs::read_to_string(&file).unwrap();
    let definitions = world.server.objects("apiextensions.k8s.io/v1", "customresourcedefinitions", None);
    let serves_newer = definitions.iter().any(|one| {
        let versions = one["spec"]["versions"].as_array().unwrap();
        one["spec"]["group"] == "eventing.kyma-project.io"
            && versions.iter().any(|version| version["name"] == "v1alpha2")
    });
    for more in [OLDER, NEWER].into_iter().take(if serves_newer { 2 } else { 1 }) {
        std::fs::write(&file, format!("{bare}{REFERS}{more}")).unwrap();
        let printed = run(&["function", "apply", "--filename", &file, "--dry-run", "-o", "json"]).await;
        let printed: Vec<Value> =
            serde_json::Deserializer::from_str(&printed).into_iter().map(Result::unwrap).collect();
        assert_eq!(printed.len(), 4, "a Function, a Trigger, a Subscription and an APIRule");
        run(&["function", "apply", "--filename", &file]).await;
        let all: BTreeMap<String, Value> = printed.into_iter().map(|one| (path_of(&one), one)).collect();
        let losses: Vec<String> = all.iter().flat_map(|(path, sent)| lost(sent, &live(&world, path), path)).collect();
        assert_eq!(losses, [""; 0]);
        let before = versions(&world, &all);
        let said = run(&["function", "apply", "--filename", &file]).await;
        assert!(said.lines().all(|line| line.ends_with(" unchanged")), "{said}");
        assert_eq!(versions(&world, &all), before, "nothing changes");
    }
}

/// Returns the path of an object outside of the core group.
fn path_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let plural = format!("{}s", text(&object["kind"]).to_lowercase());
    format!(
        "/apis/{}/namespaces/{}/{plural}/{}",
        text(&object["apiVersion"]),
        text(&object["metadata"]["namespace"]),
        text(&object["metadata"]["name"]),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn knative_keeps_what_is_made_of_a_function() {
    let mut world = World::without_knative().await;
    world.knative_is_installed();
    world.knative_runs();
    world.gate.record();
    world.start();
    world.set_secret("credentials", json!({"key": "value"}));
    let mut spec = inline("1");
    spec["labels"] = json!({"app": "shop"});
    spec["annotations"] = json!({"note": "x"});
    spec["env"] = json!([
        {"name": "A", "value": "1"}, {"name": "EMPTY", "value": ""},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "credentials", "key": "key", "optional": true}}},
    ]);
    spec["secretMounts"] = json!([{"secretName": "credentials", "mountPath": "/var/credentials"}]);
    spec["resources"] =
        json!({"limits": {"cpu": "1", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "256Mi"}});
    let metadata = json!({"name": "hello", "namespace": NAMESPACE, "labels": {"mainstay.dev/serving": "knative"}});
    let function = json!({"apiVersion": API, "kind": "Function", "metadata": metadata, "spec": spec});
    world.create(API, "functions", NAMESPACE, function);
    world.says("hello", "Running", "True ServiceReady").await;
    world.quiet().await;
    is_kept(&world, &[KNATIVE]);
}
