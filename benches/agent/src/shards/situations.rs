//! The measurement from the first sync to the evaluation.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{
    Error,
    audit::Log,
    bounds::Bounds,
    late::{self, Sources},
    load::Place,
    plan::Plan,
    progress,
    report::{Measured, Outcome, compare},
    run::Run,
    world::World,
};

/// Deadline of the first sync of all GitSyncs.
const CREATED: Duration = Duration::from_mins(30);
/// Interval of reads of all GitSyncs.
const PAUSE: Duration = Duration::from_secs(2);
/// Maximum number of printed findings of a kind.
const PRINTED: usize = 20;

/// Measures everything. `from` is the length of the audit log before the start of the agents.
pub(super) async fn all(world: &mut World, plan: &Plan, from: Option<u64>) -> Result<Measured, Error> {
    progress("first sync");
    let created = created(world).await?;
    let before = world.objects().await?;
    progress("kills");
    let mut run = Run::new(world, plan.deaths);
    run.kill_agents(plan.length).await?;
    progress("until all are Ready");
    let settled = run.settle().await?;
    let finished = run.finish();
    let after = world.objects().await?;
    let wanted = world.load.places().map(|place| (place.name(), world.load.revision(place)));
    let objects = compare(wanted, &before, &after);
    let log = match (&plan.audit, from) {
        (Some(path), Some(from)) => {
            progress("audit log");
            Some(Log::read(path, from)?)
        }
        _ => None,
    };
    let names: Vec<String> = world.load.places().map(Place::name).collect();
    let beginnings = finished.changes.beginnings();
    let evaluation = log.as_ref().map(|log| log.evaluate(names.iter().map(String::as_str), &beginnings));
    for (kind, findings) in evaluation.iter().flat_map(|log| {
        [("changed by two agents", &log.contested), ("not in the log", &log.missing), ("deleted", &log.deletions)]
    }) {
        for finding in findings.iter().take(PRINTED) {
            progress(&format!("{kind}: {finding}"));
        }
    }
    let (usages, failed) = (world.fleet.usages().await, world.fleet.failed);
    let bounds = Bounds::of(world.load.len() / usize::from(plan.shards));
    let claims = |lease: &Value, place: Place| world.claims(lease, place);
    let sources = Sources { bounds, history: &finished.history, log: log.as_ref(), claims: &claims };
    let late = late::explain(&finished.changes, &sources);
    let (length, log) = (plan.length, evaluation);
    let outcome = Outcome { length, bounds, created, settled, finished, objects, log, late, usages, failed };
    Ok(outcome.measured())
}

/// Creates all GitSyncs. Returns the time until all are Ready.
async fn created(world: &World) -> Result<Duration, Error> {
    let start = Instant::now();
    world.follow_all().await?;
    let commit = world.load.commit()?;
    loop {
        let missing = world.behind(&commit).await?;
        if missing == 0 {
            return Ok(start.elapsed());
        }
        if start.elapsed() > CREATED {
            return Err(Error::NotReached { missing, seconds: CREATED.as_secs() });
        }
        tokio::time::sleep(PAUSE).await;
    }
}
