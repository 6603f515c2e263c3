//! The task of one GitSync: waits until something may have changed, makes an attempt, and reports it.
//!
//! Invariant: every attempt ends in a status, on success and on failure alike, written at most once per 5 s (a request
//! by annotation is answered at once).
//! Invariant: waiting costs nothing: no request is made because time passed, but for the ref lookup at the remote.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::attempt::{self, Attempt, Refused};
use super::context::{Context, Input};
use super::finalize::{End, has_finalizer};
use super::secret::without_secret;
use super::status::Outcome;
use super::sync_state::{Failed, SyncState};
use super::windows::Windows;
use crate::api::conditions::Reason;
use crate::api::git_sync::GitSyncStatus;
use crate::api::names::REQUESTED_AT;
use crate::api::{GitRepository, GitSync};
use crate::failure::{Backoff, Class, jitter};
use crate::managed::Policy;
use crate::object::Owner;
use crate::secrets::{Followed, Known, RepositorySecrets, SecretData};
use crate::source::{self, Consumer, ConsumerKind, Remote, RemoteUrl};

/// Conflicts in a row that are nobody's concern.
const CONFLICTS: u32 = 5;
/// How long changes of objects are gathered before the status is looked at.
const GATHER: Duration = Duration::from_millis(20);
/// How long until deletions that are under way are looked at again.
const DELETING: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// Failed attempts after which something that is awaited is worth telling.
const AWAITED: u32 = 3;
/// How long after a time of the calendar it is looked at, so that it is past by every clock.
const PAST_IT: Duration = Duration::from_millis(10);
const FAR: Duration = Duration::from_secs(86_400);

/// Keeps the cluster on one GitSync until it is gone or `stop` is cancelled.
pub async fn run(context: Arc<Context>, namespace: String, name: String, mut input: Input, stop: CancellationToken) {
    let owner = Owner::git_sync(&namespace, &name);
    let consumer = Consumer::new(ConsumerKind::GitSync, &namespace, &name);
    let mut task = Task {
        consumer: consumer.clone(),
        label: attempt::label(&namespace, &name),
        context: Arc::clone(&context),
        owner: owner.clone(),
        state: SyncState::default(),
        secrets: RepositorySecrets::default(),
        outcome: None,
        failures_in_a_row: 0,
        rounds: 0,
        status: None,
        written: None,
        last_seen: None,
        last_try: None,
        request: None,
        next_look: Instant::now(),
        settling: None,
    };
    context.enter(&owner, &namespace, &name);
    if stop.run_until_cancelled(context.registry.completed()).await.is_none() {
        return;
    }
    let mut repositories = context.repositories.listen();
    let mut host_keys = context.source.host_keys();
    let mut registry = context.registry.listen();
    let mut look_now = context.look_now.subscribe();
    let drifted = context.drift.notifier(&owner);
    let mut last: Option<Arc<GitSync>> = None;
    loop {
        let Some(sync) = input.borrow_and_update().clone() else {
            // It went while nobody could tell when.
            if let Some(sync) = last
                && stop.run_until_cancelled(task.attempt(&sync).farewell(false)).await.is_none()
            {
                return;
            }
            break;
        };
        last = Some(Arc::clone(&sync));
        // Whatever woke us, what came at the same time counts too.
        if registry.has_changed().unwrap_or(false) {
            registry.mark_unchanged();
            task.others_changed();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            end = context.liveness.track(task.turn(&sync)) => if end == Turn::Over { break },
        }
        let due = task.due();
        tokio::select! {
            () = stop.cancelled() => return,
            changed = input.changed() => if changed.is_err() { return },
            // The turn sees whether it was this one's.
            _ = repositories.changed() => {}
            _ = registry.changed() => registry.mark_changed(),
            _ = look_now.changed() => task.look_at_once(),
            _ = host_keys.changed() => task.host_keys_changed(),
            () = drifted.notified() => task.objects_changed(),
            () = Followed::any_changed(task.secrets.iter_mut()) => task.next_look = Instant::now(),
            () = sleep_until(due.into()) => {}
        }
    }
    context.drift.forget_owner(&owner);
    context.registry.remove(&owner);
    context.set_facts(&owner, None);
    context.source.set_remote(&consumer, None);
}

/// The task of one GitSync.
pub(super) struct Task {
    pub(super) context: Arc<Context>,
    pub(super) owner: Owner,
    consumer: Consumer,
    pub(super) label: Arc<str>,
    pub(super) state: SyncState,
    /// The Secrets that the repository names.
    secrets: RepositorySecrets,
    /// How the last attempt ended.
    pub(super) outcome: Option<Outcome>,
    pub(super) failures_in_a_row: u32,
    /// Rounds in a row after which deletions were still under way.
    pub(super) rounds: u32,
    /// The status as it is written.
    pub(super) status: Option<GitSyncStatus>,
    pub(super) written: Option<Instant>,
    /// What of the GitSync the last attempt was made for.
    pub(super) last_seen: Option<Seen>,
    /// When the last attempt began.
    last_try: Option<Timestamp>,
    /// A request that is being acted on.
    pub(super) request: Option<String>,
    pub(super) next_look: Instant,
    /// When a changed status is to be written.
    pub(super) settling: Option<Instant>,
}

/// What of a GitSync makes another attempt worth while.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    uid: Option<String>,
    generation: Option<i64>,
    annotations: Option<BTreeMap<String, String>>,
    deleting: bool,
    repository: Option<GitRepository>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Again,
    Over,
}

impl Task {
    pub(super) fn attempt<'a>(&'a mut self, sync: &'a GitSync) -> Attempt<'a> {
        Attempt { context: &self.context, owner: &self.owner, sync, label: &self.label, state: &mut self.state }
    }

    fn due(&self) -> Instant {
        let retry = self.state.failed.values().map(|failed| failed.again).min();
        let settle = self.settling;
        let first = [Some(self.next_look), retry, settle].into_iter().flatten().min();
        first.unwrap_or_else(|| Instant::now() + FAR).min(Instant::now() + FAR)
    }

    fn others_changed(&mut self) {
        let awaits = |f: &Failed| f.class == Class::NotReady || f.reason == Reason::OwnershipConflict;
        if self.state.awaits_others || self.state.failed.values().any(awaits) {
            let now = Instant::now();
            for failed in self.state.failed.values_mut().filter(|failed| awaits(failed)) {
                failed.again = now;
            }
            self.next_look = now;
        }
    }

    /// What was left for a break glass is applied when that ends; everything else is only told.
    fn objects_changed(&mut self) {
        if self.state.paused.iter().any(|key| !self.context.drift.is_paused(key)) {
            self.next_look = Instant::now();
        }
        self.settle_soon();
    }

    /// Gathers what changes together into one status.
    fn settle_soon(&mut self) {
        let soon = Instant::now() + GATHER;
        self.settling = Some(self.settling.map_or(soon, |at| at.min(soon)));
    }

    /// The host keys that hold for all repositories are others.
    fn host_keys_changed(&mut self) {
        if self.failures_in_a_row > 0 {
            self.next_look = Instant::now();
        }
    }

    fn look_at_once(&mut self) {
        self.last_seen = None;
    }

    /// One attempt, where there is a reason for it, and its report.
    async fn turn(&mut self, sync: &GitSync) -> Turn {
        let repository = self.context.repositories.get(self.namespace(sync), &sync.spec.git_repository);
        let seen = Seen {
            uid: sync.metadata.uid.clone(),
            generation: sync.metadata.generation,
            annotations: sync.metadata.annotations.clone(),
            deleting: sync.metadata.deletion_timestamp.is_some(),
            repository: repository.as_deref().cloned().map(without_bookkeeping),
        };
        let changed = self.last_seen.as_ref() != Some(&seen);
        let now = Instant::now();
        let retry = self.state.failed.values().any(|failed| failed.again <= now);
        if changed || retry || self.next_look <= now {
            self.last_seen = Some(seen);
            if sync.metadata.deletion_timestamp.is_some() {
                return self.end(sync).await;
            }
            self.try_once(sync, repository.as_deref(), changed).await;
        }
        self.report(sync).await;
        Turn::Again
    }

    #[expect(clippy::unused_self, reason = "reads as a sync_request about the task's GitSync")]
    fn namespace<'a>(&self, sync: &'a GitSync) -> &'a str {
        sync.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn deletion_wait(&mut self) -> Duration {
        self.rounds += 1;
        DELETING.delay(self.rounds)
    }

    async fn end(&mut self, sync: &GitSync) -> Turn {
        self.context.registry.update(&self.owner, |row| row.tried = true);
        self.context.source.set_remote(&self.consumer, None);
        if !has_finalizer(sync) {
            self.attempt(sync).farewell(true).await;
            return Turn::Over;
        }
        match self.attempt(sync).finalize().await {
            Ok(End::Done) => Turn::Over,
            Ok(End::Waiting) => {
                self.next_look = Instant::now() + self.deletion_wait();
                Turn::Again
            }
            Err(refused) => {
                self.refuse(refused, Duration::from_secs(60));
                self.report(sync).await;
                Turn::Again
            }
        }
    }

    /// Makes an attempt and remembers how it ended.
    async fn try_once(&mut self, sync: &GitSync, repository: Option<&GitRepository>, changed: bool) {
        let interval = sync.spec.interval.0.max(Duration::from_secs(1));
        let asked = sync.metadata.annotations.as_ref().and_then(|a| a.get(REQUESTED_AT)).cloned();
        let handled = self.status.as_ref().or(sync.status.as_ref()).and_then(|s| s.last_handled_request.clone());
        let requested = asked.is_some() && asked != handled;
        let began = Timestamp::now();
        let now_due = self.last_try.replace(began).is_some_and(|last| self.is_due(sync, last, began));
        let max_age = if requested || changed || now_due { Duration::ZERO } else { interval.mul_f64(0.8) };
        if requested {
            self.forget_waits();
        }
        let outcome = self.outcome_of(sync, repository, max_age).await;
        // Where nothing can be told now that could be told later, it is waited for.
        let may_tell = |refused: &Refused| matches!(refused.class, Class::Unavailable | Class::Conflict);
        if !outcome.as_ref().is_err_and(may_tell) && self.secrets.are_settled() {
            self.context.source.resolved(&self.consumer);
        }
        self.context.registry.update(&self.owner, |row| row.tried = true);
        self.request = if requested { asked } else { None };
        match outcome {
            Ok(outcome) => {
                self.failures_in_a_row = 0;
                self.next_look = Instant::now() + jitter(interval, fastrand::f64());
                if let Some(outcome) = outcome {
                    // Deletions are under way, an inventory was put together, or what was given up still has our label:
                    // there is another round to come.
                    let goes_on = matches!(
                        outcome,
                        Outcome::Applied { pruning: 1.., .. } | Outcome::Applied { note: Some(_), .. }
                    );
                    if goes_on || self.state.still_labelled {
                        self.next_look = (Instant::now() + self.deletion_wait()).min(self.next_look);
                    } else {
                        self.rounds = 0;
                    }
                    self.tell_failures(&outcome);
                    self.outcome = Some(outcome);
                } else if matches!(
                    self.outcome,
                    Some(Outcome::Refused { .. } | Outcome::Suspended { .. } | Outcome::Frozen { .. })
                ) {
                    // Nothing is to do, and what kept us from seeing that is over.
                    self.outcome = None;
                }
            }
            Err(refused) => self.refuse(refused, interval),
        }
        if let Some(at) = Self::next_time(sync, began) {
            let wait = at.duration_since(Timestamp::now()).unsigned_abs();
            self.next_look = self.next_look.min(Instant::now() + wait + PAST_IT);
        }
    }

    /// Whether the remote has to be asked although it was asked not long ago: a scheduled time has come since, a window
    /// has opened, or a suspension has ended.
    fn is_due(&self, sync: &GitSync, last: Timestamp, now: Timestamp) -> bool {
        let Ok(windows) = Windows::parse(&sync.spec) else { return false };
        match self.outcome {
            Some(Outcome::Frozen { .. }) if windows.is_open(now) => true,
            Some(Outcome::Suspended { .. }) => true,
            _ => windows.is_due(last, now),
        }
    }

    /// When something changes by itself: a window, a scheduled sync, the end of a suspension.
    fn next_time(sync: &GitSync, now: Timestamp) -> Option<Timestamp> {
        match sync.spec.suspended(now) {
            Some(until) => until,
            None => Windows::parse(&sync.spec).ok()?.next(now),
        }
    }

    /// Somebody asks for a sync because something may have been put right.
    fn forget_waits(&mut self) {
        let now = Instant::now();
        for failed in self.state.failed.values_mut() {
            failed.again = now;
        }
        if matches!(&self.outcome, Some(Outcome::Refused { reason: Reason::ManifestInvalid, .. })) {
            self.context.drift.cluster().kinds_changed();
        }
    }

    fn refuse(&mut self, refused: Refused, interval: Duration) {
        self.failures_in_a_row += 1;
        let backoff = refused
            .class
            .backoff()
            .map(|backoff| backoff.delay(self.failures_in_a_row))
            .map_or(interval, |wait| wait.min(interval.max(Duration::from_secs(1))));
        let wait = jitter(backoff, fastrand::f64()).max(refused.retry_after.unwrap_or_default());
        self.next_look = Instant::now() + wait;
        if refused.class == Class::Conflict && self.failures_in_a_row < CONFLICTS {
            // Someone else wrote first: that says nothing yet.
            return;
        }
        let outcome = refused.outcome();
        if refused.class == Class::NotReady && self.failures_in_a_row <= AWAITED {
            // Objects that are created together arrive one after the other: the status says what is awaited, no message is sent.
            if self.failures_in_a_row == AWAITED {
                self.outcome = None;
                self.tell_failures(&outcome);
            }
        } else {
            self.tell_failures(&outcome);
        }
        self.outcome = Some(outcome);
    }

    async fn outcome_of(
        &mut self,
        sync: &GitSync,
        repository: Option<&GitRepository>,
        max_age: Duration,
    ) -> Result<Option<Outcome>, Refused> {
        let status = sync.status.clone().unwrap_or_default();
        let suspended = sync.spec.suspended(Timestamp::now());
        let policy = Policy { drift: sync.spec.drift, suspended: suspended.is_some() };
        self.context.drift.set_policy(&self.owner, policy, status.reverted, status.last_reverts);
        let url = repository.map(|repository| RemoteUrl::parse(&repository.spec.url)).transpose();
        if let Ok(Some(url)) = &url {
            let branch = attempt::branch(url, &sync.spec.reference);
            self.context.registry.update(&self.owner, |row| row.branch = Some(branch));
        }
        self.attempt(sync).settle_finalizer().await?;
        self.attempt(sync).load_inventory().await?;
        // What is suspended goes on with the mirror that it has.
        let remote = self.remote(sync, repository).await;
        if let Ok(remote) = &remote {
            self.context.source.set_remote(&self.consumer, Some(remote));
        }
        if let Some(until) = suspended {
            self.context.registry.update(&self.owner, |row| row.suspended = true);
            return Ok(Some(Outcome::Suspended { until }));
        }
        self.context.registry.update(&self.owner, |row| row.suspended = false);
        self.attempt(sync).sync(&remote?, max_age).await
    }

    /// Where the repository is and how it is opened.
    async fn remote(&mut self, sync: &GitSync, repository: Option<&GitRepository>) -> Result<Remote, Refused> {
        let repository = repository.ok_or_else(|| {
            let name = &sync.spec.git_repository;
            let (reason, message) = match self.context.repositories.unknown() {
                Some(why) => (Reason::ClusterUnavailable, format!("GitRepository {name} cannot be read: {why}")),
                None => (Reason::SpecInvalid, format!("GitRepository {name} does not exist in this namespace")),
            };
            Refused { class: Class::NotReady, reason, message, retry_after: None }
        })?;
        let spec = &repository.spec;
        let namespace = self.namespace(sync).to_owned();
        let known = self.secrets.of(&self.context.secrets, &namespace, spec).await;
        // What no Secret can help is told whatever there is of it.
        let url = RemoteUrl::parse(&spec.url)?;
        source::supported(&url, spec.auth.as_ref())?;
        if let (Some(auth), Some(known)) = (&spec.auth, &known.auth)
            && let Some(refused) = without_secret(&auth.secret_name, "credentials", known)
        {
            return Err(refused);
        }
        let mut access = source::access(spec.auth.as_ref(), known.auth.as_ref().and_then(Known::data))?;
        if let (Some(proxy), Some(known)) = (&spec.proxy_secret_ref, &known.proxy) {
            if let Some(refused) = without_secret(&proxy.name, "proxy", known) {
                return Err(refused);
            }
            access = access.through_proxy(known.data().unwrap_or(&SecretData::new()))?;
        }
        let source::Access { credentials, connection } = access;
        Ok(Remote { url, credentials, connection })
    }
}

/// A GitRepository as far as it matters here.
fn without_bookkeeping(mut repository: GitRepository) -> GitRepository {
    repository.metadata = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        uid: repository.metadata.uid,
        ..Default::default()
    };
    repository
}
