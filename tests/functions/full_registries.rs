//! A registry with a full volume. `BuildReady` reports it with a hint, the Function keeps serving, and the build
//! succeeds once there is space.
//!
//! The registry is Docker's own, on a tiny file system in its own mount namespace.

use std::time::Duration;

use http::Method;
use serde_json::json;

use mainstay_testkit::{
    functions::inline,
    image::{Build, outcome},
    logs,
    registry::{DockerRegistry, Fault, Front, Served},
    world::World,
};

const VOLUME: u64 = 32 << 20;
const PAGE: u64 = 4 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_full_is_named_at_every_step_of_a_push() {
    let registry = DockerRegistry::on_volume(VOLUME).await;
    let build = Build::new().registry(&registry.host());
    let mut left = 0;
    let pushed = loop {
        registry.leave(left);
        // The layers of each attempt must be new.
        build.write("workspace/src/handler.js", &format!("module.exports = {{ main: () => '{left}' }}"));
        let ended = outcome(&build.request(&format!("{}/ns-fn-{left}:t", registry.host()))).await;
        if ended.starts_with("sha256:") {
            break ended;
        }
        let says_so = ended.starts_with("Registry, again: ") && ended.contains("its volume is full");
        assert!(says_so, "with {left} bytes left: {ended}");
        // The smallest writes come first.
        left += if left < 16 * PAGE { PAGE } else { 16 * PAGE };
    };
    assert!(left > 10 * PAGE, "an image takes more room than {left} bytes");
    registry.make_room();
    let again = outcome(&build.request(&format!("{}/ns-fn-{left}:t", registry.host()))).await;
    assert_eq!(again, format!("{pushed} reused"));
}

/// Returns a world with a registry. A failed build is not retried within an hour without a cause.
async fn with_patience(registry: &str) -> World {
    logs::keep();
    let mut world = World::with_processes().await;
    world.functions.requeue = Duration::from_secs(3600);
    let place = json!({"registryAddress": registry, "serverAddress": registry});
    world.edit("v1", "secrets", "serverless-registry-config-default", json!({"stringData": place}));
    world.start();
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_in_a_registry_is_noticed_while_a_build_waits_for_it() {
    let registry = DockerRegistry::on_volume(VOLUME).await;
    let world = with_patience(&registry.host()).await;
    registry.leave(PAGE);
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "False JobFailed").await;
    assert!(world.said("hello", "BuildReady").contains("its volume is full"), "{}", world.said("hello", "BuildReady"));
    registry.make_room();
    world.runs("hello").await;
    assert_eq!(world.function_status("hello")["builds"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_the_registry_takes_again_is_noticed_while_a_build_waits_for_it() {
    let registry = DockerRegistry::start(Served::Plainly).await;
    let front = Front::of(&registry).await;
    let world = with_patience(&front.host()).await;
    front.fail(Method::POST, "/uploads/", Fault::Status(401), 1000);
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "False JobFailed").await;
    assert!(world.said("hello", "BuildReady").contains("answered 401"), "{}", world.said("hello", "BuildReady"));
    front.heal();
    world.runs("hello").await;
    // The registry is not probed any more.
    let pushed = world.function_status("hello")["builds"].clone();
    assert_eq!(pushed, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_whose_registry_is_full_says_so_serves_on_and_is_built_once_there_is_room() {
    logs::keep();
    let registry = DockerRegistry::on_volume(VOLUME).await;
    let mut world = World::with_processes().await;
    world.functions.requeue = Duration::from_millis(300);
    let place = json!({"registryAddress": registry.host(), "serverAddress": registry.host()});
    world.edit("v1", "secrets", "serverless-registry-config-default", json!({"stringData": place}));
    world.start();
    world.function("hello", inline("0"));
    world.runs("hello").await;
    let image = world.function_status("hello")["image"].clone();
    registry.leave(PAGE);
    world.edit_function("hello", json!({"spec": {"source": "1"}}));
    world.says("hello", "BuildReady", "False JobFailed").await;
    let full =
        |w: &World| w.said("hello", "BuildReady").contains("its volume is full (it answered 500); free space there");
    world.until_function("the cause and the way out", full).await;
    world.until_function("a second attempt", |w| w.function_status("hello")["builds"].as_i64() >= Some(2)).await;
    assert!(world.said("hello", "Running").starts_with("True"), "{}", world.said("hello", "Running"));
    assert_eq!(world.function_status("hello")["image"], image);
    registry.make_room();
    world.runs("hello").await;
    assert_ne!(world.function_status("hello")["image"], image);
}
