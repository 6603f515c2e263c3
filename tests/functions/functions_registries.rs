//! Registries that refuse, lie, are full or redirect. The Function's status reports the cause without credentials, and
//! the serving version continues.

use std::time::Duration;

use http::Method;
use serde_json::json;

use mainstay_testkit::{
    functions::{DEPLOYMENTS, JOBS, inline},
    logs,
    registry::{DockerRegistry, Fault, Front, Served},
    world::{NAMESPACE, World},
};

const NEVER: Duration = Duration::from_secs(3600);
const WORD: &str = "the-word-for-this-registry-3a9";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_a_registry_are_reported_and_the_old_image_serves() {
    logs::keep();
    let registry = DockerRegistry::start(Served::Plainly).await;
    let (front, elsewhere) = (Front::of(&registry).await, Front::of(&registry).await);
    let mut world = World::with_processes().await;
    world.functions.requeue = NEVER;
    let place =
        json!({"registryAddress": front.host(), "serverAddress": front.host(), "username": "u", "password": WORD});
    world.edit("v1", "secrets", "serverless-registry-config-default", json!({"stringData": place}));
    world.start();
    world.function("hello", inline("0"));
    world.runs("hello").await;
    let image = world.function_status("hello")["image"].clone();
    let faults = [
        (Method::POST, "/uploads/", Fault::Status(401), "answered 401 to these credentials"),
        (Method::POST, "/uploads/", Fault::Code(403, "DENIED"), "a quota is used up"),
        (Method::PATCH, "/uploads/", Fault::Status(413), "takes no uploads of this size"),
        (Method::PATCH, "/uploads/", Fault::Status(507), "its volume is full"),
        (
            Method::POST,
            "/uploads/",
            Fault::Redirect(format!("http://{}", elsewhere.host())),
            "only reads may be redirected",
        ),
        (Method::PUT, "/manifests/", Fault::OtherDigest, "the image that it keeps does not have the requested digest"),
    ];
    for (n, (method, part, fault, words)) in faults.into_iter().enumerate() {
        let shown = format!("{fault:?}");
        front.fail(method, part, fault, 1000);
        // Another source gets the same result.
        world.edit_function("hello", json!({"spec": {"source": format!("{}", n + 1)}}));
        world.says("hello", "BuildReady", "False JobFailed").await;
        let told = |w: &World| w.said("hello", "BuildReady").contains(words);
        world.until_function(&format!("{words:?} for {shown}"), told).await;
        assert!(world.said("hello", "Running").starts_with("True"), "{}", world.said("hello", "Running"));
        assert_eq!(world.function_status("hello")["image"], image);
        front.heal();
    }
    assert_eq!(elsewhere.take_seen().len(), 0);
    world.edit_function("hello", json!({"spec": {"source": "'in the end'"}}));
    world.runs("hello").await;
    assert_ne!(world.function_status("hello")["image"], image);
    assert_eq!(world.children("hello", JOBS).len(), 1);
    let found = world.whereabouts(WORD);
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_registry_address_is_reported_by_its_key_and_blocks_builds() {
    let mut world = World::with_functions().await;
    let builds = world.builds();
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    let image = world.function_status("hello")["image"].clone();
    let deployed = world.child("hello", DEPLOYMENTS)["metadata"]["generation"].clone();
    let (external, default) = ("serverless-registry-config", "serverless-registry-config-default");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": external, "namespace": NAMESPACE},
        "stringData": {"registryAddress": "", "username": "u", "password": WORD},
    });
    world.create("v1", "secrets", NAMESPACE, secret);
    let cases = [
        ("", "has no registryAddress; add the key registryAddress"),
        (" \n", "has no registryAddress; add the key registryAddress"),
        ("h.io/a?b", "is not a registry address"),
        ("h.io/a b", "is not a registry address"),
        ("h.io/UPPER", "is not a registry address"),
        ("h.io:99999", "is not a registry address"),
        ("https://u:the-word-for-this-registry-3a9@h.io", "is not a registry address"),
    ];
    for (n, (address, words)) in cases.into_iter().enumerate() {
        let data = json!({"stringData": {"registryAddress": address}});
        world.edit("v1", "secrets", external, data);
        let told = |w: &World| {
            let said = w.said("hello", "ConfigurationReady");
            let named = said.contains("registryAddress") && said.contains(&format!("Secret {external} "));
            said.starts_with("False RegistryNotConfigured: ")
                && said.contains(words)
                && (named || said.contains("in the Secret"))
        };
        world.until_function(&format!("{words:?} of {address:?}"), told).await;
        // Further changes and another Function get the same message.
        world.edit_function("hello", json!({"spec": {"source": format!("'{n}'")}}));
        world.function(&format!("new-{n}"), inline("1"));
        world.says(&format!("new-{n}"), "ConfigurationReady", "False RegistryNotConfigured: ").await;
        let observed = |w: &World| {
            let function = w.function_now("hello").unwrap();
            function["status"]["observedGeneration"] == function["metadata"]["generation"]
        };
        world.until_function("the change is seen", observed).await;
        assert!(world.said("hello", "Running").starts_with("True"), "{address}: {}", world.said("hello", "Running"));
        assert_eq!(world.function_status("hello")["image"], image, "{address}");
    }
    assert_eq!(world.child("hello", DEPLOYMENTS)["metadata"]["generation"], deployed);
    assert_eq!(builds.all().len(), 1, "nothing is built for a registry that is none: {:?}", builds.all());
    let statuses = world.server.objects("serverless.kyma-project.io/v1alpha1", "functions", None);
    let events = world.server.objects("v1", "events", None);
    assert!(!statuses.iter().chain(&events).any(|object| object.to_string().contains(WORD)));
    world.edit("v1", "secrets", external, json!({"stringData": {"registryAddress": "h.io/a"}}));
    world.runs("hello").await;
    world.runs("new-0").await;
    let now = world.function_status("hello")["image"].as_str().unwrap().to_owned();
    assert!(now.starts_with("h.io/a/mainstay-tests_hello:"), "{now}");
    // The same holds for the Secret in every namespace.
    world.delete("v1", "secrets", external);
    world.edit("v1", "secrets", default, json!({"stringData": {"registryAddress": "h.io/a?b"}}));
    world.says("hello", "ConfigurationReady", "False RegistryNotConfigured: registryAddress in the Secret").await;
    assert!(world.said("hello", "ConfigurationReady").contains(default));
    assert_eq!(world.function_status("hello")["image"], now);
}
