//! Both loops, end to end: ended watches and a compacted event log. Only the embedded cluster can do that on request.

use devcluster::fault_injection::Fault;
use serde_json::json;

use mainstay_testkit::{
    drift::{fence, revert_of, synced},
    ownership::{are_released, delete_sync, sync_is_gone},
    world::{World, config_map},
};

const A: (&str, &str, &str) = ("v1", "configmaps", "a");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_during_a_watch_outage_are_seen() {
    let mut world = synced(&[("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))]).await;
    for round in 0..3 {
        world.server.embedded().store().end_watches(None);
        world.edit(A.0, A.1, A.2, json!({"data": {"key": format!("changed {round}")}}));
        world.delete(A.0, A.1, "b");
        revert_of(&mut world, "b").await;
        world.until("both are back", |w| w.data("a") == "1" && w.data("b") == "1").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_before_a_compaction_are_found_by_a_list() {
    let mut world = synced(&[("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))]).await;
    let store = world.server.embedded().store();
    // The watch must not reopen before the compaction.
    world.levers().fail_next(Fault {
        verb: "watch".into(),
        resource: "configmaps".into(),
        code: 503,
        times: 1,
        ..Fault::default()
    });
    store.end_watches(None);
    world.edit(A.0, A.1, A.2, json!({"data": {"key": "changed"}}));
    world.delete(A.0, A.1, "b");
    store.compact();
    revert_of(&mut world, "b").await;
    world.until("both are back", |w| w.data("a") == "1" && w.data("b") == "1").await;
    fence(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_was_deleted_during_a_watch_outage_releases_its_objects() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    world.fail_next("watch", "gitsyncs", "", 503, 2);
    world.server.embedded().store().end_watches(Some("gitsyncs"));
    delete_sync(&world, "demo");
    world.server.embedded().store().compact();
    sync_is_gone(&world, "demo").await;
    are_released(&world).await;
    assert_eq!(world.data("a"), "1");
}
