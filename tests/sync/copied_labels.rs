//! Objects with Mainstay's label that Mainstay never applied. Controllers copy labels (Endpoints from their Service,
//! Secrets between namespaces), and any user can set one. Such objects are never deleted, in any deletion path.

use std::time::Duration;

use devcluster::Simulation;
use serde_json::{Value, json};

use mainstay_testkit::ownership::{LABEL, delete_sync, inventories, prune_on_delete, sync_is_gone, two_directories};
use mainstay_testkit::world::{NAMESPACE, World, config_map};

const BATCH: &str = "batch/v1";
const IMAGE: &str = "example.org/job:1";

/// Replaces an object by a ConfigMap of another user with the label of a GitSync. Returns its UID.
fn copy(world: &World, name: &str, label: &str) -> String {
    if world.get("v1", "configmaps", name).is_some() {
        world.delete("v1", "configmaps", name);
    }
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "theirs"},
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {LABEL: label}},
    });
    let created = world.create("v1", "configmaps", NAMESPACE, map);
    created["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Creates the ConfigMaps `a` and `b` of GitSync `demo`.
async fn applied() -> World {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("one");
    world.synced(json!({})).await;
    world
}

fn lose_inventory(world: &World) {
    for name in inventories(world) {
        world.delete("v1", "configmaps", &name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pruning_after_inventory_loss_deletes_what_we_applied_and_no_copy() {
    let mut world = applied().await;
    world.stop().await;
    lose_inventory(&world);
    let uid = copy(&world, "copy", "mainstay-tests.demo");
    world.remote.remove("b.yaml").commit("one goes");
    world.start();
    world.until("the status says so", |w| w.condition("demo", "Ready").contains("inventory was missing")).await;
    for _ in 0..2 {
        world.ask("demo").await;
        world.ready("demo").await;
    }
    assert_eq!((world.config_maps(), world.uid("v1", "configmaps", "copy")), (vec!["a".into(), "copy".into()], uid));
    assert_eq!(world.status("demo")["held"], Value::Null, "a copy is no concern of the GitSync");
    world.remote.remove("a.yaml");
    world.try_commit("demo", "all go").await;
    world.condition_is("demo", "Ready", "False PruneHeld").await;
    world.allow_prune("demo", &world.remote.head()).await;
    world.ready("demo").await;
    assert_eq!(world.config_maps(), ["copy"], "whatever is allowed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_is_deleted_with_its_objects_after_inventory_loss_deletes_nothing() {
    let mut world = applied().await;
    prune_on_delete(&world, "demo").await;
    world.stop().await;
    lose_inventory(&world);
    copy(&world, "copy", "mainstay-tests.demo");
    delete_sync(&world, "demo");
    world.start();
    sync_is_gone(&world, "demo").await;
    assert_eq!(world.config_maps(), ["a", "b", "copy"]);
    let label = |name: &str| world.get("v1", "configmaps", name).unwrap()["metadata"]["labels"][LABEL].clone();
    assert_eq!([label("a"), label("b")], [Value::Null, Value::Null], "they are nobody's");
    assert_eq!(label("copy"), "mainstay-tests.demo", "it is not ours to change");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_is_deleted_with_its_objects_lets_go_of_what_somebody_put_in_the_place_of_one() {
    let mut world = applied().await;
    prune_on_delete(&world, "demo").await;
    world.annotate_sync("demo", "mainstay.dev/allow-prune", &world.remote.head());
    world.ready("demo").await;
    world.stop().await;
    let uid = copy(&world, "b", "mainstay-tests.demo");
    delete_sync(&world, "demo");
    world.start();
    sync_is_gone(&world, "demo").await;
    assert_eq!((world.config_maps(), world.uid("v1", "configmaps", "b")), (vec!["b".to_owned()], uid));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_moves_to_another_sync_is_not_deleted_when_somebody_has_put_theirs_in_its_place() {
    let mut world = two_directories().await;
    world.stop().await;
    let uid = copy(&world, "moving", "mainstay-tests.left");
    world.remote.remove("left/moving.yaml").file("right/moving.yaml", config_map("moving", "2")).commit("moved");
    world.start();
    world.until("it is taken over", |w| w.data("moving") == "2").await;
    world.ready("left").await;
    world.ready("right").await;
    assert_eq!(world.uid("v1", "configmaps", "moving"), uid);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finished_job_that_somebody_put_in_the_place_of_ours_is_not_replaced() {
    let job = |token: &str, command: &str| {
        json!({
            "apiVersion": BATCH, "kind": "Job",
            "metadata": {"name": "work", "annotations": {"mainstay.dev/rerun": token}},
            "spec": {"backoffLimit": 0, "template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "main", "image": IMAGE, "command": [command]}],
            }}},
        })
    };
    let mut world = World::new().await;
    let simulation = Simulation { exit_code: 0, termination_message: None, after: Duration::from_millis(100) };
    world.server.simulate(IMAGE, "main", simulation);
    world.remote.file("job.yaml", job("1", "ours").to_string()).commit("one");
    world.synced(json!({})).await;
    world.stop().await;
    world.delete(BATCH, "jobs", "work");
    world.until("it is gone", |w| w.get(BATCH, "jobs", "work").is_none()).await;
    let mut theirs = job("1", "theirs");
    theirs["metadata"]["labels"] = json!({LABEL: "mainstay-tests.demo"});
    world.create(BATCH, "jobs", NAMESPACE, theirs);
    let uid = world.uid(BATCH, "jobs", "work");
    let ended = |w: &World| w.get(BATCH, "jobs", "work").unwrap()["status"]["conditions"].to_string();
    world.until("it finished", |w| ended(w).contains(r#""Complete""#)).await;
    world.remote.file("job.yaml", job("2", "ours").to_string()).commit("again");
    world.start();
    world.until("it is refused", |w| w.failure("demo", "Job.batch mainstay-tests/work").starts_with("Immutable")).await;
    assert_eq!(world.uid(BATCH, "jobs", "work"), uid);
}
