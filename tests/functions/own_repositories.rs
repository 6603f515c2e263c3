//! Functions with their own repository address, as in `v1alpha2`.

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use crate::v1alpha2::{serve, serving};
use mainstay_testkit::{
    functions::{API, DEPLOYMENTS, JOBS, inline},
    git_server::GitServer,
    remote::NAME,
    world::{NAMESPACE, World},
};

const NEVER: Duration = Duration::from_secs(3600);

async fn world() -> World {
    let mut world = World::with_functions().await;
    world.functions.git_interval = NEVER;
    world.functions.git_fetch_requeue = NEVER;
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}").file("other/a", "1").commit("one");
    world
}

/// Returns the spec of a Function in the directory `/hello` of a repository, in `v1alpha1`.
fn own(repository: Value) -> Value {
    json!({
        "runtime": "nodejs22", "type": "git", "source": "", "gitRepository": repository, "reference": "main",
        "baseDir": "/hello", "minReplicas": 1, "maxReplicas": 1,
    })
}

fn with_secret(server: &GitServer, secret: &str) -> Value {
    own(json!({"url": server.url(NAME), "auth": {"type": "basic", "secretName": secret}}))
}

fn password(text: &str) -> Value {
    json!({"username": BASE64_STANDARD.encode("u"), "password": BASE64_STANDARD.encode(text)})
}

fn create_secret(world: &World, name: &str, text: &str) {
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": password(text), "metadata": metadata});
    world.create("v1", "secrets", NAMESPACE, secret);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_of_v1alpha2_with_an_address_is_built_as_it_is() {
    let mut world = serving().await;
    let newer = "serverless.kyma-project.io/v1alpha2";
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}").commit("one");
    let url = world.remote.path().display().to_string();
    let source = json!({"gitRepository": {"url": url, "baseDir": "/hello", "reference": "main"}});
    let spec = json!({"runtime": "nodejs22", "source": source});
    let metadata = json!({"name": "hello", "namespace": NAMESPACE});
    world.create(
        newer,
        "functions",
        NAMESPACE,
        json!({"apiVersion": newer, "kind": "Function", "metadata": metadata, "spec": spec}),
    );
    world.runs("hello").await;
    let older = world.function_now("hello").unwrap();
    assert_eq!((&older["spec"]["source"], &older["spec"]["gitRepository"]), (&json!(""), &json!({"url": url})));
    let shown = world.get(newer, "functions", "hello").unwrap();
    assert_eq!(shown["spec"]["source"], source, "nothing else was written into it");
    let status = &shown["status"];
    assert_eq!((&status["commit"], &status["source"]), (&json!(world.remote.head()), &json!(url)));
    serve(&world, false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_follows_its_own_repository_and_another_agent_knows_what_it_has_built() {
    let mut world = world().await;
    world.start();
    let url = world.remote.path().display().to_string();
    world.function("hello", own(json!({"url": url})));
    world.runs("hello").await;
    let second = { world.remote.file("hello/handler.js", "2").commit("here") };
    world.look();
    world.until_function("the new commit is built", |w| w.function_status("hello")["commit"] == *second).await;
    world.runs("hello").await;

    world.remote.file("other/a", "2").commit("elsewhere");
    world.kill().await;
    world.start();
    world.quiet().await;
    assert_eq!(world.function_status("hello")["commit"], *second, "the files are those of that commit");
    assert_eq!(world.children("hello", JOBS).len(), 1);

    // A GitRepository with the same address is the same source.
    let image = world.function_status("hello")["image"].clone();
    world.repository("named", &url);
    world.edit_function("hello", json!({"spec": {"source": "named", "gitRepository": null}}));
    world.until_function("it names the GitRepository", |w| w.function_status("hello")["source"] == "named").await;
    world.runs("hello").await;
    assert_eq!(world.function_status("hello")["image"], image);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_of_a_functions_own_repository_opens_it_and_is_handed_to_no_code() {
    let mut world = world().await;
    let server = GitServer::start(world.remote.root()).await;
    server.require("u", "right");
    let mut reader = inline("1");
    reader["env"] = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "git", "key": "password"}}}]);
    world.function("reader", reader);
    world.start();
    create_secret(&world, "git", "wrong");
    world.runs("reader").await;
    world.function("hello", with_secret(&server, "git"));
    let denied = "False GitAuthorizationFailed: Authorization to git server failed";
    world.says("hello", "ConfigurationReady", denied).await;
    world.edit("v1", "secrets", "git", json!({"data": password("right")}));
    world.runs("hello").await;
    let job = world.child("hello", JOBS).to_string();
    assert!(job.contains("--auth=basic") && job.contains(r#""secretName":"git""#) && !job.contains("right"), "{job}");

    // The Secret is a credential now, for a new agent too. The serving version continues.
    let refused = "False SpecInvalid: invalid value: env A reads Secret \"git\", which holds the credentials for the Git \
                   repository of a Function: spec.env";
    world.says("reader", "ConfigurationReady", refused).await;
    let serving = world.child("reader", DEPLOYMENTS)["metadata"]["generation"].clone();
    world.kill().await;
    world.start();
    world.edit_function("reader", json!({"spec": {"source": "2"}}));
    world
        .until_function("it is judged", |w| {
            let now = w.function_now("reader").unwrap();
            now["status"]["observedGeneration"] == now["metadata"]["generation"]
        })
        .await;
    world.says("reader", "ConfigurationReady", refused).await;
    assert_eq!(world.child("reader", DEPLOYMENTS)["metadata"]["generation"], serving);
    world.delete(API, "functions", "hello");
    world.says("reader", "ConfigurationReady", "True").await;
    world.runs("reader").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_credential_of_others_is_sent_to_an_address_that_a_function_names() {
    let mut world = world().await;
    let (server, evil) = (GitServer::start(world.remote.root()).await, GitServer::start(world.remote.root()).await);
    server.require("u", "right");
    evil.require("u", "right");
    create_secret(&world, "shop", "right");
    let metadata = json!({"name": "copied", "namespace": NAMESPACE, "labels": {"serverless.kyma-project.io/config": "credentials"}});
    let copied = json!({"apiVersion": "v1", "kind": "Secret", "data": password("right"), "metadata": metadata});
    world.create("v1", "secrets", NAMESPACE, copied);
    let spec = json!({"url": server.url(NAME), "auth": {"type": "basic", "secretName": "shop"}});
    let metadata = json!({"name": "shop", "namespace": NAMESPACE});
    let repository = json!({"apiVersion": API, "kind": "GitRepository", "metadata": metadata, "spec": spec});
    world.create(API, "gitrepositories", NAMESPACE, repository);
    world.start();
    for (name, secret, purpose) in [
        ("registry", "serverless-registry-config", "the image registry"),
        ("git", "shop", "a Git repository"),
        ("all", "copied", "all namespaces"),
    ] {
        world.function(name, with_secret(&evil, secret));
        let refused = format!(
            "False SpecInvalid: invalid value: the repository is read with Secret \"{secret}\", which holds the credentials for \
             {purpose}: spec.gitRepository.auth.secretName"
        );
        world.says(name, "ConfigurationReady", &refused).await;
        assert!(world.children(name, JOBS).is_empty());
    }
    assert_eq!(evil.take_counts().requests, 0);
    // The GitRepository already sends the Secret to this server.
    world.function("hello", with_secret(&server, "shop"));
    world.runs("hello").await;
}
