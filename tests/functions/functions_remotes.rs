//! Failing Git servers, unusable repositories, and tags.

use std::{fs, path::Path, time::Duration};

use git2::ObjectType;
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{DEPLOYMENTS, JOBS, inline},
    git_server::{Fault, GitServer, On},
    remote::NAME,
    world::{NAMESPACE, World},
};

const API: &str = "serverless.kyma-project.io/v1alpha1";
/// The first delay after a failure.
const FIRST: Duration = Duration::from_millis(100);
const NEVER: Duration = Duration::from_secs(3600);

/// Returns a world with an agent that is not running yet and polls remotes only after failures, and a server for its
/// repository, which the GitRepository `served` names.
async fn world() -> (World, GitServer) {
    let mut world = World::with_functions().await;
    world.functions.git_interval = NEVER;
    world.functions.git_fetch_requeue = FIRST;
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}").commit("one");
    let server = GitServer::start(world.remote.root()).await;
    world.repository("served", &server.url(NAME));
    (world, server)
}

/// Creates the Function `hello`, which follows this reference of a repository.
fn follow(world: &World, repository: &str, reference: &str) {
    let spec = json!({
        "runtime": "nodejs22", "type": "git", "source": repository, "reference": reference, "baseDir": "/hello",
        "minReplicas": 1, "maxReplicas": 1,
    });
    world.function("hello", spec);
}

/// Creates a GitRepository with credentials.
fn repository(world: &World, name: &str, url: &str, kind: &str) {
    let auth = json!({"type": kind, "secretName": "git"});
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let spec = json!({"url": url, "auth": auth});
    let object = json!({"apiVersion": API, "kind": "GitRepository", "metadata": metadata, "spec": spec});
    world.create(API, "gitrepositories", NAMESPACE, object);
}

/// Creates the Secret `git`.
fn create_secret(world: &World, data: &Value) {
    let metadata = json!({"name": "git", "namespace": NAMESPACE});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "stringData": data, "metadata": metadata});
    world.create("v1", "secrets", NAMESPACE, secret);
}

/// Waits until `hello` reports exactly this about its source, and checks that there is no build.
async fn is_told(world: &World, message: &str) {
    let expected = format!("False SourceUpdateFailed: {message}");
    let what = format!("to be told {expected:?}");
    world.until_function(&what, |w| w.said("hello", "ConfigurationReady") == expected).await;
    world.quiet().await;
    assert_eq!(world.said("hello", "ConfigurationReady"), expected);
    assert_eq!(world.children("hello", JOBS).len(), 0);
    assert_eq!(world.said("hello", "BuildReady"), "absent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_git_server_is_asked_with_backoff() {
    let (mut world, server) = world().await;
    world.start();
    follow(&world, "served", "main");
    world.runs("hello").await;
    world.quiet().await;
    server.fail(On::Everything, Fault::Status(503));
    server.forget_arrivals();
    world.look();
    world.until_function("the ninth attempt", |_| server.arrivals().len() >= 9).await;
    let arrivals = server.arrivals();
    let waits: Vec<_> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Each delay may be up to 10 % shorter.
    for (wait, times) in waits.iter().zip([1, 2, 4, 8, 10, 10, 10, 10]) {
        assert!(*wait >= FIRST * times * 9 / 10, "{times} times the first wait: {waits:?}");
    }
    assert!(world.said("hello", "ConfigurationReady").starts_with("False SourceUpdateFailed"), "it is told");
    assert!(world.said("hello", "Running").starts_with("True"), "it serves");
    // A retry finds the repaired server.
    server.heal();
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_of_a_git_server_prevents_further_lookups() {
    let (mut world, server) = world().await;
    world.start();
    follow(&world, "served", "main");
    world.runs("hello").await;
    world.quiet().await;
    server.fail(On::Everything, Fault::RetryAfter(3000));
    server.take_counts();
    world.look();
    let failed = "False SourceUpdateFailed: Sources update failed: git server failed";
    world.says("hello", "ConfigurationReady", failed).await;
    world.quiet().await;
    assert_eq!(server.take_counts().requests, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_git_server_is_reported_and_the_old_image_serves() {
    let (mut world, server) = world().await;
    world.start();
    follow(&world, "served", "main");
    world.runs("hello").await;
    server.fail(On::Everything, Fault::Status(503));
    world.look();
    let failed = "False SourceUpdateFailed: Sources update failed: git server failed";
    let serves = |w: &World| w.said("hello", "Running").starts_with("True DeploymentReady");
    world.says("hello", "ConfigurationReady", failed).await;
    assert!(serves(&world));
    // Another agent keeps the message and handles changes that need no Git.
    world.stop().await;
    world.start();
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    let has_variable = |w: &World| w.child("hello", DEPLOYMENTS).to_string().contains(r#""name":"A""#);
    world.until_function("the variable is rolled out", |w| has_variable(w) && serves(w)).await;
    world.says("hello", "ConfigurationReady", failed).await;
    assert_eq!(world.children("hello", JOBS).len(), 1, "nothing was built again");
    server.heal();
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_git_repository_is_not_reported_as_missing_and_delays_no_other_function() {
    for code in [403, 500] {
        let (mut world, _server) = world().await;
        for verb in ["list", "watch"] {
            world.fail_next(verb, "gitrepositories", "", code, 10_000);
        }
        follow(&world, "served", "main");
        world.function("inline", inline("1"));
        world.start();
        world.runs("inline").await;
        let said = "Reading git options failed: GitRepository \"served\" cannot be read: could not";
        world.says("hello", "ConfigurationReady", &format!("False SourceUpdateFailed: {said}")).await;
        let text = world.said("hello", "ConfigurationReady");
        assert!(text.contains(&code.to_string()) && !text.contains("does not exist"), "{text}");
        world.levers().clear_faults();
        world.runs("hello").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_reports_that_its_git_server_does_not_answer() {
    let (mut world, server) = world().await;
    // A bound port without a listener.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/{NAME}", socket.local_addr().unwrap());
    world.repository("away", &url);
    world.start();
    follow(&world, "away", "main");
    let why = "no connection: Connection refused (os error 111)";
    is_told(&world, &format!("Sources update failed: git server not reachable: look up main at {url}: {why}")).await;

    world.edit(API, "gitrepositories", "away", json!({"spec": {"url": server.url(NAME)}}));
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_reports_what_its_git_secret_lacks() {
    let (mut world, server) = world().await;
    server.require("u", "right");
    // Only a change of the Secret causes another request.
    world.functions.git_fetch_requeue = NEVER;
    repository(&world, "private", &server.url(NAME), "basic");
    create_secret(&world, &json!({"username": "u", "token": "right"}));
    world.start();
    follow(&world, "private", "main");
    let lacks = "missing field password: the Secret needs it (it may be empty)";
    let failed = "Reading git options failed: Secret \"git\": read the credentials of the repository";
    is_told(&world, &format!("{failed}: {lacks}")).await;
    assert_eq!(server.take_counts().requests, 0, "it is not asked in vain");
    world.edit("v1", "secrets", "git", json!({"stringData": {"password": "right"}}));
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_does_not_fit_its_credentials_is_reported_before_the_secret_is_read() {
    let (mut world, server) = world().await;
    server.require("u", "token");
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples/repository.yaml");
    let sample: Value = serde_yaml::from_str(&fs::read_to_string(sample).unwrap()).unwrap();
    let ssh = sample["spec"]["url"].clone();
    world.create(API, "gitrepositories", NAMESPACE, sample);
    world.start();
    follow(&world, "sample-with-auth", "main");
    let failed = "Reading git options failed";
    is_told(&world, &format!("{failed}: Secret \"kyma-git-creds\" does not exist in this namespace")).await;

    let edit = |spec: Value| world.edit(API, "gitrepositories", "sample-with-auth", json!({"spec": spec}));
    let unread = format!("{failed}: read the credentials of the repository");
    edit(json!({"url": server.url(NAME)}));
    let http = "a private key can be used only with an SSH URL: write the URL as ssh://user@host/path or \
                user@host:path, or set the type of the repository's `auth` to `basic`";
    is_told(&world, &format!("{unread}: {http}")).await;
    edit(json!({"url": ssh, "auth": {"type": "basic"}}));
    let basic = "an SSH URL needs a private key, not a user name and password: set the type of the repository's \
                 `auth` to `key`, or use its https:// URL";
    is_told(&world, &format!("{unread}: {basic}")).await;
    edit(json!({"auth": null}));
    let nothing = "an SSH URL needs a private key: name a Secret with the key in the repository's `auth`, with the \
                   type `key`";
    is_told(&world, &format!("{unread}: {nothing}")).await;
    assert_eq!(server.take_counts().requests, 0);

    // The hint in the message fixes the problem.
    edit(json!({"url": server.url(NAME), "auth": {"type": "basic", "secretName": "git"}}));
    create_secret(&world, &json!({"username": "u", "password": "token"}));
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_reports_the_commits_of_an_ambiguous_abbreviation() {
    let (mut world, server) = world().await;
    let (one, two) = world.remote.twins(ObjectType::Commit);
    world.remote.refer("refs/heads/one", one);
    world.remote.refer("refs/heads/two", two);
    world.start();
    let short = &one.to_string()[..7];
    follow(&world, "served", short);
    let mut names = [one, two].map(|id| id.to_string());
    names.sort();
    let looked = format!("reference not unique: look up {short} at {}", server.url(NAME));
    let why = format!("the abbreviated id matches several commits ({}, {})", names[0], names[1]);
    let instead = "write all 40 digits of the commit";
    is_told(&world, &format!("Sources update failed: {looked}: {why}; {instead}")).await;

    world.edit_function("hello", json!({"spec": {"reference": two.to_string()}}));
    world.runs("hello").await;
    assert_eq!(world.function_status("hello")["commit"], two.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_reports_that_its_repository_is_too_large() {
    let (mut world, server) = world().await;
    let small = world.remote.head();
    let mut random = fastrand::Rng::with_seed(1);
    let noise: Vec<u8> = (0..50_000).map(|_| random.u8(..)).collect();
    let large = world.remote.file("noise", noise).commit("large");
    world.limits.pack_bytes = 20_000;
    world.start();
    follow(&world, "served", "main");
    let fetched = format!("repository too large: fetch commit {large} from {}", server.url(NAME));
    let why = "the pack in bytes is larger than the limit of 20000";
    is_told(&world, &format!("Sources update failed: {fetched}: {why}")).await;

    world.remote.force(&small);
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_on_an_annotated_tag_runs_its_commit_and_moves_with_it() {
    for only_version_zero in [false, true] {
        let (mut world, server) = world().await;
        if only_version_zero {
            server.speak_version_zero();
        }
        let first = world.remote.head();
        world.remote.tag("v1");
        world.start();
        follow(&world, "served", "v1");
        world.runs("hello").await;
        let status = world.function_status("hello");
        assert_eq!((&status["commit"], &status["reference"]), (&json!(first), &json!("v1")));
        let version = |w: &World| w.function_now("hello").unwrap()["metadata"]["resourceVersion"].clone();
        world.quiet().await;
        let (before, job) = (version(&world), world.child_name("hello", JOBS));

        // An annotated tag is a new object for the same commit, while the branch advances.
        world.remote.annotated_tag("v1").file("hello/handler.js", "2").commit("two");
        server.take_counts();
        world.look();
        world.until_function("the look", |_| server.take_counts().requests > 0).await;
        world.quiet().await;
        assert_eq!(version(&world), before, "nothing was written");

        let second = world.remote.annotated_tag("v1").head();
        world.look();
        world.until_function("the new commit", |w| w.function_status("hello")["commit"] == *second).await;
        world.runs("hello").await;
        assert_ne!(world.child_name("hello", JOBS), job, "it is built again");
        let job = world.child("hello", JOBS).to_string();
        assert!(job.contains(&format!("--commit={second}")) && job.contains("--reference=v1"), "{job}");
    }
}
