//! The status of GitRepositories: the results of lookups, with and without consumers.

use serde_json::{Value, json};

use mainstay_testkit::{
    kubectl::Kubectl,
    remote::NAME,
    ssh_server::{SshServer, generate},
    world::{NAMESPACE, World, condition_of, config_map},
};

const API: &str = "serverless.kyma-project.io/v1alpha1";

fn repository(world: &World, name: &str) -> Value {
    (*world.get(API, "gitrepositories", name).unwrap()).clone()
}

fn status(world: &World, name: &str) -> Value {
    repository(world, name)["status"].clone()
}

async fn says(world: &World, name: &str, kind: &str, beginning: &str) {
    let said = |w: &World| condition_of(&status(w, name), kind);
    world.until_or(&format!("{name} {beginning}"), |w| said(w).starts_with(beginning), || said(world)).await;
}

/// Returns a private key, which this server accepts.
fn key(server: Option<&SshServer>) -> String {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("key");
    generate(&path, "ed25519", &["-N", ""]);
    if let Some(server) = server {
        server.authorize(&std::fs::read_to_string(path.with_extension("pub")).unwrap());
    }
    std::fs::read_to_string(path).unwrap()
}

/// Returns the numbers of status writes of GitRepositories, and of lookups.
async fn cost(world: &World) -> (u64, u64) {
    let counts = world.levers().counts();
    let writes = counts.iter().filter(|c| c.verb == "patch" && c.resource.starts_with("gitrepositories"));
    (writes.map(|c| c.count).sum(), world.lookups().await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_without_followers_says_whether_it_can_be_read() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1"));
    let commit = world.remote.commit("one");
    world.repository("missing", "/nowhere/at/all");
    world.repository("wrong", "ftp://git.example.org/shop.git");
    world.start();
    says(&world, "repo", "Ready", "True Resolved: read without a Secret").await;
    let found = status(&world, "repo");
    assert_eq!(found["revision"], json!(format!("main@sha1:{commit}")), "{found}");
    assert_eq!((&found["observedGeneration"], found["lastLookup"].is_string()), (&json!(1), true), "{found}");
    for kind in ["Resolved", "Authenticated"] {
        assert!(condition_of(&found, kind).starts_with("True "), "{found}");
    }
    says(&world, "missing", "Ready", "False Source").await;
    says(&world, "wrong", "Ready", "False SourceInvalid").await;
    let kubectl = Kubectl::of_world(&world.server, NAMESPACE).await;
    let table = kubectl.run(&["get", "gitrepositories"]).await;
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(table.lines().next().unwrap()), ["NAME", "URL", "AUTH", "READY", "REVISION", "AGE", "MESSAGE"]);
    let row = table.lines().find(|line| line.starts_with("repo ")).unwrap();
    assert!(row.contains(" True ") && row.contains(&format!("main@sha1:{} ", &commit[..12])), "{table}");
    // The address is corrected, and the status reports success.
    let path = world.remote.path().display().to_string();
    world.edit(API, "gitrepositories", "missing", json!({"spec": {"url": path}}));
    says(&world, "missing", "Ready", "True Resolved").await;
    assert_eq!(status(&world, "missing")["observedGeneration"], json!(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_that_is_followed_costs_no_request_and_no_write_of_its_own() {
    let mut world = World::new().await;
    world.listen = Some(mainstay_testkit::world::free_address());
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("other", json!({"targetNamespace": NAMESPACE, "baseDir": "/none"}));
    world.synced(json!({})).await;
    says(&world, "repo", "Ready", "True Resolved").await;
    let version = |w: &World| repository(w, "repo")["metadata"]["resourceVersion"].clone();
    let (first, (writes, lookups)) = (version(&world), cost(&world).await);
    for _ in 0..3 {
        world.ask("demo").await;
    }
    assert_eq!(version(&world), first, "nothing has changed");
    let after = cost(&world).await;
    assert_eq!((after.0, after.1 - lookups), (writes, 3), "the lookups of the GitSync");
    world.remote.file("a.yaml", config_map("a", "2"));
    world.commit("demo", "two").await;
    let head = world.remote.head();
    world
        .until("the revision is the new one", |w| status(w, "repo")["revision"] == json!(format!("main@sha1:{head}")))
        .await;
    assert_eq!(cost(&world).await.0, writes + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_annotation_requests_a_lookup_for_the_repository_and_its_followers() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    says(&world, "repo", "Ready", "True Resolved").await;
    let annotate = |world: &World, annotation: &str, value: &str| {
        world.edit(API, "gitrepositories", "repo", json!({"metadata": {"annotations": {annotation: value}}}));
    };
    let revision = |head: &str| json!(format!("main@sha1:{head}"));
    world.remote.file("a.yaml", config_map("a", "2")).commit("two");
    annotate(&world, "mainstay.dev/requestedAt", "first");
    world.ready("demo").await;
    let head = world.remote.head();
    world.until("the second commit", |w| status(w, "repo")["revision"] == revision(&head)).await;
    // The repository is looked up for its status, too, if its followers are suspended.
    world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", json!({"spec": {"suspend": true}}));
    world.condition_is("demo", "Suspended", "True").await;
    world.remote.file("a.yaml", config_map("a", "3")).commit("three");
    annotate(&world, "reconcile.fluxcd.io/requestedAt", "second");
    let head = world.remote.head();
    world.until("the third commit", |w| status(w, "repo")["revision"] == revision(&head)).await;
    assert_eq!(world.data("a"), "2", "the GitSync is suspended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_over_ssh_shows_the_host_key_and_whether_its_credentials_are_accepted() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    let server = SshServer::start(world.remote.root()).await;
    let key = key(Some(&server));
    let auth = json!({"type": "key", "secretName": "git"});
    let metadata = json!({"name": "private", "namespace": NAMESPACE});
    let spec = json!({"url": server.url(NAME), "auth": auth});
    let object = json!({"apiVersion": API, "kind": "GitRepository", "metadata": metadata, "spec": spec});
    world.create(API, "gitrepositories", NAMESPACE, object);
    world.start();
    says(&world, "private", "Ready", "False SecretNotFound: Secret git with the credentials does not exist").await;
    world.set_secret("git", json!({"key": key, "known_hosts": server.known_hosts(&["ed25519"])}));
    says(&world, "private", "Ready", "True Resolved: read with Secret git; host key SHA256:").await;
    let found = status(&world, "private");
    assert!(found["hostKey"].as_str().unwrap().contains(&server.fingerprint("ed25519")), "{found}");
    world.set_secret("git", json!({"key": self::key(None)}));
    says(&world, "private", "Authenticated", "False GitAuthorizationFailed").await;
    says(&world, "private", "Ready", "False GitAuthorizationFailed").await;
}
