//! An object that hangs in its deletion is reported and does not delay others.

use serde_json::{Value, json};

use mainstay_testkit::world::{NAMESPACE, World, config_map};

/// Creates a world in which `map-01` has left a repository of three ConfigMaps, and a finalizer keeps it.
async fn with_stuck_map(spec: Value) -> World {
    let mut world = World::new().await;
    for name in ["map-00", "map-01", "map-02"] {
        world.remote.file(&format!("{name}.yaml"), config_map(name, "1"));
    }
    world.remote.commit("all");
    world.synced(spec).await;
    world.edit("v1", "configmaps", "map-01", json!({"metadata": {"finalizers": ["example.org/wait"]}}));
    world.remote.remove("map-01.yaml").commit("one goes");
    world.ask("demo").await;
    world
}

/// Returns counts and messages of the Events about the GitSync with this reason.
fn events(world: &World, reason: &str) -> Vec<(i64, String)> {
    let events = world.server.objects("v1", "events", Some(NAMESPACE));
    let about =
        |event: &&std::sync::Arc<Value>| event["reason"] == reason && event["involvedObject"]["kind"] == "GitSync";
    let text = |event: &std::sync::Arc<Value>| {
        let count = event["count"].as_i64().or_else(|| event["series"]["count"].as_i64()).unwrap_or(1);
        (count, event["message"].as_str().unwrap_or_default().to_owned())
    };
    events.iter().filter(about).map(text).collect()
}

fn finalizer_comes_off(world: &World) {
    world.edit("v1", "configmaps", "map-01", json!({"metadata": {"finalizers": null}}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_named_with_its_finalizer_and_commits_count_as_applied() {
    let mut world = with_stuck_map(json!({})).await;
    world.ready("demo").await;
    let since = world.get("v1", "configmaps", "map-01").unwrap()["metadata"]["deletionTimestamp"].clone();
    let named =
        json!([{"object": "ConfigMap mainstay-tests/map-01", "finalizers": ["example.org/wait"], "since": since}]);
    assert_eq!(world.status("demo")["terminating"], named);
    for condition in ["Ready", "Reconciling"] {
        let said = world.condition("demo", condition);
        let all = said.contains("ConfigMap mainstay-tests/map-01") && said.contains("example.org/wait");
        assert!(said.starts_with("True") && all, "{condition}: {said}");
    }
    world.remote.file("map-00.yaml", config_map("map-00", "2"));
    world.commit("demo", "a later commit").await;
    assert_eq!(world.data("map-00"), "2");
    assert_eq!(world.status("demo")["terminating"], named);
    finalizer_comes_off(&world);
    world.until("nothing is named any more", |w| w.status("demo")["terminating"].is_null()).await;
    world.condition_is("demo", "Reconciling", "False").await;
    assert_eq!(world.config_maps(), ["map-00", "map-02"]);
    let applied = events(&world, "Applied");
    assert!(applied.iter().any(|(_, text)| text.contains("1 pruned")), "{applied:?}");
    assert!(applied.iter().all(|(_, text)| !text.contains("0 created, 0 changed, 2 unchanged, 0")), "{applied:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_agent_says_the_same() {
    let mut world = with_stuck_map(json!({})).await;
    world.ready("demo").await;
    let named = world.status("demo")["terminating"].clone();
    world.stop().await;
    world.remote.file("map-00.yaml", config_map("map-00", "2")).commit("a later commit");
    world.start();
    world.ready("demo").await;
    assert_eq!(world.status("demo")["terminating"], named);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_event_says_that_it_took_longer_than_the_timeout() {
    let world = with_stuck_map(json!({"timeout": "1s"})).await;
    let stuck = |w: &World| events(w, "DeletionStuck");
    world.until("an Event says that it is stuck", |w| !stuck(w).is_empty()).await;
    world.ask("demo").await;
    world.ask("demo").await;
    let all = stuck(&world);
    let [(1, text)] = all.as_slice() else { panic!("{all:?}") };
    assert!(text.contains("ConfigMap mainstay-tests/map-01") && text.contains("example.org/wait"), "{text}");
    assert!(world.condition("demo", "Ready").starts_with("True"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_named_while_its_git_sync_is_deleted_with_its_objects() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("map-01", "1")).commit("all");
    world.synced(json!({"timeout": "1s"})).await;
    mainstay_testkit::ownership::prune_on_delete(&world, "demo").await;
    world.edit("v1", "configmaps", "map-01", json!({"metadata": {"finalizers": ["example.org/wait"]}}));
    world.delete("mainstay.dev/v1alpha1", "gitsyncs", "demo");
    world.until("Ready names it", |w| w.condition("demo", "Ready").contains("example.org/wait")).await;
    world.until("an Event says that it is stuck", |w| !events(w, "DeletionStuck").is_empty()).await;
    assert_eq!(world.status("demo")["terminating"][0]["object"], "ConfigMap mainstay-tests/map-01");
    finalizer_comes_off(&world);
    world.until("the GitSync is gone", |w| w.get("mainstay.dev/v1alpha1", "gitsyncs", "demo").is_none()).await;
}

/// Creates two GitSyncs of one branch, `left` and `right`, each with its directory.
async fn siblings() -> World {
    let mut world = World::new().await;
    world.remote.file("left/stays.yaml", config_map("l-stays", "1")).file("left/goes.yaml", config_map("l-goes", "1"));
    world
        .remote
        .file("left/moves.yaml", config_map("moves", "1"))
        .file("right/r.yaml", config_map("r", "1"))
        .commit("all");
    world.start();
    for name in ["left", "right"] {
        world.sync(name, json!({"baseDir": format!("/{name}")}));
        world.ready(name).await;
    }
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sibling_that_cannot_read_the_commit_is_not_waited_for() {
    let mut world = siblings().await;
    world.remote.remove("left/goes.yaml").remove("left/moves.yaml").file("right/broken.yaml", "kind: [");
    world.remote.file("right/moves.yaml", config_map("moves", "1"));
    world.remote.commit("one goes, one moves, and the sibling's directory is broken");
    world.look();
    world.until("what left is pruned", |w| !w.config_maps().contains(&"l-goes".to_owned())).await;
    world.condition_is("right", "Ready", "False ManifestInvalid").await;
    assert_eq!(world.config_maps(), ["l-stays", "moves", "r"], "what moves waits for its taker");
    world.remote.remove("right/broken.yaml").commit("repaired");
    world.look();
    world.ready("right").await;
    world.ready("left").await;
    assert_eq!(world.config_maps(), ["l-stays", "moves", "r"]);
    let label = &world.get("v1", "configmaps", "moves").unwrap()["metadata"]["labels"]["mainstay.dev/sync"];
    assert_eq!(label, "mainstay-tests.right");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sibling_that_cannot_reach_its_repository_is_not_waited_for() {
    let mut world = siblings().await;
    world.edit(
        "mainstay.dev/v1alpha1",
        "gitsyncs",
        "right",
        json!({"spec": {"reference": "main", "baseDir": "/none"}}),
    );
    world.condition_is("right", "Ready", "False SourceInvalid").await;
    world.remote.remove("left/goes.yaml").commit("one goes");
    world.look();
    world.until("what left is pruned", |w| !w.config_maps().contains(&"l-goes".to_owned())).await;
    assert_eq!(world.config_maps(), ["l-stays", "moves", "r"]);
}
