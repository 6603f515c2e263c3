//! Many GitSyncs: creation, idling, a restart, and a commit to one GitSync.

use std::time::{Duration, Instant};

use kube::api::DeleteParams;

use super::{
    Error, bare,
    console::Viewer,
    counters::Requests,
    load::{Form, Load, OBJECTS},
    observer::until_last,
    progress,
    stand::DEADLINE,
    table::{Row, Target, duration},
    world::{SETTLED, World},
};

/// Number of commits that are pushed in a row.
const COMMITS: usize = 40;
/// Number of users of the console beside the agent.
const VIEWERS: usize = 5;
/// Target time until 1 000 GitSyncs are created and Ready, and until a commit that changes all of them is applied.
const PROMISED: Duration = Duration::from_secs(20);
const PROMISED_UPGRADE: Duration = Duration::from_secs(16);
/// Target time if each GitSync renders a chart.
const PROMISED_CHARTS: Duration = Duration::from_secs(60);
/// Target for the watches that the agent opens while it begins to follow objects of four kinds, for any number of GitSyncs.
const WATCHES: u64 = 150;
/// Target for the ratio to a bare client that applies the same objects.
const TIMES_BARE: u32 = 2;

/// Target time until all GitSyncs adopt a commit that one has found.
const FOUND: Duration = Duration::from_secs(2);

/// Measures all situations.
pub(super) async fn all(world: &mut World, idle_seconds: u64) -> Result<Vec<Row>, Error> {
    progress("GitSyncs created");
    let mut rows = vec![created(world).await?.row];
    progress("commit that changes all objects");
    rows.push(upgraded(world).await?.row);
    progress("idle");
    rows.push(idle(world, idle_seconds).await?);
    progress("idle with viewers of the console");
    rows.push(viewed(world, idle_seconds).await?);
    progress("restart");
    rows.push(restart(world).await?.row);
    progress("commit to one GitSync");
    rows.push(commit(world).await?);
    progress("commit that concerns no GitSync");
    rows.push(unrelated(world).await?);
    progress("commits in a row");
    rows.push(in_a_row(world).await?);
    Ok(rows)
}

/// A row and its measured time.
pub(super) struct Timed {
    pub row: Row,
    pub took: Duration,
}

/// Creates all GitSyncs. Those that do not fit into the agent's memory are counted.
pub(super) async fn created(world: &mut World) -> Result<Timed, Error> {
    let count = world.load.len();
    let bare = bare::apply_all(&world.stand.client, count, "0").await?;
    world.stand.until_silent().await?;
    let (mark, asked) = (world.stand.mark().await?, world.git.counts());
    let mut syncs = world.observe_syncs().await?;
    let start = Instant::now();
    world.follow_all().await?;
    let wanted = (0..count).map(|number| (Load::name(number), SETTLED.to_owned())).collect();
    let took = until_last(start, &syncs.all(wanted, DEADLINE).await?);
    world.stand.until_silent().await?;
    let ready = world.ready_names().await?.len();
    let asked = world.git.counts().since(asked);
    let promised = if world.load.form() == Form::Charts { PROMISED_CHARTS } else { PROMISED };
    let fitted = if ready == count { "all are Ready".into() } else { format!("{ready} are Ready, the others refused") };
    let situation = format!(
        "{count} GitSyncs of {OBJECTS} objects created, until {fitted}; a bare client applies the objects in {}; {asked}",
        duration(bare)
    );
    let applies = (ready * (OBJECTS + 2)) as u64;
    let targets = |requests: &Requests| {
        let own = [
            in_time(took, promised, count),
            Target::new("1 fetch", asked.fetches == 1),
            Target::new("one apply per object, two per inventory", requests.of("apply", "") == applies),
            Target::new("no LIST", requests.of("list", "") == 0),
            few_watches(requests),
        ];
        times_bare(world, took, bare).into_iter().chain(own).collect()
    };
    Ok(Timed { row: world.stand.row(mark, situation, duration(took), targets).await?, took })
}

/// Commits a change of all objects.
pub(super) async fn upgraded(world: &mut World) -> Result<Timed, Error> {
    let count = world.load.len();
    let ready = world.ready_names().await?;
    world.load.change_all()?;
    let bare = bare::apply_all(&world.stand.client, count, &world.load.revision(0)).await?;
    world.stand.until_silent().await?;
    world.observer.forget();
    let (mark, asked) = (world.stand.mark().await?, world.git.counts());
    let (start, _) = world.request(&Load::name(0)).await?;
    let wanted = ready.iter().map(|name| (name.clone(), world.load.revision(0))).collect();
    let took = until_last(start, &world.observer.all(wanted, DEADLINE).await?);
    let asked = world.git.counts().since(asked);
    let situation = format!(
        "commit that changes all objects of {} GitSyncs, until they are applied; a bare client applies them in {}; {asked}",
        ready.len(),
        duration(bare)
    );
    let objects = (ready.len() * OBJECTS) as u64;
    let promised = if world.load.form() == Form::Charts { PROMISED_CHARTS } else { PROMISED_UPGRADE };
    let targets = |requests: &Requests| {
        let own = [
            in_time(took, promised, count),
            Target::new("1 fetch", asked.fetches == 1),
            Target::new("at most 6 requests each", requests.without_events().0.total() <= objects / 4 * 6 + 2),
        ];
        times_bare(world, took, bare).into_iter().chain(own).collect()
    };
    Ok(Timed { row: world.stand.row(mark, situation, duration(took), targets).await?, took })
}

/// The target time is for 1 000 GitSyncs, and in proportion for more.
fn in_time(took: Duration, promised: Duration, count: usize) -> Target {
    let promised = promised.mul_f64((count as f64 / 1000.0).max(1.0));
    Target::new(format!("≤ {}", duration(promised)), took <= promised)
}

/// Compares with the bare client on another cluster. The embedded server answers so fast that most of the time is spent
/// on the agent's own work, which the bare client does not do. The same holds for renderings.
fn times_bare(world: &World, took: Duration, bare: Duration) -> Vec<Target> {
    let is_compared = world.stand.server.is_none() && world.load.form() == Form::Manifests;
    let target = || Target::new(format!("≤ {TIMES_BARE} × the bare client"), took <= bare * TIMES_BARE);
    if is_compared { vec![target()] } else { Vec::new() }
}

/// The number of watches does not grow with the number of GitSyncs.
fn few_watches(requests: &Requests) -> Target {
    Target::new(format!("≤ {WATCHES} watches"), requests.watches() <= WATCHES)
}

/// Pushes commits without a pause, each of one GitSync, and announces each.
async fn in_a_row(world: &mut World) -> Result<Row, Error> {
    world.stand.until_silent().await?;
    let count = world.load.len();
    let (mark, asked) = (world.stand.mark().await?, world.git.counts());
    let start = Instant::now();
    for number in 0..COMMITS {
        let number = number % count;
        world.load.change(number)?;
        world.request(&Load::name(number)).await?;
    }
    world.all_at(&world.load.commit()?).await?;
    let took = start.elapsed();
    let asked = world.git.counts().since(asked);
    let situation = format!(
        "{COMMITS} commits in a row, each to one of {count} GitSyncs, from the first until each names the last; {asked}"
    );
    let targets = |requests: &Requests| {
        let applies = requests.of("apply", "");
        vec![
            Target::new(format!("≤ {COMMITS} fetches"), asked.fetches <= COMMITS as u64),
            Target::new("one apply per object, one per inventory", applies <= (COMMITS * (OBJECTS + 1)) as u64),
        ]
    };
    world.stand.row(mark, situation, duration(took), targets).await
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

/// Measures the agent while users of a console have the fleet open. They ask the API server, and not the agent.
async fn viewed(world: &World, seconds: u64) -> Result<Row, Error> {
    let (_console, address) = world.stand.console().await?;
    let mut viewers = Vec::new();
    for number in 0..VIEWERS {
        let token = world.stand.user_token(&format!("viewer-{number}")).await?;
        let mut viewer = Viewer::sign_in(&address, &token).await?;
        viewer.read("/").await?;
        viewer.listen().await?;
        viewers.push(viewer);
    }
    let mark = world.stand.mark_of_agent().await?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let situation = format!("idle, {seconds} s, while {} users have the fleet of the console open", viewers.len());
    let targets = |requests: &Requests| vec![Target::new("0 requests", requests.total() == 0)];
    world.stand.row_of_agent(mark, situation, format!("{seconds} s"), targets).await
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
            vec![
                Target::new("1 fetch", asked.fetches == 1),
                Target::new("one apply per object, one of the inventory", applies <= OBJECTS as u64 + 1),
            ]
        })
        .await
}

/// One GitSync looks up the commit. The others reuse its lookup and only update their status.
async fn unrelated(world: &mut World) -> Result<Row, Error> {
    // Earlier, some GitSyncs would first report the previous commit.
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
pub(super) async fn restart(world: &mut World) -> Result<Timed, Error> {
    let name = world.ready_names().await?.pop().unwrap_or_else(|| Load::name(0));
    world.stand.kill_agent().await?;
    world.config_maps().delete(&name, &DeleteParams::default()).await.map_err(Error::Ask)?;
    world.observer.forget();
    let mark = world.stand.mark().await?;
    let start = Instant::now();
    world.stand.start_agent().await?;
    let took = world.reach(name, world.load.revision(0)).await?.saturating_duration_since(start);
    let situation = format!(
        "restart after `kill -9` with {} GitSyncs, until an object that was deleted meanwhile is back",
        world.load.len()
    );
    let targets = |requests: &Requests| {
        vec![Target::new("1 apply, 1 of the inventory", requests.of("apply", "") <= 2), few_watches(requests)]
    };
    Ok(Timed { row: world.stand.row(mark, situation, duration(took), targets).await?, took })
}
