//! Agents are killed repeatedly during many pipelines. No image is built twice, and no object is left behind.

use serde_json::json;

use mainstay_testkit::{
    functions::{AUTOSCALERS, Builds, CONFIG_MAPS, DEPLOYMENTS, JOBS, SERVICES, scaled},
    gate::after_every_write,
    world::World,
};

/// Checks the final state.
fn check(world: &World, builds: &Builds, functions: &[String]) {
    for (image, jobs) in builds.all() {
        assert_eq!(jobs.len(), 1, "{image} was built {} times: {jobs:?}", jobs.len());
    }
    for name in functions {
        for kind in [CONFIG_MAPS, DEPLOYMENTS, SERVICES, AUTOSCALERS] {
            assert_eq!(world.children(name, kind).len(), 1, "{kind:?} of {name}");
        }
        assert!(world.children(name, JOBS).len() <= 1, "Jobs of {name}");
        let status = world.function_status(name);
        let image = &world.child(name, DEPLOYMENTS)["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(*image, status["image"], "{name}");
    }
}

/// Creates and changes a Function. The agent is cut off after this many writes. Returns whether it was.
async fn killed_after(writes: u64) -> bool {
    let mut world = World::with_functions().await;
    let builds = world.builds();
    world.gate.shut_after(writes);
    world.start();
    world.function("hello", scaled("1"));
    let mut cut = world.cut_off_or(async |w| w.runs("hello").await).await;
    world.edit_function("hello", json!({"spec": {"source": "2", "env": [{"name": "A", "value": "1"}]}}));
    cut |= world.cut_off_or(async |w| w.runs("hello").await).await;
    check(&world, &builds, &["hello".to_owned()]);
    world.kill().await;
    cut
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_killed_between_any_two_writes_of_a_pipeline_builds_nothing_twice() {
    after_every_write(killed_after, 28).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_kills_of_twenty_pipelines_lose_nothing_and_build_nothing_twice() {
    let mut world = World::with_functions().await;
    let builds = world.builds();
    let mut random = fastrand::Rng::with_seed(7);
    let names = (0..20).map(|n| format!("f{n}")).collect::<Vec<_>>();
    for name in &names {
        world.function(name, scaled("0"));
    }
    for round in 0..50 {
        world.gate.shut_after(random.u64(1..40));
        world.start();
        for _ in 0..3 {
            let name = &names[random.usize(..names.len())];
            let patch = match random.u8(..3) {
                0 => json!({"spec": {"source": format!("{name} {round}")}}),
                1 => json!({"spec": {"env": [{"name": "ROUND", "value": format!("{round}")}]}}),
                _ => json!({"metadata": {"labels": {"round": format!("{round}")}}}),
            };
            world.edit_function(name, patch);
        }
        let gate = world.gate.clone();
        // All pipelines may end before the gate closes.
        let _ = tokio::time::timeout(std::time::Duration::from_millis(500), gate.shut()).await;
        world.kill().await;
        gate.open();
    }
    world.start();
    for name in &names {
        world.runs(name).await;
    }
    check(&world, &builds, &names);
}
