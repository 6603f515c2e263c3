//! A bug that makes one of the agent's tasks panic. The work of that task fails and is retried, and everything else
//! continues. The same process keeps the Lease.

use std::time::Duration;

use serde_json::{Value, json};

use mainstay_testkit::{
    external::External,
    functions::inline,
    world::{World, config_map},
};

const GIT_SYNCS: &str = "gitsyncs.mainstay.dev";

/// Creates two GitSyncs under a leading agent.
async fn led() -> World {
    let mut world = World::new().await;
    world.remote.file("demo/a.yaml", config_map("a", "1")).file("other/b.yaml", config_map("b", "1")).commit("one");
    world.sync("demo", json!({"baseDir": "/demo"}));
    world.sync("other", json!({"baseDir": "/other"}));
    world.start_as("agent", true);
    world.ready("demo").await;
    world.ready("other").await;
    world
}

fn lease(world: &World) -> Value {
    world.get("coordination.k8s.io/v1", "leases", "mainstay").unwrap()["spec"].clone()
}

/// Checks that a hand edit is reverted.
async fn puts_back(world: &World, name: &str) {
    world.edit("v1", "configmaps", name, json!({"data": {"key": "changed"}}));
    world.until(&format!("{name} is reverted"), |w| w.data(name) == "1").await;
}

/// Checks that the same process has held the Lease all the time.
async fn still_leads(world: &World, before: &Value) {
    let renewed = lease(world)["renewTime"].clone();
    world.until("the Lease is renewed", |w| lease(w)["renewTime"] != renewed).await;
    for field in ["holderIdentity", "acquireTime", "leaseTransitions"] {
        assert_eq!(lease(world)[field], before[field], "{field}");
    }
    assert!(world.agent_runs());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_an_attempt_ends_it_with_internal_error_and_stops_no_other_git_sync() {
    let mut world = led().await;
    let before = lease(&world);
    world.gate.panic_at("apply", "configmaps", "new");
    world.remote.file("demo/new.yaml", config_map("new", "1")).commit("two");
    world.request("demo");
    world.condition_is("demo", "Ready", "False InternalError").await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains("panic") && !said.contains("injected"), "{said}");
    puts_back(&world, "b").await;
    puts_back(&world, "a").await;
    still_leads(&world, &before).await;
    assert_eq!(world.data("new"), "absent", "it is not tried again at once");
    world.ask("demo").await;
    world.ready("demo").await;
    assert_eq!(world.data("new"), "1");
    puts_back(&world, "new").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_during_a_revert_is_a_failed_revert() {
    let world = led().await;
    let before = lease(&world);
    world.gate.panic_at("apply", "configmaps", "a");
    puts_back(&world, "a").await;
    assert!(world.gate.has_panicked());
    puts_back(&world, "a").await;
    puts_back(&world, "b").await;
    still_leads(&world, &before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_watch_restarts_that_watch() {
    let mut world = led().await;
    let before = lease(&world);
    world.gate.panic_at("watch", "secrets", "");
    world.remote.file("demo/s.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {key: \"1\"}\n");
    world.commit("demo", "another kind").await;
    world.until("the watch has begun", |w| w.gate.has_panicked()).await;
    world.edit("v1", "secrets", "s", json!({"stringData": {"key": "changed"}}));
    let value = |w: &World| w.get("v1", "secrets", "s").unwrap()["data"]["key"].clone();
    world.until("it is reverted", |w| value(w) == "MQ==").await;
    puts_back(&world, "b").await;
    still_leads(&world, &before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_function_ends_its_reconcile_with_internal_error_and_stops_no_other_function() {
    let mut world = World::with_functions().await;
    world.start_as("agent", true);
    world.function("other", inline("1"));
    world.runs("other").await;
    let before = lease(&world);
    // Three panics in a row, so that the condition lasts for seconds, even if another task applies a ConfigMap.
    for _ in 0..3 {
        world.gate.panic_at("apply", "configmaps", "");
    }
    world.function("hello", inline("1"));
    world.says("hello", "ConfigurationReady", "False InternalError").await;
    world.edit_function("other", json!({"spec": {"replicas": 2}}));
    world.runs("other").await;
    still_leads(&world, &before).await;
    world.edit_function("hello", json!({"spec": {"replicas": 2}}));
    world.runs("hello").await;
}

/// An agent handles its first commit, drift and a change, and panics once at such a request. All of it succeeds in the
/// end.
async fn survives(verb: &str, resource: &str) {
    let mut world = World::with_functions().await;
    world.remote.file("demo/a.yaml", config_map("a", "1")).commit("one");
    world.sync("demo", json!({"baseDir": "/demo"}));
    world.gate.panic_at(verb, resource, "");
    world.start_as("agent", true);
    world.function("hello", inline("1"));
    let at = format!("{verb} {resource}");
    let patience = Duration::from_secs(100);
    let ends_well = async {
        world.ready("demo").await;
        world.runs("hello").await;
        puts_back(&world, "a").await;
        world.until("it has panicked", |w| w.gate.has_panicked()).await;
        puts_back(&world, "a").await;
        world.ask("demo").await;
        world.ready("demo").await;
    };
    assert!(tokio::time::timeout(patience, ends_well).await.is_ok(), "after a panic at {at}");
    assert!(world.agent_runs(), "after a panic at {at}");
    if !External::is_named() {
        assert_eq!(lease(&world)["leaseTransitions"], 0, "after a panic at {at}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_at_any_kind_of_request_passes() {
    if External::is_named() {
        // Only one kind of request is tested, because most other kinds would wait for a backoff one after the other.
        survives("watch", GIT_SYNCS).await;
        return;
    }
    let mut world = World::with_functions().await;
    world.remote.file("demo/a.yaml", config_map("a", "1")).commit("one");
    world.sync("demo", json!({"baseDir": "/demo"}));
    world.start_as("agent", true);
    world.function("hello", inline("1"));
    world.ready("demo").await;
    world.runs("hello").await;
    puts_back(&world, "a").await;
    let counts = world.levers().counts();
    let asked = counts.iter().map(|count| (count.verb.clone(), count.resource.clone()));
    let mut asked = asked.filter(|(_, resource)| !resource.starts_with('/')).collect::<Vec<_>>();
    asked.sort();
    asked.dedup();
    world.kill().await;
    assert!(asked.len() > 20, "{asked:?}");
    for together in asked.chunks(6) {
        futures::future::join_all(together.iter().map(|(verb, resource)| survives(verb, resource))).await;
    }
}
