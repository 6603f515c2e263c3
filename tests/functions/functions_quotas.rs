//! Builds that a quota refused. The retry comes as soon as the quota allows it, whatever the delay was.

use std::time::{Duration, Instant};

use devcluster::{Action, Call, verbs::patch::Form};
use serde_json::json;

use mainstay_testkit::quotas::{QUOTAS, refuse, refused};
use mainstay_testkit::world::{NAMESPACE, World};

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
    // The first attempt comes immediately, then one every two seconds. Each attempt is repeated a second later.
    let tries = tries(&world) - before;
    let most = 2 * (2 + began.elapsed().as_secs() / 2);
    assert!(tries <= most, "{tries} tries in {:?}", began.elapsed());
}
