//! Many GitSyncs: creation, idling, a restart, and a commit to one of them.

use std::time::{Duration, Instant};

use kube::api::DeleteParams;

use super::{
    Error,
    counters::Requests,
    load::{Load, OBJECTS},
    observer::until_last,
    progress,
    stand::DEADLINE,
    table::{Row, Target, duration},
    world::World,
};

/// Promised time until all GitSyncs adopt a commit that one has found.
const FOUND: Duration = Duration::from_secs(2);
/// Promised time until all are created and Ready.
const PROMISED: Duration = Duration::from_secs(20);

/// Measures all situations.
pub(super) async fn all(world: &mut World, idle_seconds: u64) -> Result<Vec<Row>, Error> {
    progress("GitSyncs created");
    let mut rows = vec![created(world).await?];
    progress("idle");
    rows.push(idle(world, idle_seconds).await?);
    progress("restart");
    rows.push(restart(world).await?);
    progress("commit to one GitSync");
    rows.push(commit(world).await?);
    progress("commit that concerns no GitSync");
    rows.push(unrelated(world).await?);
    Ok(rows)
}

async fn created(world: &mut World) -> Result<Row, Error> {
    let count = world.load.len();
    let (mark, asked) = (world.stand.mark().await?, world.git.counts());
    let mut syncs = world.observe_syncs().await?;
    let start = Instant::now();
    world.follow_all().await?;
    let wanted = (0..count).map(|number| (Load::name(number), "True".to_owned())).collect();
    let wall = until_last(start, &syncs.all(wanted, DEADLINE).await?);
    let asked = world.git.counts().since(asked);
    let situation = format!("{count} GitSyncs of {OBJECTS} objects created, until all are Ready; {asked}");
    let objects = (count * OBJECTS) as u64;
    let inventories = 2 * count as u64;
    world
        .stand
        .row(mark, situation, duration(wall), |requests| {
            vec![
                Target::new("≤ 20 s", wall <= PROMISED),
                Target::new("1 fetch", asked.fetches == 1),
                Target::new(
                    "one apply per object, two per inventory",
                    requests.of("apply", "") == objects + inventories,
                ),
            ]
        })
        .await
}

async fn idle(world: &mut World, seconds: u64) -> Result<Row, Error> {
    // An idle agent writes no Events either.
    world.stand.until_silent().await?;
    let (mark, asked) = (world.stand.mark().await?, world.git.counts());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let asked = world.git.counts().since(asked);
    let targets = |requests: &Requests| vec![Target::new("0 requests", requests.total() == 0)];
    world.stand.row(mark, format!("idle, {seconds} s; {asked}"), format!("{seconds} s"), targets).await
}

async fn commit(world: &mut World) -> Result<Row, Error> {
    let number = world.load.len() / 2;
    let name = Load::name(number);
    world.load.change(number)?;
    world.observer.forget();
    let (mark, asked) = (world.stand.mark().await?, world.git.counts());
    let (start, _) = world.request(&name).await?;
    let wall = world.reach(name, world.load.revision(number)).await?.saturating_duration_since(start);
    let asked = world.git.counts().since(asked);
    let situation = format!("commit to one of {} GitSyncs, until it is applied; {asked}", world.load.len());
    world
        .stand
        .row(mark, situation, duration(wall), |requests| {
            let applies = requests.of("apply", "");
            vec![Target::new("1 fetch", asked.fetches == 1), Target::new("1 apply, 1 of the inventory", applies <= 2)]
        })
        .await
}

/// One GitSync looks up the commit. The others reuse its lookup and only update their status.
async fn unrelated(world: &mut World) -> Result<Row, Error> {
    // Before that, some would first report the previous commit.
    world.stand.until_silent().await?;
    let count = world.load.len();
    let (mark, asked) = (world.stand.mark().await?, world.git.counts());
    let commit = world.load.unrelated()?;
    let (start, _) = world.request(&Load::name(0)).await?;
    world.all_at(&commit).await?;
    let wall = start.elapsed();
    let asked = world.git.counts().since(asked);
    let situation = format!(
        "commit that concerns none of {count} GitSyncs, from the request to one of them until each names it; {asked}"
    );
    world
        .stand
        .row(mark, situation, duration(wall), |requests| {
            vec![
                Target::new("≤ 2 s", wall <= FOUND),
                Target::new("1 fetch", asked.fetches == 1),
                Target::new("1 patch each", requests.of("patch", "") <= count as u64 + 1),
                Target::new("0 applies", requests.of("apply", "") == 0),
            ]
        })
        .await
}

/// Kills the agent, deletes an object and starts the agent. It is operational when the object is restored.
async fn restart(world: &mut World) -> Result<Row, Error> {
    let number = world.load.len() - 1;
    let name = Load::name(number);
    world.stand.kill_agent().await?;
    world.config_maps().delete(&name, &DeleteParams::default()).await.map_err(Error::Ask)?;
    world.observer.forget();
    let mark = world.stand.mark().await?;
    let start = Instant::now();
    world.stand.start_agent().await?;
    let wall = world.reach(name, world.load.revision(number)).await?.saturating_duration_since(start);
    let situation = "restart after `kill -9`, until an object that was deleted meanwhile is back";
    let targets = |requests: &Requests| vec![Target::new("1 apply, 1 of the inventory", requests.of("apply", "") <= 2)];
    world.stand.row(mark, situation, duration(wall), targets).await
}
