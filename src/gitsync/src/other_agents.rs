//! The GitSyncs of other agents, as far as the cluster shows them: their spec and status, and the label of their objects.
//!
//! GitSyncs of two agents agree on an object by what stands in the cluster. The one that wants it reports the conflict
//! in `status.failures`. The one that manages it keeps it while it wants it. Otherwise it reports the handover in
//! `status.held`, and the other one applies the object.
//!
//! Invariant: no agent takes an object from a GitSync of another agent that has not given it up.
//! Invariant: no agent deletes an object that a GitSync of another agent wants, or may want.
//! Invariant: the work for a GitSync that another agent takes over ends without a deletion or a release.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use super::context::Context;
use super::placement::label;
use super::prune::{HANDOVER, deletes_objects};
use super::reconcile::followed;
use super::registry::{self, Registry, Row};
use super::resolve::depends_on;
use super::unread;
use mainstay_api::GitSync;
use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::GitSyncStatus;
use mainstay_git::{Consumer, ConsumerKind, RemoteUrl};
use mainstay_object::{Key, Owner};

impl Context {
    /// Prepares for GitSyncs of other agents.
    pub fn share(&self) {
        self.losses.share();
    }

    /// Ends the work for a GitSync that another agent takes over.
    pub fn lose(&self, owner: &Owner) {
        self.losses.lose(owner);
    }

    /// Prepares for a GitSync that this agent takes over, before its task begins.
    pub fn gain(&self, owner: &Owner) {
        self.losses.end(owner);
    }

    /// Shows a GitSync of another agent to the GitSyncs of this agent.
    pub fn see_of_other_agent(&self, owner: &Owner, sync: &Arc<GitSync>) {
        self.prevention.enter(owner);
        self.dependencies.enter(owner);
        self.dependencies.read_of_other_agent(owner, sync, depends_on(sync));
        let url = self.url_of_other_agent(owner, sync);
        let consumer = consumer(owner);
        drop(self.pushes.subscribe(&consumer));
        self.pushes.set(&consumer, followed(sync, url.as_ref()));
        let row = self.row_of_other_agent(owner, sync, url.as_ref());
        let cluster = sync.status.as_ref().and_then(|status| status.cluster.as_deref());
        for (id, registry) in self.clusters.registries() {
            if Some(&*id) != cluster {
                registry.forget(owner);
            }
        }
        if let Some(cluster) = cluster {
            set(&self.clusters.registry(cluster), owner, Row { by_account: true, ..row });
        } else if sync.spec.kube_config.is_none() {
            return set(&self.registry, owner, row);
        }
        self.registry.forget(owner);
    }

    /// Removes a deleted GitSync of another agent.
    pub fn forget_of_other_agent(&self, owner: &Owner) {
        self.clusters.registries().iter().for_each(|(_, registry)| registry.forget(owner));
        self.pushes.remove(&consumer(owner));
        self.leave(owner);
    }

    /// Wakes the GitSyncs that follow a source, because another agent has received a push.
    pub fn wake_followers(&self, namespace: &str, source: &str, now: Instant) {
        let woken = self
            .pushes
            .wake(|consumer, followed| consumer.namespace == namespace && followed.repository == source, now);
        tracing::debug!(namespace, source, count = woken.len(), "another agent received a push");
    }

    fn url_of_other_agent(&self, owner: &Owner, sync: &GitSync) -> Option<RemoteUrl> {
        let namespace = owner.resource().namespace();
        match &sync.spec.source_ref {
            Some(source) => self.repositories.artifact(namespace, source).ok().flatten(),
            None => RemoteUrl::parse(&self.repositories.get(namespace, &sync.spec.git_repository)?.spec.url).ok(),
        }
    }

    fn row_of_other_agent(&self, owner: &Owner, sync: &GitSync, url: Option<&RemoteUrl>) -> Row {
        let (namespace, name) = (owner.resource().namespace(), owner.resource().name());
        let status = sync.status.clone().unwrap_or_default();
        let repository = self.repositories.get(namespace, &sync.spec.git_repository);
        Row {
            label: label(namespace, name),
            branch: url.map(|url| registry::branch(url, &sync.spec.followed_reference())),
            desired: Some(Arc::new(wanted(&status))),
            planned: planned(&status),
            confined_to: self.is_confined(namespace).then(|| namespace.into()),
            by_account: self.rights.account(sync).is_ok_and(|account| account.is_some()),
            suspended: sync.spec.suspended(Timestamp::now()).is_some(),
            tried: status.observed_generation.is_some(),
            reads_by: unread::reads_by(owner, sync, repository.as_deref()).into(),
            takes_objects: deletes_objects(&sync.metadata),
            is_of_other_agent: true,
            given_up: status.held.iter().filter_map(|held| key_of(held.split_once(HANDOVER)?.0)).collect(),
            ..Row::default()
        }
    }
}

fn consumer(owner: &Owner) -> Consumer {
    Consumer::new(ConsumerKind::GitSync, owner.resource().namespace(), owner.resource().name())
}

fn set(registry: &Registry, owner: &Owner, new: Row) {
    registry.update(owner, |row| *row = new);
}

/// Returns the objects that a GitSync wants and does not get, because another GitSync manages them.
fn wanted(status: &GitSyncStatus) -> HashSet<Key> {
    let conflict = Reason::OwnershipConflict.as_str();
    let failures = status.failures.iter().filter(|failure| failure.reason == conflict);
    failures.filter_map(|failure| key_of(&failure.object)).collect()
}

/// Returns the commit of [`wanted`]: the attempted one, if it is applied or if the status lists all failures.
fn planned(status: &GitSyncStatus) -> Option<String> {
    let failed = usize::try_from(status.failed).unwrap_or_default();
    let is_listed = failed > 0 && failed <= status.failures.len();
    let attempted = status.attempted_commit.clone();
    attempted.filter(|attempted| is_listed || status.applied_commit.as_ref() == Some(attempted))
}

/// Parses an object as statuses show it: `Deployment.apps shop/web`, `Namespace shop`.
fn key_of(shown: &str) -> Option<Key> {
    let (kind, name) = shown.split_once(' ')?;
    let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
    let (namespace, name) = name.split_once('/').map_or((None, name), |(namespace, name)| (Some(namespace), name));
    Some(Key::new(group, kind, namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Claim;
    use mainstay_api::git_sync::Failure;

    fn key() -> Key {
        Key::new("apps", "Deployment", Some("shop"), "web")
    }

    fn status(attempted: &str, applied: &str, wanted: &[Key], failed: i64) -> GitSyncStatus {
        let failure = |key: &Key| Failure {
            object: key.to_string(),
            reason: Reason::OwnershipConflict.as_str(),
            message: "it is managed by GitSync a/b too".to_owned(),
        };
        GitSyncStatus {
            attempted_commit: Some(attempted.to_owned()),
            applied_commit: Some(applied.to_owned()),
            failures: wanted.iter().map(failure).collect(),
            failed,
            ..GitSyncStatus::default()
        }
    }

    #[test]
    fn an_object_of_a_status_is_read_as_it_was_written() {
        for key in [key(), Key::new("", "ConfigMap", Some("a"), "b"), Key::new("", "Namespace", None, "shop")] {
            assert_eq!(key_of(&key.to_string()), Some(key));
        }
        let cluster_wide = Key::new("rbac.authorization.k8s.io", "ClusterRole", None, "system:a:b");
        assert_eq!(key_of(&cluster_wide.to_string()), Some(cluster_wide));
        assert_eq!(key_of("Secret"), None);
    }

    #[test]
    fn a_commit_is_planned_once_its_status_shows_all_that_it_wants() {
        assert_eq!(planned(&status("c2", "c2", &[], 0)).as_deref(), Some("c2"));
        assert_eq!(planned(&status("c2", "c1", &[key()], 1)).as_deref(), Some("c2"));
        assert_eq!(planned(&status("c2", "c1", &[key()], 2)), None);
        assert_eq!(planned(&status("c2", "c1", &[], 0)), None);
    }

    #[test]
    fn an_object_of_a_git_sync_of_another_agent_is_held_until_its_status_gives_it_up() {
        let (own, other) = (Owner::git_sync("x", "own"), Owner::git_sync("x", "other"));
        let claim = |held: &[String], label: Option<&str>| {
            let given_up = held.iter().filter_map(|held| key_of(held.split_once(HANDOVER)?.0)).collect();
            let registry = Registry::default();
            let row = Row { label: "x.other".into(), is_of_other_agent: true, given_up, tried: true, ..Row::default() };
            set(&registry, &other, row);
            registry.with(&own, |view| view.claim(&key(), label, "main", "c2"))
        };
        let held = Claim::Held("x/other".to_owned());
        assert_eq!(claim(&[], Some("x.other")), held);
        assert_eq!(claim(&[format!("{}: waits", key())], Some("x.other")), held);
        let given_up = format!("{}{HANDOVER}x/own is pending: another agent applies it", key());
        assert_eq!(claim(&[given_up], Some("x.other")), Claim::Free);
        assert_eq!((claim(&[], None), claim(&[], Some("x.third"))), (Claim::Free, Claim::Free));
    }

    #[test]
    fn an_object_that_a_git_sync_of_another_agent_wants_is_handed_over() {
        let (own, other) = (Owner::git_sync("x", "own"), Owner::git_sync("x", "other"));
        let registry = Registry::default();
        let row = |status: &GitSyncStatus| Row {
            branch: Some("main".to_owned()),
            desired: Some(Arc::new(wanted(status))),
            planned: planned(status),
            tried: true,
            is_of_other_agent: true,
            ..Row::default()
        };
        set(&registry, &other, row(&status("c1", "c1", &[], 0)));
        assert!(registry.with(&own, |view| view.sibling_pending("main", "c2")).is_some());
        set(&registry, &other, row(&status("c2", "c1", &[key()], 1)));
        registry.with(&own, |view| {
            assert_eq!(view.sibling_pending("main", "c2"), None);
            assert_eq!(view.taker_of_other_agent(&key()).as_deref(), Some("x/other"));
            assert_eq!(view.desired_elsewhere(&key()), crate::registry::Elsewhere::Peer);
        });
    }
}
