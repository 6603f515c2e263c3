//! Registries that refuse, lie, are full or lead elsewhere, and what is said of the Functions whose images they should
//! keep: the cause, never a credential; and what serves goes on.

use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::support::{
    functions::{JOBS, inline},
    logs,
    registry::{DockerRegistry, Fault, Front, Served},
    world::World,
};

const NEVER: Duration = Duration::from_secs(3600);
const WORD: &str = "the-word-for-this-registry-3a9";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_registry_does_wrong_is_told_and_what_serves_goes_on() {
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
        (Method::PATCH, "/uploads/", Fault::Status(507), "its disk is full"),
        (
            Method::POST,
            "/uploads/",
            Fault::Redirect(format!("http://{}", elsewhere.host())),
            "only reads may be redirected",
        ),
        (Method::PUT, "/manifests/", Fault::OtherDigest, "the image that it keeps has not the digest"),
    ];
    for (n, (method, part, fault, words)) in faults.into_iter().enumerate() {
        let shown = format!("{fault:?}");
        front.fail(method, part, fault, 1000);
        // Another source, as somebody else would try it with the same luck.
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
