//! The backward loop, end to end: a Service of a suspended GitSync is paused and deleted, and another GitSync wants it.
//! The page Architecture of the book explains each step.

use serde_json::json;

use mainstay_testkit::drift::{fence, revert_of};
use mainstay_testkit::gate::Heard;
use mainstay_testkit::ownership::{LABEL, delete_sync, sync_is_gone};
use mainstay_testkit::world::{World, config_map};

/// The Service as each of the two GitSyncs wants it.
const LEFTS: &str = "80 of mainstay-tests.left";
const RIGHTS: &str = "81 of mainstay-tests.right";

/// Returns a Service document with one port.
fn service(name: &str, port: u16) -> String {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": port}]},
    })
    .to_string()
}

/// Returns the port of the Service `web` with the label of its owner, or "absent".
fn web(world: &World) -> String {
    world.get("v1", "services", "web").map_or_else(
        || "absent".to_owned(),
        |web| {
            let owner = web["metadata"]["labels"][LABEL].as_str().unwrap_or_default();
            format!("{} of {owner}", web["spec"]["ports"][0]["port"])
        },
    )
}

/// Edits a Service, and waits until the edit is reverted. Then all earlier events of Services are handled.
async fn edit_is_reverted(world: &World, name: &str) {
    let app = |w: &World| {
        let service = w.get("v1", "services", name);
        service.map(|service| service["spec"]["selector"]["app"].clone()).unwrap_or_default()
    };
    world.edit("v1", "services", name, json!({"spec": {"selector": {"app": "changed"}}}));
    world.until("the edit is reverted", |w| app(w) == name).await;
}

async fn suspend(world: &World, sync: &str) {
    world.change(sync, json!({"suspend": true})).await;
    world.condition_is(sync, "Suspended", "True Suspended").await;
}

async fn resume(world: &World, sync: &str) {
    world.change(sync, json!({"suspend": false})).await;
}

/// Requests a sync of `right`, which reports that `left` holds the Service. Its deletions wait.
async fn right_has_a_conflict(world: &World) {
    world.ask("right").await;
    let failure = |w: &World| w.failure("right", "Service mainstay-tests/web");
    let conflict = "OwnershipConflict: it is managed by GitSync mainstay-tests/left too";
    world.until("the conflict is reported", |w| failure(w).starts_with(conflict)).await;
    let ready = world.condition("right", "Ready");
    assert!(ready.starts_with("False OwnershipConflict"), "{ready}");
    assert_eq!(world.data("old"), "1");
    let held = world.status("right")["held"].to_string();
    assert!(held.contains("ConfigMap mainstay-tests/old: kept until everything else is applied"), "{held}");
}

/// Waits until `right` has the Service and the rest of its commit.
async fn right_has_the_service(world: &World) {
    world.ready("right").await;
    world.until("the old object is pruned", |w| w.data("old") == "absent").await;
    assert_eq!(web(world), RIGHTS);
    edit_is_reverted(world, "web").await;
    assert_eq!(web(world), RIGHTS);
}

/// Returns a world with the GitSyncs `left` and `right` of one branch. A user paused the Service of `left`, suspended
/// `left`, and deleted the Service. `right` wants the Service with a different port, and an object less.
async fn deleted() -> World {
    let mut world = World::new().await;
    world.remote.file("left/web.yaml", service("web", 80)).file("left/l.yaml", config_map("l", "1"));
    world.remote.file("right/r.yaml", service("r", 80)).file("right/old.yaml", config_map("old", "1")).commit("one");
    world.sync("left", json!({"baseDir": "/left"}));
    world.sync("right", json!({"baseDir": "/right"}));
    world.start();
    world.ready("left").await;
    world.ready("right").await;

    let paused = json!({"metadata": {"annotations": {"mainstay.dev/reconcile": "disabled"}}});
    world.edit("v1", "services", "web", paused);
    let is_paused = |w: &World| w.status("left")["paused"] == json!([{"object": "Service mainstay-tests/web"}]);
    world.until("the pause is seen", is_paused).await;
    suspend(&world, "left").await;

    world.remote.file("right/web.yaml", service("web", 81)).remove("right/old.yaml").commit("right wants it, too");
    right_has_a_conflict(&world).await;
    assert_eq!(web(&world), LEFTS);
    world.delete("v1", "services", "web");
    edit_is_reverted(&world, "r").await;
    right_has_a_conflict(&world).await;
    world.ask("left").await;
    assert_eq!(web(&world), "absent", "no GitSync recreates it");
    assert!(is_paused(&world), "{}", world.status("left"));
    world.condition_is("left", "Suspended", "True Suspended").await;
    let (ready, drifted) = (world.condition("left", "Ready"), world.condition("left", "Drifted"));
    assert!(ready.starts_with("True") && drifted.starts_with("Unknown Suspended"), "{ready} {drifted}");
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_git_sync_recreates_its_deleted_service_and_ends_the_pause() {
    let mut world = deleted().await;
    resume(&world, "left").await;
    assert_eq!(revert_of(&mut world, "web").await.1, ["(object)"]);
    world.until("the pause is over", |w| w.status("left")["paused"].is_null()).await;
    assert_eq!(web(&world), LEFTS);
    edit_is_reverted(&world, "web").await;
    world.ready("left").await;
    right_has_a_conflict(&world).await;
    assert_eq!(web(&world), LEFTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_changes_the_deleted_service_of_a_resumed_git_sync() {
    let mut world = deleted().await;
    world.remote.file("left/web.yaml", service("web", 82)).commit("another port");
    resume(&world, "left").await;
    let changed = "82 of mainstay-tests.left";
    world.until("it is recreated with the commit", |w| web(w) == changed).await;
    world.until("the pause is over", |w| w.status("left")["paused"].is_null()).await;
    world.ready("left").await;
    edit_is_reverted(&world, "web").await;
    right_has_a_conflict(&world).await;
    assert_eq!(web(&world), changed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_agent_knows_the_claim_of_a_suspended_git_sync_on_a_deleted_service() {
    let mut world = deleted().await;
    // The new agent reads the inventory of `left` before `right` plans.
    suspend(&world, "right").await;
    world.kill().await;
    world.start();
    world.ask("left").await;
    resume(&world, "right").await;
    right_has_a_conflict(&world).await;
    assert_eq!(web(&world), "absent", "no GitSync recreates it");
    resume(&world, "left").await;
    world.until("it is recreated", |w| web(w) == LEFTS).await;
    world.ready("left").await;
    right_has_a_conflict(&world).await;
    assert_eq!(web(&world), LEFTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_service_that_a_resumed_git_sync_gives_up_is_handed_over() {
    let mut world = deleted().await;
    world.remote.remove("left/web.yaml").commit("left gives it up");
    resume(&world, "left").await;
    world.look();
    right_has_the_service(&world).await;
    world.ready("left").await;
    world.until("left has its other object", |w| w.status("left")["objects"] == 1).await;
    assert!(!world.requests().iter().any(|(asked, _)| asked == "delete services"), "{:?}", world.requests());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_service_of_a_deleted_git_sync_goes_to_the_other_one() {
    let world = deleted().await;
    delete_sync(&world, "left");
    sync_is_gone(&world, "left").await;
    right_has_the_service(&world).await;
}

/// A user suspends a GitSync while its commit is carried out. From then on, no object is applied, deleted or reverted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspension_stops_a_commit_that_is_being_carried_out() {
    let mut world = World::new().await;
    for name in ["a", "b"] {
        world.remote.file(&format!("demo/{name}.yaml"), config_map(name, "1"));
    }
    world.remote.file("other/fence.yaml", config_map("fence", "1")).commit("one");
    world.sync("other", json!({"baseDir": "/other"}));
    world.synced(json!({"baseDir": "/demo"})).await;
    world.ready("other").await;
    world.gate.record();
    let inventory =
        |heard: &Heard| heard.asked.starts_with("PATCH ") && heard.asked.contains("/mainstay-inventory-demo");
    let held = world.gate.hold(inventory);
    world.remote.file("demo/a.yaml", config_map("a", "2")).remove("demo/b.yaml");
    world.remote.file("demo/c.yaml", config_map("c", "1")).commit("two");
    world.look();
    // The inventory with the new object is written before the first apply.
    held.reached().await;
    world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", json!({"spec": {"suspend": true}}));
    // The watch shows the suspension before this request. So the agent knows of it once the request is answered.
    world.ask("other").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "mine"}}));
    // The fence is an object of the other GitSync. It is reverted after the edit was handled.
    fence(&world).await;
    assert_eq!(world.data("a"), "mine", "reverts end with the suspension, too");
    drop(held);
    world.condition_is("demo", "Suspended", "True Suspended").await;
    assert_eq!(["a", "b", "c"].map(|name| world.data(name)), ["mine", "1", "absent"]);
    assert!(world.status("demo")["failures"].is_null(), "{}", world.status("demo"));
    resume(&world, "demo").await;
    world.ready("demo").await;
    assert_eq!(["a", "b", "c"].map(|name| world.data(name)), ["2", "absent", "1"]);
}
