//! The forward loop, end to end: a commit goes in, the cluster follows.

use serde_json::json;

use crate::support::world::{World, config_map};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_applied_changed_and_pruned() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("two");
    world.sync("demo", json!({}));
    world.start();
    world.ready("demo").await;
    assert_eq!((world.data("a"), world.data("b")), ("1".to_owned(), "1".to_owned()));
    world.remote.file("a.yaml", config_map("a", "2")).remove("b.yaml");
    world.commit("demo", "change one, remove the other").await;
    assert_eq!((world.data("a"), world.data("b")), ("2".to_owned(), "absent".to_owned()));
    assert_eq!(world.status("demo")["objects"], 1);
}
