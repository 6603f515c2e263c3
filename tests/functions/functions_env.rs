//! The environment of a Function's pods, and the cost of its changes.

use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{DEPLOYMENTS, JOBS, inline},
    world::{NAMESPACE, World},
};

/// Returns the names of the user's variables in the pod's order.
fn variables(world: &World) -> Vec<String> {
    let container = world.child("hello", DEPLOYMENTS)["spec"]["template"]["spec"]["containers"][0].clone();
    let names = container["env"].as_array().unwrap().iter().map(|variable| variable["name"].as_str().unwrap());
    names.filter(|name| name.len() == 1).map(str::to_owned).collect()
}

fn generation(world: &World) -> Value {
    world.child("hello", DEPLOYMENTS)["metadata"]["generation"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_order_of_the_variables_rolls_the_pods_and_builds_nothing() {
    let one = |name: &str| json!({"name": name, "value": "1"});
    let mut spec = inline("1");
    spec["env"] = json!([one("A"), {"name": "B", "value": "$(A)"}]);
    let world = World::running(spec).await;
    let (image, job) = (world.function_status("hello")["image"].clone(), world.child_name("hello", JOBS));
    let before = generation(&world);
    assert_eq!(variables(&world), ["A", "B"]);
    // The order matters: the kubelet expands $(A) only if A comes first.
    world.edit_function("hello", json!({"spec": {"env": [{"name": "B", "value": "$(A)"}, one("A")]}}));
    world.until_function("the order is the new one", |w| variables(w) == ["B", "A"]).await;
    world.runs("hello").await;
    assert_ne!(generation(&world), before);
    assert_eq!(world.function_status("hello")["image"], image);
    assert_eq!(world.child_name("hello", JOBS), job);
    // Sending the same order again changes nothing.
    let before = generation(&world);
    world.edit_function("hello", json!({"spec": {"env": [{"name": "B", "value": "$(A)"}, one("A")]}}));
    world.edit_function("hello", json!({"metadata": {"annotations": {"mainstay.dev/somebody": "looks"}}}));
    world.quiet().await;
    assert_eq!((generation(&world), variables(&world)), (before, vec!["B".to_owned(), "A".to_owned()]));
}

/// A user who may change a Function's code could read all values of its environment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_credential_of_a_build_or_a_repository_is_handed_to_the_code() {
    let mut world = World::with_functions().await;
    world.start();
    let reads = |secret: &str| {
        let mut spec = inline("1");
        spec["env"] = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": secret, "key": "password"}}}]);
        spec
    };
    let refused = |secret: &str, purpose: &str| {
        format!(
            "False SpecInvalid: invalid value: env A reads Secret \"{secret}\", which holds the credentials for {purpose}"
        )
    };
    for secret in
        ["serverless-registry-config", "serverless-registry-config-default", "serverless-package-registry-config"]
    {
        world.function(secret, reads(secret));
        let purpose = if secret.contains("package") { "the package registries" } else { "the image registry" };
        world.says(secret, "ConfigurationReady", &refused(secret, purpose)).await;
        assert!(world.children(secret, DEPLOYMENTS).is_empty() && world.children(secret, JOBS).is_empty());
    }
    // A Secret may be used until a Receiver or a GitRepository uses it for authentication.
    world.function("hello", reads("shop"));
    world.runs("hello").await;
    let generation = generation(&world);
    let receivers = "mainstay.dev/v1alpha1";
    let hook = json!({"type": "github", "secretRef": {"name": "shop"}});
    let hook = json!({"apiVersion": receivers, "kind": "Receiver", "metadata": {"name": "hook"}, "spec": hook});
    world.create(receivers, "receivers", NAMESPACE, hook);
    world.says("hello", "ConfigurationReady", &refused("shop", "a Receiver")).await;
    world.delete(receivers, "receivers", "hook");
    world.says("hello", "ConfigurationReady", "True").await;
    let api = "serverless.kyma-project.io/v1alpha1";
    let spec = json!({"url": "https://git.example.com/shop", "auth": {"type": "basic", "secretName": "shop"}});
    let repository = json!({"apiVersion": api, "kind": "GitRepository", "metadata": {"name": "shop"}, "spec": spec});
    world.create(api, "gitrepositories", NAMESPACE, repository);
    world.says("hello", "ConfigurationReady", &refused("shop", "a Git repository")).await;
    // The serving version continues, as after any refusal.
    assert_eq!(world.child("hello", DEPLOYMENTS)["metadata"]["generation"], generation);
    world.delete(api, "gitrepositories", "shop");
    world.says("hello", "ConfigurationReady", "True").await;
}

/// The metadata of a Secret matters as much as its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_token_of_a_service_account_and_no_key_of_the_agent_is_handed_to_the_code() {
    let mut world = World::with_functions().await;
    let secret = |name: &str, kind: &str, metadata: Value| {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {"name": name}});
        json_patch::merge(&mut secret["metadata"], &metadata);
        world.create("v1", "secrets", NAMESPACE, secret);
    };
    let account = json!({"annotations": {"kubernetes.io/service-account.name": "default"}});
    secret("robot", "kubernetes.io/service-account-token", account);
    secret("key", "Opaque", json!({"labels": {"mainstay.dev/generate": "ssh-key"}}));
    secret("own", "Opaque", json!({}));
    world.start();
    for (name, purpose) in [
        ("robot", Some("a ServiceAccount")),
        ("key", Some("a Git repository (a key that the agent generated)")),
        ("bootstrap-token-abcdef", Some("nodes that join the cluster")),
        ("own", None),
    ] {
        let mut spec = inline("1");
        spec["env"] = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": name, "key": "token"}}}]);
        world.function(name, spec);
        let Some(purpose) = purpose else {
            world.runs(name).await;
            continue;
        };
        let refused = format!("which holds the credentials for {purpose}");
        let said = |w: &World| w.said(name, "ConfigurationReady");
        world
            .until_function(&refused, |w| said(w).starts_with("False SpecInvalid") && said(w).contains(&refused))
            .await;
        assert!(world.children(name, DEPLOYMENTS).is_empty() && world.children(name, JOBS).is_empty());
    }
}
