//! The measured situations of a console.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    Error,
    counters::Requests,
    stand::{DEADLINE, NAMESPACE, Stand},
    table::{Latencies, Row, Target, duration},
    viewer::Viewer,
};
use crate::api::GitSync;

/// Number of viewers.
const VIEWERS: usize = 20;
/// Promised maximum memory of the console in MiB with all viewers.
const WITH_VIEWERS: f64 = 100.0;
/// Promised time until the last byte of the first page.
const FIRST_PAGE: Duration = Duration::from_millis(300);
/// Promised time until each viewer has read a change.
const CHANGE: Duration = Duration::from_secs(1);
/// Number of pages for a percentile.
const PAGES: usize = 50;
/// Maximum number of concurrent writes.
const IN_FLIGHT: usize = 16;
const COMMIT: &str = "5f0c2a91d8f34b7e9a6c1d2e3f405162738495a6";

/// Measures all situations.
pub(super) async fn all(stand: &mut Stand, count: u32, idle_seconds: u64) -> Result<Vec<Row>, Error> {
    let created = stream::iter(0..count).map(|number| create(stand, number));
    created.buffer_unordered(IN_FLIGHT).try_for_each(|()| std::future::ready(Ok(()))).await?;
    let address = stand.start_console().await?;
    let mut rows = vec![at_rest(stand, idle_seconds).await?];
    stand.promise_memory(WITH_VIEWERS);
    let (row, first) = first_page(stand, &address, count).await?;
    rows.push(row);
    rows.push(pages(stand, &first, count).await?);
    let mut viewers = vec![first];
    rows.push(viewers_come(stand, &address, &mut viewers, count).await?);
    rows.push(change(stand, viewers).await?);
    Ok(rows)
}

/// Creates a GitSync with a status as an agent writes it.
async fn create(stand: &Stand, number: u32) -> Result<(), Error> {
    let name = name(number);
    let spec =
        json!({"gitRepository": "shop", "reference": "main", "baseDir": format!("apps/{name}"), "interval": "1m"});
    let labels = json!({"team": format!("team-{}", number % 40), "tier": "web"});
    let sync = json!({
        "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": name, "labels": labels}, "spec": spec,
    });
    stand.apply::<GitSync>(&name, &sync).await?;
    write_status(stand, number, &status("True", "Applied")).await
}

fn name(number: u32) -> String {
    format!("sync-{number:05}")
}

fn status(ready: &str, reason: &str) -> Value {
    let when = "2026-01-01T00:00:00Z";
    let condition = |kind: &str, status: &str, reason: &str| {
        let message = format!("main@sha1:{COMMIT}: 1 created, 2 changed, 9 unchanged");
        json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": when})
    };
    let change = json!({"field": "spec.replicas", "found": "5", "restored": "2"});
    let revert = json!({
        "object": "Deployment.apps shop/web", "fields": ["spec.replicas"], "who": "kubectl-edit", "when": when,
        "latencyMs": 2, "changes": [change],
    });
    let applied = json!({
        "commit": COMMIT, "subject": "web: two more replicas", "when": when, "durationMs": 120, "created": 1, "changed": 2,
        "unchanged": 9, "pruned": 0,
    });
    json!({"status": {
        "observedGeneration": 1, "attemptedCommit": COMMIT, "appliedCommit": COMMIT, "objects": 12, "healthy": 12,
        "reverted": 1, "lastReverts": [revert], "history": [applied.clone(), applied],
        "conditions": [
            condition("Ready", ready, reason), condition("Healthy", "True", "Healthy"),
            condition("Contended", "False", "NotContended"), condition("Drifted", "False", "InSync"),
        ],
    }})
}

async fn write_status(stand: &Stand, number: u32, status: &Value) -> Result<(), Error> {
    let api = Api::<GitSync>::namespaced(stand.client.clone(), NAMESPACE);
    let written = api.patch_status(&name(number), &PatchParams::default(), &Patch::Merge(status)).await;
    written.map(drop).map_err(Error::Ask)
}

async fn at_rest(stand: &Stand, idle_seconds: u64) -> Result<Row, Error> {
    let mark = stand.mark().await?;
    tokio::time::sleep(Duration::from_secs(idle_seconds)).await;
    let situation = format!("at rest, {idle_seconds} s; {:.0} MiB without the pages of the program", stand.own_mib()?);
    let targets = |asked: &Requests| vec![Target::new("0 requests", asked.total() == 0)];
    stand.row(mark, situation, format!("{idle_seconds} s"), targets).await
}

async fn first_page(stand: &Stand, address: &str, count: u32) -> Result<(Row, Viewer), Error> {
    let token = stand.user_token("viewer-0").await?;
    let mark = stand.mark().await?;
    let viewer = Viewer::sign_in(address, &token).await?;
    let (page, took) = viewer.read("/").await?;
    let situation =
        format!("first page of a user, with {count} GitSyncs that nobody has read before, until its last byte");
    let row = stand.row(mark, situation, duration(took), |_| targets(took, &page, count)).await?;
    Ok((row, viewer))
}

fn targets(took: Duration, page: &str, count: u32) -> Vec<Target> {
    let shown = Target::new(format!("shows {count} objects"), page.contains(&format!("{count} objects")));
    vec![Target::new(format!("≤ {}", duration(FIRST_PAGE)), took <= FIRST_PAGE), shown]
}

async fn pages(stand: &Stand, viewer: &Viewer, count: u32) -> Result<Row, Error> {
    let mark = stand.mark().await?;
    let (mut lengths, mut last) = (Vec::new(), String::new());
    for number in 0..PAGES {
        let path = if number % 2 == 0 { "/".to_owned() } else { format!("/?q=sync&page={}", number % 20 + 1) };
        let (page, took) = viewer.read(&path).await?;
        lengths.push(took);
        last = page;
    }
    let all = Latencies::of(lengths);
    let (half, most) = (all.percentile(0.5), all.percentile(0.99));
    let situation = format!("{PAGES} pages and searches of the same user");
    let wall = format!("p50 {}, p99 {}", duration(half), duration(most));
    stand.row(mark, situation, wall, |_| targets(most, &last, count)).await
}

async fn viewers_come(stand: &Stand, address: &str, viewers: &mut Vec<Viewer>, count: u32) -> Result<Row, Error> {
    let mut tokens = Vec::new();
    for number in viewers.len()..VIEWERS {
        tokens.push(stand.user_token(&format!("viewer-{number}")).await?);
    }
    let mark = stand.mark().await?;
    let start = Instant::now();
    let whole = format!("{count} objects");
    let come = tokens.iter().map(|token| async {
        let viewer = Viewer::sign_in(address, token).await?;
        // A page does not wait long for its lists.
        while !viewer.read("/").await?.0.contains(&whole) && start.elapsed() < DEADLINE {}
        Ok::<_, Error>(viewer)
    });
    viewers.extend(futures::future::try_join_all(come).await?);
    let took = start.elapsed();
    let own = stand.own_mib()?;
    let situation = format!(
        "{} more users simultaneously, until each has a page with all; {own:.0} MiB without the pages of the program",
        VIEWERS - 1
    );
    stand.row(mark, situation, duration(took), |_| vec![Target::new("≤ 5 min", took < DEADLINE)]).await
}

async fn change(stand: &Stand, mut viewers: Vec<Viewer>) -> Result<Row, Error> {
    for viewer in &mut viewers {
        viewer.listen().await?;
    }
    let mark = stand.mark().await?;
    write_status(stand, 7, &status("False", "ApplyFailed")).await?;
    let start = Instant::now();
    let read = viewers.iter_mut().map(|viewer| async move {
        loop {
            viewer.changed().await?;
            let (page, _) = viewer.read("/?state=Failed").await?;
            if page.contains(&name(7)) {
                return Ok::<_, Error>(());
            }
        }
    });
    futures::future::try_join_all(read).await?;
    let took = start.elapsed();
    let situation = format!("change of one GitSync, until each of {VIEWERS} open pages has read it");
    let targets = vec![Target::new(format!("≤ {}", duration(CHANGE)), took <= CHANGE)];
    stand.row(mark, situation, duration(took), |_| targets).await
}
