//! Writes of children that the server refuses. Each is retried with increasing delays, whatever else happens, and the
//! status is written once.

use std::time::Duration;

use devcluster::fault_injection::Fault;
use serde_json::json;

use mainstay_testkit::{
    functions::{AUTOSCALERS, CONFIG_MAPS, DEPLOYMENTS, JOBS, Kind, SERVICES, inline, scaled},
    world::World,
};

const KINDS: [(Kind, &str, &str); 5] = [
    (CONFIG_MAPS, "configmaps", "ConfigurationReady"),
    (JOBS, "jobs.batch", "BuildReady"),
    (DEPLOYMENTS, "deployments.apps", "Running"),
    (SERVICES, "services", "Running"),
    (AUTOSCALERS, "horizontalpodautoscalers.autoscaling", "Running"),
];
const STATUS: &str = "patch functions.serverless.kyma-project.io/status";
/// Maximum number of attempts before the delay exceeds the time for which the world is quiet: after 50, 100, 200 and
/// 400 ms.
const TRIES: u64 = 5;
/// Timeout for the world to become quiet.
const SOON: Duration = Duration::from_secs(10);

/// All refusals: code, reason and message.
const REFUSALS: [(u16, &str, &str); 8] = [
    (403, "Forbidden", "User \"agent\" cannot patch resource in the namespace \"default\""),
    (403, "Forbidden", "exceeded quota: small, requested: count=1, used: count=0, limited: count=0"),
    (403, "Forbidden", "unable to create new content in namespace default because it is being terminated"),
    (403, "Forbidden", "admission webhook \"policy.example.org\" denied the request: not today (request {nth})"),
    (409, "Conflict", "the object has been modified; please apply your changes to the latest version"),
    (422, "Invalid", "spec: Invalid value: it cannot be"),
    (429, "TooManyRequests", "too many requests, please try again later (request {nth})"),
    (500, "InternalError", "etcdserver: request timed out (request {nth})"),
];

fn refuse(world: &World, kind: Kind, refusal: (u16, &str, &str)) {
    refuse_and_ask(world, kind, refusal, None);
}

/// Refuses writes with this `Retry-After` in seconds.
fn refuse_and_ask(world: &World, kind: Kind, (code, reason, message): (u16, &str, &str), retry_after: Option<u32>) {
    world.levers().fail_next(Fault {
        verb: "apply".into(),
        resource: kind.1.into(),
        code,
        reason: reason.into(),
        message: message.into(),
        times: 1_000_000,
        retry_after,
        ..Fault::default()
    });
}

fn count(world: &World, what: &str) -> u64 {
    world.requests().iter().find(|(asked, _)| asked == what).map_or(0, |(_, count)| *count)
}

/// Waits until the world is quiet. A constantly retried write prevents that.
async fn quiet(world: &World, what: &str) {
    assert!(tokio::time::timeout(SOON, world.quiet()).await.is_ok(), "{what}: {:?}", world.requests());
}

/// Refuses a Function's child of a kind in all ways, one after the other.
async fn is_tried_less_and_less((kind, resource, condition): (Kind, &str, &str)) {
    let mut world = World::with_functions().await;
    world.start();
    for (at, refusal) in REFUSALS.into_iter().enumerate() {
        let (name, what) = (format!("f{at}"), format!("{resource} {refusal:?}"));
        let apply = format!("apply {resource}");
        let applied = count(&world, &apply);
        refuse(&world, kind, refusal);
        world.function(&name, scaled("1"));
        world.says(&name, condition, "False ").await;
        if condition == "Running" && kind != DEPLOYMENTS {
            world.until_function("its Deployment is ready", |w| w.function_status(&name)["image"].is_string()).await;
        }
        quiet(&world, &what).await;
        let (tries, written) = (count(&world, &apply) - applied, count(&world, STATUS));
        assert!(tries <= TRIES, "{what}: tried {tries} times");
        // Each change requests a retry. The message may differ, the failure stays.
        let said = world.said(&name, condition);
        for round in 0..3 {
            let applied = count(&world, &apply);
            world.edit_function(&name, json!({"metadata": {"annotations": {"mainstay.dev/again": round.to_string()}}}));
            world.until_function("it is tried again", |w| count(w, &apply) > applied).await;
        }
        quiet(&world, &what).await;
        assert_eq!((world.said(&name, condition), count(&world, STATUS)), (said, written), "{what}");
        world.levers().clear_faults();
        world.edit_function(&name, json!({"metadata": {"annotations": {"mainstay.dev/again": "at last"}}}));
        world.runs(&name).await;
        assert_eq!(world.children(&name, JOBS).len(), 1, "{what}: a build that was refused is no attempt");
        assert_eq!(world.function_status(&name)["builds"], 1, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_config_map_is_retried_with_backoff() {
    is_tried_less_and_less(KINDS[0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_job_is_retried_with_backoff() {
    is_tried_less_and_less(KINDS[1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_deployment_is_retried_with_backoff() {
    is_tried_less_and_less(KINDS[2]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_service_is_retried_with_backoff() {
    is_tried_less_and_less(KINDS[3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_autoscaler_is_retried_with_backoff() {
    is_tried_less_and_less(KINDS[4]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_write_waits_for_its_backoff_in_any_case() {
    let mut world = World::with_functions().await;
    world.start();
    refuse_and_ask(&world, JOBS, REFUSALS[0], Some(3600));
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "False ApplyFailed").await;
    quiet(&world, "refused").await;
    let applied = count(&world, "apply jobs.batch");
    let map = world.child_name("hello", CONFIG_MAPS);
    for round in 0..20 {
        // Each of these is an event of a child, which causes a reconcile of the Function.
        world.edit("v1", "configmaps", &map, json!({"metadata": {"labels": {"theirs": round.to_string()}}}));
        world.edit("v1", "configmaps", &map, json!({"data": {"source": round.to_string()}}));
        world.until_function("reverted", |w| w.child("hello", CONFIG_MAPS)["data"]["source"] == "1").await;
    }
    quiet(&world, "changed").await;
    assert_eq!(count(&world, "apply jobs.batch"), applied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_retry_of_a_build_is_the_same_attempt_each_time() {
    let mut world = World::with_functions().await;
    world.functions.requeue = Duration::from_millis(500);
    world.builds_end("push", 1, "no", Duration::ZERO);
    world.start();
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "False JobFailed").await;
    refuse(&world, JOBS, REFUSALS[4]);
    world.says("hello", "BuildReady", "False ApplyFailed").await;
    let said = world.said("hello", "BuildReady");
    let before = count(&world, "apply jobs.batch");
    world.until_function("it is tried", |w| count(w, "apply jobs.batch") > before + 3).await;
    assert_eq!(world.said("hello", "BuildReady"), said);
    assert_eq!(world.function_status("hello")["builds"], 1);
    world.builds_succeed();
    world.levers().clear_faults();
    world.runs("hello").await;
    assert_eq!(world.function_status("hello")["builds"], 2);
}
