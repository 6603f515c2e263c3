//! Failed status writes. They are retried, and no other write is repeated.

use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{AUTOSCALERS, CONFIG_MAPS, DEPLOYMENTS, JOBS, SERVICES, inline, scaled},
    world::World,
};

const STATUS: &str = "functions.serverless.kyma-project.io/status";
const KINDS: [(&str, &str); 5] = [CONFIG_MAPS, JOBS, DEPLOYMENTS, SERVICES, AUTOSCALERS];

/// Returns the writes of children so far, without those of the cluster's controllers.
fn writes(world: &World) -> Vec<(String, u64)> {
    let kinds = ["configmaps", "jobs.batch", "deployments.apps", "services", "horizontalpodautoscalers.autoscaling"];
    let all = world.requests().into_iter();
    let ours = all.filter(|(what, _)| kinds.iter().any(|kind| what.split_once(' ') == Some(("apply", kind))));
    ours.collect()
}

fn versions(world: &World) -> Vec<Value> {
    let all = KINDS.into_iter().flat_map(|kind| world.children("hello", kind));
    // Only the documents are compared, not the statuses from controllers.
    all.map(|child| json!([child["metadata"]["uid"], child["metadata"]["generation"], child["data"]])).collect()
}

/// Fails the next status writes.
fn refuse(world: &World, codes: &[u16]) {
    for code in codes {
        world.fail_next("patch", STATUS, "hello", *code, 1);
    }
}

/// Runs the Function, builds another source, and makes it invalid, while status writes can fail. Returns the writes of
/// children after each step, and the number of all Jobs.
async fn wrote(codes: &[u16]) -> (Vec<Vec<(String, u64)>>, usize) {
    let mut world = World::with_functions().await;
    let (builds, mut all) = (world.builds(), Vec::new());
    refuse(&world, codes);
    world.start();
    world.function("hello", scaled("1"));
    world.runs("hello").await;
    world.quiet().await;
    all.push(writes(&world));

    // The digest of the new image is recorded only in the status.
    world.builds_wait();
    world.edit_function("hello", json!({"spec": {"source": "2"}}));
    world.says("hello", "BuildReady", "Unknown JobRunning").await;
    world.quiet().await;
    refuse(&world, codes);
    world.builds_succeed();
    world.runs("hello").await;
    world.quiet().await;
    all.push(writes(&world));

    // Only the status is written in this step.
    let before = versions(&world);
    refuse(&world, codes);
    world.edit_function("hello", json!({"spec": {"minReplicas": 5}}));
    world.says("hello", "ConfigurationReady", "False SpecInvalid").await;
    let function = world.function_now("hello").unwrap();
    assert_eq!(function["status"]["observedGeneration"], function["metadata"]["generation"]);
    assert_eq!(versions(&world), before);
    all.push(writes(&world));
    (all, builds.all().values().map(Vec::len).sum())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_status_is_written_later_and_nothing_else_twice() {
    let (calm, conflict, unavailable, both) =
        tokio::join!(wrote(&[]), wrote(&[409]), wrote(&[503]), wrote(&[409, 503, 409]));
    assert_eq!(calm.1, 2, "one Job for each source");
    let jobs = |writes: &[(String, u64)]| writes.iter().find(|(what, _)| what == "apply jobs.batch").map(|(_, n)| *n);
    assert_eq!(calm.0.iter().map(|writes| jobs(writes)).collect::<Vec<_>>(), [Some(1), Some(2), Some(2)]);
    for (codes, met) in [("409", conflict), ("503", unavailable), ("409, 503, 409", both)] {
        assert_eq!(met, calm, "{codes}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_whose_answer_is_lost_is_recognised_as_written() {
    let mut world = World::with_functions().await;
    world.start();
    world.function("hello", inline("1"));
    let lost = devcluster::fault_injection::Fault {
        verb: "patch".into(),
        resource: STATUS.into(),
        name: "hello".into(),
        code: 503,
        times: 3,
        after: true,
        ..devcluster::fault_injection::Fault::default()
    };
    world.levers().fail_next(lost);
    world.runs("hello").await;
    world.quiet().await;
    let writes = writes(&world);
    assert!(writes.iter().all(|(_, count)| *count == 1), "{writes:?}");
    let version = world.function_now("hello").unwrap()["metadata"]["resourceVersion"].clone();
    world.quiet().await;
    assert_eq!(world.function_now("hello").unwrap()["metadata"]["resourceVersion"], version);
}
