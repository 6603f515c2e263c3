//! Builds that a quota has refused: the next try comes at once when there is room again, however long it was to wait.

use std::time::{Duration, Instant};

use devcluster::{Action, Call, fault_injection::Fault, verbs::patch::Form};
use serde_json::json;

use crate::support::{
    functions::{JOBS, inline},
    world::{NAMESPACE, World},
};

const QUOTAS: (&str, &str) = ("v1", "resourcequotas");

/// A world in which a ResourceQuota has no room for Jobs, and a Function that is not to be tried for an hour.
pub(crate) async fn refused(mut world: World) -> World {
    let metadata = json!({"name": "small", "namespace": NAMESPACE});
    let quota = json!({"metadata": metadata, "spec": {"hard": {"count/jobs.batch": "0"}}});
    world.create(QUOTAS.0, QUOTAS.1, NAMESPACE, quota);
    refuse(&world, Some(3600));
    world.start();
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "False ApplyFailed: ").await;
    let is_watched =
        |w: &World| w.levers().counts().iter().any(|count| count.verb == "watch" && count.resource == "resourcequotas");
    world.until_function("the ResourceQuota to be watched", is_watched).await;
    world.quiet().await;
    world
}

/// Jobs are refused as a used up quota refuses them.
fn refuse(world: &World, retry_after: Option<u32>) {
    world.levers().fail_next(Fault {
        verb: "apply".into(),
        resource: JOBS.1.into(),
        code: 403,
        reason: "Forbidden".into(),
        message: "exceeded quota: small, requested: count/jobs.batch=1, used: count/jobs.batch=0, limited: \
                  count/jobs.batch=0"
            .into(),
        times: 1_000_000,
        retry_after,
        ..Fault::default()
    });
}

fn tries(world: &World) -> u64 {
    world.requests().iter().find(|(asked, _)| asked == "apply jobs.batch").map_or(0, |(_, count)| *count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_a_quota_refused_is_tried_at_once_when_the_quota_goes() {
    let world = refused(World::with_functions().await).await;
    world.levers().clear_faults();
    world.delete(QUOTAS.0, QUOTAS.1, "small");
    world.runs("hello").await;
    assert_eq!(world.function_status("hello")["builds"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_a_quota_refused_is_tried_at_once_when_the_quota_is_raised() {
    let world = refused(World::with_functions().await).await;
    world.levers().clear_faults();
    world.edit(QUOTAS.0, QUOTAS.1, "small", json!({"spec": {"hard": {"count/jobs.batch": "5"}}}));
    world.runs("hello").await;
    assert_eq!(world.function_status("hello")["builds"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_others_use_up_all_the_time_costs_few_tries() {
    let world = refused(World::with_functions().await).await;
    world.levers().clear_faults();
    refuse(&world, None);
    let (before, began) = (tries(&world), Instant::now());
    for round in 0..200 {
        let status = json!({"status": {"hard": {"pods": "9"}, "used": {"pods": (round % 2).to_string()}}});
        let call = Call::new(QUOTAS.0, QUOTAS.1, NAMESPACE, "small", Action::Patch(Form::Merge, status)).on("status");
        world.try_as("test", call).unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.until_function("it is tried", |w| tries(w) > before).await;
    // The first at once, then one for every two seconds, each with one that follows it after a second.
    let most = 2 * (2 + began.elapsed().as_secs() / 2);
    let tries = tries(&world) - before;
    assert!(tries <= most, "{tries} tries in {:?}", began.elapsed());
}
