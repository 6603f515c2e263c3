//! The backward loop, end to end: an agent that restarts after a while.

use devcluster::fault_injection::Fault;
use serde_json::{Value, json};

use mainstay_testkit::{
    drift::{fence, synced, version},
    world::{NAMESPACE, World, config_map, deployment},
};

const A: (&str, &str, &str) = ("v1", "configmaps", "a");

fn count(world: &World, verb: &str) -> u64 {
    world.requests().iter().filter(|(asked, _)| asked.starts_with(verb)).map(|(_, count)| *count).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_applies_nothing_and_lists_each_kind_once() {
    let mut world = synced(&[
        ("a.yaml", config_map("a", "1")),
        ("b.yaml", config_map("b", "1")),
        ("web.yaml", deployment("web", "nginx:1", 1)),
    ])
    .await;
    world.until("all is written", |w| w.condition("demo", "Healthy").starts_with("True")).await;
    world.stop().await;
    let before = [A.2, "b"].map(|name| version(&world.get(A.0, A.1, name).unwrap()));
    world.levers().reset_counts();
    world.start();
    world.ask("demo").await;
    assert_eq!(count(&world, "apply"), 0, "{:?}", world.requests());
    // The agent reads the inventory by its name, and no object.
    let reads = [count(&world, "get configmaps"), count(&world, "get deployments.apps")];
    assert_eq!(reads, [1, 0], "{:?}", world.requests());
    fence(&world).await;
    assert_eq!([A.2, "b"].map(|name| version(&world.get(A.0, A.1, name).unwrap())), before);
}

/// With hundreds of GitSyncs, the first list of a kind can take seconds. Objects missing from it so far are not
/// unhealthy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_stays_ready_over_a_restart_with_slow_lists() {
    let mut world = synced(&[("a.yaml", config_map("a", "1")), ("web.yaml", deployment("web", "nginx:1", 1))]).await;
    world.ready("demo").await;
    let since = |world: &World| {
        let all = world.status("demo")["conditions"].as_array().unwrap().clone();
        let is_wanted = |condition: &Value| ["Ready", "Healthy"].contains(&condition["type"].as_str().unwrap());
        let times = |condition: Value| (condition["status"].clone(), condition["lastTransitionTime"].clone());
        all.into_iter().filter(is_wanted).map(times).collect::<Vec<_>>()
    };
    let before = since(&world);
    assert!(before.len() == 2 && before.iter().all(|(status, _)| status == "True"), "{before:?}");
    world.stop().await;
    // Streaming lists are watches. Only lists of labelled objects are delayed, not lists of the agent's own settings.
    for resource in ["configmaps", "deployments.apps"] {
        world.levers().fail_next(Fault {
            verb: "watch".into(),
            resource: resource.into(),
            query: "labelSelector=mainstay.dev".into(),
            delay_millis: 3_000,
            times: 5,
            ..Fault::default()
        });
    }
    world.start();
    // Once the agent has seen the kinds, it reverts an edit.
    world.edit(A.0, A.1, A.2, json!({"data": {"key": "changed"}}));
    world.until("the edit is reverted", |w| w.data("a") == "1").await;
    world.until("the revert is counted", |w| w.status("demo")["reverted"] == 1).await;
    assert_eq!(since(&world), before, "it was Ready all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_while_no_agent_runs_is_reverted() {
    let mut world = synced(&[
        ("a.yaml", config_map("a", "1")),
        ("b.yaml", config_map("b", "1")),
        ("c.yaml", config_map("c", "1")),
        ("d.yaml", config_map("d", "1")),
    ])
    .await;
    world.stop().await;
    let untouched = version(&world.get(A.0, A.1, "d").unwrap());
    world.edit(A.0, A.1, "a", json!({"data": {"key": "changed"}}));
    world.delete(A.0, A.1, "b");
    world.edit(A.0, A.1, "c", json!({"metadata": {"labels": {"mainstay.dev/sync": null}}}));
    world.start();
    world
        .until("all are back", |w| {
            let labelled =
                w.get(A.0, A.1, "c").unwrap()["metadata"]["labels"]["mainstay.dev/sync"] == "mainstay-tests.demo";
            labelled && w.data("a") == "1" && w.data("b") == "1"
        })
        .await;
    world.until("three reverts are counted", |w| w.status("demo")["reverted"] == 3).await;
    assert_eq!(version(&world.get(A.0, A.1, "d").unwrap()), untouched);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_finds_no_branch_keeps_what_was_applied() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.stop().await;
    world.edit(A.0, A.1, "a", json!({"data": {"key": "changed"}}));
    world.remote.branch("elsewhere").drop_branch("main");
    world.start();
    world.until("the edit is reverted", |w| w.data("a") == "1").await;
    world.condition_is("demo", "Ready", "False").await;
    world.remote.branch("main");
    world.ask("demo").await;
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_were_created_again_are_known_to_the_next_agent() {
    let mut world = synced(&[("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))]).await;
    world.delete(A.0, A.1, "a");
    world.until("it is back and counted", |w| w.data("a") == "1" && w.status("demo")["reverted"] == 1).await;
    world.stop().await;
    world.start();
    fence(&world).await;
    // Only an object with a known UID may be pruned.
    world.remote.remove("a.yaml");
    world.commit("demo", "it leaves").await;
    assert_eq!(world.data("a"), "absent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_deleted_during_the_first_list_is_restored() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("demo", json!({}));
    world.fail_next("watch", "configmaps", "", 503, 1000);
    world.start();
    world.ready("demo").await;
    world
        .until("the list is asked for", |w| {
            let counts = w.levers().counts();
            counts.iter().any(|count| count.verb == "watch" && count.resource == "configmaps")
        })
        .await;
    for name in ["b", "c", "d"] {
        world.remote.file(&format!("{name}.yaml"), config_map(name, "1"));
    }
    world.commit("demo", "two").await;
    // A list succeeds, and only the watch after it fails. The agent may notice that before the faults are cleared.
    world.levers().reset_counts();
    world.delete(A.0, A.1, "b");
    world.edit(A.0, A.1, "c", json!({"metadata": {"labels": {"mainstay.dev/sync": null}}}));
    world.levers().clear_faults();
    world
        .until("both are back", |w| {
            let labelled =
                w.get(A.0, A.1, "c").unwrap()["metadata"]["labels"]["mainstay.dev/sync"] == "mainstay-tests.demo";
            labelled && w.data("b") == "1"
        })
        .await;
    world.until("both reverts are counted", |w| w.status("demo")["reverted"] == 2).await;
    assert_eq!(count(&world, "get configmaps"), 2, "nobody asks for what the list showed: {:?}", world.requests());
}

/// The agent has no inventory entry of an object that another client created and paused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_the_decisions_about_paused_objects_and_has_none_about_pruned_ones() {
    let all = [("a.yaml", "a"), ("b.yaml", "b"), ("c.yaml", "c"), ("d.yaml", "d")];
    let mut world = synced(&all.map(|(path, name)| (path, config_map(name, "1")))).await;
    let newest = |w: &World| w.status("demo")["lastDecisions"][0]["decided"].clone();
    let glass = |value: Value| json!({"metadata": {"annotations": {"mainstay.dev/reconcile": value}}});
    world.edit(A.0, A.1, A.2, glass(json!("disabled")));
    world.until("the pause is recorded", |w| newest(w) == "Paused").await;
    world.edit(A.0, A.1, A.2, glass(Value::Null));
    world.until("its end is recorded", |w| newest(w) == "Resumed").await;

    let (name, end) = ("theirs", "2999-01-01T00:00:00Z");
    let annotations = json!({"mainstay.dev/reconcile": "disabled", "mainstay.dev/until": end});
    let metadata = json!({"name": name, "annotations": annotations});
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "theirs"}});
    world.create(A.0, A.1, NAMESPACE, theirs);
    world.remote.remove("a.yaml").file("theirs.yaml", config_map(name, "1"));
    world.try_commit("demo", "a leaves, and another object comes").await;
    let decided = |w: &World| w.status("demo")["lastDecisions"].clone();
    let is_of_paused = |w: &World| {
        let all = decided(w);
        let is_one = all.as_array().is_some_and(|all| all.len() == 1);
        is_one && (&all[0]["decided"], &all[0]["until"]) == (&json!("Paused"), &json!(end))
    };
    world.until("the only decision is about the paused object", is_of_paused).await;
    assert_eq!((world.data("a"), world.data(name)), ("absent".to_owned(), "theirs".to_owned()));

    let before = (decided(&world), world.status("demo")["paused"].clone());
    assert_eq!(before.1[0]["until"], end);
    world.stop().await;
    world.start();
    world.ask("demo").await;
    assert_eq!((decided(&world), world.status("demo")["paused"].clone()), before);
}
