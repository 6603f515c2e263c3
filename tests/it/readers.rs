//! Many who read the same remotes: what one does is not in the way of another.

use std::time::Duration;

use serde_json::json;

use crate::support::{
    git_server::GitServer,
    remote::NAME,
    world::{World, config_map},
};

/// Bytes of a file that a clone brings and what comes later does not.
const LARGE: usize = 300_000;

/// A GitSync `demo` and a Git Function `hello` of one remote, which are both up to date.
async fn both() -> (World, GitServer) {
    let mut world = World::with_functions().await;
    world.functions.git_interval = Duration::from_secs(3600);
    let large: Vec<u8> = std::iter::repeat_with({
        let mut random = fastrand::Rng::with_seed(1);
        move || random.u8(..)
    })
    .take(LARGE)
    .collect();
    world.remote.file("large", large).file("hello/handler.js", "1").file("objects/a.yaml", config_map("a", "1"));
    world.remote.commit("one");
    let server = GitServer::start(world.remote.root()).await;
    world.repository("shared", &server.url(NAME));
    world.start();
    world.sync("demo", json!({"gitRepository": "shared", "baseDir": "/objects"}));
    world.ready("demo").await;
    function(&world);
    world.runs("hello").await;
    assert_eq!(world.mirrors(), 1, "both read the same mirror");
    (world, server)
}

fn function(world: &World) {
    world.git_function("hello", "/hello");
    world.edit_function("hello", json!({"spec": {"source": "shared"}}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirror_stays_as_long_as_a_git_sync_or_a_function_reads_it() {
    let (mut world, server) = both().await;
    let sent = |server: &GitServer| server.take_counts().bytes_out;
    assert!(sent(&server) > LARGE, "the clone");

    world.delete_function("hello");
    world.until("the Function is gone", |w| w.function_now("hello").is_none()).await;
    world.quiet().await;
    assert_eq!(world.mirrors(), 1, "the GitSync reads it");
    world.remote.file("objects/a.yaml", config_map("a", "2"));
    world.commit("demo", "two").await;
    assert_eq!(world.data("a"), "2");
    let more = sent(&server);
    assert!(more < LARGE, "not a clone: {more} bytes");

    function(&world);
    world.runs("hello").await;
    world.delete("mainstay.dev/v1alpha1", "gitsyncs", "demo");
    world.until("the GitSync is gone", |w| w.get("mainstay.dev/v1alpha1", "gitsyncs", "demo").is_none()).await;
    world.quiet().await;
    assert_eq!(world.mirrors(), 1, "the Function reads it");
    let head = world.remote.file("hello/handler.js", "2").commit("three");
    world.look();
    world.until_function("the new source is built", |w| w.function_status("hello")["commit"] == *head).await;
    let more = sent(&server);
    assert!(more < LARGE, "not a clone: {more} bytes");

    world.delete_function("hello");
    world.until("nobody reads it", |w| w.mirrors() == 0).await;
}
