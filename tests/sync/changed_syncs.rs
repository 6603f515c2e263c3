//! A commit that creates or changes a GitSync, and moves objects to it, deletes none of them.

use serde_json::{Value, json};

use mainstay_testkit::ownership::label_of;
use mainstay_testkit::world::{NAMESPACE, World, config_map};

const PARENT: &str = "cluster";
const CHILD: &str = "apps";

/// Returns the manifest of the GitSync `apps` with this directory.
fn child(base_dir: &str, more: &Value) -> String {
    let mut spec = json!({"gitRepository": "repo", "interval": "1h", "baseDir": base_dir});
    json_patch::merge(&mut spec, more);
    json!({"apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": CHILD}, "spec": spec})
        .to_string()
}

/// Creates the GitSync `cluster` of the directory `cluster`, which has the ConfigMaps `moves` and `leaves`.
async fn with_parent(world: &mut World) {
    for name in ["moves", "leaves"] {
        world.remote.file(&format!("cluster/{name}.yaml"), config_map(name, "1"));
    }
    world.remote.commit("one");
    world.sync(PARENT, json!({"baseDir": "/cluster"}));
    world.start();
    world.ready(PARENT).await;
}

/// Moves one ConfigMap to `apps`, and removes the other one.
fn move_one(world: &mut World) {
    world.remote.remove("cluster/moves.yaml").remove("cluster/leaves.yaml");
    world.remote.file("apps/moves.yaml", config_map("moves", "1"));
}

/// Waits until `apps` has the one ConfigMap, with the UID that it had before, and the other one is deleted.
async fn is_moved(world: &World, uid: &str) {
    world
        .until("it has moved", |w| {
            w.get("v1", "configmaps", "moves").is_some() && label_of(w, "moves") == format!("{NAMESPACE}.{CHILD}")
        })
        .await;
    world.until("the other one is deleted", |w| w.data("leaves") == "absent").await;
    assert_eq!(world.uid("v1", "configmaps", "moves"), uid, "it was deleted and recreated");
    for sync in [PARENT, CHILD] {
        world.ready(sync).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_of_the_same_commit_takes_objects_over() {
    let mut world = World::new().await;
    with_parent(&mut world).await;
    let uid = world.uid("v1", "configmaps", "moves");
    move_one(&mut world);
    world.remote.file("cluster/apps.yaml", child("/apps", &json!({}))).commit("moved");
    world.look();
    is_moved(&world, &uid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_whose_directory_the_commit_changes_takes_objects_over() {
    let mut world = World::new().await;
    world.remote.file("cluster/apps.yaml", child("/nothing", &json!({})));
    world.remote.file("nothing/other.yaml", config_map("other", "1"));
    with_parent(&mut world).await;
    world.ready(CHILD).await;
    let uid = world.uid("v1", "configmaps", "moves");
    move_one(&mut world);
    world.remote.file("cluster/apps.yaml", child("/apps", &json!({}))).commit("moved");
    world.look();
    is_moved(&world, &uid).await;
    world.until("the former directory is pruned", |w| w.data("other") == "absent").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deletion_waits_until_the_new_git_sync_can_be_applied() {
    let mut world = World::new().await;
    with_parent(&mut world).await;
    let uid = world.uid("v1", "configmaps", "moves");
    move_one(&mut world);
    world.fail_next("apply", "gitsyncs.mainstay.dev", CHILD, 503, 3);
    world.remote.file("cluster/apps.yaml", child("/apps", &json!({}))).commit("moved");
    world.look();
    is_moved(&world, &uid).await;
}

/// Another GitSync of the same commit, which waits for `cluster`, does not delete what `apps` will want.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_git_sync_waits_for_one_that_the_commit_creates() {
    let mut world = World::new().await;
    world.remote.file("cluster/root.yaml", config_map("root", "1"));
    world.remote.file("team/moves.yaml", config_map("moves", "1")).file("team/stays.yaml", config_map("stays", "1"));
    world.remote.commit("one");
    for name in [PARENT, "team"] {
        world.sync(name, json!({"baseDir": format!("/{name}")}));
    }
    world.start();
    world.ready(PARENT).await;
    world.ready("team").await;
    let uid = world.uid("v1", "configmaps", "moves");
    world.gate.record();
    let path = format!("/namespaces/{NAMESPACE}/gitsyncs/{CHILD}?");
    let held = world.gate.hold(move |heard| heard.asked.starts_with("PATCH ") && heard.asked.contains(&path));
    world.remote.remove("team/moves.yaml").file("apps/moves.yaml", config_map("moves", "1"));
    world.remote.file("cluster/apps.yaml", child("/apps", &json!({}))).commit("moved");
    world.look();
    held.reached().await;
    let waits = format!("waits for GitSync {NAMESPACE}/{CHILD}, which is in this commit and is not applied yet");
    world.until("it waits", |w| w.status("team")["held"].to_string().contains(&waits)).await;
    drop(held);
    world
        .until("it has moved", |w| {
            w.get("v1", "configmaps", "moves").is_some() && label_of(w, "moves") == format!("{NAMESPACE}.{CHILD}")
        })
        .await;
    assert_eq!(world.uid("v1", "configmaps", "moves"), uid, "it was deleted and recreated");
    world.until("nothing is held", |w| w.status("team")["held"].is_null()).await;
}

/// A GitSync that the commit suspends wants nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_git_sync_that_is_suspended_delays_no_deletion() {
    let mut world = World::new().await;
    with_parent(&mut world).await;
    world.remote.remove("cluster/leaves.yaml");
    world.remote.file("cluster/apps.yaml", child("/apps", &json!({"suspend": true}))).commit("two");
    world.look();
    world.until("it is deleted", |w| w.data("leaves") == "absent").await;
    world.ready(PARENT).await;
}
