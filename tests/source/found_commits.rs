//! A commit that one consumer of a repository finds is used by all others immediately, whatever their interval.

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use mainstay_testkit::{
    git_server::GitServer,
    remote::{NAME, Remote as Origin},
    world::{NAMESPACE, World, condition_of, config_map, free_address},
};

const API: &str = "serverless.kyma-project.io/v1alpha1";
const SYNCS: &str = "mainstay.dev/v1alpha1";
/// GitSyncs of the branch besides the one that finds the commit.
const SIBLINGS: usize = 20;
/// An interval longer than any test.
const NEVER: &str = "10h";

/// Writes a commit in which every directory has this revision.
fn write(remote: &mut Origin, revision: &str) {
    for number in 0..=SIBLINGS {
        remote.file(&format!("apps/{number}/a.yaml"), config_map(&format!("a-{number}"), revision));
    }
    remote.file("suspended/a.yaml", config_map("suspended", revision)).file("hello/handler.js", revision);
}

fn follow(world: &World, name: &str, base_dir: &str, spec: Value) {
    let mut whole = json!({"gitRepository": "shop", "baseDir": base_dir, "interval": NEVER});
    json_patch::merge(&mut whole, &spec);
    world.sync(name, whole);
}

fn revision(world: &World, repository: &str) -> Value {
    world.get(API, "gitrepositories", repository).unwrap()["status"]["revision"].clone()
}

async fn world() -> World {
    let mut world = World::with_functions().await;
    world.listen = Some(free_address());
    world.functions.git_interval = Duration::from_secs(36_000);
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_follow_a_branch_take_up_a_commit_that_one_finds_with_one_lookup_and_one_fetch() {
    let mut world = world().await;
    write(&mut world.remote, "1");
    world.remote.file("broken/a.yaml", "apiVersion: v1\nkind: ConfigMap\n");
    world.remote.commit("one");
    let server = GitServer::start(world.remote.root()).await;
    world.repository("shop", &server.url(NAME));
    world.start();
    for number in 0..=SIBLINGS {
        let reference = if number % 2 == 0 { "main" } else { "refs/heads/main" };
        follow(&world, &format!("sync-{number}"), &format!("/apps/{number}"), json!({"reference": reference}));
    }
    follow(&world, "suspended", "/suspended", json!({}));
    follow(&world, "broken", "/broken", json!({}));
    world.git_function_of("shop", "hello", "/hello");
    for number in 0..=SIBLINGS {
        world.ready(&format!("sync-{number}")).await;
    }
    world.ready("suspended").await;
    world.runs("hello").await;
    world.condition_is("broken", "Ready", "False ManifestInvalid").await;
    world.edit(SYNCS, "gitsyncs", "suspended", json!({"spec": {"suspend": true}}));
    world.condition_is("suspended", "Suspended", "True").await;
    world.remote.branch("dev").file("dev/a.yaml", config_map("dev", "1")).commit("dev");
    follow(&world, "dev", "/dev", json!({"reference": "dev"}));
    world.ready("dev").await;
    world.quiet().await;

    world.remote.branch("main");
    write(&mut world.remote, "2");
    world.remote.file("broken/a.yaml", config_map("mended", "2"));
    let head = world.remote.commit("two");
    let (before, unmoved) = (world.lookups().await, world.status("dev"));
    server.take_counts();
    world.request("sync-0");
    for number in 0..=SIBLINGS {
        world.ready_at(&format!("sync-{number}"), &head).await;
        assert_eq!(world.data(&format!("a-{number}")), "2");
    }
    world.ready_at("broken", &head).await;
    world.until_function("the Function follows", |w| w.function_status("hello")["commit"] == *head).await;
    world.until("the revision is shown", |w| revision(w, "shop") == json!(format!("main@sha1:{head}"))).await;
    world.quiet().await;
    assert_eq!((world.lookups().await - before, server.take_counts().packs), (1, 1));
    assert_eq!((world.data("suspended").as_str(), world.status("suspended")["appliedCommit"] == *head), ("1", false));
    assert_eq!(world.status("dev"), unmoved, "no commit of what it follows");
}

/// Creates a GitRepository `name` in the namespace with its own login.
fn repository(world: &World, server: &GitServer, namespace: &str, name: &str) {
    let metadata = json!({"name": name, "namespace": namespace});
    let data = json!({"username": name, "password": "right"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
    world.create("v1", "secrets", namespace, secret);
    let spec = json!({"url": server.url(NAME), "auth": {"type": "basic", "secretName": name}});
    let object = json!({"apiVersion": API, "kind": "GitRepository", "metadata": metadata, "spec": spec});
    world.create(API, "gitrepositories", namespace, object);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_login_looks_up_and_fetches_for_itself_what_another_one_has_found() {
    let mut world = world().await;
    write(&mut world.remote, "1");
    world.remote.commit("one");
    let server = GitServer::start(world.remote.root()).await;
    let login = |name| format!("Basic {}", BASE64_STANDARD.encode(format!("{name}:right")));
    let logins = ["shop", "alone", "tenant"].map(login);
    server.require_any(&logins.each_ref().map(String::as_str));
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    world.create("v1", "namespaces", "", team);
    repository(&world, &server, NAMESPACE, "shop");
    repository(&world, &server, NAMESPACE, "alone");
    repository(&world, &server, "team", "tenant");
    world.start();
    follow(&world, "finder", "/apps/0", json!({}));
    for number in 1..3 {
        let metadata = json!({"name": format!("tenant-{number}"), "namespace": "team"});
        let spec = json!({"gitRepository": "tenant", "baseDir": format!("/apps/{number}"), "interval": NEVER});
        let sync = json!({"apiVersion": SYNCS, "kind": "GitSync", "metadata": metadata, "spec": spec});
        world.create(SYNCS, "gitsyncs", "team", sync);
    }
    let of_tenant = |w: &World, commit: &str| {
        let syncs = w.server.objects(SYNCS, "gitsyncs", Some("team"));
        let is_at = |sync: &&Value| {
            condition_of(&sync["status"], "Ready").starts_with("True") && sync["status"]["appliedCommit"] == commit
        };
        syncs.iter().map(|sync| &**sync).filter(is_at).count() == 2
    };
    let first = world.remote.head();
    world.ready("finder").await;
    world.until("the tenant's GitSyncs are ready", |w| of_tenant(w, &first)).await;
    world.until("the third one is shown", |w| revision(w, "alone") == json!(format!("main@sha1:{first}"))).await;
    world.quiet().await;

    write(&mut world.remote, "2");
    let head = world.remote.commit("two");
    let before = world.lookups().await;
    server.take_counts();
    world.request("finder");
    world.ready_at("finder", &head).await;
    world.until("the tenant's GitSyncs follow", |w| of_tenant(w, &head)).await;
    world.until("the third one follows", |w| revision(w, "alone") == json!(format!("main@sha1:{head}"))).await;
    world.quiet().await;
    assert_eq!(world.lookups().await - before, 3, "one for each login");
    assert_eq!(server.take_counts().packs, 2, "the status of a repository needs no files");
}
