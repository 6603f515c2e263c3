//! `/metrics` of the running agent.

use mainstay_engine::notification::Message;
use serde_json::json;

use mainstay_testkit::{
    drift::next_revert,
    functions::{DEPLOYMENTS, inline},
    listener::metrics_are,
    ownership::{delete_sync, sync_is_gone},
    world::{World, config_map, free_address},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_series_of_a_deleted_sync_are_dropped() {
    let mut world = World::new().await;
    world.listen = Some(free_address());
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    let series = r#"mainstay_commits_applied_total{sync="mainstay-tests/demo"} 1"#;
    metrics_are(&world, "the commit is counted", |text| text.contains(series)).await;
    delete_sync(&world, "demo");
    sync_is_gone(&world, "demo").await;
    metrics_are(&world, "nothing is left of it", |text| {
        text.contains("# EOF") && !text.contains("mainstay-tests/demo")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revert_of_a_functions_child_is_counted_for_the_function() {
    let mut world = World::with_functions().await;
    world.listen = Some(free_address());
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    let name = world.child_name("hello", DEPLOYMENTS);
    world.edit(DEPLOYMENTS.0, DEPLOYMENTS.1, &name, json!({"spec": {"paused": true}}));
    assert!(matches!(next_revert(&mut world, &name).await, Message::Reverted { .. }));
    let series = r#"mainstay_reverts_total{function="mainstay-tests/hello"} 1"#;
    metrics_are(&world, "the revert is counted", |text| text.contains(series)).await;
    world.delete("serverless.kyma-project.io/v1alpha1", "functions", "hello");
    metrics_are(&world, "nothing is left of it", |text| {
        text.contains("# EOF") && !text.contains(r#"function="mainstay-tests/hello""#)
    })
    .await;
}
