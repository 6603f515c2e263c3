//! Functions with slow calls, run by real processes. They are not killed.

use std::time::Duration;

use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{PODS, inline},
    world::World,
};

/// Longer than the tolerance of three probes every five seconds.
const SLOW: Duration = Duration::from_secs(21);

/// Returns the restart counts of a Function's serving containers.
fn restarts(world: &World, function: &str) -> Vec<Value> {
    let pods = world.children(function, PODS);
    let serving = pods.iter().filter(|pod| pod["spec"]["restartPolicy"] == "Always");
    serving.map(|pod| pod["status"]["containerStatuses"][0]["restartCount"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_function_is_not_restarted() {
    let mut world = World::with_processes().await;
    world.start();
    let millis = SLOW.as_millis();
    // Blocks the only thread of Node.js without using the CPU.
    let sleep = format!("Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, {millis})");
    world.function("loads", inline(&format!("{sleep}; exports.main = () => 'loaded'")));
    let imports = format!("import time\ntime.sleep({})\ndef main(event, context): return 'imported'\n", SLOW.as_secs());
    let spec = json!({"runtime": "python311", "source": imports, "minReplicas": 1, "maxReplicas": 1});
    world.function("imports", spec);
    let thinks = format!("exports.main = (e) => e.extensions.request.path === '/think' ? {sleep} : 'here'");
    world.function("thinks", inline(&thinks));
    world.runs("thinks").await;
    world.answers("thinks", "200 here").await;
    let thought = world.call_within("thinks/think", 3 * SLOW);
    let loaded = async {
        world.runs("loads").await;
        world.runs("imports").await;
        world.answers("loads", "200 loaded").await;
        world.answers("imports", "200 imported").await;
    };
    let (thought, ()) = tokio::join!(thought, loaded);
    assert_eq!(thought, "200 timed-out", "it has waited to the end");
    for name in ["loads", "imports", "thinks"] {
        assert_eq!(restarts(&world, name), [0], "{name}");
    }
}
