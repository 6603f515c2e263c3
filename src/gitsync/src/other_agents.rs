//! The GitSyncs of other agents, as far as the cluster shows them: their spec and status, and the label of their
//! objects. The other agents hold the other shards of the same installation.
//!
//! GitSyncs of two agents agree on an object by what stands in the cluster. The one that wants it lists it in
//! `status.shared`. The one that manages it keeps it while it wants it. Otherwise it reports the handover in
//! `status.held`, and the other one applies the object.
//!
//! Invariant: no agent takes an object from a GitSync of another agent that has not given it up.
//! Invariant: no agent deletes an object that a GitSync of another agent wants, or may want: its status must show the
//! commit as planned for the present spec, with all wanted objects.
//! Invariant: the work for a GitSync that another agent takes over ends without a deletion or a release.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use jiff::Timestamp;

use super::context::Context;
use super::placement::label;
use super::prune::deletes_objects;
use super::reconcile::followed;
use super::registry::{self, Registry, Row, Spec};
use super::resolve::depends_on;
use super::shared_plan::{given_up, key_of, wanted};
use super::unread;
use mainstay_api::GitSync;
use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::GitSyncStatus;
use mainstay_engine::managed::SHOWN;
use mainstay_git::{Consumer, ConsumerKind, RemoteUrl};
use mainstay_object::{Key, Owner};

impl Context {
    /// Prepares for GitSyncs of other agents. From now on, statuses show plans.
    pub fn share(&self) {
        self.shared.store(true, Ordering::Relaxed);
    }

    /// Shows a GitSync of another agent to the GitSyncs of this agent.
    pub fn see_of_other_agent(&self, owner: &Owner, sync: &Arc<GitSync>) {
        let _setting = self.setting_rows.lock();
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

    /// Records a GitSync of another agent for which there is no memory. Its objects are unknown, so no object is deleted
    /// that it may want. `sync` is its newest state, if it is known.
    pub fn refuse_of_other_agent(&self, owner: &Owner, sync: Option<&GitSync>) {
        let _setting = self.setting_rows.lock();
        let (namespace, name) = (owner.resource().namespace(), owner.resource().name());
        self.prevention.enter(owner);
        self.dependencies.refuse_of_other_agent(owner, sync.map(|sync| (sync, depends_on(sync))));
        self.pushes.remove(&consumer(owner));
        let row = unknown(label(namespace, name), self.is_confined(namespace).then(|| namespace.into()));
        for (_, registry) in self.clusters.registries() {
            registry.update_of_other_agent(owner, |known| {
                *known = Row { by_account: known.by_account, ..row.clone() };
            });
        }
        set(&self.registry, owner, row);
    }

    /// Updates the rows of GitSyncs of other agents, if GitRepositories or artifacts have changed since the last call.
    pub fn see_sources_of_other_agents(&self) {
        let version = *self.repositories.listen().borrow();
        let _setting = self.setting_rows.lock();
        if !self.is_shared() || self.seen_sources.load(Ordering::Relaxed) == version {
            return;
        }
        for (owner, sync) in self.dependencies.of_other_agents() {
            self.see_source_of_other_agent(&owner, &sync);
        }
        self.seen_sources.store(version, Ordering::Relaxed);
    }

    fn see_source_of_other_agent(&self, owner: &Owner, sync: &GitSync) {
        let url = self.url_of_other_agent(owner, sync);
        let branch = branch(sync, url.as_ref());
        let repository = self.repositories.get(owner.resource().namespace(), &sync.spec.git_repository);
        let reads_by: Arc<[Key]> = unread::reads_by(owner, sync, repository.as_deref()).into();
        let change = |registry: &Registry| {
            registry.update_of_other_agent(owner, |row| {
                row.branch.clone_from(&branch);
                if row.reads_by != reads_by {
                    row.reads_by = Arc::clone(&reads_by);
                }
            })
        };
        let mut is_there = change(&self.registry);
        for (_, registry) in self.clusters.registries() {
            is_there |= change(&registry);
        }
        // Otherwise the task of this agent sets the remote.
        if is_there {
            self.pushes.set(&consumer(owner), followed(sync, url.as_ref()));
        }
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
        // A GitSync that is being deleted wants nothing. Two of them would wait for each other.
        let is_deleted = sync.metadata.deletion_timestamp.is_some();
        let wants = if is_deleted { Wants::default() } else { Wants::of(&status, sync.metadata.generation) };
        Row {
            label: label(namespace, name),
            branch: branch(sync, url),
            desired: Some(Arc::new(wants.objects)),
            planned: wants.planned,
            wants_more: wants.more,
            confined_to: self.is_confined(namespace).then(|| namespace.into()),
            by_account: self.rights.account(sync).is_ok_and(|account| account.is_some()),
            suspended: is_deleted || sync.spec.suspended(Timestamp::now()).is_some(),
            // An agent without shards does not show what a GitSync wants.
            tried: is_deleted || status.shared.is_some(),
            spec: Some(Spec::of(&sync.metadata)).filter(|spec| status.observed_generation == Some(spec.generation)),
            reads_by: unread::reads_by(owner, sync, repository.as_deref()).into(),
            takes_objects: deletes_objects(&sync.metadata),
            is_of_other_agent: true,
            given_up: given_up(&status.held),
            failing: failing(&status),
            ..Row::default()
        }
    }
}

/// Returns the followed branch of a GitSync of another agent.
fn branch(sync: &GitSync, url: Option<&RemoteUrl>) -> Option<String> {
    let found = sync.status.as_ref().and_then(|status| status.attempted_reference.as_deref());
    Some(registry::branch(url?, &sync.spec.followed_reference(), found))
}

/// Returns the objects that a GitSync of another agent cannot apply, without those of other GitSyncs.
fn failing(status: &GitSyncStatus) -> HashSet<Key> {
    let others = [Reason::PruneFailed.as_str(), Reason::OwnershipConflict.as_str()];
    let failures = status.failures.iter().take(SHOWN).filter(|failure| !others.contains(&failure.reason));
    failures.filter_map(|failure| key_of(&failure.object)).collect()
}

/// The objects that a GitSync of another agent wants and has not applied, as its status shows them.
#[derive(Default)]
struct Wants {
    objects: HashSet<Key>,
    /// The commit of these objects; `None` if it is not known for the present spec, or not all objects are.
    planned: Option<String>,
    /// Whether the status does not list all objects.
    more: bool,
}

impl Wants {
    fn of(status: &GitSyncStatus, generation: Option<i64>) -> Self {
        // The failures may be those of an agent without shards.
        let pruned = Reason::PruneFailed.as_str();
        let failures = status.failures.iter().take(SHOWN).filter(|failure| failure.reason != pruned);
        let failed = failures.filter_map(|failure| key_of(&failure.object));
        let Some(plan) = &status.shared else {
            return Self { objects: failed.collect(), planned: None, more: false };
        };
        let (mut objects, is_whole) = wanted(plan);
        if plan.commit.is_empty() {
            objects.extend(failed);
        }
        let is_current = status.observed_generation == generation && !plan.commit.is_empty();
        let planned = (is_whole && is_current).then(|| plan.commit.clone());
        Self { objects, planned, more: !is_whole }
    }
}

/// Returns the row of a GitSync of another agent whose objects are unknown.
fn unknown(label: Arc<str>, confined_to: Option<Arc<str>>) -> Row {
    Row { label, confined_to, is_of_other_agent: true, ..Row::default() }
}

fn consumer(owner: &Owner) -> Consumer {
    Consumer::new(ConsumerKind::GitSync, owner.resource().namespace(), owner.resource().name())
}

fn set(registry: &Registry, owner: &Owner, new: Row) {
    registry.update(owner, |row| *row = new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prune::HANDOVER;
    use mainstay_api::git_sync::{Failure, SharedPlan};

    fn key() -> Key {
        Key::new("apps", "Deployment", Some("shop"), "web")
    }

    fn status(commit: &str, wanted: &[Key], count: i64) -> GitSyncStatus {
        let wanted = wanted.iter().map(ToString::to_string).collect();
        let shared = SharedPlan { commit: commit.to_owned(), carried_out: false, wanted, wanted_objects: count };
        GitSyncStatus { observed_generation: Some(1), shared: Some(shared), ..GitSyncStatus::default() }
    }

    fn planned(status: &GitSyncStatus) -> Option<String> {
        Wants::of(status, Some(1)).planned
    }

    #[test]
    fn a_commit_is_planned_once_its_status_shows_all_that_it_wants() {
        assert_eq!(planned(&status("c2", &[], 0)).as_deref(), Some("c2"));
        assert_eq!(planned(&status("c2", &[key()], 1)).as_deref(), Some("c2"));
        assert_eq!(planned(&status("c2", &[key()], 2)), None);
        assert!(Wants::of(&status("c2", &[key()], 2), Some(1)).more);
        assert_eq!(Wants::of(&status("c2", &[], 0), Some(2)).planned, None, "the spec has changed since");
        let wants = Wants::of(&status("", &[key()], 1), Some(1));
        assert_eq!((wants.planned, wants.objects), (None, HashSet::from([key()])));
    }

    #[test]
    fn a_failure_or_an_attempt_does_not_show_that_a_commit_is_planned() {
        let failure = |reason: Reason| Failure {
            object: key().to_string(),
            reason: reason.as_str(),
            message: "503 Service Unavailable".to_owned(),
        };
        let failed = |reason| GitSyncStatus {
            attempted_commit: Some("c2".to_owned()),
            applied_commit: Some("c1".to_owned()),
            failures: vec![failure(reason)],
            failed: 1,
            ..GitSyncStatus::default()
        };
        for reason in [Reason::ApplyFailed, Reason::OwnershipConflict, Reason::RevertFailed] {
            let wants = Wants::of(&failed(reason), None);
            assert_eq!((wants.planned, wants.objects), (None, HashSet::from([key()])));
        }
        assert!(Wants::of(&failed(Reason::PruneFailed), None).objects.is_empty());
        assert!(super::failing(&failed(Reason::ApplyFailed)).contains(&key()));
        assert!(super::failing(&failed(Reason::OwnershipConflict)).is_empty());
        let begun = GitSyncStatus { shared: Some(SharedPlan::default()), ..failed(Reason::ApplyFailed) };
        let wants = Wants::of(&begun, None);
        assert_eq!((wants.planned, wants.objects), (None, HashSet::from([key()])), "no commit is planned yet");
    }

    #[test]
    fn an_object_of_a_git_sync_of_another_agent_is_held_until_its_status_gives_it_up() {
        let (own, other) = (Owner::git_sync("x", "own"), Owner::git_sync("x", "other"));
        let holder = |held: &[String], label: Option<&str>| {
            let given_up = given_up(held);
            let registry = Registry::default();
            let row = Row { label: "x.other".into(), is_of_other_agent: true, given_up, tried: true, ..Row::default() };
            set(&registry, &other, row);
            registry.with(&own, |view| view.holder_of_other_agent(&key(), label?))
        };
        let held = Some("x/other".to_owned());
        assert_eq!(holder(&[], Some("x.other")), held);
        assert_eq!(holder(&[format!("{}: waits", key())], Some("x.other")), held);
        let given_up = format!("{}{HANDOVER}x/own is pending: another agent applies it", key());
        assert_eq!(holder(&[given_up], Some("x.other")), None);
        assert_eq!((holder(&[], None), holder(&[], Some("x.third"))), (None, None));
    }

    #[test]
    fn a_git_sync_of_another_agent_without_memory_keeps_its_objects_and_delays_deletions() {
        let (own, other) = (Owner::git_sync("x", "own"), Owner::git_sync("x", "other"));
        let registry = Registry::default();
        set(&registry, &other, unknown("x.other".into(), None));
        registry.with(&own, |view| {
            assert_eq!(view.holder_of_other_agent(&key(), "x.other").as_deref(), Some("x/other"));
            assert!(view.sibling_pending("main", "c1").is_some() && view.others_untried().is_some());
        });
    }

    #[test]
    fn an_object_that_a_git_sync_of_another_agent_wants_is_handed_over() {
        let (own, other) = (Owner::git_sync("x", "own"), Owner::git_sync("x", "other"));
        let registry = Registry::default();
        let row = |status: &GitSyncStatus| {
            let wants = Wants::of(status, Some(1));
            Row {
                branch: Some("main".to_owned()),
                desired: Some(Arc::new(wants.objects)),
                planned: wants.planned,
                wants_more: wants.more,
                tried: true,
                is_of_other_agent: true,
                ..Row::default()
            }
        };
        set(&registry, &other, row(&status("c1", &[], 0)));
        registry.update_of_other_agent(&other, |row| row.branch = None);
        assert!(registry.with(&own, |view| view.sibling_pending("main", "c1")).is_some(), "its source is not known");
        registry.update_of_other_agent(&other, |row| row.branch = Some("main".to_owned()));
        let pending = |branch: &str| registry.with(&own, |view| view.sibling_pending(branch, "c2")).is_some();
        assert!(pending("main") && !pending("release"));
        set(&registry, &other, row(&status("c2", &[key()], 2)));
        assert!(pending("main") && pending("release"), "it wants an object that is not known");
        set(&registry, &other, row(&status("c2", &[key()], 1)));
        registry.with(&own, |view| {
            assert_eq!(view.sibling_pending("main", "c2"), None);
            assert_eq!(view.taker_of_other_agent(&key()).map(|taker| taker.name).as_deref(), Some("x/other"));
            assert_eq!(view.desired_elsewhere(&key()), crate::registry::Elsewhere::Peer);
        });
    }
}
