//! Secrets of Kubernetes' own types for credentials: `kubernetes.io/basic-auth` and `kubernetes.io/ssh-auth`.

use std::{collections::BTreeMap, fs};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::json;

use mainstay_testkit::{
    git_server::GitServer,
    remote::NAME,
    ssh_server::{SshServer, generate},
    world::{NAMESPACE, World, config_map},
};

const SERVERLESS: &str = "serverless.kyma-project.io/v1alpha1";

/// Creates a Secret of a type, and a GitRepository and a GitSync of the same name that use it.
fn with_secret(world: &World, name: &str, kind: &str, auth: &str, url: &str, data: &[(&str, &str)]) {
    let encoded: BTreeMap<_, _> = data.iter().map(|(key, value)| (*key, BASE64_STANDARD.encode(value))).collect();
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "data": encoded});
    world.create("v1", "secrets", NAMESPACE, secret);
    let spec = json!({"url": url, "auth": {"type": auth, "secretName": name}});
    let repository = json!({"apiVersion": SERVERLESS, "kind": "GitRepository", "metadata": metadata, "spec": spec});
    world.create(SERVERLESS, "gitrepositories", NAMESPACE, repository);
    world.sync(name, json!({"gitRepository": name, "baseDir": format!("/{name}"), "interval": "1h"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_of_the_types_of_kubernetes_open_a_repository() {
    let mut world = World::new().await;
    for name in ["basic", "password", "ssh"] {
        world.remote.file(&format!("{name}/map.yaml"), config_map(name, "1"));
    }
    world.remote.commit("one");
    let http = GitServer::start(world.remote.root()).await;
    http.require("robot", "horse-tupelo");
    let ssh = SshServer::start(world.remote.root()).await;
    let path = world.remote.root().join("key");
    generate(&path, "ed25519", &[]);
    ssh.authorize(&fs::read_to_string(path.with_extension("pub")).unwrap());
    let (key, known) = (fs::read_to_string(&path).unwrap(), ssh.known_hosts(&["ed25519"]));

    let basic = "kubernetes.io/basic-auth";
    let url = http.url(NAME);
    with_secret(&world, "basic", basic, "basic", &url, &[("username", "robot"), ("password", "horse-tupelo")]);
    with_secret(&world, "password", basic, "basic", &url, &[("password", "horse-tupelo")]);
    let data = [("ssh-privatekey", key.as_str()), ("known_hosts", &known)];
    with_secret(&world, "ssh", "kubernetes.io/ssh-auth", "key", &ssh.url(NAME), &data);
    world.start();
    for name in ["basic", "ssh"] {
        world.ready(name).await;
        assert_eq!(world.data(name), "1");
    }
    // Kubernetes accepts a password alone. Git hosts differ in the user name that they expect with it.
    let expected = "False SourceInvalid: read the credentials of the repository: missing field username: the Secret needs it \
                    beside password; beside a token most hosts take any name, such as git (Bitbucket: x-token-auth)";
    world.condition_is("password", "Ready", expected).await;
    world.set_secret("password", json!({"username": "robot"}));
    world.ready("password").await;
    assert_eq!(world.data("password"), "1");
}
