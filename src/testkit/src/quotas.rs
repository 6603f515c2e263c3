//! Helpers for tests of ResourceQuotas that refuse build Jobs.

use devcluster::fault_injection::Fault;
use serde_json::json;

use super::functions::{JOBS, inline};
use super::world::{NAMESPACE, World};

pub const QUOTAS: (&str, &str) = ("v1", "resourcequotas");

/// Returns a world with a ResourceQuota that allows no Jobs, and a Function whose retry is an hour away.
pub async fn refused(mut world: World) -> World {
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

/// Refuses Jobs like an exhausted quota.
pub fn refuse(world: &World, retry_after: Option<u32>) {
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
