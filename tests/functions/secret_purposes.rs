//! A Secret with one purpose is not used for another: it reaches no code, object or Git host of another user.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{API, DEPLOYMENTS, JOBS, inline},
    git_server::GitServer,
    remote::NAME,
    world::{NAMESPACE, World, condition_of},
};

/// The Secrets, and the purposes for which they are refused.
const SECRETS: [(&str, &str); 8] = [
    ("serverless-registry-config-default", "the image registry"),
    ("serverless-package-registry-config", "the package registries"),
    ("copied", "all namespaces"),
    ("robot", "a ServiceAccount"),
    ("clusters", "another cluster"),
    ("sops", "the decryption of files"),
    ("values", "the variables or charts of a GitSync"),
    ("hook", "a Receiver"),
];

fn object(kind: &str, name: &str, rest: &Value) -> Value {
    let version = match kind {
        "Secret" => "v1",
        "GitRepository" => API,
        _ => "mainstay.dev/v1alpha1",
    };
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}});
    json_patch::merge(&mut object, rest);
    object
}

/// Returns a world with all Secrets, and objects that use some of them.
async fn world() -> World {
    let mut world = World::with_functions().await;
    for (name, _) in SECRETS {
        let metadata = match name {
            "copied" => json!({"labels": {"serverless.kyma-project.io/config": "credentials"}}),
            "robot" => json!({"annotations": {"kubernetes.io/service-account.name": "default"}}),
            _ => json!({}),
        };
        let texts =
            [("username", "u"), ("password", "right"), ("token", "right"), ("registryAddress", "r.example.org")];
        let data: serde_json::Map<_, _> =
            texts.iter().map(|(key, text)| ((*key).to_owned(), json!(BASE64_STANDARD.encode(text)))).collect();
        if world.get("v1", "secrets", name).is_some() {
            world.delete("v1", "secrets", name);
        }
        world.create("v1", "secrets", NAMESPACE, object("Secret", name, &json!({"metadata": metadata, "data": data})));
    }
    let (suspended, file) = (true, world.remote.path().display().to_string());
    world.repository("source", &file);
    world.sync(
        "owner",
        json!({
            "gitRepository": "source", "suspend": suspended,
            "kubeConfig": {"secretRef": {"name": "clusters"}},
            "decryption": {"provider": "sops", "secretRef": {"name": "sops"}},
            "substituteFrom": [{"kind": "Secret", "name": "values"}],
        }),
    );
    let receiver = json!({"spec": {"type": "github", "secretRef": {"name": "hook"}, "resources": [{"kind": "GitRepository", "name": "source"}]}});
    world.create("mainstay.dev/v1alpha1", "receivers", NAMESPACE, object("Receiver", "hook", &receiver));
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}").commit("one");
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_reads_no_secret_that_has_a_purpose() {
    let mut world = world().await;
    world.start();
    for (secret, purpose) in SECRETS {
        let mut spec = inline("1");
        spec["env"] = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": secret, "key": "password"}}}]);
        world.function(secret, spec);
        let refused = format!(
            "False SpecInvalid: invalid value: env A reads Secret \"{secret}\", which holds the credentials for {purpose}"
        );
        world.says(secret, "ConfigurationReady", &refused).await;
        assert!(world.children(secret, DEPLOYMENTS).is_empty() && world.children(secret, JOBS).is_empty());
    }
    // The purpose ends with the object that gives it.
    world.delete("mainstay.dev/v1alpha1", "receivers", "hook");
    world.runs("hook").await;
}

/// A pod that starts later would read the Secret's new contents.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_function_loses_a_secret_that_gets_a_purpose() {
    let mut world = World::with_functions().await;
    world.start();
    let mut spec = inline("1");
    spec["env"] = json!([
        {"name": "KEPT", "value": "1"},
        {"name": "TAKEN", "valueFrom": {"secretKeyRef": {"name": "clusters", "key": "value", "optional": true}}},
    ]);
    spec["secretMounts"] = json!([{"secretName": "sops", "mountPath": "/keys"}]);
    world.function("early", spec);
    world.runs("early").await;
    let pod = |w: &World| w.child("early", DEPLOYMENTS)["spec"]["template"]["spec"].to_string();
    assert!(pod(&world).contains("clusters") && pod(&world).contains("sops"), "{}", pod(&world));
    let (kube_config, keys) =
        (json!({"secretRef": {"name": "clusters"}}), json!({"provider": "sops", "secretRef": {"name": "sops"}}));
    world.repository("source", &world.remote.path().display().to_string());
    world.sync(
        "owner",
        json!({"gitRepository": "source", "suspend": true, "kubeConfig": kube_config, "decryption": keys}),
    );
    let is_taken = |w: &World| !pod(w).contains("clusters") && !pod(w).contains("sops") && pod(w).contains("KEPT");
    world.until_or("both are taken", is_taken, || pod(&world)).await;
    let refused = "False SpecInvalid: invalid value: a mount reads Secret \"sops\", which holds the credentials for the decryption \
                   of files";
    world.says("early", "ConfigurationReady", refused).await;
    assert_eq!(world.children("early", JOBS).len(), 1, "nothing is built");
    world.delete("mainstay.dev/v1alpha1", "gitsyncs", "owner");
    world.says("early", "ConfigurationReady", "True").await;
    world
        .until_or("it has them again", |w| pod(w).contains("clusters") && pod(w).contains("sops"), || pod(&world))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_host_receives_no_secret_that_has_another_purpose() {
    let mut world = world().await;
    let evil = GitServer::start(world.remote.root()).await;
    evil.require("u", "right");
    world.start();
    for (secret, purpose) in SECRETS {
        let spec = json!({"url": evil.url(NAME), "auth": {"type": "basic", "secretName": secret}});
        let repository = object("GitRepository", secret, &json!({ "spec": spec }));
        world.create(API, "gitrepositories", NAMESPACE, repository);
        world.sync(secret, json!({"gitRepository": secret}));
        world.git_function_of(secret, secret, "/hello");
        let refused = format!("holds the credentials for {purpose}, so it is not used for a Git repository");
        let says = |w: &World| {
            [condition_of(&w.status(secret), "Ready"), w.said(secret, "ConfigurationReady")]
                .iter()
                .all(|said| said.starts_with("False") && said.contains(&refused))
        };
        world
            .until_or(&refused, says, || {
                format!("{} {}", condition_of(&world.status(secret), "Ready"), world.said(secret, "ConfigurationReady"))
            })
            .await;
        assert!(world.children(secret, JOBS).is_empty());
    }
    assert_eq!(evil.take_counts().requests, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_receive_no_value_of_a_secret_that_has_another_purpose() {
    let mut world = world().await;
    world.remote.file(
        "app/config.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: shown}, data: {a: '${password}'}}",
    );
    world.remote.commit("shows a variable");
    world.start();
    for (secret, purpose) in SECRETS.into_iter().filter(|(secret, _)| *secret != "values") {
        let source = json!([{"kind": "Secret", "name": secret}]);
        let spec = json!({"gitRepository": "source", "baseDir": "/app", "substituteFrom": source});
        world.sync("shows", spec);
        let refused =
            format!("holds the credentials for {purpose}, so it is not used for the variables or charts of a GitSync");
        let said = |w: &World| condition_of(&w.status("shows"), "Ready");
        world.until_or(&refused, |w| said(w).starts_with("False") && said(w).contains(&refused), || said(&world)).await;
        assert!(world.get("v1", "configmaps", "shown").is_none());
        world.delete("mainstay.dev/v1alpha1", "gitsyncs", "shows");
        world.until("it is gone", |w| w.get("mainstay.dev/v1alpha1", "gitsyncs", "shows").is_none()).await;
    }
}
