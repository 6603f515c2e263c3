//! GitSyncs, Functions and builds with abbreviated commit IDs.

use std::cell::Cell;

use serde_json::json;

use mainstay_testkit::{
    build::{Job, Origin},
    functions::JOBS,
    git_server::GitServer,
    remote::NAME,
    world::{World, config_map},
};

/// Returns a world, a server for its repository, which the GitRepository `served` names, and the first commit.
async fn world() -> (World, GitServer, String) {
    let mut world = World::with_functions().await;
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}");
    let old = world.remote.file("apps/a.yaml", config_map("a", "old")).commit("old");
    world.remote.file("hello/handler.js", "2").file("apps/a.yaml", config_map("a", "new")).commit("new");
    let server = GitServer::start(world.remote.root()).await;
    world.repository("served", &server.url(NAME));
    world.start();
    (world, server, old)
}

fn function(world: &World, reference: &str) {
    world.function(
        "hello",
        json!({
            "runtime": "nodejs22", "type": "git", "source": "served", "reference": reference, "baseDir": "/hello",
            "minReplicas": 1, "maxReplicas": 1,
        }),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_runs_an_abbreviated_commit_and_a_new_agent_does_not_search_for_it() {
    let (mut world, server, old) = world().await;
    let short = &old[..7];
    function(&world, short);
    world.runs("hello").await;
    let status = world.function_status("hello");
    assert_eq!((&status["commit"], &status["reference"]), (&json!(old), &json!(short)));
    let job = world.child("hello", JOBS).to_string();
    assert!(job.contains(&format!("--commit={old}")) && job.contains(&format!("--reference={short}")), "{job}");

    world.kill().await;
    server.take_counts();
    world.start();
    let (requests, packs) = (Cell::new(0), Cell::new(0));
    let looked = |_: &World| {
        let counts = server.take_counts();
        requests.update(|all| all + counts.requests);
        packs.update(|all| all + counts.packs);
        requests.get() > 0
    };
    world.until_function("the new agent has looked", &looked).await;
    world.quiet().await;
    world.look();
    world.quiet().await;
    looked(&world);
    assert_eq!(packs.get(), 0);
    assert_eq!(world.function_status("hello"), status);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_reports_an_unknown_abbreviated_commit() {
    let (world, _server, _) = world().await;
    function(&world, "abcdef0");
    let missing = "False SourceUpdateFailed: Sources update failed: reference not found: look up abcdef0";
    world.says("hello", "ConfigurationReady", missing).await;
    let said = world.said("hello", "ConfigurationReady");
    assert!(said.contains("write all 40 digits of its id"), "{said}");
    assert_eq!(world.children("hello", JOBS).len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_applies_an_abbreviated_commit_and_a_new_agent_does_not_search_for_it() {
    let (mut world, server, old) = world().await;
    let spec = json!({"gitRepository": "served", "reference": &old[..8], "baseDir": "/apps"});
    world.sync("demo", spec);
    world.ready_at("demo", &old).await;
    assert_eq!(world.data("a"), "old");
    world.kill().await;
    server.take_counts();
    world.start();
    world.ask("demo").await;
    assert_eq!(world.status("demo")["appliedCommit"], *old);
    assert_eq!(server.take_counts().packs, 0);
}

#[tokio::test]
async fn a_build_fetches_the_recorded_commit_of_an_abbreviated_reference() {
    let mut origin = Origin::new(|remote| {
        remote.file("handler.js", "1").file("package.json", "{}");
    })
    .await;
    let mut resolved = origin.resolved("/");
    let at = resolved.iter().position(|argument| argument == "main").unwrap();
    resolved[at] = origin.remote.head()[..7].to_owned();
    origin.remote.file("handler.js", "2").commit("second");
    let job = Job::new();
    origin.server.take_counts();
    job.fetch("nodejs22", &resolved).await;
    assert_eq!(job.read("workspace/src/handler.js"), "1");
    assert_eq!(origin.server.take_counts().packs, 1);

    // A deleted branch with this name left its commit on another branch.
    resolved[at] = "abcdef0".to_owned();
    job.fetch("nodejs22", &resolved).await;
    assert_eq!(job.read("workspace/src/handler.js"), "1");
}
