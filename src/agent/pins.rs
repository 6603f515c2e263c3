//! Writes host keys that are pinned at first use to the status of their GitRepositories, and removes them with the host.
//!
//! Invariant: a pin is written only if the GitRepository is still as it was read, so of two keys one is pinned.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::inputs::git_repositories;
use super::tasks::read;
use crate::api::{GitRepository, GitRepositoryStatus};
use crate::cluster::{Cluster, Error, Kind, Part};
use crate::failure::chain;
use crate::source::{self, FirstUse, PinRequest, Repositories};

/// Writes that others overtake before the connection has to be made once more.
const ATTEMPTS: usize = 5;
/// Wait after a pin could not be removed.
const AGAIN: Duration = Duration::from_secs(30);

/// Pins and forgets keys until `stop`.
pub(super) async fn keep(
    mut requests: mpsc::UnboundedReceiver<PinRequest>,
    repositories: Arc<Repositories>,
    cluster: Cluster,
    stop: CancellationToken,
) {
    let kind = git_repositories();
    let mut changes = repositories.listen();
    let mut failed = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(request) = requests.recv() => {
                let answer = write(&cluster, &kind, &request.first_use).await;
                let FirstUse { namespace, name, host, fingerprint, .. } = &request.first_use;
                match &answer {
                    Ok(()) => tracing::info!(repository = %format!("{namespace}/{name}"), host, fingerprint, "pinned a host key at first use"),
                    Err(why) => tracing::warn!(repository = %format!("{namespace}/{name}"), host, why, "a host key was not pinned"),
                }
                // Whoever asked may have gone.
                let _ = request.answer.send(answer);
            }
            Ok(()) = changes.changed() => failed = forget(&cluster, &kind, &repositories).await,
            () = sleep(AGAIN), if failed => failed = forget(&cluster, &kind, &repositories).await,
        }
    }
}

/// Writes one pin, unless another key is pinned.
async fn write(cluster: &Cluster, kind: &Kind, first_use: &FirstUse) -> Result<(), String> {
    let FirstUse { namespace, name, .. } = first_use;
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let live = cluster.get(kind, Some(namespace), name).await.map_err(|error| chain(&error))?;
        let repository = live.and_then(read::<GitRepository>).ok_or("the GitRepository is gone")?;
        let Some(status) = source::pin(&repository, first_use, Timestamp::now())? else { return Ok(()) };
        match patch(cluster, kind, &repository, &status).await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_conflict() => last = chain(&error),
            Err(error) => return Err(chain(&error)),
        }
    }
    Err(last)
}

/// Removes what is no longer true. Returns whether that failed and is to be tried again.
async fn forget(cluster: &Cluster, kind: &Kind, repositories: &Repositories) -> bool {
    let mut failed = false;
    for (repository, status) in repositories.with_stale_pins() {
        match patch(cluster, kind, &repository, &status).await {
            Ok(()) => {}
            // The watch shows what has happened.
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            Err(error) => {
                let name = repository.metadata.name.as_deref().unwrap_or_default();
                tracing::warn!(repository = name, why = chain(&error), "a pinned host key was not removed");
                failed = true;
            }
        }
    }
    failed
}

async fn patch(
    cluster: &Cluster,
    kind: &Kind,
    repository: &GitRepository,
    status: &GitRepositoryStatus,
) -> Result<(), Error> {
    let metadata = &repository.metadata;
    let list = |all: Value| if all == json!([]) { Value::Null } else { all };
    let patch = json!({
        "metadata": {"resourceVersion": metadata.resource_version},
        "status": {"pinnedHostKeys": list(json!(status.pinned_host_keys)), "conditions": list(json!(status.conditions))},
    });
    let name = metadata.name.as_deref().unwrap_or_default();
    cluster.patch_merge(kind, metadata.namespace.as_deref(), name, Part::Status, &patch).await.map(drop)
}
