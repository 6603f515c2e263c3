//! Functions that scale with the CPU use of their pods, run as processes.

use std::time::Duration;

use serde_json::json;

use mainstay_testkit::{
    functions::{AUTOSCALERS, DEPLOYMENTS, JOBS},
    world::World,
};

/// Computes for the requested time in milliseconds.
const SOURCE: &str = "exports.main = (event) => {
    const end = Date.now() + Number(event.extensions.request.query.for || 0);
    while (Date.now() < end);
    return 'done';
};";

fn wanted(world: &World) -> i64 {
    world.child("busy", DEPLOYMENTS)["spec"]["replicas"].as_i64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_under_load_gets_more_pods_and_an_idle_one_fewer() {
    let quick = |options: &mut devcluster::Options| options.autoscaler_interval = Duration::from_secs(1);
    let mut world = World::with_node_and(|_| {}, quick).await;
    world.start();
    world.function("busy", json!({"runtime": "nodejs22", "source": SOURCE, "minReplicas": 1, "maxReplicas": 2}));
    world.runs("busy").await;
    world.answers("busy", "200 done").await;
    let job = world.child("busy", JOBS);
    // The owner of the autoscaler may tune it.
    let behavior = json!({"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 2}}}});
    world.edit("autoscaling/v2", AUTOSCALERS.1, &world.child_name("busy", AUTOSCALERS), behavior);
    let load = async {
        loop {
            world.call("busy/?for=300").await;
        }
    };
    let scaled_up = async {
        world.until_function("more pods", |w| wanted(w) == 2).await;
        world.until_function("they run", |w| w.function_status("busy")["replicas"] == 2 && w.is_running("busy")).await;
    };
    tokio::select! {
        () = load => {}
        () = scaled_up => {}
    }
    world.until_function("fewer pods", |w| wanted(w) == 1).await;
    assert_eq!(world.call("busy").await, "200 done");
    assert_eq!(world.child("busy", JOBS), job, "nothing is built for it");
}
