//! The situations in order, with their targets.

use std::time::{Duration, Instant};

use super::{
    Error, Part, announced,
    edits::{Blow, PATIENCE, strike},
    observer::until_last,
    stand::DEADLINE,
    storm,
    table::{Latencies, Row, Target, duration},
    world::World,
};
use crate::progress;

/// Pause between single edits. Manual edits are not sustained at a higher rate.
const PACE: Duration = Duration::from_millis(40);

/// Measures all situations or a part.
pub(super) async fn all(world: &mut World, only: Option<Part>, idle_seconds: u64) -> Result<Vec<Row>, Error> {
    let objects = world.load.len();
    let sample = (objects / 20).min(200);
    let is_wanted = |part| only.is_none_or(|only| only == part);
    let mut rows = Vec::new();
    world.stand.start_agent().await?;
    progress("first sync");
    rows.push(first_sync(world).await?);
    if is_wanted(Part::Singles) {
        progress("no-op sync");
        rows.push(no_op_sync(world).await?);
        progress("one-file commit");
        rows.push(one_file(world).await?);
        progress("idle");
        rows.push(idle(world, idle_seconds).await?);
        for (turn, (blow, what)) in
            [(Blow::Edit, "edits"), (Blow::Delete, "deletions"), (Blow::Unlabel, "label removals")]
                .into_iter()
                .enumerate()
        {
            progress(what);
            // Each object is edited once, so no revert backoff applies.
            rows.push(reverts(world, blow, what, turn * sample..(turn + 1) * sample).await?);
        }
    }
    if is_wanted(Part::Storms) {
        progress("edits at once");
        rows.push(storm::burst(world, 3 * sample % objects).await?);
        progress("edits of another owner");
        rows.push(storm::bystander(world, (3 * sample + storm::EDITED) % objects).await?);
    }
    if is_wanted(Part::Restarts) {
        progress("restart");
        rows.push(protects_again(world).await?);
        rows.push(restart(world).await?);
    }
    if is_wanted(Part::Events) {
        progress("Events");
        rows.push(announced::announced(world).await?);
    }
    Ok(rows)
}

async fn first_sync(world: &mut World) -> Result<Row, Error> {
    let mark = world.mark().await?;
    let mut syncs = world.observe_syncs().await?;
    let start = world.follow_load().await?;
    let wanted = world.wanted(0..world.load.len());
    let reached = world.observer.all(wanted, DEADLINE).await?;
    let wall = until_last(start, &reached);
    let ready = until_last(start, &syncs.all(World::ready(), DEADLINE).await?).saturating_sub(wall);
    let situation = format!("first sync, until the last object is there; Ready {} later", duration(ready));
    world
        .stand
        .row(mark, situation, duration(wall), |requests| {
            vec![
                Target::new("Ready ≤ 100 ms later", ready <= Duration::from_millis(100)),
                Target::new("≤ 6 s", wall <= Duration::from_secs(6)),
                Target::new("one LIST per kind", requests.of("list", "configmaps") <= 2),
                Target::new("no GET per object", requests.of("get", "configmaps") <= 2),
            ]
        })
        .await
}

async fn no_op_sync(world: &mut World) -> Result<Row, Error> {
    let mark = world.mark().await?;
    let (start, token) = world.request().await?;
    let wall = world.handled(&token).await?.saturating_duration_since(start);
    let targets = |requests: &super::counters::Requests| vec![Target::new("0 applies", requests.of("apply", "") == 0)];
    world.stand.row(mark, "no-op sync, until the status says so", duration(wall), targets).await
}

async fn one_file(world: &mut World) -> Result<Row, Error> {
    let changed = world.load.change_file(0)?;
    let mark = world.mark().await?;
    let (start, token) = world.request().await?;
    let count = changed.len() as u64;
    let wanted = world.wanted(changed);
    let reached = world.observer.all(wanted, DEADLINE).await?;
    let wall = until_last(start, &reached);
    world.handled(&token).await?;
    world
        .stand
        .row(mark, format!("commit that changes one file ({count} objects)"), duration(wall), |requests| {
            // Two status writes, the objects, and one inventory.
            vec![Target::new(format!("≤ {} requests", 2 + count + 1), requests.total() <= 2 + count + 1)]
        })
        .await
}

async fn idle(world: &mut World, seconds: u64) -> Result<Row, Error> {
    // An idle agent writes no Events either.
    world.stand.until_silent().await?;
    let mark = world.mark().await?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let targets = |requests: &super::counters::Requests| vec![Target::new("0 requests", requests.total() == 0)];
    world.stand.row(mark, format!("idle, {seconds} s"), format!("{seconds} s"), targets).await
}

async fn reverts(world: &mut World, blow: Blow, what: &str, numbers: std::ops::Range<usize>) -> Result<Row, Error> {
    let api = world.config_maps();
    let mark = world.mark().await?;
    let mut pairs = Vec::with_capacity(numbers.len());
    for number in numbers.clone() {
        world.observer.forget();
        let answered = strike(&api, blow, number).await?;
        let wanted = world.wanted([number]);
        let reached = world.observer.all(wanted, PATIENCE).await?;
        pairs.extend(reached.into_values().map(|end| (answered, end)));
        tokio::time::sleep(PACE).await;
    }
    let latencies = Latencies::new(pairs);
    let (p50, p99) = (latencies.percentile(0.5), latencies.percentile(0.99));
    let wall = format!("p50 {}, p99 {}", duration(p50), duration(p99));
    world
        .stand
        .row(mark, format!("{} {what}, one by one, each until it is reverted", numbers.len()), wall, |_| {
            vec![
                Target::new("p50 ≤ 5 ms", p50 <= Duration::from_millis(5)),
                Target::new("p99 ≤ 50 ms", p99 <= Duration::from_millis(50)),
            ]
        })
        .await
}

async fn protects_again(world: &mut World) -> Result<Row, Error> {
    world.stand.kill_agent().await?;
    let mark = world.mark().await?;
    strike(&world.config_maps(), Blow::Edit, 0).await?;
    world.observer.forget();
    let start = Instant::now();
    world.stand.start_agent().await?;
    let wanted = world.wanted([0]);
    let reached = world.observer.all(wanted, PATIENCE).await?;
    let wall = until_last(start, &reached);
    let targets = |_: &super::counters::Requests| vec![Target::new("≤ 1 s", wall <= Duration::from_secs(1))];
    let situation = "restart after `kill -9`, until an edit is reverted that was made meanwhile";
    world.stand.row(mark, situation, duration(wall), targets).await
}

async fn restart(world: &mut World) -> Result<Row, Error> {
    world.stand.kill_agent().await?;
    let mark = world.mark().await?;
    let (_, token) = world.request().await?;
    let start = Instant::now();
    world.stand.start_agent().await?;
    let wall = world.handled(&token).await?.saturating_duration_since(start);
    let targets = |requests: &super::counters::Requests| vec![Target::new("0 applies", requests.of("apply", "") == 0)];
    world
        .stand
        .row(mark, "restart after `kill -9`, until a sync was compared and reported", duration(wall), targets)
        .await
}
