//! Repositories over SSH, end to end: a GitSync, a Function and the container `fetch` of its build.

use std::{fs, time::Duration};

use mainstay_api::build::FailureReason;
use serde_json::{Value, json};

use mainstay_testkit::{
    build::{self, Job},
    canary::nothing_is_shown,
    functions::JOBS,
    logs,
    remote::NAME,
    ssh_server::{SshServer, generate},
    world::{NAMESPACE, World, config_map, free_address},
};

const API: &str = "serverless.kyma-project.io/v1alpha1";
const ALL: &[&str] = &["ed25519", "ecdsa", "rsa"];

/// Returns the secret parts of the key and its passphrases: every line of the key except the first and the last.
fn of_key(key: &str) -> Vec<&str> {
    let lines = key.lines().filter(|line| !line.starts_with("-----"));
    ["-tupelo", "PRIVATE KEY"].into_iter().chain(lines).collect()
}

/// Returns an accepted key with a passphrase.
fn key(server: &SshServer) -> String {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("key");
    generate(&path, "ed25519", &["-N", "horse-tupelo"]);
    server.authorize(&fs::read_to_string(path.with_extension("pub")).unwrap());
    fs::read_to_string(path).unwrap()
}

fn secret(world: &World, data: Value) {
    world.set_secret("git", data);
}

/// Creates a GitRepository `private` of the world's repository behind an SSH server.
async fn private(world: &World) -> SshServer {
    let server = SshServer::start(world.remote.root()).await;
    let spec = json!({"url": server.url(NAME), "auth": {"type": "key", "secretName": "git"}});
    let metadata = json!({"name": "private", "namespace": NAMESPACE});
    let object = json!({"apiVersion": API, "kind": "GitRepository", "metadata": metadata, "spec": spec});
    world.create(API, "gitrepositories", NAMESPACE, object);
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_follows_a_repository_over_ssh_and_each_correction_of_the_secret_works_at_once() {
    logs::keep();
    let mut world = World::new().await;
    world.listen = Some(free_address());
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    let server = private(&world).await;
    let key = key(&server);
    world.sync("demo", json!({"gitRepository": "private", "interval": "1h"}));
    world.start();
    world.condition_is("demo", "Ready", "False SecretNotFound: Secret git ").await;
    secret(&world, json!({"key": key, "password": "wrong-tupelo", "known_hosts": server.known_hosts(ALL)}));
    world.condition_is("demo", "Ready", "False SourceInvalid").await;
    let said = world.condition("demo", "Ready");
    assert!(said.ends_with("the passphrase under password of the Secret does not open the private key"), "{said}");
    assert_eq!(server.take_connections(), 0);
    secret(&world, json!({"password": "horse-tupelo"}));
    world.until("the object is applied", |w| w.data("a") == "1").await;
    world.ready("demo").await;

    // A changed host key stops new commits and keeps the applied objects.
    let old = server.fingerprint("ed25519");
    server.rotate(ALL);
    world.remote.file("a.yaml", config_map("a", "2")).commit("two");
    world.ask("demo").await;
    world.condition_is("demo", "Ready", "False GitAuthorizationFailed").await;
    let said = world.condition("demo", "Ready");
    let new = server.fingerprint("ed25519");
    assert!(said.contains(&format!("it presented {new}, known is {old}")), "{said}");
    assert_eq!(world.data("a"), "1");
    secret(&world, json!({"known_hosts": server.known_hosts(ALL)}));
    world.until("the second commit is applied", |w| w.data("a") == "2").await;
    world.ready("demo").await;
    nothing_is_shown(&mut world, &of_key(&key)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_follows_a_repository_over_ssh() {
    logs::keep();
    let mut world = World::with_functions().await;
    world.listen = Some(free_address());
    world.functions.git_interval = Duration::from_secs(3600);
    world.functions.git_fetch_requeue = Duration::from_secs(3600);
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}").commit("one");
    let server = private(&world).await;
    let key = key(&server);
    secret(&world, json!({"ssh-privatekey": key, "password": "horse-tupelo"}));
    world.git_function_of("private", "hello", "/hello");
    world.start();
    let denied = "False GitAuthorizationFailed: Authorization to git server failed: look up main at ssh://";
    world.says("hello", "ConfigurationReady", denied).await;
    let said = world.said("hello", "ConfigurationReady");
    assert!(said.contains(&format!("is not known: it presented {}", server.fingerprint("ed25519"))), "{said}");
    secret(&world, json!({"known_hosts": server.known_hosts(ALL)}));
    world.runs("hello").await;
    let job = world.child("hello", JOBS).to_string();
    assert!(job.contains("--auth=key") && job.contains(&format!("--url={}", server.url(NAME))), "{job}");
    assert!(job.contains(r#""secretName":"git""#), "{job}");
    nothing_is_shown(&mut world, &of_key(&key)).await;
}

/// Sets the host keys for all repositories.
fn known_hosts(world: &World, lines: &str) {
    let data = json!({"data": {"known_hosts": lines}});
    if world.get("v1", "configmaps", KNOWN_HOSTS).is_some() {
        world.edit("v1", "configmaps", KNOWN_HOSTS, data);
        return;
    }
    let metadata = json!({"name": KNOWN_HOSTS, "namespace": NAMESPACE});
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    object["data"] = data["data"].clone();
    world.create("v1", "configmaps", NAMESPACE, object);
}

const KNOWN_HOSTS: &str = "mainstay-known-hosts";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_host_key_is_refused_until_the_config_map_says_so_too_without_a_restart() {
    let mut world = World::with_functions().await;
    world.functions.git_interval = Duration::from_secs(3600);
    world.functions.git_fetch_requeue = Duration::from_secs(3600);
    world.remote.file("deploy/a.yaml", config_map("a", "1"));
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}").commit("one");
    let server = private(&world).await;
    let key = key(&server);
    secret(&world, json!({"key": key, "password": "horse-tupelo"}));
    world.sync("demo", json!({"gitRepository": "private", "baseDir": "/deploy", "interval": "1h"}));
    world.git_function_of("private", "hello", "/hello");
    world.start();
    world.condition_is("demo", "Ready", "False GitAuthorizationFailed").await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains(&format!("is not known: it presented {}", server.fingerprint("ed25519"))), "{said}");
    known_hosts(&world, &server.known_hosts(&["ed25519"]));
    world.ready("demo").await;
    world.runs("hello").await;
    let job = world.child("hello", JOBS).to_string();
    assert!(job.contains(&format!("--known-hosts={}", server.known_hosts(&["ed25519"]).trim())), "{job}");

    let old = server.fingerprint("ed25519");
    server.rotate(ALL);
    world.remote.file("deploy/a.yaml", config_map("a", "2")).commit("two");
    world.ask("demo").await;
    world.condition_is("demo", "Ready", "False GitAuthorizationFailed").await;
    let (said, new) = (world.condition("demo", "Ready"), server.fingerprint("ed25519"));
    let both = format!("it presented {new}, known is {old} (from the ConfigMap mainstay-known-hosts)");
    assert!(said.contains(&both), "{said}");
    assert_eq!(world.data("a"), "1");
    known_hosts(&world, &server.known_hosts(&["ed25519"]));
    world.until("the second commit is applied", |w| w.data("a") == "2").await;
    world.ready("demo").await;

    // A key that is revoked for all is refused, whatever the Secret says.
    secret(&world, json!({"known_hosts": server.known_hosts(ALL)}));
    world.ask("demo").await;
    world.ready("demo").await;
    known_hosts(&world, &format!("@revoked * {}", server.host_key("ed25519")));
    // The agent may observe the ConfigMap after the first request.
    let refused = async {
        while !world.condition("demo", "Ready").contains("which known_hosts marks as @revoked") {
            world.ask("demo").await;
        }
    };
    let refused = tokio::time::timeout(mainstay_testkit::PATIENCE, refused).await;
    assert!(refused.is_ok(), "{}", world.condition("demo", "Ready"));
}

#[tokio::test]
async fn the_container_of_a_build_fetches_over_ssh() {
    let origin = build::Origin::new(|remote| {
        remote.file("handler.js", "module.exports = { main: () => 'hello' };\n").file("package.json", "{}");
    });
    let origin = origin.await;
    let server = SshServer::start(origin.remote.root()).await;
    let key = key(&server);
    let job = Job::new();
    let mut arguments = origin.resolved("/");
    arguments[1] = server.url(NAME);
    let credentials = job.path("git-credentials").to_str().unwrap().to_owned();
    arguments.extend(["--auth".into(), "key".into(), "--credentials".into(), credentials]);
    let refused = async |expected: &str| {
        let failure = job.failure("fetch", "nodejs22", &arguments).await;
        assert_eq!(failure.reason, FailureReason::GitAuthorization);
        assert!(failure.message.contains(expected), "{}", failure.message);
    };
    refused("missing field key").await;
    job.put("git-credentials/key", key).put("git-credentials/password", "horse-8172");
    refused("does not open the private key").await;
    job.put("git-credentials/password", "horse-tupelo\n");
    refused(&format!("is not known: it presented {}", server.fingerprint("ed25519"))).await;
    job.put("git-credentials/known_hosts", server.known_hosts(ALL));
    job.fetch("nodejs22", &arguments).await;
    assert_eq!(job.names("workspace/src"), ["handler.js", "package.json"]);
    for content in job.listing("workspace").into_values() {
        assert!(!content.contains(&hex::encode("tupelo")) && !content.contains(&hex::encode("PRIVATE KEY")));
    }
}
