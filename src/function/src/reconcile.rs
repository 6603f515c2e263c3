//! The task of one Function. The task waits for a change, reconciles, and reports.
//!
//! Invariant: every reconcile results in a status, on success and on failure. Without a change, no status is written.
//! Invariant: an idle task sends no requests except ref lookups at the remote.

use std::collections::{BTreeMap, HashSet};
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::build_queue::Admission;
use super::child_kind::ChildKind;
use super::child_set::Children;
use super::child_state::{Job, Progress};
use super::context::{Context, Input, no_memory};
use super::credentials::{self, Credentials};
use super::flavour::Flavour;
use super::knative_presence::Presence;
use super::name_conflict::NameConflict;
use super::named_secrets::NamedSecrets;
use super::perform;
use super::pod_secrets::PodSecrets;
use super::polling::{Polling, Source};
use super::quotas::Waiting;
use super::refusals::RefusedWrite;
use super::registry_waits;
use super::repository;
use super::resolve::{BoundSecret, ResolvedFunction, reason, resolve, text};
use super::stage::{self, ConditionUpdate, Decision, Observed, ReconcileState, Resolved, RetryCause, RetryNow};
use super::status::Reconciled;
use super::tag;
use crate::bindings::{Bound, Taken};
use crate::registry::{self, ImageRef, SecretData};
use mainstay_api::DriftPolicy;
use mainstay_api::Function;
use mainstay_api::function::FunctionStatus;
use mainstay_api::function_conditions::{Reason, Status, Type};
use mainstay_api::git_repository::{GitRepositorySpec, PinnedHostKey};
use mainstay_cluster::secrets::{Followed, Known, Purpose};
use mainstay_cluster::{Error, Kind};
use mainstay_engine::managed::{History, Policy};
use mainstay_git::SharedHostKeys;
use mainstay_git::{Consumer, ConsumerKind};
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

    /// Follows the Secrets that the settings reference.
    fn follow_secrets(&mut self, settings: &Settings) {
        for (followed, name) in self.secrets.iter_mut().zip(settings.secrets()) {
            if followed.of().1 != name {
                *followed = self.context.secrets.follow(&self.namespace, name, Purpose::ImageRegistry);
            }
        }
    }

    /// Updates the Secrets that ServiceBindingUsages bind to the Function.
    fn follow_bindings(&mut self, name: &str, function: &Function) {
        let labels = function.spec.labels.iter().flatten().map(|(key, _)| key);
        self.bound = self.context.bindings.of(&self.namespace, name, labels);
    }

    /// Returns the bound Secrets that the code may read, and reports the refused ones.
    fn take_bound(&self, credentials: &Credentials) -> Vec<BoundSecret> {
        let refusal = |bound: &Bound| credentials.refusal_of_bound(&bound.secret);
        let judge = |bound: &Bound| (bound.clone(), refusal(bound).map_or(Taken::Bound, Taken::Refused));
        let taken: Vec<(Bound, Taken)> = self.bound.iter().map(judge).collect();
        let allowed = taken.iter().filter(|(_, taken)| *taken == Taken::Bound);
        let secrets = allowed
            .map(|(bound, _)| BoundSecret { prefix: bound.prefix.clone(), secret: bound.secret.clone() })
            .collect();
        self.context.bindings.taken(&self.namespace, self.owner.resource().name(), taken);
        secrets
    }

    fn due(&self) -> Instant {
        let first = [self.due, self.polling.due()].into_iter().flatten().min();
        first.unwrap_or_else(|| Instant::now() + FAR).min(Instant::now() + FAR)
    }

    /// Returns the GitRepository of a Git Function and its pinned host keys. Fails if its existence is unknown.
    fn repository_of(&self, function: &Function) -> Result<Option<(GitRepositorySpec, Vec<PinnedHostKey>)>, String> {
        let is_git = function.spec.kind.as_deref() == Some("git") && function.spec.own_repository().is_none();
        let Some(source) = Some(function.spec.source.trim()).filter(|_| is_git) else { return Ok(None) };
        let repositories = &self.context.repositories;
        match (repositories.get(&self.namespace, source), repositories.problem(&self.namespace, source)) {
            (Some(repository), _) => {
                let pinned = repository.status.as_ref().map(|status| status.pinned_host_keys.clone());
                Ok(Some((repository.spec.clone(), pinned.unwrap_or_default())))
            }
            (None, Some(why)) => Err(why),
            (None, None) => Ok(None),
        }
    }

    /// Returns the Secrets that the Function's code and its own repository must not use, if the Function references
    /// Secrets at all. Fails if these Secrets are unknown.
    fn credentials_for(&self, function: &Function) -> Result<Credentials, String> {
        let (settings, repositories) = (self.context.settings(), &self.context.repositories);
        if credentials::named(&function.spec).next().is_none() && self.bound.is_empty() {
            return Ok(Credentials::default());
        }
        if let Some(why) = repositories.unknown() {
            return Err(format!("GitRepositories cannot be read: {why}"));
        }
        if let Some(name) = repositories.unreadable_in(&self.namespace) {
            return Err(format!("GitRepository {name} cannot be read"));
        }
        let registered = self.context.secrets.purposes(&self.namespace);
        let registered = registered.map_err(|referrer| format!("{} have not been listed yet", referrer.plural()))?;
        let all = repositories.in_namespace(&self.namespace);
        let of_repositories = Credentials::new(&settings, all.iter().map(|repository| &repository.spec));
        Ok(of_repositories.and_registered(registered))
    }

    /// Adds the referenced Secrets that are credentials according to their own metadata.
    async fn all_credentials(
        &mut self,
        function: &Function,
        by_name: &Result<Credentials, String>,
    ) -> Result<Credentials, String> {
        let cluster = self.context.writer.cluster();
        let by_name = by_name.as_ref().map_err(Clone::clone)?;
        let found = self.named_secrets.look(cluster, &self.namespace, &function.spec, &self.bound).await;
        self.state.missing_secrets.clone_from(self.named_secrets.missing());
        let unread = |(name, error): (String, Error)| format!("Secret {name} cannot be read: {}", error.cause_text());
        found.map(|found| by_name.clone().and(found)).map_err(unread)
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

    /// Whether the Function has serving children.
    fn serves(&self) -> bool {
        let children = self.context.cache.children(&self.namespace, &self.uid);
        !(children.deployments.is_empty() && children.knative_services.is_empty())
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

    async fn attempt(
        &mut self,
        function: &Function,
        credentials: &Result<Credentials, String>,
        changed: bool,
    ) -> Reconciled {
        // Settings may change at any time. One reconcile uses the same settings throughout.
        let settings = self.context.settings();
        let (spec, withheld) = match self.resolved(function, credentials, &settings).await {
            Ok(resolved) => resolved,
            Err(refusal) => return Reconciled { updates: vec![refusal], ..Reconciled::default() },
        };
        let (runtime, warnings) = (Some(spec.runtime.name.to_owned()), Some(spec.warnings.clone()));
        let carried_out = self.carry_out(&spec, withheld, &settings, changed).await;
        let reconciled =
            carried_out.unwrap_or_else(|refusal| Reconciled { updates: vec![refusal], ..Reconciled::default() });
        Reconciled { runtime, warnings, ..reconciled }
    }

    /// Returns the valid Function. If its code must not read a Secret, returns the Function without that Secret, and the
    /// reason.
    async fn resolved(
        &mut self,
        function: &Function,
        credentials: &Result<Credentials, String>,
        settings: &Settings,
    ) -> Result<(ResolvedFunction, Option<ConditionUpdate>), ConditionUpdate> {
        if let Some(bytes) = self.context.refused(&self.owner) {
            self.context.cache.withdraw(&self.owner);
            return Err(not_ready(Reason::SourceTooLarge, no_memory(bytes)));
        }
        let credentials = match self.all_credentials(function, credentials).await {
            Ok(credentials) => credentials,
            Err(why) => {
                self.requeue_within(Duration::from_secs(10));
                let place = if function.spec.own_secret().is_some() { "its spec" } else { "spec.env" };
                let unknown = format!("it is unknown which Secrets in {place} hold credentials");
                return Err(not_ready(Reason::SourceUpdateFailed, format!("{unknown}: {why}")));
            }
        };
        self.follow_secrets(settings);
        let bound_secrets = self.take_bound(&credentials);
        let (mut spec, withheld) = match resolve(function, settings, &credentials) {
            Ok(spec) => (spec, None),
            Err(violations) => {
                let why = not_ready(reason(&violations), text(&violations));
                // Pods that start later must not read a Secret that has become a credential.
                let rest = credentials.without_withheld(function).filter(|_| self.serves());
                let Some(spec) = rest.and_then(|rest| resolve(&rest, settings, &credentials).ok()) else {
                    self.context.cache.withdraw(&self.owner);
                    return Err(why);
                };
                (spec, Some(why))
            }
        };
        self.uses_knative = spec.flavour == Flavour::Knative || self.status.serving.is_some();
        if self.uses_knative {
            self.context.cache.knative().set_used();
        }
        spec.bound_secrets = bound_secrets;
        spec.secrets_digest = match self.pod_secrets.digest(&self.context.secrets, &spec).await {
            Ok(digest) => digest,
            Err(why) => {
                self.requeue_within(Duration::from_secs(10));
                return Err(not_ready(Reason::SourceUpdateFailed, why));
            }
        };
        Ok((spec, withheld))
    }

    /// Reads the registry and the source, decides, and performs the decision.
    async fn carry_out(
        &mut self,
        spec: &ResolvedFunction,
        withheld: Option<ConditionUpdate>,
        settings: &Settings,
        changed: bool,
    ) -> Result<Reconciled, ConditionUpdate> {
        let [external, default, packages] = &mut self.secrets;
        let (external, default, _) = tokio::join!(external.known(), default.known(), packages.known());
        let repository = match repository::choose(settings, &external, &default, spec) {
            Ok(repository) => repository,
            Err(why) => {
                self.context.cache.withdraw(&self.owner);
                self.polling.set_remote(&self.context, spec).await;
                return Err(not_ready(Reason::RegistryNotConfigured, why));
            }
        };
        let children = self.context.cache.children(&self.namespace, &self.uid);
        let source = match self.polling.source(&self.context, spec, &children).await {
            Ok(source) => source,
            Err(unread) => {
                self.context.cache.withdraw(&self.owner);
                return Err(not_ready(unread.reason, unread.message));
            }
        };
        self.note_credentials(&children, changed);
        let (tree, access) = match &source {
            Source::Inline => (None, None),
            Source::Git(found) => (Some(&found.0), Some(&found.1)),
        };
        let content = tree.map(super::git::Tree::content);
        let since = tag::resolved_since(&spec.base, settings, jiff::Timestamp::now());
        let recipe = tag::recipe(spec, content.as_deref(), &settings.platform, since);
        let repository = repository.keeping(self.status.built.as_ref(), &recipe, spec);
        let git = tree.zip(access);
        let resolved = Resolved { function: spec, recipe: &recipe, repository: &repository, git, settings };
        let mut decision = self.decide_in_turn(&resolved, &children);
        self.attribute(&mut decision, tree.is_some(), withheld);
        // Boxed, so that reconciles that wait for their source use less memory.
        let outcome = Box::pin(self.perform(&decision)).await;
        let data = external.data().or(default.data());
        self.await_registry(&decision, &repository.push, data).await;
        let source = tree.map(|tree| (tree.commit.clone(), tree.tree.clone()));
        let Reconciled { record, updates, confirmed, .. } = outcome.reconciled;
        Ok(Reconciled { updates, confirmed, record, source, ..Reconciled::default() })
    }

    /// Decides. A Function that must build enters the queue of builds.
    fn decide_in_turn(&self, resolved: &Resolved<'_>, children: &Children) -> Decision {
        let cache = &self.context.cache;
        let admission = cache.admission(&self.owner);
        let decision = self.decide(resolved, children, admission);
        if decision.in_queue && admission == Admission::Absent {
            return self.decide(resolved, children, cache.enqueue(&self.owner, &self.namespace));
        }
        decision
    }

    /// Adds what else prevents the spec from taking effect to the conditions of a decision.
    fn attribute(&self, decision: &mut Decision, is_git: bool, withheld: Option<ConditionUpdate>) {
        if let Some(unread) = self.polling.unread().filter(|_| is_git) {
            decision.attribute(not_ready(unread.reason, &unread.message));
        }
        if let Some(withheld) = withheld {
            decision.attribute(withheld);
        }
        for update in self.not_put_back.iter().filter_map(|(key, why)| perform::not_put_back(key, why)) {
            decision.attribute(update);
        }
    }

    /// Waits for the registry if a build failed because of it and the operator owns the registry.
    async fn await_registry(&mut self, decision: &Decision, repository: &str, data: Option<&SecretData>) {
        let (Some(job), Some(data)) = (&decision.waits_for_registry, data) else {
            self.registry.0 = None;
            if decision.record.building.is_none() {
                self.registry.1 = 0;
            }
            return;
        };
        if self.registry.0.as_ref().is_some_and(|waiting| waiting.job() == job) {
            return;
        }
        let (context, settings) = (&self.context, self.context.settings());
        let (namespace, name) = (&context.own_namespace, &settings.default_registry_secret);
        let operators = context.secrets.follow(namespace, name, Purpose::ImageRegistry).known().await;
        let chosen = registry::choose(None, operators.data()).ok();
        let image = format!("{repository}:latest").parse::<ImageRef>().ok();
        let is_operators = |image: &ImageRef| chosen.is_some_and(|chosen| chosen.push.host() == image.registry);
        let waits = &context.registry_waits;
        self.registry.0 = image.filter(is_operators).map(|image| waits.wait(&image, data, job, self.registry.1));
    }

    fn decide(&self, resolved: &Resolved<'_>, children: &Children, admission: Admission) -> Decision {
        let writer = &self.context.writer;
        let knative = self.context.cache.knative().presence().borrow().clone();
        if knative == Presence::Absent {
            // Without Knative, the Knative Service cannot be reverted.
            let kind = ChildKind::KnativeService.kind();
            writer.remove(&self.owner, &kind.key(Some(&self.namespace), &resolved.function.name));
        }
        let observed = Observed {
            knative: &knative,
            children,
            status: &self.status,
            kept: &|key| writer.kept_source(&self.owner, key),
            may_rest: &|name| writer.may_rest(&ChildKind::Deployment.kind().key(Some(&self.namespace), name)),
            admission,
            must_yield: &|job| self.context.cache.must_yield(job),
            state: &self.state,
        };
        stage::decide(resolved, &observed, self.context.now())
    }

    /// Retries a failed build immediately after a change that may fix the cause. A running build that fails later is
    /// retried as well.
    fn note_credentials(&mut self, children: &Children, changed: bool) {
        let known = self.secrets.iter().chain(self.polling.secrets()).map(|secret| secret.taken().clone());
        let known = known.collect::<Vec<_>>();
        let first = self.credentials.is_empty();
        let differ = std::mem::replace(&mut self.credentials, known) != self.credentials;
        if differ || changed {
            // The refused write may succeed now.
            self.state.refused.iter_mut().for_each(RefusedWrite::reset_backoff);
        }
        if !first && (differ || changed) {
            // A running build started with the old credentials and may fail because of these.
            let may_fail = |job: &&Job| match job.progress {
                Progress::Failed { .. } => true,
                Progress::Running => differ,
                Progress::Complete => false,
            };
            let newest = children.jobs.iter().filter(may_fail).max_by_key(|job| (job.created, job.attempt));
            let cause = if differ { RetryCause::Credentials } else { RetryCause::Spec };
            self.state.retry_now = newest.map(|job| RetryNow { job: job.identity.name.clone(), cause });
        }
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
