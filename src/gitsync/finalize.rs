//! The end of a GitSync: its objects stay and are nobody's, or go with it where that was asked for.
//!
//! Invariant: deleting the definition of GitSync never deletes a workload.

use futures::{StreamExt, stream};
use serde_json::json;

use super::apply::{self, Pruned, Unproven};
use super::attempt::{Attempt, Refused};
use super::inventory::Entry;
use super::plan::holds_much;
use crate::api::conditions::Reason;
use crate::api::names::{ALLOW_PRUNE, FINALIZER, ON_DELETE};
use crate::cluster::{Cluster, Error, Kind, Part, Scope};
use crate::failure::{Class, chain};
use crate::object::{Key, prune_order};

/// Value of the annotation that deletes the objects with the GitSync.
const DELETE_OBJECTS: &str = "prune";
/// Releases in flight at once.
const AT_ONCE: usize = 16;

/// The kind of GitSyncs.
pub(super) fn git_syncs() -> Kind {
    Kind::custom("mainstay.dev", "v1alpha1", "GitSync", "gitsyncs", true, true)
}

/// What became of a GitSync that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Everything is settled, the finalizer is off.
    Done,
    /// Deletions are under way.
    Waiting,
}

impl Attempt<'_> {
    /// Sets or, with `wanted` false, takes off our finalizer, if the GitSync is still as it was seen.
    pub(super) async fn set_finalizer(&self, wanted: bool) -> Result<(), Error> {
        let meta = &self.sync.metadata;
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        if wanted {
            finalizers.push(FINALIZER.to_owned());
        }
        let patch = json!({"metadata": {"resourceVersion": meta.resource_version, "finalizers": finalizers}});
        let (cluster, owner) = (self.context.drift.cluster(), self.inventory_owner());
        cluster.patch_merge(&git_syncs(), Some(owner.namespace), owner.name, Part::Main, &patch).await.map(drop)
    }

    /// Settles what becomes of the objects, then lets the GitSync go.
    pub(super) async fn finalize(&mut self) -> Result<End, Refused> {
        self.load_inventory().await?;
        let cluster = self.context.drift.cluster().clone();
        let inventory = self.memory.inventory.clone().unwrap_or_default();
        let annotations = self.sync.metadata.annotations.clone().unwrap_or_default();
        let deletes = annotations.get(ON_DELETE).is_some_and(|value| value == DELETE_OBJECTS)
            && !definition_is_going(&cluster).await?;
        if deletes && self.context.registry.with(self.owner, |view| view.others_untried()) {
            // Until then nobody knows whether another GitSync wants any of it.
            return Ok(End::Waiting);
        }
        for key in inventory.0.keys() {
            self.context.drift.tombstone(self.owner, key);
        }
        let status = self.sync.status.as_ref();
        let commits = status.iter().flat_map(|s| [s.applied_commit.as_deref(), s.attempted_commit.as_deref()]);
        let allow = annotations.get(ALLOW_PRUNE).map(String::as_str);
        let allowed = allow.is_some() && commits.into_iter().any(|commit| commit == allow);
        let wanted_elsewhere = |key: &Key| self.context.registry.with(self.owner, |view| view.wanted_elsewhere(key));
        let (mut going, staying): (Vec<_>, Vec<_>) = inventory
            .0
            .iter()
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .filter(|(key, _)| self.reaches(key))
            .partition(|(key, _)| deletes && !wanted_elsewhere(key) && (allowed || holds_much(key).is_none()));
        going.sort_by(|(a, _), (b, _)| prune_order(a).cmp(&prune_order(b)).then_with(|| b.cmp(a)));
        let unproven = if allowed { Unproven::Delete } else { Unproven::Keep };
        if self.delete_all(going, unproven).await? == End::Waiting {
            return Ok(End::Waiting);
        }
        self.release_all(staying).await?;
        self.context.drift.forget_owner(self.owner);
        apply::delete_inventory(&cluster, &self.inventory_owner(), &self.memory.written).await?;
        match self.set_finalizer(false).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(End::Done),
        }
    }

    async fn delete_all(&self, going: Vec<(Key, Entry)>, unproven: Unproven) -> Result<End, Refused> {
        let mut end = End::Done;
        let mut kept = Vec::new();
        let mut failed = None;
        let entries = self.memory.inventory.clone().unwrap_or_default();
        apply::prune(&self.context.drift, self.label, going, unproven, |key, pruned| match pruned {
            Pruned::Gone { .. } => {}
            Pruned::Terminating => end = End::Waiting,
            Pruned::Kept(_) => kept.extend(entries.0.get(&key).map(|entry| (key.clone(), entry.clone()))),
            Pruned::Failed(error) => failed = Some((key, error)),
        })
        .await;
        if let Some((key, error)) = failed {
            return Err(refused(&key, "deleted", &error));
        }
        self.release_all(kept).await?;
        Ok(end)
    }

    async fn release_all(&self, staying: Vec<(Key, Entry)>) -> Result<(), Refused> {
        let releases = stream::iter(staying).map(|(key, entry)| async move {
            let released = apply::release(&self.context.drift, self.label, &key, &entry).await;
            released.map_err(|error| refused(&key, "released", &error))
        });
        let mut releases = releases.buffer_unordered(AT_ONCE);
        let mut first = Ok(());
        while let Some(released) = releases.next().await {
            if first.is_ok() {
                first = released;
            }
        }
        first
    }
}

fn refused(key: &Key, what: &str, error: &Error) -> Refused {
    let message = format!("{key} could not be {what}: {}", chain(error));
    let class = if error.class() == Class::Invalid { Class::Unavailable } else { error.class() };
    Refused { class, reason: Reason::PruneFailed, message, retry_after: error.retry_after() }
}

/// Whether the definition of GitSync itself is being deleted, which deletes every GitSync.
async fn definition_is_going(cluster: &Cluster) -> Result<bool, Error> {
    let kind =
        Kind::fixed("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", Scope::Cluster);
    let meta = cluster.get_metadata(&kind, None, "gitsyncs.mainstay.dev").await?;
    Ok(meta.is_none_or(|meta| meta.deletion_timestamp.is_some()))
}
