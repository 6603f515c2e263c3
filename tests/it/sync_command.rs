//! `mainstay sync`.

use serde_json::json;

use crate::support::{
    kubectl::Kubectl,
    program::mainstay,
    world::{NAMESPACE, World, config_map},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overriding_a_window_says_as_which_user() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1"));
    world.remote.commit("one");
    world.synced(json!({})).await;
    let window = json!([{"kind": "Deny", "schedule": "* * * * *", "duration": "1h"}]);
    world.change("demo", json!({"windows": window})).await;
    world.remote.file("a.yaml", config_map("a", "2"));
    let second = world.try_commit("demo", "two").await;
    let (code, said) = mainstay(&world, &["sync", "demo", "--override-window"]).await;
    assert_eq!((code, world.data("a").as_str()), (0, "2"), "{said}");
    let whoami = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
    let user = Kubectl::of(world.server.embedded(), NAMESPACE).await.run(&whoami).await;
    let recorded = world.status("demo")["windowOverride"].clone();
    assert_eq!((&recorded["commit"], &recorded["claimedUser"]), (&json!(second), &json!(user)));
}
