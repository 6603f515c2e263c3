//! Remote clusters whose addresses the users of the cluster choose.

use mainstay_testkit::{
    git_server::GitServer,
    program::Program,
    remote::NAME,
    world::{NAMESPACE, World},
};
use serde_json::json;

use super::browser::Browser;

/// Creates a GitSync with a kubeconfig for this server.
fn sync_to(world: &World, name: &str, server: &str) {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "far",
        "clusters": [{"name": "far", "cluster": {"server": server}}],
        "users": [{"name": "far", "user": {"token": "t"}}],
        "contexts": [{"name": "far", "context": {"cluster": "far", "user": "far"}}],
    });
    world.set_secret(name, json!({"value": kubeconfig.to_string()}));
    world.sync(name, json!({"kubeConfig": {"secretRef": {"name": name}}}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_cluster_at_the_users_machine_gets_no_request() {
    let world = World::new().await;
    let server = GitServer::start(world.remote.root()).await;
    let address = server.url(NAME);
    sync_to(&world, "far", &address);
    sync_to(&world, "named", &address.replace("127.0.0.1", "localhost"));
    sync_to(&world, "metadata", "http://169.254.169.254/latest");
    let program = Program::of(&world).await;
    let browser = Browser::open(&program, &[]).await;
    let page = |name: &str| format!("/gitsync/{NAMESPACE}/{name}");
    for name in ["far", "named"] {
        let text = browser.get(&page(name)).await.text;
        assert!(text.contains("are in another cluster and are not shown"), "{name}: {text}");
        assert!(text.contains("connections to this machine are refused"), "{name}: {text}");
    }
    let text = browser.get(&page("metadata")).await.text;
    assert!(text.contains("are in another cluster and are not shown"), "{text}");
    assert!(server.arrivals().is_empty(), "a request was sent");

    // The servers of `mainstay dev` are on this machine.
    program.set_dev_run(&world.remote.path());
    let browser = Browser::open(&program, &[]).await;
    let text = browser.get(&page("far")).await.text;
    assert!(!text.contains("connections to this machine are refused"), "{text}");
    assert!(!server.arrivals().is_empty(), "no request was sent");
}
