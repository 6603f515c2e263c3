//! Admission webhooks: the effects on `kubectl apply` of a Function.

use std::time::{Duration, Instant};

use devcluster::{Action, Call, verbs::delete::DeleteOptions};
use mainstay_cluster::certificate::Lifetimes;
use serde_json::{Value, json};

use mainstay_testkit::{
    admission::{NAME, WebhookClient},
    functions::{API, CONFIG_MAPS, DEPLOYMENTS, JOBS, SERVICES, inline},
    tls::{Pair, PrivateCa},
    world::{NAMESPACE, World},
};

const WEBHOOK: &str = "admission webhook \"validation.webhook.serverless.kyma-project.io\" denied the request: ";

fn function(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": API, "kind": "Function", "spec": spec, "metadata": {"name": name, "namespace": NAMESPACE},
    })
}

/// Returns a world whose agent serves admission webhooks.
async fn admitting() -> World {
    let mut world = World::with_functions().await;
    world.admit();
    world.start();
    world.admitting().await;
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_function_is_denied_with_all_that_is_wrong() {
    let world = admitting().await;
    let spec = json!({
        "runtime": "nodejs22", "source": "x", "deps": "{", "minReplicas": 2, "maxReplicas": 1,
        "env": [{"name": "FUNC_PORT", "value": "1"}],
    });
    let refused = world.try_create_function(function("hello", spec)).unwrap_err();
    let expected = format!(
        "{WEBHOOK}validation failed: invalid key name \"FUNC_PORT\": spec.env\nenv name is reserved for the serverless \
         domain\ninvalid value: deps should start with '{{' and end with '}}': spec.deps\ninvalid value: maxReplicas(1) is less \
         than minReplicas(2): spec.maxReplicas"
    );
    assert_eq!((refused.code, &refused.message), (400, &expected));
    assert!(world.get(API, "functions", "hello").is_none(), "it is not stored");
    world.try_create_function(function("hello", inline("1"))).unwrap();
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_was_invalid_before_can_be_labelled_and_deleted_but_not_changed_into_another_invalid_one() {
    let mut world = World::with_functions().await;
    let mut stored = function("old", inline(" "));
    stored["metadata"]["finalizers"] = json!(["example.org/held"]);
    world.try_create_function(stored).unwrap();
    world.admit();
    world.start();
    world.admitting().await;
    let change = |patch: Value| {
        let action = Action::Patch(devcluster::verbs::patch::Form::Merge, patch);
        world.try_as("kubectl-edit", Call::new(API, "functions", NAMESPACE, "old", action))
    };
    change(json!({"metadata": {"labels": {"team": "a"}}})).unwrap();
    let refused = change(json!({"spec": {"deps": "{"}})).unwrap_err();
    assert!(refused.message.contains("missing field(s): spec.source"), "{}", refused.message);
    let deletion = Action::Delete(DeleteOptions::default());
    world.try_as("kubectl", Call::new(API, "functions", NAMESPACE, "old", deletion)).unwrap();
    change(json!({"metadata": {"finalizers": null}})).unwrap();
    world.until("it is gone", |w| w.get(API, "functions", "old").is_none()).await;
}

/// Keys that injecting webhooks act on are denied with the condition's message, until the operator allows them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_steer_webhooks_reach_no_pod_until_the_operator_allows_them() {
    let mut world = World::with_functions().await;
    let key = "sidecar.istio.io/userVolume";
    let mut spec = inline("1");
    spec["annotations"] = json!({key: r#"[{"name": "node", "hostPath": {"path": "/"}}]"#});
    let mut stored = function("stored", spec.clone());
    stored["metadata"]["labels"] = json!({"azure.workload.identity/use": "true", "team": "a"});
    world.try_create_function(stored).unwrap();
    world.admit();
    world.start();
    world.admitting().await;
    let words = format!("the operator of this cluster has not allowed the annotation {key} on pods: spec.annotations");
    let refused = world.try_create_function(function("new", spec)).unwrap_err();
    assert!(refused.message.contains(&words) && refused.message.contains("MAINSTAY_POD_KEYS="), "{}", refused.message);
    world.says("stored", "ConfigurationReady", &format!("False SpecInvalid: invalid value: {words}")).await;
    assert!(world.children("stored", JOBS).is_empty() && world.children("stored", DEPLOYMENTS).is_empty());
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"MAINSTAY_POD_KEYS": "sidecar.istio.io/"},
        "metadata": {"name": "mainstay-settings", "namespace": NAMESPACE},
    });
    world.create("v1", "configmaps", NAMESPACE, map);
    world.runs("stored").await;
    let template = |kind| world.child("stored", kind)["spec"]["template"]["metadata"].clone();
    assert!(template(DEPLOYMENTS)["annotations"][key].is_string());
    // Labels of a Function are on its children, but not on pods.
    let (job, label) = (template(JOBS)["labels"].clone(), "azure.workload.identity/use");
    assert_eq!((&job["team"], &job[label]), (&json!("a"), &Value::Null));
    assert_eq!(world.child("stored", JOBS)["metadata"]["labels"][label], "true");
}

/// Kyma's documented samples of validation, with their messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_invalid_sample_is_denied_with_its_text() {
    let world = admitting().await;
    let env = |name: &str| json!({"env": [{"name": name, "value": "1"}]});
    let resources = |part: &str, name: &str, amount: &str| json!({"resources": {part: {name: amount}}});
    let build = |part: &str, name: &str, amount: &str| json!({"buildResources": {part: {name: amount}}});
    for (spec, expected) in [
        (json!({"source": "  \n"}), "missing field(s): spec.source"),
        (env("1A"), "invalid key name \"1A\": spec.env\na valid environment variable name must consist of"),
        (env("FUNC_PORT"), "invalid key name \"FUNC_PORT\": spec.env\nenv name is reserved for the serverless domain"),
        (json!({"labels": {"should BE": "not OK"}}), "invalid value: spec.labels: Invalid value: "),
        (
            json!({"minReplicas": 2, "maxReplicas": 1}),
            "invalid value: maxReplicas(1) is less than minReplicas(2): spec.maxReplicas",
        ),
        (
            json!({"minReplicas": 0}),
            "invalid value: minReplicas(0) is less than the smallest allowed value(1): spec.minReplicas",
        ),
        (
            resources("requests", "cpu", "9m"),
            "invalid value: requests cpu(9m) should be higher than minimal value (10m): spec.resources.requests.cpu",
        ),
        (
            resources("limits", "memory", "15Mi"),
            "invalid value: limits memory(15Mi) should be higher than minimal value (16Mi): spec.resources.limits.memory",
        ),
        (
            json!({"resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "50m"}}}),
            "invalid value: limits cpu(50m) should be higher than requests cpu(100m): spec.resources.limits.cpu",
        ),
        (
            build("requests", "memory", "199Mi"),
            "invalid value: requests memory(199Mi) should be higher than minimal value (200Mi): \
             spec.buildResources.requests.memory",
        ),
        (json!({"deps": "{"}), "invalid value: deps should start with '{' and end with '}': spec.deps"),
        (json!({"runtime": "cobol"}), "invalid value: cannot find runtime: cobol: spec.deps"),
        (json!({"type": "git", "source": "repo"}), "missing field(s): spec.baseDir, spec.reference"),
    ] {
        let mut whole = json!({"source": "x"});
        json_patch::merge(&mut whole, &spec);
        let refused = world.try_create_function(function("sample", whole)).expect_err(expected);
        let text = refused.message.strip_prefix(WEBHOOK).and_then(|text| text.strip_prefix("validation failed: "));
        assert!(text.is_some_and(|text| text.starts_with(expected)), "{spec}: {}", refused.message);
    }
    let name = format!("{}b", "a".repeat(63));
    let refused = world.try_create_function(function(&name, json!({"source": "x"}))).unwrap_err();
    assert!(refused.message.contains("must be no more than 63 characters"), "{}", refused.message);
    let repository = json!({
        "apiVersion": API, "kind": "GitRepository", "spec": {"url": "git@github.com:o/r.git"},
        "metadata": {"name": "ssh", "namespace": NAMESPACE},
    });
    let creation = Call::new(API, "gitrepositories", NAMESPACE, "", Action::Create(repository));
    let refused = world.try_as("test", creation).unwrap_err();
    assert!(refused.message.contains("denied the request: validation failed: "), "{}", refused.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defaults_are_no_drift_of_a_function_from_a_repository() {
    let mut world = World::with_functions().await;
    let manifest = |extra: &str| {
        format!(
            "apiVersion: {API}\nkind: Function\nmetadata: {{name: hello}}\nspec:\n  source: module.exports = {{}}\n{extra}"
        )
    };
    world.remote.file("f.yaml", manifest("  resources: {}\n")).commit("one");
    world.synced(json!({})).await;
    world.runs("hello").await;
    let before = world.function_now("hello").unwrap();
    assert!(before["spec"]["runtime"].is_null(), "nobody has written a default yet");
    let children = |w: &World| {
        [CONFIG_MAPS, JOBS, DEPLOYMENTS, SERVICES]
            .map(|kind| w.child("hello", kind)["metadata"]["resourceVersion"].clone())
    };
    // The image is rolled out before its Job becomes complete.
    let is_complete = |w: &World| w.child("hello", JOBS)["status"]["completionTime"].is_string();
    world.until_function("the Job is complete", is_complete).await;
    let as_built = children(&world);
    // An agent of the next release.
    world.stop().await;
    world.admit();
    world.start();
    world.admitting().await;
    world.remote.file("g.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n").commit("two");
    world.look();
    world.ready("demo").await;
    world.edit_function("hello", json!({"metadata": {"annotations": {"team": "a"}}}));
    let spec = world.function_now("hello").unwrap()["spec"].clone();
    assert_eq!((&spec["runtime"], &spec["minReplicas"]), (&json!("nodejs22"), &json!(1)), "{spec}");
    assert_eq!(spec["resources"]["limits"], json!({"cpu": "100m", "memory": "128Mi"}));
    world.quiet().await;
    let generation = world.function_now("hello").unwrap()["metadata"]["generation"].clone();
    world.until_function("it is looked at", |w| w.function_status("hello")["observedGeneration"] == generation).await;
    assert_eq!(children(&world), as_built, "nothing is built or restarted");
    assert_eq!(world.function_now("hello").unwrap()["spec"], spec, "no default is reverted");
    assert_eq!(world.status("demo")["reverted"].as_i64().unwrap_or(0), 0, "{:#}", world.status("demo"));
    // A later value in the repository replaces the written default.
    world.remote.file("f.yaml", manifest("  resources: {limits: {memory: 60Mi}}\n")).commit("three");
    world.look();
    world.ready("demo").await;
    let spec = world.function_now("hello").unwrap()["spec"].clone();
    assert_eq!(spec["resources"]["requests"]["memory"], "60Mi", "{spec}");
    // The GitSync reports the refusal of an invalid Function.
    world.remote.file("f.yaml", manifest("  maxReplicas: 0\n")).commit("four");
    world.look();
    world.until("the sync fails", |w| w.condition("demo", "Ready").contains("validation.webhook")).await;
    assert!(world.function_now("hello").unwrap()["spec"]["maxReplicas"] == 1, "it stays as it was");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_secret_is_completed_and_that_is_no_drift() {
    let mut world = World::new().await;
    world.admit();
    let secret = |password: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/dockerconfigjson\nmetadata:\n  name: external\n  labels: \
             {{serverless.kyma-project.io/remote-registry: config}}\nstringData: {{username: u, password: {password}, \
             serverAddress: https://r.example.org/v1/, registryAddress: r.example.org/u}}\n"
        )
    };
    // On other clusters, the agent may apply before the webhooks answer.
    world.start();
    world.admitting().await;
    world.remote.file("s.yaml", secret("p")).commit("one");
    world.sync("demo", json!({}));
    world.ready("demo").await;
    let file = |w: &World| {
        let live = w.get("v1", "secrets", "external").unwrap()["data"][".dockerconfigjson"].clone();
        let decoded = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, live.as_str().unwrap_or_default());
        String::from_utf8(decoded.unwrap()).unwrap()
    };
    assert_eq!(file(&world), r#"{"auths":{"https://r.example.org/v1/":{"auth":"dTpw"}}}"#);
    world.remote.file("s.yaml", secret("q")).commit("two");
    world.look();
    world.ready("demo").await;
    assert_eq!(file(&world), r#"{"auths":{"https://r.example.org/v1/":{"auth":"dTpx"}}}"#, "the new password");
    assert_eq!(world.status("demo")["reverted"].as_i64().unwrap_or(0), 0);
    // The webhook replaces a changed value, so there is no revert.
    let edit = json!({"data": {".dockerconfigjson": "e30="}});
    world.edit("v1", "secrets", "external", edit);
    assert_eq!(file(&world), r#"{"auths":{"https://r.example.org/v1/":{"auth":"dTpx"}}}"#);
    let metadata = json!({
        "name": "half", "namespace": NAMESPACE, "labels": {"serverless.kyma-project.io/remote-registry": "config"},
    });
    let half = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"username": "u"}});
    let refused = world.try_as("test", Call::new("v1", "secrets", NAMESPACE, "", Action::Create(half))).unwrap_err();
    assert!(refused.message.ends_with("password field not found"), "{}", refused.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_replaced_while_every_write_is_judged() {
    let mut world = World::with_functions().await;
    world.admit();
    let seconds = Duration::from_secs;
    // A real API server needs time to read an announced authority. The second certificate is served after 10 s and the
    // third one after 18 s. None of them expires in this test.
    let lifetimes = Lifetimes { valid: seconds(300), renew_before: seconds(298), announced: seconds(8) };
    world.admit.as_mut().unwrap().lifetimes = lifetimes;
    world.start();
    world.admitting().await;
    let served = |w: &World| w.get("v1", "secrets", NAME).unwrap()["data"]["tls.crt"].clone();
    let (mut seen, began) = (vec![served(&world)], Instant::now());
    while seen.len() < 3 {
        let refused = world.try_create_function(function("probe", json!({"source": " "})));
        assert!(refused.is_err_and(|refused| refused.message.starts_with(WEBHOOK)), "after {:?}", began.elapsed());
        let now = served(&world);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        assert!(began.elapsed() < seconds(150), "they are replaced");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The configurations are applied without `caBundle`, or with a different `caBundle`.
    for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        let operations = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "Cg=="}]);
        let action = Action::Patch(devcluster::verbs::patch::Form::Json, operations);
        world.try_as("kubectl", Call::new("admissionregistration.k8s.io/v1", kind, "", NAME, action)).unwrap();
    }
    world.admitting().await;
    // Deleted configurations stay deleted. A deleted certificate is created again.
    world.delete("v1", "secrets", NAME);
    world.until("there is another", |w| w.get("v1", "secrets", NAME).is_some()).await;
    world.admitting().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_finds_all_in_order_writes_nothing_and_reads_nothing_again() {
    let mut world = admitting().await;
    let asked = |world: &World| {
        let kinds = ["secrets", "webhookconfigurations", "customresourcedefinitions"];
        let requests = world.requests().into_iter().filter(|(what, _)| {
            !what.starts_with("watch") && !what.starts_with("list") && kinds.iter().any(|kind| what.contains(kind))
        });
        requests.collect::<Vec<_>>()
    };
    world.stop().await;
    let before = asked(&world);
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(asked(&world), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_away_stops_no_write() {
    let mut world = admitting().await;
    world.stop().await;
    world.admit = None;
    let mut spec = inline("1");
    spec["maxReplicas"] = json!(0);
    world.try_create_function(function("hello", spec)).unwrap();
    // The condition reports problems that the webhook missed.
    world.start();
    world.says("hello", "ConfigurationReady", "False SpecInvalid: invalid value: maxReplicas(0)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operators_settings_hold_for_the_webhooks() {
    let world = admitting().await;
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"WEBHOOK_DEFAULTING_FUNCTION_RESOURCES_DEFAULT_PRESET": "L"},
        "metadata": {"name": "mainstay-settings", "namespace": NAMESPACE},
    });
    world.create("v1", "configmaps", NAMESPACE, settings);
    let is_large = |w: &World| {
        let made = w.try_create_function(function("sized", json!({"source": "x"}))).unwrap();
        w.delete_function("sized");
        made["spec"]["resources"]["requests"]["cpu"] == "100m"
    };
    world.until("the preset is the default", is_large).await;
}

/// Returns a client for the webhooks of a world.
fn client(world: &World) -> WebhookClient {
    WebhookClient::new(world, world.admit.as_ref().unwrap().address().unwrap(), None).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_reviews_are_answered_and_cost_little() {
    let world = admitting().await;
    let path = "/validation/function";
    let json = |length: usize| format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
    let review = |object: &str| {
        format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"CREATE","object":{object}}}}}"#
        )
    };
    let many = review(&format!("[{}0]", "0,".repeat(1_000_000)));
    let deep = "[".repeat(1_000_000);
    for (method, path, head, body, expected) in [
        ("GET", path, String::new(), "", "405 a webhook takes POST only"),
        ("POST", "/", json(2), "{}", "404 there is no webhook at this path"),
        ("POST", path, "Content-Length: 2\r\n".into(), "{}", "415 invalid Content-Type, want `application/json`"),
        (
            "POST",
            path,
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n".into(),
            "0\r\n\r\n",
            "411 a webhook wants a Content-Length",
        ),
        // No conversion webhook is configured, so the body is not read.
        ("POST", "/convert", json(24 << 20), "", "404 there is no webhook at this path"),
        ("POST", path, json(5 << 20), "", "413 the review is larger than 4 MiB"),
        ("POST", path, json(2), "{}", "400 could not decode body: it is not an AdmissionReview"),
        ("POST", path, json(deep.len()), &deep, "400 could not decode body: it is not an AdmissionReview"),
        (
            "POST",
            path,
            json(many.len()),
            &many,
            "400 the object has more values, or is nested deeper, than is looked at",
        ),
    ] {
        let answer = client(&world).send(method, path, &head, body.as_bytes()).await;
        assert!(answer.starts_with(expected), "{method} {path} {head}: {answer}");
    }
    // An object that is not a Function is accepted, because its schema refuses it.
    for object in ["{}", "[]", "7", r#"{"metadata":{},"spec":{"source":7}}"#] {
        let body = review(object);
        let answer = client(&world).send("POST", path, &json(body.len()), body.as_bytes()).await;
        assert!(answer.starts_with("200 ") && answer.contains(r#""allowed":true"#), "{object}: {answer}");
    }
    // Silent clients do not block others.
    let address = world.admit.as_ref().unwrap().address().unwrap();
    let silent: Vec<_> = (0..200).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    let refused = world.try_create_function(function("probe", json!({"source": " "}))).unwrap_err();
    assert!(refused.message.starts_with(WEBHOOK), "{}", refused.message);
    drop(silent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_changes_of_a_bundle_are_reverted_ever_less_often() {
    const CONFIGURATIONS: (&str, &str) = ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations");
    let world = admitting().await;
    let live = || world.server.object(CONFIGURATIONS.0, CONFIGURATIONS.1, "", NAME).unwrap();
    let bundle = || live()["webhooks"][0]["clientConfig"]["caBundle"].clone();
    let applies = || {
        let requests = world.requests();
        requests.iter().filter(|(what, _)| what.starts_with("apply validatingwebhook")).map(|(_, n)| *n).sum::<u64>()
    };
    let (right, before, began) = (bundle(), applies(), Instant::now());
    for _ in 0..40 {
        let other = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "Cg=="}]);
        let action = Action::Patch(devcluster::verbs::patch::Form::Json, other);
        world.try_as("another", Call::new(CONFIGURATIONS.0, CONFIGURATIONS.1, "", NAME, action)).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.until("it is reverted", |_| bundle() == right).await;
    let put_back = applies() - before;
    // The delays are 1 s, 2 s, 4 s …
    let most = 1.0 + (1.0 + began.elapsed().as_secs_f64()).log2();
    assert!((1.0..=most).contains(&(put_back as f64)), "{put_back} writes in {:?}", began.elapsed());
}

const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io/v1", "customresourcedefinitions");
const DEFINITION: &str = "functions.serverless.kyma-project.io";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_are_converted_for_who_trusts_the_agent() {
    let world = admitting().await;
    let live = || world.server.object(DEFINITIONS.0, DEFINITIONS.1, "", DEFINITION).unwrap();
    let client = || live()["spec"]["conversion"]["webhook"]["clientConfig"].clone();
    let address = world.admit.as_ref().unwrap().address().unwrap();
    let right = world.webhook_configurations()[0]["webhooks"][0]["clientConfig"]["caBundle"].clone();
    // A conversion by another webhook is left unchanged.
    world.convert_at(Some("https://127.0.0.1:1/other".into()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(client()["caBundle"], Value::Null);
    world.convert_at(Some(format!("https://{address}/convert")));
    world.until("the definition trusts the webhook", |_| client()["caBundle"] == right).await;
    assert_eq!(client()["url"], format!("https://{address}/convert"));
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u", "desiredAPIVersion": "serverless.kyma-project.io/v1alpha2", "objects": [function("a", inline("1"))]},
    })
    .to_string();
    let client_of_it = self::client(&world);
    // The agent learns of the conversion webhook through two watches.
    let answer = loop {
        let answer = client_of_it.post("/convert", review.as_bytes()).await;
        if !answer.starts_with("404") {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let answer: Value = serde_json::from_str(answer.strip_prefix("200 ").unwrap()).unwrap();
    let converted = &answer["response"]["convertedObjects"][0];
    assert_eq!(converted["apiVersion"], "serverless.kyma-project.io/v1alpha2");
    assert_eq!(converted["spec"]["source"]["inline"]["source"], inline("1")["source"]);
    let answer = client_of_it.post("/convert", b"{}").await;
    assert!(answer.starts_with("400 could not decode body: it is not a ConversionReview"), "{answer}");
    world.convert_at(None);
    while !client_of_it.post("/convert", b"{}").await.starts_with("404 there is no webhook at this path") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An API server presents a certificate to webhooks if its AdmissionConfiguration says so, but never for conversion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_are_judged_only_for_api_servers_that_have_the_certificate() {
    let mut world = World::with_functions().await;
    world.admit();
    let (ours, other) = (PrivateCa::new(), PrivateCa::new());
    let admit = world.admit.as_mut().unwrap();
    admit.client_authorities = Some(std::sync::Arc::new(ours.store()));
    let address = admit.address().unwrap();
    world.convert_at(Some(format!("https://{address}/convert")));
    world.start();
    let client = |pair: Option<&Pair>| WebhookClient::new(&world, address, pair);
    world.until("the webhooks are trusted", |_| client(None).is_some()).await;
    let (stranger, forged, server) = (
        client(None).unwrap(),
        client(Some(&other.issue("kube-apiserver"))).unwrap(),
        client(Some(&ours.issue("kube-apiserver"))).unwrap(),
    );
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u", "operation": "CREATE", "object": function("a", json!({"source": " "}))},
    });
    let review = review.to_string();
    let path = "/validation/function";
    let denied = async || server.post(path, review.as_bytes()).await.contains("missing field(s): spec.source");
    while !denied().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let refused = stranger.post(path, review.as_bytes()).await;
    assert_eq!(refused, "401 a webhook wants the client certificate of an API server");
    assert_eq!(
        forged.post(path, review.as_bytes()).await.trim(),
        "",
        "a certificate of another authority ends the handshake"
    );
    while !stranger.post("/convert", b"{}").await.starts_with("400 ") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.convert_at(None);
}

/// Prints the latency that the webhooks add to a write. It asserts nothing about slow or busy machines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_waits_little_for_the_webhooks() {
    const WRITES: usize = 200;
    fn writes(world: &World) -> Vec<Duration> {
        world.try_create_function(function("timed", json!({"source": "x"}))).unwrap();
        let mut took: Vec<_> = (0..WRITES)
            .map(|n| {
                let began = Instant::now();
                world.edit_function("timed", json!({"spec": {"source": format!("module.exports = {n}")}}));
                began.elapsed()
            })
            .collect();
        world.delete_function("timed");
        took.sort();
        took
    }
    let mut world = World::new().await;
    let without = writes(&world);
    world.admit();
    world.start();
    world.admitting().await;
    let with = writes(&world);
    let added = |at: usize| with[at].saturating_sub(without[at]);
    println!("two webhooks add to a write: p50 {:?}, p99 {:?}", added(WRITES / 2), added(WRITES * 99 / 100));
    assert!(added(WRITES / 2) < Duration::from_millis(500));
}
