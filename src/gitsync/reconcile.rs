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
use super::context::{Context, Input, SyncFacts};
use super::finalize::{End, git_syncs};
use super::memory::{Failed, Memory};
use super::secret::{SecretData, SecretWatch};
use super::status::{self, Outcome};
use crate::api::conditions::Reason;
use crate::api::git_sync::GitSyncStatus;
use crate::api::names::{FINALIZER, REQUESTED_AT};
use crate::api::{GitRepository, GitSync};
use crate::cluster::Part;
use crate::drift::{Owner, Policy};
use crate::failure::Class;
use crate::notification::Message;
use crate::source::{self, Remote, RemoteUrl};

/// Least time between two writes of a status.
const STATUS_EVERY: Duration = Duration::from_secs(5);
/// How long a status waits for objects to become healthy before it says that they are not.
const HEALTH_GRACE: Duration = Duration::from_millis(700);
/// Conflicts in a row that are nobody's concern.
const CONFLICTS: u32 = 5;
/// How often a contended object's cooling is looked at.
const COOLING: Duration = Duration::from_secs(15);
/// Longest wait for the first word about a Secret.
const SECRET_WITHIN: Duration = Duration::from_secs(10);
/// How long changes of objects are gathered before the status is looked at.
const GATHER: Duration = Duration::from_millis(20);
/// When deletions that are under way are looked at first; the wait doubles up to [`DELETING_LAST`].
const DELETING: Duration = Duration::from_secs(1);
const DELETING_LAST: Duration = Duration::from_secs(60);
/// Failed attempts after which something that is awaited is worth telling.
const AWAITED: u32 = 3;
const FAR: Duration = Duration::from_secs(86_400);

/// Keeps the cluster on one GitSync until it is gone or `stop` is cancelled.
pub async fn run(context: Arc<Context>, namespace: String, name: String, mut input: Input, stop: CancellationToken) {
    let owner: Owner = format!("{namespace}/{name}").into();
    let mut task = Task {
        label: attempt::label(&namespace, &name),
        context: Arc::clone(&context),
        owner: Arc::clone(&owner),
        memory: Memory::default(),
        secret: SecretWatch::default(),
        outcome: None,
        failures_in_a_row: 0,
        rounds: 0,
        status: None,
        written: None,
        last_seen: None,
        request: None,
        next_look: Instant::now(),
        settling: None,
    };
    context.enter(&owner, &namespace, &name);
    if stop.run_until_cancelled(context.registry.completed()).await.is_none() {
        return;
    }
    let mut repositories = context.repositories.listen();
    let mut registry = context.registry.listen();
    let mut look_now = context.look_now.subscribe();
    let drifted = context.drift.notifier(&owner);
    loop {
        let Some(sync) = input.borrow_and_update().clone() else { break };
        // Whatever woke us, what came at the same time counts too.
        if repositories.has_changed().unwrap_or(false) {
            repositories.mark_unchanged();
            task.next_look = Instant::now();
        }
        if registry.has_changed().unwrap_or(false) {
            registry.mark_unchanged();
            task.others_changed();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            end = task.turn(&sync) => if end == Turn::Over { break },
        }
        let due = task.due();
        tokio::select! {
            () = stop.cancelled() => return,
            changed = input.changed() => if changed.is_err() { return },
            _ = repositories.changed() => repositories.mark_changed(),
            _ = registry.changed() => registry.mark_changed(),
            _ = look_now.changed() => task.look_at_once(),
            () = drifted.notified() => task.objects_changed(),
            () = task.secret.changed() => task.next_look = Instant::now(),
            () = sleep_until(due.into()) => {}
        }
    }
    context.drift.forget_owner(&owner);
    context.registry.remove(&owner);
    context.set_facts(&owner, None);
    context.reads(&owner, None);
}

struct Task {
    context: Arc<Context>,
    owner: Owner,
    label: Arc<str>,
    memory: Memory,
    secret: SecretWatch,
    /// How the last attempt ended.
    outcome: Option<Outcome>,
    failures_in_a_row: u32,
    /// Rounds in a row after which deletions were still under way.
    rounds: u32,
    /// The status as it is written.
    status: Option<GitSyncStatus>,
    written: Option<Instant>,
    /// What of the GitSync the last attempt was made for.
    last_seen: Option<Seen>,
    /// A request that is being acted on.
    request: Option<String>,
    next_look: Instant,
    /// When a changed status is to be written.
    settling: Option<Instant>,
}

/// What of a GitSync makes another attempt worth while.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
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
    fn attempt<'a>(&'a mut self, sync: &'a GitSync) -> Attempt<'a> {
        Attempt { context: &self.context, owner: &self.owner, sync, label: &self.label, memory: &mut self.memory }
    }

    fn due(&self) -> Instant {
        let retry = self.memory.failed.values().map(|failed| failed.again).min();
        let settle = self.settling;
        let first = [Some(self.next_look), retry, settle].into_iter().flatten().min();
        first.unwrap_or_else(|| Instant::now() + FAR).min(Instant::now() + FAR)
    }

    fn others_changed(&mut self) {
        let awaits = |f: &Failed| f.class == Class::NotReady || f.reason == Reason::OwnershipConflict;
        if self.memory.awaits_others || self.memory.failed.values().any(awaits) {
            let now = Instant::now();
            for failed in self.memory.failed.values_mut().filter(|failed| awaits(failed)) {
                failed.again = now;
            }
            self.next_look = now;
        }
    }

    /// What was left for a break glass is applied when that ends; everything else is only told.
    fn objects_changed(&mut self) {
        if self.memory.paused.iter().any(|key| !self.context.drift.is_paused(key)) {
            self.next_look = Instant::now();
        }
        self.settle_soon();
    }

    /// Gathers what changes together into one status.
    fn settle_soon(&mut self) {
        let soon = Instant::now() + GATHER;
        self.settling = Some(self.settling.map_or(soon, |at| at.min(soon)));
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
        let retry = self.memory.failed.values().any(|failed| failed.again <= now);
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

    #[expect(clippy::unused_self, reason = "reads as a question about the task's GitSync")]
    fn namespace<'a>(&self, sync: &'a GitSync) -> &'a str {
        sync.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn deletion_wait(&mut self) -> Duration {
        self.rounds += 1;
        DELETING.saturating_mul(2u32.saturating_pow((self.rounds - 1).min(6))).min(DELETING_LAST)
    }

    async fn end(&mut self, sync: &GitSync) -> Turn {
        self.context.registry.update(&self.owner, |row| row.tried = true);
        let ours = sync.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
        if !ours {
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
        let max_age = if requested || changed { Duration::ZERO } else { interval.mul_f64(0.8) };
        if requested {
            self.forget_waits();
        }
        let outcome = self.outcome_of(sync, repository, max_age).await;
        self.context.registry.update(&self.owner, |row| row.tried = true);
        self.request = if requested { asked } else { None };
        match outcome {
            Ok(outcome) => {
                self.failures_in_a_row = 0;
                self.next_look = Instant::now() + interval.mul_f64(0.9 + 0.2 * fastrand::f64());
                if let Some(outcome) = outcome {
                    // Deletions are under way, or an inventory was put together: there is another round to come.
                    if matches!(outcome, Outcome::Applied { pruning: 1.., .. } | Outcome::Applied { note: Some(_), .. })
                    {
                        self.next_look = (Instant::now() + self.deletion_wait()).min(self.next_look);
                    } else {
                        self.rounds = 0;
                    }
                    self.tell_failures(&outcome);
                    self.outcome = Some(outcome);
                } else if matches!(self.outcome, Some(Outcome::Refused { .. } | Outcome::Suspended)) {
                    // Nothing is to do, and what kept us from seeing that is over.
                    self.outcome = None;
                }
            }
            Err(refused) => self.refuse(refused, interval),
        }
    }

    /// Somebody asks for a sync because something may have been put right.
    fn forget_waits(&mut self) {
        let now = Instant::now();
        for failed in self.memory.failed.values_mut() {
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
            .again(self.failures_in_a_row)
            .map_or(interval, |wait| wait.min(interval.max(Duration::from_secs(1))));
        let wait = backoff.mul_f64(0.9 + 0.2 * fastrand::f64()).max(refused.retry_after.unwrap_or_default());
        self.next_look = Instant::now() + wait;
        if refused.class == Class::Conflict && self.failures_in_a_row < CONFLICTS {
            // Someone else wrote first: that says nothing yet.
            return;
        }
        let outcome = refused.outcome();
        if refused.class == Class::NotReady && self.failures_in_a_row <= AWAITED {
            // What is created together comes one after the other: the status says what is awaited, nobody is called.
            if self.failures_in_a_row == AWAITED {
                self.outcome = None;
                self.tell_failures(&outcome);
            }
        } else {
            self.tell_failures(&outcome);
        }
        self.outcome = Some(outcome);
    }

    fn tell_failures(&self, outcome: &Outcome) {
        if self.outcome.as_ref() == Some(outcome) {
            return;
        }
        let problems = match outcome {
            Outcome::Suspended => return,
            Outcome::Refused { message, .. } => message.lines().map(str::to_owned).collect::<Vec<_>>(),
            Outcome::Applied { failures, guard, .. } => {
                let before = match &self.outcome {
                    Some(Outcome::Applied { failures, .. }) => failures.as_slice(),
                    _ => &[],
                };
                let new = failures.iter().filter(|failure| !before.contains(failure));
                new.map(|(_, _, f)| format!("{}: {}", f.object, f.message)).chain(guard.clone()).collect()
            }
        };
        if !problems.is_empty() {
            let commit = self.memory.seen.map(|(commit, _)| commit.to_string());
            let message = Message::Failed { sync: self.owner.to_string(), commit, problems };
            self.context.tell(&self.owner, "Failed", &message);
        }
    }

    async fn outcome_of(
        &mut self,
        sync: &GitSync,
        repository: Option<&GitRepository>,
        max_age: Duration,
    ) -> Result<Option<Outcome>, Refused> {
        let status = sync.status.clone().unwrap_or_default();
        let policy = Policy { drift: sync.spec.drift, suspended: sync.spec.suspend };
        self.context.drift.set_policy(&self.owner, policy, status.reverted, status.last_reverts);
        let url = repository.map(|repository| RemoteUrl::parse(&repository.spec.url)).transpose();
        if let Ok(Some(url)) = &url {
            let branch = attempt::branch(url, &sync.spec.reference);
            self.context.registry.update(&self.owner, |row| row.branch = Some(branch));
        }
        if !sync.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER) {
            self.attempt(sync).set_finalizer(true).await?;
        }
        self.attempt(sync).load_inventory().await?;
        if sync.spec.suspend {
            self.context.registry.update(&self.owner, |row| row.suspended = true);
            return Ok(Some(Outcome::Suspended));
        }
        self.context.registry.update(&self.owner, |row| row.suspended = false);
        let repository = repository.ok_or_else(|| {
            let message = format!("GitRepository {} does not exist in this namespace", sync.spec.git_repository);
            Refused { class: Class::NotReady, reason: Reason::SpecInvalid, message, retry_after: None }
        })?;
        let secret = self.secret_of(sync, repository).await;
        if let (Some(auth), None) = (&repository.spec.auth, &secret) {
            let message = format!("Secret {} with the credentials does not exist in this namespace", auth.secret_name);
            let class = Class::NotReady;
            return Err(Refused { class, reason: Reason::SpecInvalid, message, retry_after: None });
        }
        let remote = Remote {
            url: RemoteUrl::parse(&repository.spec.url)?,
            credentials: source::credentials(repository.spec.auth.as_ref(), secret.as_ref())?,
        };
        self.context.reads(&self.owner, Some(&remote));
        self.attempt(sync).sync(&remote, max_age).await
    }

    async fn secret_of(&mut self, sync: &GitSync, repository: &GitRepository) -> Option<SecretData> {
        let wanted = repository.spec.auth.as_ref().map(|auth| auth.secret_name.clone());
        let namespace = self.namespace(sync).to_owned();
        self.secret.follow(&self.context, &namespace, wanted);
        let _ = tokio::time::timeout(SECRET_WITHIN, self.secret.known()).await;
        self.secret.take()
    }

    /// Writes the status if it changed and the last write is long enough ago.
    async fn report(&mut self, sync: &GitSync) {
        self.set_facts();
        let Some(outcome) = self.outcome.clone().or_else(|| self.settled_outcome(sync)) else { return };
        let now = Instant::now();
        let old = self.status.clone().or_else(|| sync.status.clone()).unwrap_or_default();
        let new = self.status_now(sync, &outcome, &old);
        self.settling = Self::wake_for(sync, &outcome, &new);
        if status::same(&old, &new) {
            self.status = Some(old);
            return;
        }
        let waits_for_health = matches!(&outcome, Outcome::Applied { .. }) && is_progressing(&new);
        let earliest = match (self.written, &self.request) {
            (Some(written), None) => written + STATUS_EVERY,
            (None, None) if waits_for_health => {
                let grace = now + HEALTH_GRACE;
                self.written = Some(grace.checked_sub(STATUS_EVERY).unwrap_or(now));
                grace
            }
            (_, Some(_)) | (None, None) => now,
        };
        if earliest > now {
            self.settling = Some(self.settling.map_or(earliest, |at| at.min(earliest)));
            return;
        }
        self.write_status(sync, &old, new).await;
    }

    /// A new agent that found nothing to do says so.
    fn settled_outcome(&self, sync: &GitSync) -> Option<Outcome> {
        let applied = self.memory.applied.is_some();
        applied.then(|| Outcome::Applied {
            failures: self.memory.failures(),
            held: sync.status.as_ref().map(|s| s.held.clone()).unwrap_or_default(),
            guard: None,
            pruning: 0,
            note: None,
            since: Timestamp::now(),
        })
    }

    fn status_now(&self, sync: &GitSync, outcome: &Outcome, old: &GitSyncStatus) -> GitSyncStatus {
        let summary = self.context.drift.summary(&self.owner);
        let attempted = self.memory.seen.map(|(commit, _)| commit.to_string());
        let applied = self
            .memory
            .applied
            .map(|(commit, tree)| (commit.to_string(), tree.map_or_else(String::new, |tree| tree.to_string())));
        let facts = status::Facts {
            generation: sync.metadata.generation,
            attempted: attempted.as_deref(),
            applied: applied.as_ref().map(|(commit, tree)| (commit.as_str(), tree.as_str())),
            request: self.request.as_deref(),
            outcome,
            summary: &summary,
            wait: sync.spec.wait.then_some(sync.spec.timeout.0),
        };
        status::after(old, &facts, Timestamp::now())
    }

    /// When the status has to be looked at again although nothing happened.
    fn wake_for(sync: &GitSync, outcome: &Outcome, status: &GitSyncStatus) -> Option<Instant> {
        let contended = status.conditions.iter().any(|c| c.type_ == "Contended" && c.status == "True");
        let cooling = contended.then(|| Instant::now() + COOLING);
        let timeout = match outcome {
            Outcome::Applied { since, .. } if sync.spec.wait && is_progressing(status) => {
                let passed = Timestamp::now().duration_since(*since).unsigned_abs();
                let left = sync.spec.timeout.0.checked_sub(passed);
                left.map(|left| Instant::now() + left + Duration::from_millis(100))
            }
            _ => None,
        };
        cooling.into_iter().chain(timeout).min()
    }

    async fn write_status(&mut self, sync: &GitSync, old: &GitSyncStatus, new: GitSyncStatus) {
        if let Err(refused) = self.attempt(sync).save_verified().await {
            tracing::warn!(sync = &*self.owner, why = refused.message, "inventory not written");
        }
        let namespace = sync.metadata.namespace.as_deref();
        let name = sync.metadata.name.as_deref().unwrap_or_default();
        let patch = status::patch(old, &new);
        let cluster = self.context.drift.cluster();
        match cluster.patch_merge(&git_syncs(), namespace, name, Part::Status, &patch).await {
            Ok(_) => {
                self.status = Some(new);
                self.written = Some(Instant::now());
                self.request = None;
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(sync = &*self.owner, why = crate::failure::chain(&error), "status not written");
                self.written = Some(Instant::now());
                self.settling = Some(Instant::now() + STATUS_EVERY);
            }
        }
    }

    fn set_facts(&self) {
        let behind =
            self.memory.seen.filter(|(commit, _)| self.memory.applied.is_none_or(|(applied, _)| applied != *commit));
        let facts = SyncFacts { lagging_since: behind.map(|(_, since)| since), failed: self.memory.failed.len() };
        self.context.set_facts(&self.owner, Some(facts));
    }
}

fn is_progressing(status: &GitSyncStatus) -> bool {
    status.healthy < status.objects
}

/// A GitRepository as far as it matters here.
fn without_bookkeeping(mut repository: GitRepository) -> GitRepository {
    repository.metadata = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        uid: repository.metadata.uid,
        ..Default::default()
    };
    repository
}
