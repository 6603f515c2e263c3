//! Remotes with many consumers. No remote delays another.

use std::{fs::OpenOptions, path::PathBuf, time::Duration};

use serde_json::json;

use mainstay_testkit::{
    git_server::GitServer,
    remote::{NAME, Remote as Origin},
    world::{NAMESPACE, World, config_map},
};

/// Bytes of a file that a clone receives and later fetches do not.
const LARGE: usize = 300_000;
/// API version of GitSyncs.
const SYNCS: &str = "mainstay.dev/v1alpha1";

/// Returns a GitSync `demo` and a Git Function `hello` of one remote. Both are up to date.
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
async fn a_mirror_stays_as_long_as_a_git_sync_or_function_uses_it() {
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
    world.delete(SYNCS, "gitsyncs", "demo");
    world.until("the GitSync is gone", |w| w.get(SYNCS, "gitsyncs", "demo").is_none()).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirror_without_consumers_is_removed_after_a_restart() {
    let (mut world, _server) = both().await;
    let mut other = Origin::new();
    other.file("hello/handler.js", "other").commit("one");
    let other = GitServer::start(other.root()).await;
    world.repository("other", &other.url(NAME));
    world.git_function("leaving", "/hello");
    world.edit_function("leaving", json!({"spec": {"source": "other"}}));
    world.runs("leaving").await;
    assert_eq!(world.mirrors(), 2);
    world.stop().await;
    world.delete_function("leaving");
    world.sync("suspended", json!({"gitRepository": "other", "suspend": true}));
    world.fail_next("watch", "functions", "", 503, 10_000);
    world.start();
    world.condition_is("suspended", "Suspended", "True Suspended").await;
    world.remote.file("objects/a.yaml", config_map("a", "2"));
    world.commit("demo", "two").await;
    assert_eq!(world.mirrors(), 2, "Functions may read them");
    world.levers().clear_faults();
    world.remote.file("hello/handler.js", "2");
    let head = world.remote.commit("three");
    world.look();
    world.until_function("the Function goes on", |w| w.function_status("hello")["commit"] == *head).await;
    assert_eq!(world.mirrors(), 2, "what is suspended has its mirror");

    world.stop().await;
    world.edit(SYNCS, "gitsyncs", "suspended", json!({"spec": {"gitRepository": "repo"}}));
    world.start();
    world.until("nobody reads the other one", |w| w.mirrors() == 1).await;
    world.remote.file("objects/a.yaml", config_map("a", "3"));
    world.commit("demo", "four").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_watched_once_however_many_need_it() {
    let mut world = World::with_functions().await;
    world.remote.file("hello/handler.js", "1").file("objects/a.yaml", config_map("a", "1")).commit("one");
    let server = GitServer::start(world.remote.root()).await;
    server.require("u", "right");
    let metadata = json!({"name": "git", "namespace": NAMESPACE});
    let data = json!({"username": "u", "password": "right"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
    world.create("v1", "secrets", NAMESPACE, secret);
    for name in ["one", "two"] {
        world.repository(name, &server.url(NAME));
        let auth = json!({"spec": {"auth": {"type": "basic", "secretName": "git"}}});
        world.edit("serverless.kyma-project.io/v1alpha1", "gitrepositories", name, auth);
        world.sync(name, json!({"gitRepository": name, "baseDir": if name == "one" { "/objects" } else { "/hello" }}));
    }
    world.start();
    world.condition_is("one", "Ready", "True").await;
    let watches = |world: &World| {
        let counts = world.levers().counts();
        let secrets = counts.iter().filter(|count| count.verb == "watch" && count.resource == "secrets");
        secrets.map(|count| count.count).sum::<u64>()
    };
    // The agent's own watches: Secrets that request an SSH key or a registry login, the Secret with that login, the one
    // with the login of NATS, logins for all namespaces, and their copies.
    let own = 6;
    assert_eq!(watches(&world), own + 1, "two GitSyncs need it, and there is no Function that needs a registry");
    for (number, repository) in ["one", "two", "one", "two"].into_iter().enumerate() {
        let name = format!("f{number}");
        world.git_function(&name, "/hello");
        world.edit_function(&name, json!({"spec": {"source": repository}}));
    }
    for number in 0..4 {
        world.runs(&format!("f{number}")).await;
    }
    assert_eq!(watches(&world), own + 4, "and one for each of the names that are the same in every namespace");
}

/// A repository that never answers: its references are read from a pipe without a writer.
struct Stalled {
    origin: Origin,
    pipe: PathBuf,
}

impl Stalled {
    fn new() -> Self {
        let mut origin = Origin::new();
        origin.file("a.yaml", config_map("stalled", "1")).commit("one");
        let pipe = origin.path().join("packed-refs");
        let made = mainstay_testkit::isolated("mkfifo").arg(&pipe).status();
        assert!(made.expect("`mkfifo` is installed (apt-get install coreutils)").success());
        Self { origin, pipe }
    }
}

/// Releases the waiting readers, so that the test can end.
impl Drop for Stalled {
    fn drop(&mut self) {
        let writer = OpenOptions::new().read(true).write(true).open(&self.pipe);
        let _ = std::fs::remove_file(&self.pipe);
        drop(writer);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_remotes_of_one_namespace_do_not_delay_another_namespace() {
    let mut world = World::with_functions().await;
    world.deadlines.lookup = Duration::from_secs(2);
    world.remote.file("hello/handler.js", "1").file("objects/a.yaml", config_map("a", "1")).commit("one");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "slow"}});
    world.create("v1", "namespaces", "", namespace);
    world.start();
    let stalled = (0..12).map(|_| Stalled::new()).collect::<Vec<_>>();
    for (number, stalled) in stalled.iter().enumerate() {
        let metadata = json!({"name": format!("stalled-{number}"), "namespace": "slow"});
        let api = "serverless.kyma-project.io/v1alpha1";
        let spec = json!({"url": stalled.origin.path().display().to_string()});
        let repository = json!({"apiVersion": api, "kind": "GitRepository", "metadata": metadata, "spec": spec});
        world.create(api, "gitrepositories", "slow", repository);
        let spec = json!({"gitRepository": format!("stalled-{number}"), "interval": "1h"});
        let sync = json!({"apiVersion": SYNCS, "kind": "GitSync", "metadata": metadata, "spec": spec});
        world.create(SYNCS, "gitsyncs", "slow", sync);
    }
    let gave_up = |world: &World| {
        let syncs = world.server.objects(SYNCS, "gitsyncs", Some("slow"));
        syncs.iter().filter(|sync| sync["status"].to_string().contains("looking up the reference")).count()
    };
    world.until("all permits that the namespace may have are taken", |w| gave_up(w) == stalled.len()).await;

    world.sync("demo", json!({"baseDir": "/objects"}));
    world.ready("demo").await;
    world.git_function("hello", "/hello");
    world.runs("hello").await;
    assert_eq!(gave_up(&world), stalled.len(), "the others are stalled all the same");
}
