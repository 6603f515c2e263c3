//! The task of one Function. The task waits for a change, reconciles, and reports.
//!
//! Invariant: every reconcile results in a status, on success and on failure. Without a change, no status is written.
//! Invariant: an idle task sends no requests except ref lookups at the remote.

mod attempt;
mod references;

use std::collections::{BTreeMap, HashSet};
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::context::{Context, Input};
use super::credentials::Credentials;
use super::name_conflict::NameConflict;
use super::named_secrets::NamedSecrets;
use super::pod_secrets::PodSecrets;
use super::polling::Polling;
use super::quotas::Waiting;
use super::refusals::RefusedWrite;
use super::registry_waits;
use super::stage::{ConditionUpdate, ReconcileState, RetryCause, RetryNow};
use super::status::Reconciled;
use crate::bindings::Bound;
use mainstay_api::function::FunctionStatus;
use mainstay_api::function_conditions::{Reason, Status, Type};
use mainstay_api::{DriftPolicy, Function};
use mainstay_cluster::Kind;
use mainstay_cluster::secrets::{Followed, Known, Purpose};
use mainstay_engine::managed::{History, Policy};
use mainstay_git::{Consumer, ConsumerKind, SharedHostKeys};
use mainstay_object::failure::{Class, caught};
use mainstay_object::{Key, Owner};

/// Size in bytes from which on only a few sources are reconciled concurrently.
const LARGE_SOURCE: usize = 64 << 10;
const FAR: Duration = Duration::from_secs(86_400);

/// Reconciles one Function until it is deleted or `stop` is cancelled.
pub async fn run(context: Arc<Context>, namespace: String, name: String, mut input: Input, stop: CancellationToken) {
    let Some(first) = input.borrow().clone() else {
        context.source.set_remote(&Consumer::new(ConsumerKind::Function, &namespace, &name), None);
        return;
    };
    let uid = first.metadata.uid.clone().unwrap_or_default();
    let owner = Owner::function(&namespace, &name);
    let notifier = context.cache.register(&owner, &namespace, &uid);
    let bindings = context.bindings.enter(&namespace, &name);
    let known = async { tokio::join!(context.cache.complete(), context.bindings.known()) };
    if stop.run_until_cancelled(known).await.is_none() {
        return;
    }
    let mut task = Task::new(Arc::clone(&context), owner.clone(), namespace.clone(), uid.clone(), &first);
    let policy =
        Policy { drift: DriftPolicy::Revert, additions: false, suspended: false, confined: false, acts_as: None };
    context.writer.set_policy(&owner, policy, History::default());
    let drifted = context.writer.notifier(&owner);
    let mut repositories = context.repositories.listen();
    let mut purposes = context.secrets.purpose_changes(&namespace);
    let mut settings = context.settings_changes();
    let mut poll_now = context.poll_now.subscribe();
    let consumer = Consumer::new(ConsumerKind::Function, &namespace, &name);
    let mut pushed = context.pushes.subscribe(&consumer);
    let mut knative = context.cache.knative().presence();
    let mut repository = None;
    loop {
        let Some(function) = input.borrow_and_update().clone() else { break };
        repositories.mark_unchanged();
        purposes.mark_unchanged();
        settings.mark_unchanged();
        knative.mark_unchanged();
        task.follow_bindings(&name, &function);
        let credentials = task.credentials_for(&function);
        let found = Some(task.repository_of(&function));
        if std::mem::replace(&mut repository, found).is_some_and(|old| Some(&old) != repository.as_ref()) {
            task.polling.poll_now();
        }
        if poll_now.has_changed().unwrap_or(false) {
            poll_now.mark_unchanged();
            task.polling.poll_now();
        }
        if function.metadata.deletion_timestamp.is_some() {
            // The garbage collector deletes the Function's children through their owner references.
            break;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = task.reconcile_or_fail(&function, &credentials) => {}
        }
        loop {
            let due = task.due();
            tokio::select! {
                () = stop.cancelled() => return,
                changed = input.changed() => if changed.is_err() { return },
                () = notifier.notified() => {}
                () = bindings.notified() => {}
                () = drifted.notified() => if !(task.forget_resumed() | task.fails_otherwise()) { continue },
                // A change of an unrelated object costs only this comparison.
                _ = repositories.changed() => {
                    let is_same = Some(task.repository_of(&function)) == repository;
                    if is_same && task.credentials_for(&function) == credentials {
                        continue;
                    }
                }
                _ = purposes.changed() => if task.credentials_for(&function) == credentials { continue },
                () = task.others_changed() => {}
                _ = settings.changed() => {}
                _ = knative.changed() => if !task.uses_knative { continue },
                _ = poll_now.changed() => poll_now.mark_changed(),
                _ = pushed.changed() => {
                    task.polling.pushed(pushed.take());
                    continue;
                }
                () = sleep_until(due.into()) => {}
            }
            break;
        }
    }
    context.writer.forget_owner(&owner);
    context.bindings.leave(&namespace, &name);
    task.polling.end(&context);
    context.pushes.remove(&consumer);
    context.set_metrics(&owner, None);
    context.forget(&owner);
    context.cache.unregister(&owner, &namespace, &uid);
    // No object is written during the deletion. A new Function with this name gets its own task.
    while input.borrow_and_update().is_some() {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = input.changed() => if changed.is_err() { return },
        }
    }
}

pub(super) struct Task {
    pub(super) context: Arc<Context>,
    pub(super) owner: Owner,
    pub(super) namespace: Arc<str>,
    pub(super) uid: String,
    /// The status as last written.
    pub(super) status: FunctionStatus,
    pub(super) state: ReconcileState,
    polling: Polling,
    /// Number of consecutive failures to write the status.
    pub(super) failed_writes: u32,
    due: Option<Instant>,
    /// The parts of the Function that the last reconcile used.
    seen: Option<ObservedSpec>,
    /// The registry and package Secrets, in the order of [`Settings::secrets`](super::Settings::secrets).
    secrets: [Followed; 3],
    /// Host keys for all repositories.
    host_keys: watch::Receiver<SharedHostKeys>,
    credentials: Vec<Known>,
    pub(super) events_read: Option<Instant>,
    /// Changed children whose reverts are paused.
    pub(super) paused: HashSet<Key>,
    /// An object of another owner with the name of a child.
    pub(super) name_conflict: Option<NameConflict>,
    /// The wait for the quota that refused a write.
    pub(super) quota: Option<Waiting>,
    /// The wait for the registry that refused an image, and the number of failed attempts.
    registry: (Option<registry_waits::Waiting>, u32),
    /// Changed children that cannot be reverted, with the cause.
    not_put_back: Vec<(Key, String)>,
    /// How long each condition took to become True for the first time.
    pub(super) took: [Option<Duration>; 3],
    named_secrets: NamedSecrets,
    /// Secrets that ServiceBindingUsages bind to the Function.
    bound: Vec<Bound>,
    pod_secrets: PodSecrets,
    /// Number of consecutive reconciles that panicked.
    panics: u32,
    /// Whether the Function runs on Knative or will do so.
    uses_knative: bool,
}

/// The parts of a Function whose change resets retries.
#[derive(Clone, Debug, PartialEq)]
struct ObservedSpec {
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

impl Task {
    fn new(context: Arc<Context>, owner: Owner, namespace: String, uid: String, function: &Function) -> Self {
        let name = function.metadata.name.as_deref().unwrap_or_default();
        let status = function.status.clone().unwrap_or_default();
        Self {
            polling: Polling::new(&namespace, name, &status),
            host_keys: context.source.host_keys(),
            secrets: context
                .settings()
                .secrets()
                .map(|name| context.secrets.follow(&namespace, name, Purpose::ImageRegistry)),
            context,
            owner,
            namespace: namespace.into(),
            uid,
            status,
            state: ReconcileState::default(),
            failed_writes: 0,
            due: None,
            seen: None,
            credentials: Vec::new(),
            events_read: None,
            paused: HashSet::new(),
            name_conflict: None,
            quota: None,
            registry: (None, 0),
            not_put_back: Vec::new(),
            took: [None; 3],
            named_secrets: NamedSecrets::default(),
            bound: Vec::new(),
            pod_secrets: PodSecrets::default(),
            panics: 0,
            uses_knative: false,
        }
    }

    fn due(&self) -> Instant {
        let first = [self.due, self.polling.due()].into_iter().flatten().min();
        first.unwrap_or_else(|| Instant::now() + FAR).min(Instant::now() + FAR)
    }

    /// Waits until a Secret or the host keys change, a name conflict is resolved, or a quota allows more.
    async fn others_changed(&mut self) {
        let gone = async {
            match &mut self.name_conflict {
                Some(other) => other.gone().await,
                None => pending().await,
            }
        };
        let raised = async {
            match &mut self.quota {
                Some(waiting) => waiting.raised().await,
                None => pending().await,
            }
        };
        let takes_uploads = async {
            match &mut self.registry.0 {
                Some(waiting) => waiting.takes_uploads().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = Followed::any_changed(self.secrets.iter_mut().chain(self.polling.secrets_mut())) => return,
            () = self.pod_secrets.changed() => return,
            _ = self.host_keys.changed() => return self.polling.host_keys_changed(),
            () = takes_uploads => {
                let woken = self.registry.0.take();
                self.registry.1 += 1;
                let cause = RetryCause::Credentials;
                return self.state.retry_now = woken.map(|waiting| RetryNow { job: waiting.job().to_owned(), cause });
            }
            () = gone => {}
            () = raised => {}
        }
        // The write that a quota refused or a name conflict prevented may be retried.
        self.state.refused.iter_mut().for_each(RefusedWrite::reset_backoff);
    }

    /// Reconciles the Function. A panic counts as a failure and is retried after a backoff.
    async fn reconcile_or_fail(&mut self, function: &Function, credentials: &Result<Credentials, String>) {
        let (context, began) = (Arc::clone(&self.context), Instant::now());
        let result = caught(context.liveness.track(self.reconcile(function, credentials))).await;
        context.took(began.elapsed());
        let Err(panicked) = result else {
            self.panics = 0;
            return;
        };
        self.panics += 1;
        self.due = None;
        // The Function's slot in the build queue becomes free for another Function.
        context.cache.withdraw(&self.owner);
        let reconciled = Reconciled {
            updates: vec![not_ready(Reason::InternalError, panicked.to_string())],
            ..Reconciled::default()
        };
        // A panic in the report has no further consequence.
        let _ = caught(Box::pin(self.report(function, &reconciled))).await;
        let wait = Class::Bug.backoff().map(|backoff| backoff.delay(self.panics));
        self.requeue_within(wait.unwrap_or(FAR));
    }

    /// Reconciles the Function once and reports the result.
    async fn reconcile(&mut self, function: &Function, credentials: &Result<Credentials, String>) {
        let seen = ObservedSpec {
            generation: function.metadata.generation,
            labels: function.metadata.labels.clone(),
            annotations: function.metadata.annotations.clone(),
        };
        let changed = self.seen.as_ref() != Some(&seen);
        self.context.count(self.seen.is_none());
        if changed {
            self.seen = Some(seen);
            self.polling.poll_now();
        }
        self.due = None;
        self.polling.begin();
        self.not_put_back = self.context.writer.not_put_back(&self.owner);
        let is_large = function.spec.source.len() > LARGE_SOURCE;
        // The semaphore is never closed.
        let context = Arc::clone(&self.context);
        let _permit = if is_large { context.large.acquire().await.ok() } else { None };
        let mut function = function.clone();
        function.status = Some(self.status.clone());
        let reconciled = self.attempt(&function, credentials, changed).await;
        self.polling.attempted(&self.context);
        self.report(&function, &reconciled).await;
    }

    /// Removes paused children that have been resumed. Returns whether a child was removed.
    fn forget_resumed(&mut self) -> bool {
        let (waiting, writer) = (self.paused.len(), &self.context.writer);
        self.paused.retain(|key| writer.is_paused(key));
        self.paused.len() < waiting
    }

    /// Whether the set of children that cannot be reverted has changed.
    fn fails_otherwise(&self) -> bool {
        self.context.writer.not_put_back(&self.owner) != self.not_put_back
    }

    pub(super) fn requeue_within(&mut self, wait: Duration) {
        let at = Instant::now() + wait;
        self.due = Some(self.due.map_or(at, |known| known.min(at)));
    }
}

/// Returns the update that the configuration is not ready.
fn not_ready(reason: Reason, message: impl Into<String>) -> ConditionUpdate {
    ConditionUpdate::new(Type::ConfigurationReady, Status::False, reason, message)
}

/// Returns the kind Function.
pub fn functions() -> Kind {
    Kind::of::<Function>()
}
