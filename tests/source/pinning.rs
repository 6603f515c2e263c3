//! Host keys pinned at first use: for which repositories, and what happens with another key.

use std::fs;

use devcluster::fault_injection::Fault;
use serde_json::{Value, json};

use mainstay_testkit::{
    external::{External, KUBECONFIG},
    functions::JOBS,
    kubectl::Kubectl,
    remote::NAME,
    ssh_server::{SshServer, generate},
    world::{NAMESPACE, World, condition_of, config_map},
};

const API: &str = "serverless.kyma-project.io/v1alpha1";
const ALL: &[&str] = &["ed25519", "ecdsa", "rsa"];
const KNOWN_HOSTS: &str = "mainstay-known-hosts";

/// Creates a key that the server accepts.
fn key(server: &SshServer) -> String {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("key");
    generate(&path, "ed25519", &[]);
    server.authorize(&fs::read_to_string(path.with_extension("pub")).unwrap());
    fs::read_to_string(path).unwrap()
}

/// Creates a GitRepository with this setting for pinning.
fn repository(world: &World, name: &str, url: &str, host_keys: Option<&str>) {
    let spec = json!({"url": url, "auth": {"type": "key", "secretName": "git"}, "hostKeys": host_keys});
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let object = json!({"apiVersion": API, "kind": "GitRepository", "metadata": metadata, "spec": spec});
    world.create(API, "gitrepositories", NAMESPACE, object);
}

fn change(world: &World, name: &str, spec: Value) {
    world.edit(API, "gitrepositories", name, json!({"spec": spec}));
}

fn status(world: &World, name: &str) -> Value {
    world.get(API, "gitrepositories", name).unwrap()["status"].clone()
}

/// Returns the pinned hosts and fingerprints.
fn pins(world: &World, name: &str) -> Vec<(String, String)> {
    let all = status(world, name)["pinnedHostKeys"].as_array().cloned().unwrap_or_default();
    let text = |pin: &Value, field: &str| pin[field].as_str().unwrap().to_owned();
    all.iter().map(|pin| (text(pin, "host"), text(pin, "fingerprint"))).collect()
}

/// Creates a repository `private` behind an SSH server with a pinned key, and a GitSync `demo` of it.
async fn private(world: &World) -> SshServer {
    let server = SshServer::start(world.remote.root()).await;
    repository(world, "private", &server.url(NAME), Some("PinAtFirstUse"));
    world.set_secret("git", json!({"key": key(&server)}));
    world.sync("demo", json!({"gitRepository": "private", "baseDir": "/apps", "interval": "1h"}));
    server
}

/// Runs `kubectl` as an administrator.
async fn kubectl(world: &World, arguments: &str) {
    let words: Vec<_> = arguments.split(' ').map(|word| word.trim_matches('\'')).collect();
    if External::is_named() {
        assert!(
            mainstay_testkit::isolated("kubectl")
                .args(&words)
                .env("KUBECONFIG", std::env::var(KUBECONFIG).unwrap())
                .status()
                .unwrap()
                .success()
        );
    } else {
        Kubectl::of(world.server.embedded(), NAMESPACE).await.run(&words).await;
    }
}

fn known_hosts(world: &World, lines: &str) {
    let metadata = json!({"name": KNOWN_HOSTS, "namespace": NAMESPACE});
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"known_hosts": lines},
    });
    world.create("v1", "configmaps", NAMESPACE, object);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_key_is_pinned_and_another_one_is_refused_until_somebody_forgets_the_first() {
    let mut world = World::new().await;
    world.remote.file("apps/a.yaml", config_map("a", "1")).commit("one");
    let server = private(&world).await;
    world.start();
    world.ready("demo").await;
    assert_eq!(world.data("a"), "1");
    let old = server.fingerprint("ed25519");
    let pinned = [(server.name(), old.clone())];
    assert_eq!(pins(&world, "private"), pinned);
    let said = condition_of(&status(&world, "private"), "HostKeyPinned");
    let expected = format!("True PinnedAtFirstUse: the host key of {} was pinned at first use: {old}", server.name());
    assert!(said.starts_with(&expected), "{said}");

    // Another agent uses the pin.
    world.kill().await;
    server.rotate(ALL);
    let new = server.fingerprint("ed25519");
    world.remote.file("apps/a.yaml", config_map("a", "2")).commit("two");
    world.start();
    let changed =
        format!("the host key of {} has changed: it presented {new}, known is {old} (pinned at first", server.name());
    world.until("it is refused", |w| w.condition("demo", "Ready").contains(&changed)).await;
    assert!(world.condition("demo", "Ready").starts_with("False GitAuthorizationFailed"));
    assert_eq!((world.data("a"), pins(&world, "private")), ("1".into(), pinned.to_vec()));

    // The command in the message.
    let said = world.condition("demo", "Ready");
    let (_, command) = said.split_once("have the next key pinned: kubectl ").unwrap();
    let expected = format!(
        "-n {NAMESPACE} patch gitrepositories.serverless.kyma-project.io private --subresource status --type merge -p \
         '{{\"status\":{{\"pinnedHostKeys\":null}}}}'"
    );
    assert_eq!(command, expected);
    kubectl(&world, command).await;
    world.until("the second commit is applied", |w| w.data("a") == "2").await;
    assert_eq!(pins(&world, "private"), [(server.name(), new)]);
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn known_keys_of_a_host_precede_a_pin() {
    let mut world = World::new().await;
    world.remote.file("apps/a.yaml", config_map("a", "1")).commit("one");
    let server = private(&world).await;
    let right = server.known_hosts(ALL);
    let old = server.fingerprint("ed25519");
    server.rotate(ALL);
    known_hosts(&world, &right);
    world.start();
    let changed = format!("known is {old}");
    world.until("it is refused", |w| w.condition("demo", "Ready").contains(&changed)).await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains("(from the ConfigMap mainstay-known-hosts)"), "{said}");
    assert_eq!(status(&world, "private")["pinnedHostKeys"], Value::Null, "nothing is pinned over it");

    // A revoked key is not pinned.
    let revoked = format!("@revoked * {}", server.host_key("ed25519"));
    world.edit("v1", "configmaps", KNOWN_HOSTS, json!({"data": {"known_hosts": revoked}}));
    world.until("it is refused", |w| w.condition("demo", "Ready").contains("marks as @revoked")).await;
    assert_eq!(status(&world, "private")["pinnedHostKeys"], Value::Null);

    // No key of this host is known.
    world.edit("v1", "configmaps", KNOWN_HOSTS, json!({"data": {"known_hosts": "# none"}}));
    world.ready("demo").await;
    assert_eq!(pins(&world, "private"), [(server.name(), server.fingerprint("ed25519"))]);

    // The Secret overrides the pin immediately, even if it lacks a key of this host.
    world.set_secret("git", json!({"known_hosts": right}));
    world.until("it is refused", |w| w.condition("demo", "Ready").contains("(from known_hosts of the Secret)")).await;
    world.until("the pin is dropped", |w| pins(w, "private").is_empty()).await;
    assert_eq!(condition_of(&status(&world, "private"), "HostKeyPinned"), "absent");
    let other = format!("git.example.com {}", server.host_key("ed25519"));
    world.set_secret("git", json!({"known_hosts": other}));
    world.until("it is refused", |w| w.condition("demo", "Ready").contains("is not known: it presented")).await;
    world.set_secret("git", json!({"known_hosts": server.known_hosts(ALL)}));
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pinned_host_is_looked_at_once_the_right_key_is_known_and_the_pin_does_not_come_back() {
    let mut world = World::new().await;
    world.remote.file("apps/a.yaml", config_map("a", "1")).commit("one");
    let server = private(&world).await;
    let pinned = [(server.name(), server.fingerprint("ed25519"))];
    world.start();
    world.ready("demo").await;
    assert_eq!(pins(&world, "private"), pinned);
    // The pin was wrong: this is the real key of the host. The GitSync is ready, and its interval is an hour.
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("right");
    generate(&path, "ed25519", &[]);
    let public = fs::read_to_string(path.with_extension("pub")).unwrap();
    known_hosts(&world, &format!("{} {}", server.name(), public.trim()));
    world.until("it is refused", |w| w.condition("demo", "Ready").contains("(from the ConfigMap")).await;
    world.until("the pin is dropped", |w| pins(w, "private").is_empty()).await;
    assert_eq!(condition_of(&status(&world, "private"), "HostKeyPinned"), "absent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pin_goes_with_its_host_and_with_the_wish_for_it() {
    let mut world = World::new().await;
    world.remote.file("apps/a.yaml", config_map("a", "1")).commit("one");
    let server = private(&world).await;
    let other = SshServer::start(world.remote.root()).await;
    world.start();
    world.ready("demo").await;
    world.set_secret("git", json!({"key": key(&other)}));
    change(&world, "private", json!({"url": other.url(NAME)}));
    let pinned = [(other.name(), other.fingerprint("ed25519"))];
    world.until("the other key is pinned", |w| pins(w, "private") == pinned).await;
    world.ready("demo").await;
    change(&world, "private", json!({"hostKeys": null}));
    world.until("nothing is pinned", |w| pins(w, "private").is_empty()).await;
    assert_eq!(condition_of(&status(&world, "private"), "HostKeyPinned"), "absent");
    world.until("it is refused", |w| w.condition("demo", "Ready").contains("is not known: it presented")).await;
    change(&world, "private", json!({"hostKeys": "PinAtFirstUse", "url": "https://127.0.0.1:1/x"}));
    change(&world, "private", json!({"url": other.url(NAME)}));
    world.until("the key is pinned again", |w| pins(w, "private") == pinned).await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pin_and_its_connection_serve_no_other_repository() {
    let mut world = World::new().await;
    world.remote.file("apps/a.yaml", config_map("a", "1")).commit("one");
    let server = private(&world).await;
    world.start();
    world.ready("demo").await;
    repository(&world, "strict", &server.url(NAME), None);
    repository(&world, "other", &server.url(NAME), Some("PinAtFirstUse"));
    world.sync("strict", json!({"gitRepository": "strict", "baseDir": "/none", "interval": "1h"}));
    world.condition_is("strict", "Ready", "False GitAuthorizationFailed").await;
    assert!(world.condition("strict", "Ready").contains("is not known: it presented"));
    assert_eq!(pins(&world, "other"), [], "nobody uses it yet");
    server.rotate(ALL);
    world.sync("other", json!({"gitRepository": "other", "baseDir": "/none", "interval": "1h"}));
    let new = server.fingerprint("ed25519");
    world.until("it pins for itself", |w| pins(w, "other") == [(server.name(), new.clone())]).await;
    assert_ne!(pins(&world, "private"), pins(&world, "other"));
    world.ask("demo").await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains("(pinned at first use, at ") && said.contains(" private --subresource"), "{said}");
    assert_eq!(status(&world, "strict")["pinnedHostKeys"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_written_pin_nothing_is_opened() {
    let mut world = World::new().await;
    world.remote.file("apps/a.yaml", config_map("a", "1")).commit("one");
    let server = private(&world).await;
    world.fail_next("patch", "gitrepositories/status", "private", 403, 1000);
    world.start();
    let why = "but the status of the GitRepository was not written: ";
    world.until("it is told", |w| w.condition("demo", "Ready").contains(why)).await;
    assert_eq!(pins(&world, "private"), []);
    assert!(!server.log().contains("Accepted publickey"), "{}", server.log());
    world.levers().clear_faults();
    world.ask("demo").await;
    world.ready("demo").await;
    assert_eq!(pins(&world, "private"), [(server.name(), server.fingerprint("ed25519"))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_build_of_a_function_gets_the_pinned_key() {
    let mut world = World::with_functions().await;
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}").commit("one");
    let server = SshServer::start(world.remote.root()).await;
    repository(&world, "private", &server.url(NAME), Some("PinAtFirstUse"));
    world.set_secret("git", json!({"key": key(&server)}));
    world.git_function_of("private", "hello", "/hello");
    world.start();
    world.runs("hello").await;
    assert_eq!(pins(&world, "private"), [(server.name(), server.fingerprint("ed25519"))]);
    let job = world.child("hello", JOBS).to_string();
    assert!(
        job.contains(&format!("--known-hosts={}", server.known_hosts(&["ed25519"]).trim().trim_end_matches(" test"))),
        "{job}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_removal_of_a_pin_delays_no_other_repository() {
    let mut world = World::new().await;
    world.remote.file("apps/a.yaml", config_map("a", "1")).commit("one");
    let server = private(&world).await;
    repository(&world, "web", &server.url(NAME), Some("PinAtFirstUse"));
    world.sync("web", json!({"gitRepository": "web", "baseDir": "/none", "interval": "1h"}));
    world.start();
    let pinned = [(server.name(), server.fingerprint("ed25519"))];
    world.until("both are pinned", |w| pins(w, "private") == pinned && pins(w, "web") == pinned).await;
    world.ready("demo").await;
    world.levers().fail_next(Fault {
        verb: "patch".to_owned(),
        resource: "gitrepositories/status".to_owned(),
        name: "private".to_owned(),
        code: 503,
        retry_after: Some(3600),
        times: 1000,
        ..Fault::default()
    });
    change(&world, "private", json!({"hostKeys": null}));
    world.until("it is refused", |w| w.condition("demo", "Ready").contains("is not known: it presented")).await;
    change(&world, "web", json!({"hostKeys": null}));
    world.until("the other pin is removed", |w| pins(w, "web").is_empty()).await;
    assert_eq!(pins(&world, "private"), pinned);
}
