//! Latency of Events about a failure and its end, after the deletion of many objects and many successive commits.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Event;
use kube::Api;

use super::{
    Error,
    edits::PATIENCE,
    load,
    observer::{Observer, Seen, until_last},
    stand::NAMESPACE,
    table::{Row, Target, duration},
    world::{World, seen},
};
use crate::commit;

/// Name of the GitSync.
const NAME: &str = "announced";
/// Numbers of deleted and of remaining objects. A deletion of more than half would be held.
const DELETED: usize = 500;
const STAYING: usize = 600;
/// Number of successive commits.
const COMMITS: usize = 30;
/// Target for the latency of an Event.
const PROMISED: Duration = Duration::from_secs(2);

/// Measures the latency in a separate repository.
pub(super) async fn announced(world: &mut World) -> Result<Row, Error> {
    let directory = world.stand.directory().join(NAME);
    fs::create_dir_all(&directory).map_err(Error::Load)?;
    commit::init(&directory).map_err(Error::Commit)?;
    write(&directory, "staying.yaml", "staying", STAYING, 0)?;
    write(&directory, "deleted.yaml", "deleted", DELETED, 0)?;
    commit::everything(&directory, "all").map_err(Error::Commit)?;
    let mut objects = Observer::start(world.config_maps(), seen).await?;
    world.follow(NAME, &directory).await?;
    let wanted = (0..STAYING).map(|number| (name("staying", number), "0".to_owned()));
    let wanted = wanted.chain((0..DELETED).map(|number| (name("deleted", number), "0".to_owned()))).collect();
    objects.all(wanted, PATIENCE).await?;
    let api: Api<Event> = Api::namespaced(world.stand.client.clone(), NAMESPACE);
    let mut events = Observer::start(api, announcement).await?;

    let mark = world.mark().await?;
    fs::remove_file(directory.join("deleted.yaml")).map_err(Error::Load)?;
    next(world, &directory).await?;
    for revision in 1..=COMMITS {
        write(&directory, "changing.yaml", "changing", 1, revision)?;
        next(world, &directory).await?;
    }
    fs::write(directory.join("broken.yaml"), "apiVersion: v1\nkind: ConfigMap\n").map_err(Error::Load)?;
    let failed = next(world, &directory).await?;
    let failed = until(&mut events, "Failed", failed).await?;
    fs::remove_file(directory.join("broken.yaml")).map_err(Error::Load)?;
    let mended = next(world, &directory).await?;
    let mended = until(&mut events, "Applied", mended).await?;

    let situation = format!(
        "a broken commit and its repair after {DELETED} deletions and {COMMITS} commits in a row, each until it is an Event"
    );
    let measured = format!("failure {}, recovery {}", duration(failed), duration(mended));
    let targets = |_: &super::counters::Requests| {
        vec![Target::new("failure ≤ 2 s", failed <= PROMISED), Target::new("recovery ≤ 2 s", mended <= PROMISED)]
    };
    world.stand.row(mark, situation, measured, targets).await
}

/// Commits the work tree and requests a sync. Returns the commit and the time of the request.
async fn next(world: &World, directory: &Path) -> Result<(String, Instant), Error> {
    commit::everything(directory, "next").map_err(Error::Commit)?;
    let (at, _) = world.request_of(NAME).await?;
    Ok((commit::head(directory).map_err(Error::Commit)?, at))
}

/// Returns the time until an Event with this reason names the commit.
async fn until(events: &mut Observer, reason: &str, (commit, start): (String, Instant)) -> Result<Duration, Error> {
    let wanted = [(NAME.to_owned(), state(reason, &commit))].into();
    Ok(until_last(start, &events.all(wanted, PATIENCE).await?))
}

fn state(reason: &str, commit: &str) -> String {
    format!("{reason} {}", commit.chars().take(8).collect::<String>())
}

/// Reads the reason and the commit of an Event about the GitSync.
fn announcement(event: Event) -> Option<Seen> {
    let message = event.message.unwrap_or_default();
    let (_, commit) = message.split_once("commit ")?;
    let state = state(&event.reason.unwrap_or_default(), commit);
    Some(Seen { name: event.involved_object.name.unwrap_or_default(), state })
}

fn name(kind: &str, number: usize) -> String {
    format!("{kind}-{number:06}")
}

/// Writes a file of ConfigMaps.
fn write(directory: &Path, file: &str, kind: &str, count: usize, revision: usize) -> Result<(), Error> {
    let document = |number| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\n  namespace: {}\ndata:\n  revision: \"{revision}\"\n",
            name(kind, number),
            load::NAMESPACE
        )
    };
    fs::write(directory.join(file), (0..count).map(document).collect::<String>()).map_err(Error::Load)
}
