//! The task of one GitSync: makes an attempt, and reports it. `run` waits for the changes that cause one.
//!
//! An attempt of a suspended GitSync may look up the commit. It makes no plan, so it applies, deletes and hands over no
//! object. The drift loop neither reverts nor recreates its objects (`account` of the engine). Its claims stay
//! (`registry`). The deletion of a suspended GitSync is carried out as that of any other (`ending`).
//!
//! Invariant: every attempt ends in a status, on success and on failure, written as soon as `urgency` allows.
//! Invariant: an idle task makes no request except the ref lookup at the remote.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tracing::Instrument as _;

use super::attempt::{Attempt, SyncState};
use super::contest_watch::ContestWatch;
use super::context::{Context, Input};
use super::outcome::{Outcome, Refused};
use super::prevented;
use super::prune::deletes_objects;
use super::reading::Reading;
use super::registry::{self, Spec};
use super::reported::Reported;
use super::resolve::{Directory, ResolvedSync, confine};
use super::running::Running;
use super::seen_sync::{Seen, SeenSync};
use super::sources::Sources;
use super::status_turn::StatusTurn;
use super::step::Step;
use super::sync_names::SyncNames;
use super::timers::Timers;
use super::unread;
use super::urgency::Urgency;
use super::whereabouts::{Place, as_known_in, nowhere};
use mainstay_api::conditions::Reason;
use mainstay_api::{GitRepository, GitSync};
use mainstay_engine::managed::{History, Policy};
use mainstay_git::{Followed as FollowedRemote, Reference, Remote, RemoteUrl};
use mainstay_object::failure::{Class, caught};
use mainstay_object::{Key, Owner};

/// Number of consecutive conflicts that are not reported.
const CONFLICTS: u32 = 5;
/// Maximum difference of the clocks of two agents.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(1);
/// Number of failed attempts after which a message reports the missing object.
const AWAITED: u32 = 3;

/// The task of one GitSync.
pub(super) struct Task {
    /// The agent's own cluster.
    pub(super) home: Arc<Context>,
    /// The cluster of the objects.
    pub(super) context: Arc<Context>,
    pub(super) place: Place,
    pub(super) owner: Owner,
    pub(super) names: SyncNames,
    pub(super) state: SyncState,
    pub(super) sources: Sources,
    pub(super) seen: SeenSync,
    pub(super) reported: Reported,
    pub(super) timers: Timers,
}

/// The next step of a task after a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait for the next reconcile.
    Wait,
    /// End: the GitSync is gone.
    Over,
}

/// Returns the cluster of a GitSync's objects when its task starts.
fn first_place(home: &Arc<Context>, input: &Input) -> (Place, Arc<Context>) {
    let sync = input.borrow().clone();
    match sync
        .filter(|sync| sync.spec.kube_config.is_some() || sync.status.as_ref().is_some_and(|s| s.cluster.is_some()))
    {
        None => (Place::Home, Arc::clone(home)),
        Some(sync) => (Place::Nowhere, nowhere(home, &sync)),
    }
}

impl Task {
    pub(super) fn new(home: &Arc<Context>, owner: Owner, input: &Input) -> Self {
        let (place, context) = first_place(home, input);
        // A remote cluster may never respond.
        let turn = StatusTurn::of(&home.status_turns, home.is_shared() && matches!(place, Place::Home));
        Self {
            names: SyncNames::of(&owner),
            home: Arc::clone(home),
            context,
            place,
            owner,
            state: SyncState::default(),
            sources: Sources::default(),
            seen: SeenSync::new(input),
            reported: Reported::new(turn),
            timers: Timers::new(Instant::now()),
        }
    }

    /// Forgets the state of the previous cluster, because it does not apply to the new one.
    pub(super) fn forget_cluster(&mut self) {
        let (reading, progress) = (Reading::with_room(self.state.reading.room()), self.state.progress.clone());
        self.state = SyncState { reading, progress, ..SyncState::default() };
        self.reported.forget_cluster();
    }

    pub(super) fn attempt<'a>(&'a mut self, sync: &'a GitSync) -> Attempt<'a> {
        let Self { context, owner, names, reported, state, .. } = self;
        Attempt { context, owner, sync, label: &names.label, has_succeeded: reported.has_succeeded(sync), state }
    }

    /// Reconciles. A panic counts as a failed attempt.
    pub(super) async fn reconcile_or_fail(&mut self, sync: &GitSync) -> Next {
        let (context, began, at) = (Arc::clone(&self.context), Instant::now(), Timestamp::now());
        context.count_reconcile();
        let logged = self.state.progress.trace(&self.names.consumer);
        let reconciled = caught(context.liveness.track(self.reconcile(sync)).instrument(logged)).await;
        let Err(panicked) = reconciled else { return reconciled.unwrap_or(Next::Wait) };
        // The panic may be caused by the cached state of the commit.
        self.state.compiled.forget_desired();
        self.state.commit.unsettle();
        self.timers.settle_at(None);
        let message = panicked.to_string();
        let refused = Refused { class: Class::Bug, reason: Reason::InternalError, message, retry_after: None };
        self.after(sync, Err(refused), at);
        self.postpone_untried(began);
        if caught(Box::pin(self.report(sync))).await.is_err() {
            self.timers.settle_at(None);
            self.reported.status.turn.give_back();
        }
        Next::Wait
    }

    /// Makes one attempt if there is a reason, and reports it.
    async fn reconcile(&mut self, sync: &GitSync) -> Next {
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        let repository = self.context.repositories.get(namespace, &sync.spec.git_repository);
        let artifact = self.artifact(sync);
        let unread = match &artifact {
            None => self.context.repositories.problem(namespace, &sync.spec.git_repository),
            Some(artifact) => artifact.as_ref().err().map(|why| (*why).to_owned()),
        };
        let artifact = artifact.and_then(|artifact| artifact.ok().flatten());
        let seen = Seen::of(sync, repository.as_deref(), artifact, unread);
        let (changed, now) = (self.seen.differs_from(&seen), Instant::now());
        let retry = self.state.unfinished.failed.due().is_some_and(|due| due <= now);
        let is_pushed = self.timers.take_push(now, self.state.branch.commit());
        if changed || retry || is_pushed || self.timers.next_look() <= now {
            self.reported.status.turn.give_back();
            if self.seen.is_of_another(&seen) {
                self.context.writer.forget_decisions(&self.owner);
            }
            self.seen.see(seen);
            if sync.metadata.deletion_timestamp.is_some() {
                self.reported.status.turn.started();
                let next = Box::pin(self.end(sync)).await;
                self.postpone_untried(now);
                return next;
            }
            if changed {
                self.seen.resolve(sync);
            }
            let began = Timestamp::now();
            let (is_requested, is_due) = (self.note_request(sync), self.is_due(sync, began));
            let is_forced = changed || is_requested || is_due;
            self.state.progress.begin(Step::LookUp);
            let running = Running::new(&self.home, sync, self.reported.status.get(sync), self.state.progress.clone());
            let running = Box::new(running.not_before(self.reported.status.due(Urgency::Counters, now)));
            let attempt = async {
                if is_requested {
                    self.look_up_artifact(sync).await;
                }
                self.try_once(sync, repository.as_deref(), is_forced).await
            };
            let attempted = running.beside(Box::pin(attempt)).await;
            // The rest of the commit is applied once the GitSync is resumed.
            let attempted = match self.seen.suspension(sync, Timestamp::now()) {
                Some(until) if attempted.is_ok() => Ok(Some(Outcome::Suspended { until })),
                _ => attempted,
            };
            self.after(sync, attempted, began);
            self.watch_contested().await;
            Box::pin(self.run_again(sync)).await;
            self.want_prevention(sync);
            self.postpone_untried(now);
        }
        Box::pin(self.report(sync)).await;
        Next::Wait
    }

    /// Sets the drift policy of the objects, and the ServiceAccount that reads and writes them.
    pub(super) fn settle_policy(&mut self, sync: &GitSync) -> Result<(), Refused> {
        let acts_as = self.context.account(sync)?;
        let confined = self.context.is_confined(self.owner.resource().namespace());
        // The credentials of a remote cluster have the same effect as a ServiceAccount: that cluster authorizes each
        // request.
        let by_account = acts_as.is_some() || self.context.is_elsewhere();
        self.context.registry.update(&self.owner, |row| row.by_account = by_account);
        let (mut status, now) = (sync.status.clone().unwrap_or_default(), Timestamp::now());
        let suspended = self.seen.suspension(sync, now).is_some();
        let (drift, additions) = (sync.spec.drift, sync.spec.additions);
        let policy = Policy { drift, additions, suspended, confined, acts_as };
        for decision in &mut status.last_decisions {
            // The clock was set back, or a user wrote the status. The clocks of two agents may differ.
            if decision.when.0.duration_since(now) > CLOCK_SKEW {
                decision.when.0 = now;
            }
        }
        let exceeds = |count: i64, listed: usize| usize::try_from(count).is_ok_and(|count| count > listed);
        let has_unlisted = exceeds(status.paused_objects, status.paused.len())
            || exceeds(status.drifted_objects, status.drifted.len());
        let history = History {
            reverted: status.reverted,
            last_reverts: status.last_reverts,
            replaced: status.replaced,
            last_replacements: status.last_replacements,
            last_decisions: status.last_decisions,
            drifted: status.drifted,
            paused: status.paused,
            has_unlisted,
        };
        self.seen.set_writer(&self.context.writer);
        if self.context.writer.set_policy(&self.owner, policy, history) {
            // Objects that failed with the previous permissions may succeed with these.
            self.state.unfinished.failed.retry_all(Instant::now());
        }
        if let Some(rules) = self.seen.resolved().map(|resolved| Arc::clone(&resolved.health_rules)) {
            self.context.writer.set_health_rules(&self.owner, &rules);
        }
        let kinds = self.seen.resolved().map(|resolved| resolved.replaced_kinds.clone());
        if kinds.is_some_and(|kinds| self.context.writer.set_replaced_kinds(&self.owner, kinds)) {
            self.state.unfinished.failed.retry_all(Instant::now());
        }
        Ok(())
    }

    /// Watches exactly the objects of other tools that manage objects of this GitSync.
    async fn watch_contested(&mut self) {
        let unfinished = &mut self.state.unfinished;
        let (before, contested) = (unfinished.contest.take(), unfinished.failed.contested());
        let (cluster, permits) = (self.context.writer.cluster(), &self.context.contest_watches);
        unfinished.contest = ContestWatch::of(cluster, permits, contested, before).await;
    }

    /// Updates the prevention of manual changes.
    fn want_prevention(&mut self, sync: &GitSync) {
        let inventory = self.attempt(sync).inventory();
        let wanted =
            prevented::wanted(sync, &self.names.label, &self.context.rights, inventory.as_deref(), Timestamp::now());
        if let Some(wanted) = wanted {
            self.home.prevention.want(&self.owner, wanted);
        }
    }

    /// Makes an attempt. Returns `None` if there was no work.
    async fn try_once(
        &mut self,
        sync: &GitSync,
        repository: Option<&GitRepository>,
        is_forced: bool,
    ) -> Result<Option<Outcome>, Refused> {
        self.state.reading.begin();
        // Other GitSyncs wait for an attempt with this spec, also for one that fails at once.
        self.context.registry.update(&self.owner, |row| row.begin_attempt(Spec::of(&sync.metadata)));
        Box::pin(self.settle_place(sync)).await?;
        let sync = &as_known_in(sync, self.cluster_id(sync)).into_owned();
        let suspended = self.seen.suspension(sync, Timestamp::now());
        let confined = self.context.is_confined(self.owner.resource().namespace());
        self.settle_policy(sync)?;
        let reads_by = self.publish(sync, repository);
        self.attempt(sync).settle_finalizer().await?;
        self.attempt(sync).load_inventory().await?;
        self.reported.status.turn.started();
        // A suspended GitSync keeps its present mirror.
        let remote = self.remote(sync, repository).await;
        if let Ok((remote, _)) = &remote {
            self.context.source.set_remote(&self.names.consumer, Some(remote));
            if let Some(at) = self.timers.take_expired() {
                self.context.source.expire(remote, at);
            }
        }
        // A recent lookup by another consumer of the remote is enough, unless a new one is requested.
        let max_age =
            if is_forced { Duration::ZERO } else { sync.spec.interval.0.max(Duration::from_secs(1)).mul_f64(0.8) };
        if let Some(until) = suspended {
            let remote = remote.as_ref().ok().filter(|(_, trusted)| trusted.is_ok()).map(|(remote, _)| remote);
            self.stay_suspended(sync, remote.filter(|_| !confined || confine(sync).is_ok()), max_age).await;
            return Ok(Some(Outcome::Suspended { until }));
        }
        self.context.registry.update(&self.owner, |row| row.suspended = false);
        let (remote, trusted) = match remote {
            Ok(remote) => remote,
            Err(refused) => return Err(self.cannot_read(sync, &reads_by, refused).await),
        };
        let resolved = self.resolve(sync, trusted, confined).await;
        let mut attempt = self.attempt(sync);
        let attempted = match resolved {
            Ok(resolved) => Box::pin(attempt.sync(&resolved, &remote, max_age)).await,
            Err(refused) => Err(refused),
        };
        if attempted.is_err()
            && let Ok(directory) = Directory::of(sync)
        {
            Box::pin(attempt.keep_what_was_applied(&remote, &directory)).await;
        }
        match attempted {
            Ok(outcome) => {
                self.can_read(sync).await;
                Ok(outcome)
            }
            Err(refused) => Err(self.cannot_read(sync, &reads_by, refused).await),
        }
    }

    /// Publishes the followed branch, and the objects that the GitSync needs to read it. Returns these objects.
    fn publish(&mut self, sync: &GitSync, repository: Option<&GitRepository>) -> Vec<Key> {
        // These objects are in the GitSync's own cluster.
        let is_elsewhere = self.context.is_elsewhere();
        let reads_by = if is_elsewhere { Vec::new() } else { unread::reads_by(&self.owner, sync, repository) };
        if self.state.reading.unread().is_none() {
            // Set before any object is reverted.
            let unread = sync.status.as_ref().map(|status| &*status.unread).unwrap_or_default();
            self.set_unread(unread::recalled(unread, &reads_by));
        }
        let url = match self.artifact(sync) {
            None => repository.and_then(|repository| RemoteUrl::parse(&repository.spec.url).ok()),
            Some(artifact) => artifact.ok().flatten(),
        };
        let url = url.as_ref();
        self.context.pushes.set(&self.names.consumer, followed(sync, url));
        let written = sync.status.as_ref().and_then(|status| status.attempted_reference.as_deref());
        let found = self.state.branch.reference().or(written);
        let branch = url.map(|url| registry::branch(url, &sync.spec.followed_reference(), found));
        let spec = Spec::of(&sync.metadata);
        self.context.registry.update(&self.owner, |row| {
            row.begin_attempt(spec);
            row.branch = branch.or(row.branch.take());
            row.reads_by = reads_by.clone().into();
            row.takes_objects = deletes_objects(&sync.metadata);
        });
        reads_by
    }

    /// Returns the GitSync as resolved, once its variables and decryption keys are known.
    async fn resolve(
        &mut self,
        sync: &GitSync,
        trusted: Result<(), Refused>,
        confined: bool,
    ) -> Result<ResolvedSync, Refused> {
        let (values, keys) = (self.values(sync).await, self.keys(sync).await);
        let resolved = self.seen.resolved_or_refused(sync)?;
        trusted?;
        if confined {
            confine(sync)?;
        }
        values?;
        keys?;
        Ok(resolved)
    }

    /// Keeps the state of a suspended GitSync. `remote` is the remote to look up, if it may be read.
    async fn stay_suspended(&mut self, sync: &GitSync, remote: Option<&Remote>, max_age: Duration) {
        self.context.registry.update(&self.owner, |row| row.suspended = true);
        self.let_itself_resume(sync);
        if let Some(remote) = remote {
            self.look_while_suspended(remote, max_age).await;
        }
    }

    /// Looks up the commit that waits for the end of the suspension. The status of the GitRepository shows the commit
    /// or the error. The first attempt does no lookup, so that a slow remote does not delay the report of the
    /// suspension.
    async fn look_while_suspended(&self, remote: &Remote, max_age: Duration) {
        if let (Some(Outcome::Suspended { .. }), Some(resolved)) = (&self.reported.outcome, self.seen.resolved()) {
            drop(self.context.source.lookup(remote, &resolved.reference, max_age).await);
        }
    }

    pub(super) fn refuse(&mut self, refused: &Refused, interval: Duration) {
        self.back_off(refused, interval);
        if refused.class == Class::Conflict && self.timers.failures() < CONFLICTS {
            // A write that failed with a conflict is retried before it counts as a result.
            return;
        }
        let outcome = refused.outcome();
        if refused.class == Class::NotReady && self.timers.failures() <= AWAITED {
            // Objects that are created together arrive one after the other. The status reports the missing object, but
            // no message is emitted yet.
            if self.timers.failures() == AWAITED {
                self.reported.outcome = None;
                self.emit_failures(&outcome);
            }
        } else {
            self.emit_failures(&outcome);
        }
        self.reported.outcome = Some(outcome);
    }
}

/// Returns the remote and reference of a GitSync, with which a push is compared.
pub(super) fn followed(sync: &GitSync, url: Option<&RemoteUrl>) -> Option<FollowedRemote> {
    let (url, reference) = (url?.clone(), Reference::parse(&sync.spec.followed_reference()).ok()?);
    Some(FollowedRemote { repository: sync.spec.git_repository.clone(), url, reference })
}
