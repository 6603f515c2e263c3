//! Remote clusters that are unavailable for a time, never answer, or are recreated.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_goes_away_and_comes_back_is_kept_as_before() {
    let (world, mut other) = applied(json!({"interval": "1s"})).await;
    other.close();
    other.edit("a", "edited");
    world.condition_is("demo", "Ready", "False ClusterUnavailable: the cluster of Secret other").await;
    assert_eq!(world.status("demo")["objects"], 2, "they are still there");
    other.open(CANARY).await;
    world.set_secret("other", json!({"value": other.kubeconfig(CANARY)}));
    world.ready("demo").await;
    world.until("it is reverted", |_| other.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_finds_a_cluster_away_knows_of_the_objects_what_it_knew() {
    let (mut world, mut other) = applied(json!({"interval": "1s"})).await;
    world.stop().await;
    other.close();
    world.start();
    world.condition_is("demo", "Ready", "False ClusterUnavailable").await;
    let status = world.status("demo");
    assert_eq!((&status["objects"], &status["appliedCommit"]), (&json!(2), &json!(world.remote.head())));
    other.open(CANARY).await;
    world.set_secret("other", json!({"value": other.kubeconfig(CANARY)}));
    world.ready("demo").await;
    assert_eq!(world.status("demo")["objects"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_never_answers_delays_no_other_git_sync() {
    let mut world = World::new().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let knocked = Arc::new(tokio::sync::Notify::new());
    let heard = Arc::clone(&knocked);
    std::thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            held.push(stream);
            heard.notify_one();
        }
    });
    world.set_secret("silent", json!({"value": plain(&format!("http://{address}"), "token: x")}));
    world.remote.file("own/a.yaml", config_map("a", "1")).file("own/b.yaml", config_map("b", "1"));
    world.remote.file("there/a.yaml", config_map("a", "2")).commit("one");
    let mut spec = to("silent");
    spec["baseDir"] = json!("there");
    world.sync("silent", spec);
    world.synced(json!({"baseDir": "own"})).await;
    knocked.notified().await;
    let begun = std::time::Instant::now();
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "edited"}}));
    world.until("it is reverted", |w| w.data("a") == "1").await;
    world.remote.remove("own/b.yaml");
    world.commit("demo", "two").await;
    world.until("what left is gone", |w| w.data("b") == "absent").await;
    assert!(begun.elapsed() < Duration::from_secs(10), "it waited for the other one: {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_was_created_again_at_the_same_address_is_another_one() {
    let (mut world, mut other) = applied(json!({"interval": "1s"})).await;
    let kubeconfig = other.open_to_all().await;
    world.set_secret("other", json!({"value": kubeconfig}));
    world.ready("demo").await;
    other.close();
    world.condition_is("demo", "Ready", "False ClusterUnavailable").await;
    let first = world.status("demo")["cluster"].clone();
    other.server = Cluster::new(Options::default());
    other.server.start_controllers();
    assert_eq!(other.open_to_all().await, kubeconfig, "the Secret has nothing new to say");
    world.until("everything is applied again", |_| other.data("a") == "1" && other.data("b") == "1").await;
    world.ready("demo").await;
    assert_ne!(world.status("demo")["cluster"], first);
    world.remote.remove("b.yaml");
    world.commit("demo", "two").await;
    world.until("what left is gone", |_| other.data("b") == "absent").await;
}
