//! The backward loop, end to end: a hand edit goes back.

use serde_json::json;

use crate::support::world::{World, config_map};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_deleted_or_unlabelled_object_is_put_back() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("demo", json!({}));
    world.start();
    world.ready("demo").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("the value is put back", |w| w.data("a") == "1").await;
    world.delete("v1", "configmaps", "a");
    world.until("the object is created again", |w| w.data("a") == "1").await;
    world.edit("v1", "configmaps", "a", json!({"metadata": {"labels": {"mainstay.dev/sync": null}}}));
    world
        .until("the label is put back", |w| {
            w.get("v1", "configmaps", "a")
                .is_some_and(|a| a["metadata"]["labels"]["mainstay.dev/sync"] == "default.demo")
        })
        .await;
    world.until("three reverts in the status", |w| w.status("demo")["reverted"] == 3).await;
    let status = world.status("demo");
    let edit = &status["lastReverts"][2];
    assert_eq!(edit["who"], "kubectl-edit");
    assert_eq!(edit["fields"], json!(["data.key"]));
    assert_eq!(edit["changes"], json!([{"field": "data.key", "found": "\"changed\"", "restored": "\"1\""}]));
}
