//! Writes host keys pinned at first use to the status of their GitRepositories, and removes stale ones.
//!
//! Invariant: a pin is written only if the GitRepository is unchanged since it was read. So if two connections find
//! different keys, only one key is pinned. Invariant: after a refused removal, the next one of the same GitRepository
//! waits, regardless of the number of changes. It delays no other GitRepository.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::kept::Name;
use super::repositories::git_repositories;
use super::status_write::{Refusals, first};
use super::tasks::read;
use mainstay_api::{GitRepository, GitRepositoryStatus};
use mainstay_cluster::{Cluster, Error, Kind, Part};
use mainstay_git::{FirstUse, PinRequest, Repositories, Source};
use mainstay_object::failure::chain;

/// Maximum attempts to write a pin after conflicts. Afterwards, a new connection is needed.
const ATTEMPTS: usize = 5;
/// Maximum time to write a pin.
const WITHIN: Duration = Duration::from_secs(10);

/// Adds and removes pins until `stop`.
pub(super) async fn keep(
    mut requests: mpsc::Receiver<PinRequest>,
    source: Source,
    repositories: Arc<Repositories>,
    cluster: Cluster,
    stop: CancellationToken,
) {
    let kind = git_repositories();
    let mut changes = repositories.listen();
    let (mut for_all, mut superseded) = (source.host_keys(), source.superseded_pins());
    let mut refusals: BTreeMap<Name, Refusals> = BTreeMap::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(request) = requests.recv() => {
                // The requester has given up, so its key may be stale.
                if request.answer.is_closed() {
                    continue;
                }
                let writing = timeout(WITHIN, write(&cluster, &kind, &request));
                let answer = writing.await.unwrap_or_else(|_| Err("the cluster did not respond in time".to_owned()));
                let FirstUse { namespace, name, host, fingerprint, .. } = &request.first_use;
                match &answer {
                    Ok(()) => tracing::info!(repository = %format!("{namespace}/{name}"), host, fingerprint, "pinned a host key at first use"),
                    Err(why) => tracing::warn!(repository = %format!("{namespace}/{name}"), host, why, "a host key was not pinned"),
                }
                // The requester may be gone.
                let _ = request.answer.send(answer);
                continue;
            }
            Ok(()) = changes.changed() => {}
            Ok(()) = for_all.changed() => {}
            Ok(()) = superseded.changed() => {}
            () = first(&refusals).passed() => {}
        }
        let stale = repositories.with_stale_pins(&source.host_keys().borrow(), &source.superseded_pins().borrow());
        forget(&cluster, &kind, stale, &mut refusals).await;
    }
}

/// Writes a pin, unless a different key is pinned.
async fn write(cluster: &Cluster, kind: &Kind, request: &PinRequest) -> Result<(), String> {
    let first_use = &request.first_use;
    let FirstUse { namespace, name, .. } = first_use;
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let live = cluster.get(kind, Some(namespace), name).await.map_err(|error| chain(&error))?;
        let repository = live.and_then(|live| read::<GitRepository>(live).ok()).ok_or("the GitRepository is gone")?;
        let Some(status) = mainstay_git::pin(&repository, first_use, Timestamp::now())? else { return Ok(()) };
        if request.answer.is_closed() {
            return Err("the requester timed out".to_owned());
        }
        match patch(cluster, kind, &repository, &status).await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_conflict() => last = chain(&error),
            Err(error) => return Err(chain(&error)),
        }
    }
    Err(last)
}

/// Removes stale pins, and records the refused removals of each GitRepository.
async fn forget(
    cluster: &Cluster,
    kind: &Kind,
    stale: Vec<(Arc<GitRepository>, GitRepositoryStatus)>,
    refusals: &mut BTreeMap<Name, Refusals>,
) {
    let mut before = std::mem::take(refusals);
    for (repository, status) in stale {
        let metadata = &repository.metadata;
        let name = (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default());
        let mut refused = before.remove(&name).unwrap_or_default();
        if !refused.waits() {
            match patch(cluster, kind, &repository, &status).await {
                Ok(()) => continue,
                // After a conflict or a deletion, the watch delivers the new state.
                Err(error) if error.is_conflict() || error.is_not_found() => continue,
                Err(error) => {
                    let (namespace, name) = &name;
                    tracing::warn!(namespace, name, why = chain(&error), "a pinned host key was not removed");
                    refused.record(&error);
                }
            }
        }
        refusals.insert(name, refused);
    }
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
