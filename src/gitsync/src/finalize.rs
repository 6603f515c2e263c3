//! Deletes or releases the objects of a GitSync that is being deleted.
//!
//! A GitSync has a finalizer only if its objects are deleted with it, so that no namespace waits for an agent that is
//! uninstalled. For a GitSync without the finalizer, a watch shows the deletion. The agent then releases its objects:
//! it removes the label and Mainstay's field ownership. If no agent runs at that time, both stay. This is harmless: an
//! agent manages objects that an inventory lists, and an owner reference deletes the inventory with its GitSync. (A
//! deletion also needs proof that Mainstay applied the object: `prune`.)
//!
//! Invariant: the deletion of the CRD of GitSync never deletes a workload.
//! Invariant: if a GitSync lists itself in its inventory, it does not wait for objects whose deletion waits for the
//! GitSync.
//! Invariant: no object is deleted or released because a GitSync could not be read: the server must have reported its
//! deletion.
//! Invariant: with an inventory that was rebuilt from labels, objects are released, never deleted.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;

use super::attempt::Attempt;
use super::context::git_syncs;
use super::inventory::{self, Found};
use super::outcome::Refused;
use super::prune::{Permission, awaits, deletes_objects, holds_much};
use mainstay_api::GitSync;
use mainstay_api::conditions::Reason;
use mainstay_api::names::{ALLOW_PRUNE, FINALIZER, GIT_SYNC_DEFINITION};
use mainstay_cluster::{Cluster, Error, Kind, Part, Scope, ServiceAccount};
use mainstay_engine::apply::Pruned;
use mainstay_engine::managed::inventory::{Entry, Inventory};
use mainstay_engine::notification::WhyPruned;
use mainstay_object::failure::Class;
use mainstay_object::{Key, prune_order};

/// Number of attempts to release the objects of a GitSync that is gone, and the wait after the first attempt.
const TRIES: u32 = 4;
const WAIT: Duration = Duration::from_secs(1);

/// The result for a GitSync that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All objects are settled, and the finalizer is removed.
    Done,
    /// Deletions are pending.
    Waiting,
}

/// The action for the objects of a deleted GitSync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Objects {
    Delete,
    Release,
}

/// Whether to wait for objects whose deletion takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Terminating {
    Await,
    Leave,
}

/// Whether the GitSync has Mainstay's finalizer.
pub(super) fn has_finalizer(sync: &GitSync) -> bool {
    sync.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

impl Attempt<'_> {
    /// Sets Mainstay's finalizer if the objects are deleted with the GitSync, otherwise removes it.
    pub(super) async fn settle_finalizer(&self) -> Result<(), Error> {
        let required = deletes_objects(&self.sync.metadata);
        if required == has_finalizer(self.sync) { Ok(()) } else { self.set_finalizer(required).await }
    }

    /// Sets Mainstay's finalizer, or removes it if `required` is false. The write fails if the GitSync has changed.
    pub(super) async fn set_finalizer(&self, required: bool) -> Result<(), Error> {
        let meta = &self.sync.metadata;
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        if required {
            finalizers.push(FINALIZER.to_owned());
        }
        let patch = json!({"metadata": {"resourceVersion": meta.resource_version, "finalizers": finalizers}});
        let (cluster, owner) = (&self.context.home, self.inventory_owner());
        cluster.patch_merge(&git_syncs(), Some(owner.namespace), owner.name, Part::Main, &patch).await.map(drop)
    }

    /// Deletes or releases the objects, then removes the finalizer.
    pub(super) async fn finalize(&mut self) -> Result<End, Refused> {
        self.load_inventory().await?;
        let objects = if deletes_objects(&self.sync.metadata) { Objects::Delete } else { Objects::Release };
        if self.let_go_of(objects, Terminating::Await).await? == End::Waiting {
            return Ok(End::Waiting);
        }
        match self.set_finalizer(false).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(End::Done),
        }
    }

    /// Releases the objects of a GitSync that is gone and had no finalizer, in a few attempts. The objects are deleted
    /// instead if the server reported the deletion (`deleted`) and the annotation of the GitSync requires that. A user
    /// may have set the annotation just before the deletion, so that the finalizer was never added.
    ///
    /// # Errors
    ///
    /// The reason why some objects could not be released.
    pub(super) async fn farewell(&mut self, deleted: bool) -> Result<(), Refused> {
        let objects = if deleted && deletes_objects(&self.sync.metadata) { Objects::Delete } else { Objects::Release };
        let mut left = Ok(());
        for attempt in 0..TRIES {
            if attempt > 0 {
                tokio::time::sleep(WAIT * 2u32.pow(attempt - 1)).await;
            }
            let last = attempt + 1 == TRIES;
            match self.say_farewell(if last { Objects::Release } else { objects }).await {
                Ok(End::Done) => return Ok(()),
                Ok(End::Waiting) => {}
                Err(refused) => {
                    tracing::warn!(
                        sync = self.owner.resource().as_str(),
                        why = refused.message,
                        "objects could not be released"
                    );
                    left = Err(refused);
                }
            }
        }
        left
    }

    async fn say_farewell(&mut self, objects: Objects) -> Result<End, Refused> {
        if self.is_there().await? {
            return Ok(End::Done);
        }
        if self.inventory().is_none()
            && let Found::Whole(inventory, _) = self.read_inventory().await?
        {
            self.context.writer.store().set_inventory(self.owner, inventory);
        }
        self.let_go_of(objects, Terminating::Leave).await
    }

    /// Whether the GitSync still exists and is not being deleted.
    async fn is_there(&self) -> Result<bool, Error> {
        let owner = self.inventory_owner();
        let meta = self.context.home.get_metadata(&git_syncs(), Some(owner.namespace), owner.name).await?;
        Ok(meta.is_some_and(|m| m.uid == self.sync.metadata.uid && m.deletion_timestamp.is_none()))
    }

    /// Releases the objects in a cluster that the GitSync leaves for a different one.
    pub(super) async fn move_out(&mut self) -> Result<(), Refused> {
        self.load_inventory().await?;
        self.let_go_of(Objects::Release, Terminating::Leave).await.map(drop)
    }

    /// Deletes or releases the objects in the inventory, then deletes the inventory.
    async fn let_go_of(&mut self, objects: Objects, terminating: Terminating) -> Result<End, Refused> {
        self.state.removal.awaited = None;
        let inventory = self.inventory().unwrap_or_default();
        let annotations = self.sync.metadata.annotations.clone().unwrap_or_default();
        let wants_deletion = objects == Objects::Delete && !definition_is_going(&self.context.home).await?;
        let deletes = wants_deletion && !self.state.inventory.is_rebuilt();
        if wants_deletion && !deletes {
            tracing::warn!(
                sync = self.owner.resource().as_str(),
                objects = inventory.0.len(),
                "the inventory was missing or damaged and was put together from labels: the objects stay, without \
                 Mainstay's label"
            );
        }
        if deletes && self.awaits_wants_of_others(&inventory).await? {
            return Ok(End::Waiting);
        }
        self.context.writer.accept(self.owner, &[], inventory.0.keys());
        if let Some(account) = self.missing_account().await? {
            return self.let_stay(&account).await;
        }
        let status = self.sync.status.as_ref();
        let commits = status.iter().flat_map(|s| [s.applied_commit.as_deref(), s.attempted_commit.as_deref()]);
        let allow = annotations.get(ALLOW_PRUNE).map(String::as_str);
        let allowed = allow.is_some() && commits.into_iter().any(|commit| commit == allow);
        let own = self.owner.key();
        let leave = inventory.0.keys().filter(|key| key.is(&own.group, &own.kind)).chain([&own]).cloned().collect();
        let (mut going, staying): (Vec<_>, Vec<_>) = inventory
            .0
            .iter()
            .map(|(key, entry)| (key.clone(), entry.clone()))
            // The GitSync itself is already being deleted.
            .filter(|(key, _)| *key != own && self.reaches(key))
            .partition(|(key, _)| {
                deletes
                    && !self.context.is_wanted_elsewhere(self.owner, key)
                    && (allowed || (holds_much(&own, key).is_none() && !self.is_read_by_others(key, &leave)))
            });
        going.sort_by(|(a, _), (b, _)| prune_order(a).cmp(&prune_order(b)).then_with(|| b.cmp(a)));
        let permission = if allowed { Permission::Allowed } else { Permission::Unasked };
        if self.delete_all(going, permission).await? == End::Waiting && terminating == Terminating::Await {
            return Ok(End::Waiting);
        }
        self.release_all(staying).await?;
        inventory::delete(&self.context.writer, &self.inventory_owner(), &self.state.inventory).await?;
        self.context.writer.forget_owner(self.owner);
        Ok(End::Done)
    }

    /// Whether it is unknown which objects other GitSyncs want: one has no row yet, or one of another agent wants more
    /// objects than its status lists. The listed ones are released, so that its status lists the others after an apply.
    async fn awaits_wants_of_others(&mut self, inventory: &Inventory) -> Result<bool, Refused> {
        let (untried, wants_more) =
            self.context.registry.with(self.owner, |view| (view.others_untried(), view.others_want_more()));
        if wants_more.is_some() && untried.is_none() {
            let own = self.owner.key();
            let is_wanted = |key: &Key| self.reaches(key) && self.context.is_wanted_elsewhere(self.owner, key);
            let wanted = inventory.0.iter().filter(|(key, _)| **key != own && is_wanted(key));
            let wanted = wanted.map(|(key, entry)| (key.clone(), entry.clone())).collect();
            self.context.writer.accept(self.owner, &[], inventory.0.keys());
            self.release_all(wanted).await?;
        }
        let awaited = untried.or(wants_more);
        let is_waiting = awaited.is_some();
        self.state.removal.awaited = awaited.filter(|_| self.context.is_shared()).map(Box::new);
        Ok(is_waiting)
    }

    /// Whether a GitSync that is not in `going` needs an object to read its repository.
    fn is_read_by_others(&self, key: &Key, going: &HashSet<Key>) -> bool {
        self.context.registry.with(self.owner, |view| view.reader_of(key, going).is_some())
    }

    /// Leaves the objects as they are, because the ServiceAccount with the permissions to delete or release them is
    /// gone. A namespace that is deleted with its ServiceAccounts must not wait for these objects.
    async fn let_stay(&mut self, account: &ServiceAccount) -> Result<End, Refused> {
        let objects = self.inventory().map_or(0, |inventory| inventory.0.len());
        let sync = self.owner.resource().as_str();
        tracing::warn!(sync, objects, "{account} does not exist: the objects stay as they are, with Mainstay's label");
        inventory::delete(&self.context.writer, &self.inventory_owner(), &self.state.inventory).await?;
        self.context.writer.forget_owner(self.owner);
        Ok(End::Done)
    }

    async fn delete_all(&mut self, going: Vec<(Key, Entry)>, permission: Permission) -> Result<End, Refused> {
        let mut terminating = Vec::new();
        let mut kept = Vec::new();
        let mut failed = None;
        let entries = self.inventory().unwrap_or_default();
        let own = self.owner.key();
        let (context, owner) = (self.context, self.owner);
        let stays = |key: &Key| context.is_wanted_elsewhere(owner, key).then_some(Pruned::Wanted);
        self.acting()?
            .prune(self.label, going, permission, stays, |key, pruned| match pruned {
                Pruned::Terminating { requested, awaits: found } => {
                    if requested {
                        self.emit_pruned(&key, &entries, &WhyPruned::WithItsGitSync);
                    }
                    if awaits(&own, &key) {
                        terminating.push((key, found));
                    }
                }
                Pruned::Gone { deleted: true } => self.emit_pruned(&key, &entries, &WhyPruned::WithItsGitSync),
                Pruned::Gone { deleted: false } => {}
                Pruned::Kept(_) | Pruned::Wanted => {
                    kept.extend(entries.0.get(&key).map(|entry| (key.clone(), entry.clone())));
                }
                Pruned::Failed(error) => failed = Some((key, error)),
            })
            .await;
        let end = if terminating.is_empty() { End::Done } else { End::Waiting };
        self.state.removal.set_terminating(terminating);
        self.emit_stuck();
        if let Some((key, error)) = failed {
            return Err(refused(&key, "deleted", &error));
        }
        self.release_all(kept).await?;
        Ok(end)
    }

    async fn release_all(&self, staying: Vec<(Key, Entry)>) -> Result<(), Refused> {
        let mut first = Ok(());
        let done = |key: &Key, released: Result<(), Error>| {
            if first.is_ok() {
                first = released.map_err(|error| refused(key, "released", &error));
            }
        };
        self.acting()?.release(self.label, staying, done).await;
        first
    }
}

fn refused(key: &Key, what: &str, error: &Error) -> Refused {
    let message = format!("{key} could not be {what}: {}", error.cause_text());
    let class = if error.class() == Class::Invalid { Class::Unavailable } else { error.class() };
    Refused { class, reason: Reason::PruneFailed, message, retry_after: error.retry_after() }
}

/// Whether the CRD of GitSync is being deleted, which deletes every GitSync.
async fn definition_is_going(cluster: &Cluster) -> Result<bool, Error> {
    let kind =
        Kind::fixed("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", Scope::Cluster);
    let meta = cluster.get_metadata(&kind, None, GIT_SYNC_DEFINITION).await?;
    Ok(meta.is_none_or(|meta| meta.deletion_timestamp.is_some()))
}
