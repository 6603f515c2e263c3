//! References of Git Functions: missing ones that appear later or never, and repositories that move.

use std::time::Duration;

use serde_json::json;

use mainstay_testkit::{
    functions::JOBS,
    git_server::{Fault, GitServer, On},
    remote::{NAME, Remote},
    world::{NAMESPACE, World},
};

const SOON: Duration = Duration::from_millis(100);
const NEVER: Duration = Duration::from_secs(3600);

/// Returns a world with an agent that polls remotes only after failures, and a server for its repository, which the
/// GitRepository `served` names.
async fn world() -> (World, GitServer) {
    let mut world = World::with_functions().await;
    world.functions.git_interval = NEVER;
    world.functions.git_fetch_requeue = SOON;
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}").commit("one");
    let server = GitServer::start(world.remote.root()).await;
    world.repository("served", &server.url(NAME));
    world.start();
    (world, server)
}

/// Creates the Function `hello`, which follows this reference of the served repository.
fn follow(world: &World, reference: &str) {
    world.function(
        "hello",
        json!({
            "runtime": "nodejs22", "type": "git", "source": "served", "reference": reference, "baseDir": "/hello",
            "minReplicas": 1, "maxReplicas": 1,
        }),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_is_created_later_is_found() {
    let (mut world, _server) = world().await;
    follow(&world, "later");
    let missing = "False SourceUpdateFailed: Sources update failed: reference not found";
    world.says("hello", "ConfigurationReady", missing).await;
    // No other work could cause a request.
    world.quiet().await;
    world.remote.branch("later");
    world.runs("hello").await;
    assert_eq!(world.function_status("hello")["commit"], *world.remote.head());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_repository_that_is_created_later_is_found() {
    let (world, server) = world().await;
    server.fail(On::Everything, Fault::Status(404));
    follow(&world, "main");
    let missing = "False SourceUpdateFailed: Sources update failed: repository not found";
    world.says("hello", "ConfigurationReady", missing).await;
    world.quiet().await;
    server.heal();
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_of_the_git_server_is_honoured() {
    let (world, server) = world().await;
    server.fail(On::Everything, Fault::RetryAfter(3000));
    follow(&world, "main");
    let busy = "False SourceUpdateFailed: Sources update failed: git server failed";
    world.says("hello", "ConfigurationReady", busy).await;
    world.quiet().await;
    server.take_counts();
    // Other changes of the Function do not cause a request.
    let secret = "serverless-registry-config-default";
    world.edit("v1", "secrets", secret, json!({"stringData": {"registryAddress": "other.example.org"}}));
    server.heal();
    world.quiet().await;
    assert_eq!(server.take_counts().requests, 0);
    world.look();
    world.runs("hello").await;
    assert!(world.child("hello", JOBS).to_string().contains("--image=other.example.org/"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_commit_is_reported_and_nothing_is_built() {
    let (world, _server) = world().await;
    let commit = "a".repeat(40);
    follow(&world, &commit);
    let missing = format!("False SourceUpdateFailed: Sources update failed: commit not found: fetch commit {commit}");
    world.says("hello", "ConfigurationReady", &missing).await;
    let said = world.said("hello", "ConfigurationReady");
    assert!(said.ends_with("the repository has no such commit on any branch that can be fetched"), "{said}");
    world.quiet().await;
    assert_eq!(world.children("hello", JOBS).len(), 0);
    assert_eq!(world.said("hello", "BuildReady"), "absent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_no_longer_the_tip_of_a_branch_runs() {
    let (mut world, server) = world().await;
    let old = world.remote.head();
    world.remote.file("hello/handler.js", "2").commit("two");
    world.remote.file("hello/handler.js", "3").commit("three");
    follow(&world, &old);
    world.runs("hello").await;
    let status = world.function_status("hello");
    assert_eq!((&status["commit"], &status["reference"]), (&json!(old), &json!(old)));
    let job = world.child("hello", JOBS).to_string();
    assert!(job.contains(&format!("--commit={old}")), "{job}");
    // A commit is immutable, so later commits cause no request.
    world.quiet().await;
    server.take_counts();
    world.remote.file("hello/handler.js", "4").commit("four");
    world.look();
    world.quiet().await;
    assert_eq!(server.take_counts().requests, 0);
    assert_eq!(world.function_status("hello")["commit"], *old);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_address_in_the_git_repository_is_followed_at_once() {
    let (mut world, _server) = world().await;
    follow(&world, "main");
    world.runs("hello").await;
    let mut other = Remote::new();
    let head = other.file("hello/handler.js", "other").file("hello/package.json", "{}").commit("elsewhere");
    let elsewhere = GitServer::start(other.root()).await;
    let url = elsewhere.url(NAME);
    world.edit("serverless.kyma-project.io/v1alpha1", "gitrepositories", "served", json!({"spec": {"url": url}}));
    world.until_function("the other repository's commit", |w| w.function_status("hello")["commit"] == *head).await;
    world.runs("hello").await;
    let jobs = world.children("hello", JOBS);
    assert!(jobs.iter().any(|job| job.to_string().contains(&url)), "{jobs:#?}");
    // The first repository is not followed any more.
    let kept = head;
    world.remote.file("hello/handler.js", "2").commit("two");
    world.look();
    world.quiet().await;
    assert_eq!(world.function_status("hello")["commit"], *kept);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrected_package_registry_is_tried_at_once() {
    let (mut world, _server) = world().await;
    world.stop().await;
    world.functions.requeue = NEVER;
    world.start();
    world.builds_end("install", 1, "npm error code E401", Duration::ZERO);
    follow(&world, "main");
    let failed = |w: &World, attempts: i64| {
        w.function_status("hello")["builds"] == attempts && w.said("hello", "BuildReady").starts_with("False JobFailed")
    };
    world.until_function("the first failure", |w| failed(w, 1)).await;
    let said = world.said("hello", "BuildReady");
    assert!(said.contains("npm error code E401"), "{said}");
    // The Secret is created with a wrong value.
    let name = "serverless-package-registry-config";
    let npmrc = |token: &str| json!({".npmrc": format!("//registry.example.org/:_authToken={token}")});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE},
        "stringData": npmrc("wrong"),
    });
    world.create("v1", "secrets", NAMESPACE, secret);
    world.until_function("the second failure", |w| failed(w, 2)).await;
    world.builds_end("install", 0, "", Duration::ZERO);
    world.edit("v1", "secrets", name, json!({"stringData": npmrc("right")}));
    world.runs("hello").await;
    assert_eq!(world.function_status("hello")["builds"], 3);
    let all = format!("{:?} {:?}", world.function_now("hello"), world.children("hello", JOBS));
    assert!(!all.contains("_authToken"), "{all}");
}
