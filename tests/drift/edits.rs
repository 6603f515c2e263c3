//! Edits of watched objects leave no data behind in the agent, regardless of their number.

use std::time::{Duration, Instant};

use devcluster::{Action, Call, verbs::patch::Form};
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::inline,
    limited_agent::LimitedAgent,
    world::{NAMESPACE, World, config_map, deployment},
};

/// Number of edits of each object. The unit tests of queues and timers make a hundred thousand.
const EDITS: u32 = 1000;
/// Maximum number of tasks that belong to requests in progress.
const PASSING: usize = 24;
/// Memory that a process may retain after work, in MiB.
const KEPT_FREE: u64 = 6;

/// Returns the watched objects, each with the edit of this number.
fn watched(number: u32) -> [(&'static str, &'static str, &'static str, Value); 6] {
    let note = |key: &str| json!({"metadata": {"annotations": {key: number.to_string()}}});
    let until = format!("2099-01-01T{:02}:{:02}:{:02}Z", number / 3600 % 24, number / 60 % 60, number % 60);
    let paused =
        json!({"metadata": {"annotations": {"mainstay.dev/reconcile": "disabled", "mainstay.dev/until": until}}});
    let target = ["web", "api"][number as usize % 2];
    let scaled = json!({"spec": {"minReplicas": 1 + number % 3, "scaleTargetRef": {"name": target}}});
    let git = "serverless.kyma-project.io/v1alpha1";
    [
        (git, "gitrepositories", "repo", note("example.org/note")),
        ("v1", "configmaps", "paused", paused),
        ("v1", "configmaps", "kept", note("example.org/note")),
        ("autoscaling/v2", "horizontalpodautoscalers", "web", scaled),
        ("mainstay.dev/v1alpha1", "gitsyncs", "demo", note("example.org/note")),
        (git, "functions", "hello", note("example.org/note")),
    ]
}

async fn world() -> World {
    let mut world = World::with_functions().await;
    for name in ["paused", "kept"] {
        world.remote.file(&format!("{name}.yaml"), config_map(name, "1"));
    }
    world.remote.file("web.yaml", deployment("web", "nginx:1", 1)).commit("one");
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"minReplicas": 1, "maxReplicas": 10, "scaleTargetRef": target},
    });
    world.create("autoscaling/v2", "horizontalpodautoscalers", NAMESPACE, autoscaler);
    world.sync("demo", json!({"wait": false}));
    world.function("hello", inline("1"));
    world
}

/// Edits each object once for each number.
async fn edit(world: &World, edits: std::ops::Range<u32>) {
    for number in edits {
        for (api_version, resource, name, patch) in watched(number) {
            let call = Call::new(api_version, resource, NAMESPACE, name, Action::Patch(Form::Merge, patch));
            world.try_as("kubectl-edit", call).unwrap();
        }
        // Lets the agent run, which is in this process, too.
        tokio::task::yield_now().await;
    }
}

/// Returns the minimum of a value over five seconds, so that temporary peaks do not count.
async fn least(what: impl Fn() -> usize) -> usize {
    let (end, mut least) = (Instant::now() + Duration::from_secs(5), usize::MAX);
    while Instant::now() < end {
        least = least.min(what());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    least
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_leave_no_tasks_behind() {
    let mut world = world().await;
    world.start();
    world.ready("demo").await;
    world.runs("hello").await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    edit(&world, 0..50).await;
    let before = least(tasks).await;
    edit(&world, 50..EDITS).await;
    let after = least(tasks).await;
    assert!(after <= before + PASSING, "{before} tasks before, {after} after");
    println!("{EDITS} edits of each of six objects: {before} tasks before, {after} after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_leave_no_memory_behind() {
    let world = world().await;
    let mut agent = LimitedAgent::start(&world, &[]).await;
    world.ready("demo").await;
    let own = || usize::try_from(agent.own_mib()).unwrap();
    edit(&world, 0..EDITS / 4).await;
    let before = least(own).await;
    edit(&world, EDITS / 4..EDITS).await;
    let after = least(own).await;
    println!("{EDITS} edits of each of six objects: {before} MiB before, {after} MiB after");
    assert!(after <= before + usize::try_from(KEPT_FREE).unwrap(), "{before} MiB before, {after} MiB after");
    agent.assert_alive("edits");
}
