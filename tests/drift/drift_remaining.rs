//! Remaining drift: differences that are not reverted appear in the status, in the counts and in `mainstay status`.

use devcluster::verbs::patch::Form;
use serde_json::{Value, json};

use mainstay_testkit::drift::{fence, patch_as, revert_of, synced};
use mainstay_testkit::program::mainstay;
use mainstay_testkit::world::{World, config_map};

const A: (&str, &str, &str) = ("v1", "configmaps", "a");
const WEB: (&str, &str, &str) = ("v1", "services", "web");
const LABEL: &str = "mainstay.dev/sync";

fn service() -> String {
    "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n"
        .to_owned()
}

fn put(world: &World, value: &str) {
    world.edit(A.0, A.1, A.2, json!({"data": {"key": value}}));
}

/// Returns the remaining drift of an object.
fn drifted(world: &World, name: &str) -> Value {
    let status = world.status("demo");
    let all = status["drifted"].as_array().cloned().unwrap_or_default();
    let is_of = |one: &Value| one["object"].as_str().is_some_and(|object| object.ends_with(&format!("/{name}")));
    all.into_iter().find(is_of).unwrap_or_default()
}

async fn until_none(world: &World) {
    world.until("nothing differs", |w| w.condition("demo", "Drifted") == "False NotDrifted: ").await;
    let status = world.status("demo");
    assert_eq!((&status["driftedObjects"], &status["drifted"]), (&json!(0), &Value::Null));
    assert_eq!(status["healthy"], status["objects"], "{status:#}");
}

/// Creates a Service and a ConfigMap under the policy Report.
async fn reporting() -> World {
    let world = synced(&[("web.yaml", service()), ("a.yaml", config_map("a", "1"))]).await;
    world.change("demo", json!({"drift": "Report"})).await;
    until_none(&world).await;
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_object_that_is_only_reported_is_no_healthy_one_and_a_difference() {
    let world = reporting().await;
    let (code, said) = mainstay(&world, &["status", "demo"]).await;
    assert_eq!(code, 0, "{said}");
    world.delete(WEB.0, WEB.1, WEB.2);
    world.until("its absence is in the status", |w| !drifted(w, "web").is_null()).await;
    let (status, web) = (world.status("demo"), drifted(&world, "web"));
    assert_eq!(
        (&web["fields"], &web["reason"], &web["who"]),
        (&json!(["(object)"]), &json!("Report"), &json!("unknown"))
    );
    assert_eq!((&status["objects"], &status["healthy"], &status["driftedObjects"]), (&json!(3), &json!(2), &json!(1)));
    assert!(world.condition("demo", "Healthy").starts_with("False ObjectMissing"), "{status:#}");
    let text = "True Drifted: 1 object differs from the repository: Service mainstay-tests/web does not exist (spec.drift is Report)";
    assert_eq!(world.condition("demo", "Drifted"), text);
    // Ready covers the applied commit. Other conditions report later changes.
    let ready = world.condition("demo", "Ready");
    assert!(ready.starts_with("True Applied") && ready.contains("1 object differs"), "{ready}");
    let (code, said) = mainstay(&world, &["status", "demo"]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("3 managed, 2 healthy, 0 failed, 1 drifted\n"), "{said}");
    assert!(said.contains("Service mainstay-tests/web does not exist, for"), "{said}");
    world.ask("demo").await;
    assert!(world.condition("demo", "Ready").starts_with("True"), "a sync does not wait for what is only reported");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_field_that_is_only_reported_is_named_until_somebody_puts_it_back() {
    let world = reporting().await;
    put(&world, "changed");
    world.until("the change is in the status", |w| !drifted(w, "a").is_null()).await;
    let a = drifted(&world, "a");
    assert_eq!((&a["fields"], &a["who"]), (&json!(["data.key"]), &json!("kubectl-edit")));
    assert_eq!(a["changes"], json!([{"field": "data.key", "found": "\"changed\"", "restored": "\"1\""}]));
    assert_eq!(world.status("demo")["healthy"], 3, "what is there is as healthy as before");
    put(&world, "another");
    let found = |w: &World| drifted(w, "a")["changes"][0]["found"].clone();
    world.until("what was found last is in the status", |w| found(w) == "\"another\"").await;
    assert_eq!(drifted(&world, "a")["since"], a["since"], "it differs since the first change");
    let (code, said) = mainstay(&world, &["diff", "demo"]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("\n    data.key\n  -   \"another\"\n  +   \"1\"\n"), "{said}");
    let (_, said) = mainstay(&world, &["diff", "demo", "-o", "json"]).await;
    let facts: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(facts["items"][0]["drifted"][0]["changes"][0]["restored"], "\"1\"");
    put(&world, "1");
    until_none(&world).await;
    let (code, said) = mainstay(&world, &["diff"]).await;
    assert_eq!((code, said.contains("nothing differs from commit")), (0, true), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_restored_by_hand_under_the_policy_report_is_seen_with_and_without_our_label() {
    let world = reporting().await;
    let whole = |labels: Value| {
        let metadata = json!({"name": "web", "namespace": "mainstay-tests", "labels": labels});
        let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    };
    let fields = |w: &World| drifted(w, "web")["fields"].clone();
    for again in 0..2 {
        world.delete(WEB.0, WEB.1, WEB.2);
        world.until("it is missed", |w| fields(w) == json!(["(object)"])).await;
        if again == 0 {
            world.create(WEB.0, WEB.1, "mainstay-tests", whole(json!({LABEL: "mainstay-tests.demo"})));
        } else {
            // The label is the only difference: `kubectl apply` of the manifest does not set it.
            world.create(WEB.0, WEB.1, "mainstay-tests", whole(json!({})));
            let label = format!("metadata.labels[{LABEL}]");
            world.until("it lacks the label", |w| fields(w) == json!([label])).await;
            assert_eq!(world.status("demo")["healthy"], 3);
            world.edit(WEB.0, WEB.1, WEB.2, json!({"metadata": {"labels": {LABEL: "mainstay-tests.demo"}}}));
        }
        until_none(&world).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_agent_finds_reported_drift_with_its_time() {
    let mut world = reporting().await;
    world.delete(WEB.0, WEB.1, WEB.2);
    put(&world, "changed");
    world.until("both are in the status", |w| w.status("demo")["driftedObjects"] == 2).await;
    let before = [drifted(&world, "a"), drifted(&world, "web")];
    world.stop().await;
    world.start();
    world.ask("demo").await;
    assert_eq!(world.status("demo")["driftedObjects"], 2, "nobody says that it is gone before anybody has looked");
    assert_eq!([drifted(&world, "a"), drifted(&world, "web")], before);
    // Drift that was reverted in the meantime is found, too.
    world.stop().await;
    put(&world, "1");
    world.start();
    world.until("one is left", |w| w.status("demo")["driftedObjects"] == 1).await;
    assert_eq!(drifted(&world, "web"), before[1]);
    world.change("demo", json!({"drift": "Revert"})).await;
    until_none(&world).await;
}

/// Changes an object until the backoff of its next revert is several seconds.
async fn fight(world: &mut World) {
    for round in 0..8 {
        patch_as(world, "other", A, Form::Merge, json!({"data": {"key": format!("theirs {round}")}}));
        revert_of(world, "a").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_waits_out_a_fight_differs_until_its_next_attempt() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    fight(&mut world).await;
    patch_as(&world, "other", A, Form::Merge, json!({"data": {"key": "theirs again"}}));
    world.until("the change is in the status", |w| !drifted(w, "a").is_null()).await;
    let a = drifted(&world, "a");
    assert_eq!((&a["reason"], &a["who"], &a["fields"]), (&json!("Backoff"), &json!("other"), &json!(["data.key"])));
    assert_eq!(a["changes"], json!([{"field": "data.key", "found": "\"theirs again\"", "restored": "\"1\""}]));
    assert!(a["nextAttempt"].as_str() > a["since"].as_str(), "{a:#}");
    let (code, said) = mainstay(&world, &["status", "demo"]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("it keeps being changed; next attempt "), "{said}");
    assert!(world.condition("demo", "Ready").starts_with("True"));
    until_none(&world).await;
    assert_eq!(world.data("a"), "1");
    world.delete(A.0, A.1, A.2);
    world.until("its absence is in the status", |w| drifted(w, "a")["fields"] == json!(["(object)"])).await;
    assert_eq!(world.status("demo")["healthy"], 1);
    until_none(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_object_that_differs_is_said_to() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    let glass = |on: Value| json!({"metadata": {"annotations": {"mainstay.dev/reconcile": on}}});
    world.edit(A.0, A.1, A.2, glass(json!("disabled")));
    world.until("it is paused", |w| w.status("demo")["paused"].is_array()).await;
    assert_eq!(world.condition("demo", "Drifted"), "False NotDrifted: ", "nothing differs yet");
    put(&world, "changed");
    world.until("the change is in the status", |w| !drifted(w, "a").is_null()).await;
    let a = drifted(&world, "a");
    assert_eq!(
        (&a["reason"], &a["who"], &a["fields"]),
        (&json!("Paused"), &json!("kubectl-edit"), &json!(["data.key"]))
    );
    assert_eq!(a.get("nextAttempt"), None);
    world.edit(A.0, A.1, A.2, json!({"metadata": {"labels": {LABEL: null}}}));
    let label = format!("metadata.labels[{LABEL}]");
    world.until("the label, too", |w| drifted(w, "a")["fields"] == json!(["data.key", label])).await;
    world.stop().await;
    world.start();
    world.ask("demo").await;
    world.edit(A.0, A.1, A.2, glass(Value::Null));
    world.until("it is reverted", |w| w.data("a") == "1").await;
    until_none(&world).await;
    fence(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_a_paused_object_did_not_get_is_a_difference() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    let glass = |on: Value| json!({"metadata": {"annotations": {"mainstay.dev/reconcile": on}}});
    world.edit(A.0, A.1, A.2, glass(json!("disabled")));
    world.until("it is paused", |w| w.status("demo")["paused"].is_array()).await;
    world.remote.file("a.yaml", config_map("a", "2"));
    world.commit("demo", "two").await;
    world.until("it differs", |w| drifted(w, "a")["reason"] == "Paused").await;
    world.edit(A.0, A.1, A.2, glass(Value::Null));
    world.until("the commit has reached it", |w| w.data("a") == "2").await;
    until_none(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_cannot_be_reverted_differs_and_secret_values_are_not_shown() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: git-value}\n";
    let world = synced(&[("s.yaml", secret.to_owned()), ("a.yaml", config_map("a", "1"))]).await;
    world.fail_next("apply", "secrets", "s", 403, 3);
    world.edit("v1", "secrets", "s", json!({"data": {"password": "aGFuZC12YWx1ZQ=="}}));
    world.until("it is in the status", |w| !drifted(w, "s").is_null()).await;
    let s = drifted(&world, "s");
    assert_eq!(
        (&s["reason"], &s["fields"], s.get("changes")),
        (&json!("RevertFailed"), &json!(["data.password"]), None)
    );
    until_none(&world).await;
    world.change("demo", json!({"drift": "Report"})).await;
    world.edit("v1", "secrets", "s", json!({"data": {"password": "aGFuZC12YWx1ZQ=="}}));
    world.until("it is reported", |w| drifted(w, "s")["reason"] == "Report").await;
    let status = world.status("demo").to_string();
    assert!(!status.contains("aGFuZ") && !status.contains("Z2l0"), "{status}");
    world.change("demo", json!({"drift": "Ignore"})).await;
    world.until("nobody looks", |w| w.condition("demo", "Drifted").starts_with("Unknown DriftIgnored")).await;
    assert_eq!(world.status("demo")["driftedObjects"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_reports_costs_a_bounded_number_of_status_writes() {
    let names = (0..60).map(|number| format!("m{number:02}")).collect::<Vec<_>>();
    let files = names.iter().map(|name| (format!("{name}.yaml"), config_map(name, "1"))).collect::<Vec<_>>();
    let files = files.iter().map(|(path, content)| (path.as_str(), content.clone())).collect::<Vec<_>>();
    let world = synced(&files).await;
    world.change("demo", json!({"drift": "Report"})).await;
    let writes = |world: &World| {
        let requests = world.requests().into_iter();
        requests.filter(|(what, _)| what == "patch gitsyncs.mainstay.dev/status").map(|(_, count)| count).sum::<u64>()
    };
    let (before, start) = (writes(&world), std::time::Instant::now());
    for name in &names {
        world.edit(A.0, A.1, name, json!({"data": {"key": "changed"}}));
    }
    world.until("all are counted", |w| w.status("demo")["driftedObjects"] == 60).await;
    let (count, allowed) = (writes(&world) - before, 5 + start.elapsed().as_secs() + 1);
    assert!((1..=allowed).contains(&count), "{count} writes of {allowed}");
    assert_eq!(world.status("demo")["drifted"].as_array().map(Vec::len), Some(20));
    let (_, said) = mainstay(&world, &["status", "demo"]).await;
    assert!(said.contains("Drifted, and not reverted, 20 of 60:\n"), "{said}");
}
