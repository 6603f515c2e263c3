//! `mainstay sync`.

use serde_json::json;

use mainstay_testkit::{
    kubectl::Kubectl,
    program::mainstay,
    world::{NAMESPACE, World, config_map, open_definition},
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
    let user = Kubectl::of_world(&world.server, NAMESPACE).await.run(&whoami).await;
    let recorded = world.status("demo")["windowOverride"].clone();
    assert_eq!((&recorded["commit"], &recorded["claimedUser"]), (&json!(second), &json!(user)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_with_0_only_when_the_objects_are_healthy_at_the_commit() {
    let mut world = World::new().await;
    let widget = "apiVersion: mainstay-tests.example.org/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}\n";
    world.remote.file("a.yaml", widget).file("b.yaml", open_definition()).commit("one");
    world.synced(json!({})).await;
    let say = |world: &World, kind: &str, status: &str| {
        let condition = json!({"type": kind, "status": status, "reason": "Any", "message": "no disk left"});
        let status = json!({"status": {"conditions": [condition]}});
        world.edit("mainstay-tests.example.org/v1", "widgets", "w", status);
    };
    say(&world, "Ready", "False");
    world.condition_is("demo", "Ready", "Unknown Progressing").await;
    let (code, said) = mainstay(&world, &["sync", "demo", "--timeout", "2s"]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("is not Ready after 2 s") && said.contains("Widget.mainstay-tests.example.org"), "{said}");
    let (code, said) = mainstay(&world, &["sync", "demo", "--no-wait"]).await;
    assert_eq!(code, 0, "{said}");

    say(&world, "Stalled", "True");
    world.condition_is("demo", "Ready", "False ObjectFailed").await;
    let (code, said) = mainstay(&world, &["sync", "demo"]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("Unhealthy") && said.contains("no disk left"), "{said}");

    say(&world, "Ready", "False");
    world.condition_is("demo", "Ready", "Unknown Progressing").await;
    let handled = world.status("demo")["lastHandledRequest"].clone();
    let rollout = async {
        world.until("the request is answered", |w| w.status("demo")["lastHandledRequest"] != handled).await;
        say(&world, "Ready", "True");
    };
    let ((code, said), ()) = tokio::join!(mainstay(&world, &["sync", "demo"]), rollout);
    assert_eq!(code, 0, "{said}");

    world.kill().await;
    let (code, said) = mainstay(&world, &["sync", "demo", "--timeout", "1s"]).await;
    assert_eq!(code, 2, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_failure_of_several_git_syncs_is_said_once_with_their_names() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("other", json!({"baseDir": "/none"}));
    world.synced(json!({})).await;
    world.kill().await;
    world.hold_lease();
    let (code, said) = mainstay(&world, &["sync", "--timeout", "1s"]).await;
    let expected = format!(
        "GitSync {NAMESPACE}/demo, GitSync {NAMESPACE}/other:\nerror: no agent has performed the request within 1 s\n"
    );
    assert!(code == 2 && said.starts_with(&expected), "{said}");
    assert_eq!(said.matches("error:").count(), 1, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn says_at_once_that_no_agent_holds_the_lease() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    let said = "no agent is running in this cluster; the request is performed once one runs";
    let (code, without) = mainstay(&world, &["sync", "demo"]).await;
    assert!(code == 0 && without.contains(said), "{without}");
    world.hold_lease();
    let (code, with) = mainstay(&world, &["sync", "demo"]).await;
    assert!(code == 0 && !with.contains(said), "{with}");
}
