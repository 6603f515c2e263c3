//! Storms of edits: the time until they are reverted, compared with plain applies on as many connections, and the
//! latency of single edits of another owner during the storms.

use std::{
    fmt::Write as _,
    fs,
    ops::Range,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, TryStreamExt as _, future, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    Error,
    edits::{Blow, PATIENCE, edit, strike},
    load::{self, Load},
    observer::{Observer, until_last},
    stand::MANAGER,
    table::{Latencies, Row, Target, duration},
    world::{World, seen},
};
use crate::commit;

/// Edits per storm.
const BURST: usize = 500;
/// Concurrent requests: the agent's maximum number of concurrent reverts.
const IN_FLIGHT: usize = 32;
/// Number of storms that are compared with plain applies, and the pause between two.
const BURSTS: usize = 5;
const BETWEEN: Duration = Duration::from_secs(6);
/// Number of objects edited in these storms. No object is edited often enough for a revert backoff.
pub(super) const EDITED: usize = BURSTS * BURST;
/// Number of storms during the single edits. They leave time for some hundred edits, so that p99 is not the slowest.
const STORMS: usize = 40;
/// Maximum number of edits per object in the storms. More would cause a revert backoff.
const STORMS_EACH: usize = 3;
/// Objects of the other owner, and the maximum number of edits of each. More would cause a revert backoff.
const OTHERS: usize = 200;
const EDITS_EACH: usize = 4;
/// Committed revision of the other owner's objects.
const REVISION: &str = "0";

/// Measures storms on objects from `first` on, each after as many plain applies. Storms and plain applies alternate,
/// because the machine's other load varies.
pub(super) async fn burst(world: &mut World, first: usize) -> Result<Row, Error> {
    let count = BURST.min(world.load.len());
    let (mut plain, mut slowest, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    let mark = world.mark().await?;
    for turn in 0..BURSTS {
        let from = (first + turn * count) % world.load.len();
        let numbers = from..(from + count).min(world.load.len());
        plain.push(plain_applies(&world.config_maps(), numbers.len()).await?);
        let (each, all) = one_burst(world, numbers).await?;
        slowest.push(each);
        whole.push(all);
        // The agent writes status and Events after a storm.
        tokio::time::sleep(BETWEEN).await;
    }
    let [plain, slowest, whole] = [plain, slowest, whole].map(|times| Latencies::of(times).percentile(0.5));
    let measured = format!(
        "{} for the slowest, {} since the first edit; {count} plain applies {}",
        duration(slowest),
        duration(whole),
        duration(plain)
    );
    let targets = |_: &super::counters::Requests| vec![Target::new("≤ 1.5 × plain applies", slowest <= plain * 3 / 2)];
    let situation = format!(
        "{count} edits at once by {IN_FLIGHT} connections, each until it is reverted; medians of {BURSTS} storms"
    );
    world.stand.row(mark, situation, measured, targets).await
}

/// Returns two times: of the slowest revert since its edit, and of the last revert since the first edit.
async fn one_burst(world: &mut World, numbers: Range<usize>) -> Result<(Duration, Duration), Error> {
    let api = world.config_maps();
    world.observer.forget();
    let start = Instant::now();
    let strikes = stream::iter(numbers.clone().map(|number| {
        let api = &api;
        async move { Ok::<_, Error>((Load::name(number), strike(api, Blow::Edit, number).await?)) }
    }));
    let answered: Vec<_> = strikes.buffer_unordered(IN_FLIGHT).try_collect().await?;
    let wanted = world.wanted(numbers);
    let reached = world.observer.all(wanted, PATIENCE).await?;
    let whole = until_last(start, &reached);
    let each = Latencies::new(answered.into_iter().filter_map(|(name, at)| Some((at, *reached.get(&name)?))));
    Ok((each.percentile(1.0), whole))
}

/// Applies this many unmanaged objects on as many connections.
async fn plain_applies(api: &Api<ConfigMap>, count: usize) -> Result<Duration, Error> {
    let mut took = Duration::ZERO;
    // The first round creates the objects.
    for revision in ["0", "1"] {
        let start = Instant::now();
        let applies = stream::iter((0..count).map(|number| plain_apply(api, number, revision)));
        applies.buffer_unordered(IN_FLIGHT).try_for_each(|()| future::ready(Ok(()))).await?;
        took = start.elapsed();
    }
    Ok(took)
}

/// Applies an unmanaged object.
async fn plain_apply(api: &Api<ConfigMap>, number: usize, revision: &str) -> Result<(), Error> {
    let name = format!("plain-{number:06}");
    let body = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
        "data": { "revision": revision, "payload": format!("{number:08}").repeat(125) },
    });
    let how = PatchParams::apply(MANAGER).force();
    api.patch(&name, &how, &Patch::Apply(&body)).await.map(drop).map_err(Error::Ask)
}

/// Measures single edits of another owner's objects during storms on objects from `first` on.
pub(super) async fn bystander(world: &mut World, first: usize) -> Result<Row, Error> {
    let api = world.config_maps();
    let count = STORMS.min(STORMS_EACH * world.load.len() / BURST).max(1);
    let mut observer = Observer::start(api.clone(), seen).await?;
    follow_others(world, &mut observer).await?;
    let mark = world.mark().await?;
    let (mut pairs, mut plain) = (Vec::new(), Vec::new());
    {
        let singles = async {
            for number in 0..OTHERS * EDITS_EACH {
                let name = other(number % OTHERS);
                observer.forget();
                let answered = edit(&api, &name).await?;
                let reached = observer.all([(name, REVISION.to_owned())].into(), PATIENCE).await?;
                pairs.extend(reached.into_values().map(|end| (answered, end)));
                // A plain apply shows the server's share, which is busy with the storm.
                let sent = Instant::now();
                plain_apply(&api, 0, &number.to_string()).await?;
                plain.push((sent, Instant::now()));
            }
            Ok::<_, Error>(())
        };
        let storms = async {
            for storm in 0..count {
                let from = (first + storm * BURST) % world.load.len();
                let numbers = from..(from + BURST).min(world.load.len());
                world.observer.forget();
                let strikes = stream::iter(numbers.clone().map(|number| strike(&api, Blow::Edit, number)));
                strikes.buffer_unordered(IN_FLIGHT).try_for_each(|_| future::ready(Ok(()))).await?;
                let wanted = numbers.map(|number| (Load::name(number), world.load.revision(number))).collect();
                world.observer.all(wanted, PATIENCE).await?;
            }
            Ok::<_, Error>(())
        };
        match future::select(std::pin::pin!(storms), std::pin::pin!(singles)).await {
            future::Either::Left((stormed, _)) => stormed?,
            future::Either::Right((edited, storms)) => {
                edited?;
                storms.await?;
            }
        }
    }
    let latencies = Latencies::new(pairs.iter().copied());
    let (p50, p99) = (latencies.percentile(0.5), latencies.percentile(0.99));
    let applies = Latencies::new(plain);
    let measured = format!(
        "p50 {}, p99 {}; a plain apply meanwhile p50 {}, p99 {}",
        duration(p50),
        duration(p99),
        duration(applies.percentile(0.5)),
        duration(applies.percentile(0.99))
    );
    let edits = pairs.len();
    let situation = format!("{edits} edits of another owner's objects, one by one, while {count} such storms come");
    let targets = |_: &super::counters::Requests| vec![Target::new("p99 ≤ 50 ms", p99 <= Duration::from_millis(50))];
    world.stand.row(mark, situation, measured, targets).await
}

/// Creates the other owner: a GitSync of a separate repository.
async fn follow_others(world: &mut World, observer: &mut Observer) -> Result<(), Error> {
    let directory = world.stand.directory().join("other");
    fs::create_dir_all(&directory).map_err(Error::Load)?;
    commit::init(&directory).map_err(Error::Commit)?;
    let mut text = String::new();
    for number in 0..OTHERS {
        let (name, namespace) = (other(number), load::NAMESPACE);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {namespace}\n\
             data:\n  revision: \"{REVISION}\"\n"
        );
    }
    fs::write(directory.join("others.yaml"), text).map_err(Error::Load)?;
    commit::everything(&directory, "others").map_err(Error::Commit)?;
    world.follow("other", &directory).await?;
    let wanted = (0..OTHERS).map(|number| (other(number), REVISION.to_owned())).collect();
    observer.all(wanted, PATIENCE).await.map(drop)
}

fn other(number: usize) -> String {
    format!("other-{number:06}")
}
