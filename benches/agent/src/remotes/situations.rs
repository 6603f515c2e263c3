//! The situations in order, with their targets.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    Error,
    observer::until_last,
    progress,
    table::{Latencies, Row, Target, duration},
    world::{Over, World},
};

/// Maximum number of concurrent creations.
const IN_FLIGHT: usize = 16;
/// References of the repository with many references.
const BRANCHES: usize = 20_000;
/// Files of the repository with many files.
const FILES: usize = 50_000;
/// Number of 1 MiB files in the large repository.
const LARGE_FILES: usize = 1024;
/// Memory of the pod in `manifests/`, in MiB.
const POD_MIB: u32 = 160;
/// Number of one-file commits. CPU time has a resolution of a hundredth of a second.
const COMMITS: u32 = 20;
/// Lookups among many references.
const LOOKUPS: u64 = 5;
/// Number of reported pushes.
const PUSHES: u32 = 50;
/// Poll interval longer than the benchmark, so that no poll occurs.
const NEVER: &str = "1h";

/// Measures all situations: half of the remotes are polled over HTTP, then the other half over SSH in addition.
pub(super) async fn all(world: &mut World, remotes: usize, idle_seconds: u64, large: bool) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let none = Share { percent: 0.0 };
    let (row, http) = polled(world, Over::Http, remotes.div_ceil(2), idle_seconds, &none).await?;
    rows.extend(row);
    let (row, _) = polled(world, Over::Ssh, remotes / 2, idle_seconds, &http).await?;
    rows.extend(row);
    // The following situations, with all remotes, have the pod's limit.
    world.stand.promise_memory(POD_MIB.into());
    for over in [Over::Http, Over::Ssh] {
        progress("a lookup among many references");
        rows.push(many_references(world, over).await?);
    }
    progress("one-file commits among many files");
    rows.push(many_files(world).await?);
    progress("pushes that a Receiver reports");
    rows.push(pushes(world).await?);
    if large {
        progress("a large repository");
        rows.push(large_repository(world).await?);
    }
    Ok(rows)
}

/// CPU time of the agent in percent of a core.
struct Share {
    percent: f64,
}

/// Measures first lookups and polls of this many remotes. The cost of earlier remotes is subtracted.
async fn polled(
    world: &mut World,
    over: Over,
    remotes: usize,
    seconds: u64,
    earlier: &Share,
) -> Result<(Vec<Row>, Share), Error> {
    let name = |number: usize| format!("{}-{number:04}", over.name().to_lowercase());
    progress(&format!("{remotes} remotes over {}", over.name()));
    for number in 0..remotes {
        world.repository(&name(number))?.commit(0)?;
    }
    world.observer.forget();
    let (mark, start) = (world.stand.mark().await?, Instant::now());
    {
        let world = &*world;
        let created =
            stream::iter(0..remotes).map(|number| async move { world.follow(&name(number), over, "1m").await });
        created.buffer_unordered(IN_FLIGHT).try_for_each(|()| std::future::ready(Ok(()))).await?;
    }
    let reached = world.reach((0..remotes).map(name), 0).await?;
    let first = format!("{remotes} remotes over {}, until each is fetched and applied", over.name());
    let first = world.stand.row(mark, first, duration(until_last(start, &reached)), |_| Vec::new()).await?;

    progress(&format!("polls over {}", over.name()));
    let mark = world.stand.mark().await?;
    let (http, ssh, used) = (world.http.counts(), world.ssh.counts(), world.stand.processor_seconds()?);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let percent = (world.stand.processor_seconds()? - used) / seconds as f64 * 100.0;
    let (http, ssh) = (world.http.counts().since(http), world.ssh.counts().since(ssh));
    let (lookups, bytes, connections) = match over {
        Over::Http => (http.lookups, http.bytes, String::new()),
        Over::Ssh => (ssh.commands, ssh.bytes, format!(" over {} new connections", ssh.connections)),
    };
    let own = percent - earlier.percent;
    let each = bytes.checked_div(lookups).unwrap_or_default();
    let situation = format!(
        "{remotes} remotes over {} polled each minute: {own:.1} % of a core; {lookups} lookups{connections}, {each} bytes \
         received for each",
        over.name(),
    );
    let promised = match over {
        Over::Http => 2.0,
        Over::Ssh => 5.0,
    };
    let expected = remotes as f64 * seconds as f64 / 60.0;
    let row = world.stand.row(mark, situation, format!("{seconds} s"), |requests| {
        vec![
            Target::new(format!("≤ {promised} % of a core"), own <= promised),
            Target::new("each is asked", lookups as f64 >= expected * 0.8),
            Target::new("0 requests", requests.without_events().0.total() == 0),
        ]
    });
    Ok((vec![first, row.await?], Share { percent }))
}

async fn many_references(world: &mut World, over: Over) -> Result<Row, Error> {
    let name = format!("branches-{}", over.name().to_lowercase());
    let repository = world.repository(&name)?;
    repository.commit(0)?;
    repository.add_branches(BRANCHES)?;
    world.follow(&name, over, NEVER).await?;
    world.reach([name.clone()], 0).await?;
    let mark = world.stand.mark().await?;
    let start = Instant::now();
    let mut least = u64::MAX;
    for _ in 0..LOOKUPS {
        // Polls of other remotes interfere, so the minimum approximates a single lookup.
        let (http, ssh) = (world.http.counts(), world.ssh.counts());
        world.sync(&name).await?;
        let bytes = match over {
            Over::Http => world.http.counts().since(http).bytes,
            Over::Ssh => world.ssh.counts().since(ssh).bytes,
        };
        least = least.min(bytes);
    }
    let wall = start.elapsed() / u32::try_from(LOOKUPS).unwrap_or(1);
    let situation = format!("lookup over {} among {BRANCHES} references: {least} bytes received", over.name());
    world.stand.row(mark, situation, duration(wall), |_| vec![Target::new("≤ 10 kB received", least <= 10_000)]).await
}

async fn many_files(world: &mut World) -> Result<Row, Error> {
    let name = "monorepo";
    let repository = world.repository(name)?;
    repository.commit_with_files(0, FILES)?;
    world.follow(name, Over::Http, NEVER).await?;
    world.reach([name.to_owned()], 0).await?;
    let mark = world.stand.mark().await?;
    let (mut most, mut slowest) = (0, Duration::ZERO);
    let (mut used, start) = (0.0, Instant::now());
    for revision in 1..=COMMITS {
        repository.commit(revision)?;
        world.observer.forget();
        let (asked, before, began) = (world.http.counts(), world.stand.processor_seconds()?, Instant::now());
        world.request(name).await?;
        let reached = world.reach([name.to_owned()], revision).await?;
        used += world.stand.processor_seconds()? - before;
        slowest = slowest.max(until_last(began, &reached));
        most = most.max(world.http.counts().since(asked).bytes);
    }
    let each = Duration::from_secs_f64((used / f64::from(COMMITS)).max(0.0));
    let situation = format!(
        "one-file commit in a repository of {FILES} files, {COMMITS} times, until it is applied: at most {} KiB fetched, {} of \
         processor time; the slowest took {}",
        most.div_ceil(1024),
        duration(each),
        duration(slowest),
    );
    let targets = vec![
        Target::new("≤ 1 MiB fetched", most <= 1 << 20),
        Target::new("≤ 50 ms of processor time", each <= Duration::from_millis(50)),
    ];
    world.stand.row(mark, situation, duration(start.elapsed() / COMMITS), |_| targets).await
}

/// A push is committed before it is reported, as hosts do.
async fn pushes(world: &mut World) -> Result<Row, Error> {
    let name = "pushed";
    let repository = world.repository(name)?;
    repository.commit(0)?;
    world.follow(name, Over::Http, NEVER).await?;
    world.reach([name.to_owned()], 0).await?;
    let (url, client) = (world.receiver().await?, reqwest::Client::new());
    let mark = world.stand.mark().await?;
    let mut latencies = Vec::new();
    for revision in 1..=PUSHES {
        repository.commit(revision)?;
        world.observer.forget();
        let start = Instant::now();
        world.deliver(&client, &url, name).await?;
        let reached = world.reach([name.to_owned()], revision).await?;
        latencies.push(until_last(start, &reached));
        // Deliveries cause at most one lookup per second of a remote.
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    let latencies = Latencies::of(latencies);
    let (p50, most) = (latencies.percentile(0.5), latencies.percentile(1.0));
    let situation = format!("{PUSHES} pushes, one by one, each from its webhook until it is applied");
    let wall = format!("p50 {}, at most {}", duration(p50), duration(most));
    let targets = vec![Target::new("≤ 300 ms", most <= Duration::from_millis(300))];
    world.stand.row(mark, situation, wall, |_| targets).await
}

/// In a cgroup the file cache counts, too. The agent is killed above the limit.
async fn large_repository(world: &mut World) -> Result<Row, Error> {
    let name = "large";
    world.repository(name)?.commit_with_noise(0, LARGE_FILES)?;
    let is_limited = world.stand.limit_memory(POD_MIB);
    let place = if is_limited { "in" } else { "not in" };
    let (mark, asked, start) = (world.stand.mark().await?, world.http.counts(), Instant::now());
    world.follow(name, Over::Http, NEVER).await?;
    let reached = world.reach([name.to_owned()], 0).await?;
    let fetched = world.http.counts().since(asked).bytes >> 20;
    let situation = format!(
        "first fetch of a repository of {LARGE_FILES} MiB, until it is applied, {place} a cgroup of {POD_MIB} MiB: {fetched} MiB \
         fetched"
    );
    let targets = vec![Target::new(format!("in a cgroup of {POD_MIB} MiB"), is_limited)];
    world.stand.row(mark, situation, duration(until_last(start, &reached)), |_| targets).await
}
