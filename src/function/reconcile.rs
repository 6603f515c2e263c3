//! The task of one Function: waits until something may have changed, makes a pass, and reports it.
//!
//! Invariant: every pass ends in a status, on success and on failure alike; one that changes nothing writes nothing.
//! Invariant: waiting costs nothing: no request is made because time passed, but for the ref lookup at the remote.

use std::collections::{BTreeMap, HashSet};
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::context::{Context, Input, owner};
use super::facts::{Job, Progress};
use super::family::Family;
use super::in_the_way::InTheWay;
use super::perform;
use super::polling::{Polling, Source};
use super::quotas::Waiting;
use super::refusals::Refused;
use super::repository;
use super::resolve::{reason, resolve, text};
use super::stage::{self, Decision, Memory, Observed, Said, Wanted};
use super::status::Pass;
use super::tag;
use crate::api::DriftPolicy;
use crate::api::Function;
use crate::api::function::FunctionStatus;
use crate::api::function_conditions::{Reason, Status, Type};
use crate::api::git_repository::GitRepositorySpec;
use crate::cluster::Kind;
use crate::drift::{Owner, Policy};
use crate::object::Key;
use crate::secrets::{Followed, Known};
use crate::source::{Reader, ReaderKind};

const FAR: Duration = Duration::from_secs(86_400);

/// Keeps the children of one Function as they must be until it is gone or `stop` is cancelled.
pub async fn run(context: Arc<Context>, namespace: String, name: String, mut input: Input, stop: CancellationToken) {
    let Some(first) = input.borrow().clone() else {
        context.source.reads(&Reader::new(ReaderKind::Function, &namespace, &name), None);
        return;
    };
    let uid = first.metadata.uid.clone().unwrap_or_default();
    let owner = owner(&namespace, &name);
    let bell = context.cache.enter(&owner, &namespace, &uid);
    if stop.run_until_cancelled(context.cache.complete()).await.is_none() {
        return;
    }
    let mut task = Task::new(Arc::clone(&context), Arc::clone(&owner), namespace.clone(), uid.clone(), &first);
    let policy = Policy { drift: DriftPolicy::Revert, suspended: false };
    context.drift.set_policy(&owner, policy, 0, Vec::new());
    let drifted = context.drift.notifier(&owner);
    let mut repositories = context.repositories.listen();
    let mut look_now = context.look_now.subscribe();
    let mut repository = None;
    loop {
        let Some(function) = input.borrow_and_update().clone() else { break };
        repositories.mark_unchanged();
        let found = Some(task.repository_of(&function));
        if std::mem::replace(&mut repository, found).is_some_and(|old| Some(&old) != repository.as_ref()) {
            task.polling.look_now();
        }
        if look_now.has_changed().unwrap_or(false) {
            look_now.mark_unchanged();
            task.polling.look_now();
        }
        if function.metadata.deletion_timestamp.is_some() {
            // Its children go with it, by their owner references.
            break;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = context.pulse.work(task.turn(&function)) => {}
        }
        loop {
            let due = task.due();
            tokio::select! {
                () = stop.cancelled() => return,
                changed = input.changed() => if changed.is_err() { return },
                () = bell.notified() => {}
                () = drifted.notified() => if !(task.may_resume() | task.fails_otherwise()) { continue },
                // Whoever changes an object that others read costs them nothing but this look.
                _ = repositories.changed() => if Some(task.repository_of(&function)) == repository { continue },
                () = task.others_changed() => {}
                _ = look_now.changed() => look_now.mark_changed(),
                () = sleep_until(due.into()) => {}
            }
            break;
        }
    }
    context.drift.forget_owner(&owner);
    task.polling.end(&context);
    context.set_facts(&owner, None);
    context.cache.leave(&owner, &namespace, &uid);
    // What is being deleted stays so; whoever takes its name has another task.
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
    /// The status as it is written.
    pub(super) status: FunctionStatus,
    pub(super) memory: Memory,
    polling: Polling,
    /// How often in a row the status could not be written.
    pub(super) unwritten: u32,
    due: Option<Instant>,
    /// What of the Function the last pass was made for.
    seen: Option<Seen>,
    /// Those of the registries and of packages, in the order of [`Settings::secrets`](super::Settings::secrets).
    secrets: [Followed; 3],
    credentials: Vec<Known>,
    pub(super) asked_why: Option<Instant>,
    /// Children under break glass that are not as they have to be.
    pub(super) paused: HashSet<Key>,
    /// What has the name of a child and is somebody else's.
    pub(super) in_the_way: Option<InTheWay>,
    /// Room for what a quota has refused.
    pub(super) quota: Option<Waiting>,
    /// Children that somebody has changed and that cannot be put back, with the cause.
    not_put_back: Vec<(Key, String)>,
    /// How long the conditions took to become True.
    pub(super) took: [Option<Duration>; 3],
}

/// What of a Function makes a pass worth while.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
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
            secrets: context.settings.secrets().map(|name| context.secrets.follow(&namespace, name)),
            context,
            owner,
            namespace: namespace.into(),
            uid,
            status,
            memory: Memory::default(),
            unwritten: 0,
            due: None,
            seen: None,
            credentials: Vec::new(),
            asked_why: None,
            paused: HashSet::new(),
            in_the_way: None,
            quota: None,
            not_put_back: Vec::new(),
            took: [None; 3],
        }
    }

    fn due(&self) -> Instant {
        let first = [self.due, self.polling.due()].into_iter().flatten().min();
        first.unwrap_or_else(|| Instant::now() + FAR).min(Instant::now() + FAR)
    }

    /// The GitRepository that a Git Function names, or why it is not known whether there is one.
    fn repository_of(&self, function: &Function) -> Result<Option<GitRepositorySpec>, String> {
        let is_git = function.spec.kind.as_deref() == Some("git");
        let Some(source) = Some(function.spec.source.trim()).filter(|_| is_git) else { return Ok(None) };
        let repositories = &self.context.repositories;
        match (repositories.get(&self.namespace, source), repositories.unknown()) {
            (Some(repository), _) => Ok(Some(repository.spec.clone())),
            (None, Some(why)) => Err(why),
            (None, None) => Ok(None),
        }
    }

    /// Waits until a Secret changes, what is in the way of a child is gone, or there is room again in a quota.
    async fn others_changed(&mut self) {
        let gone = async {
            match &mut self.in_the_way {
                Some(other) => other.gone().await,
                None => pending().await,
            }
        };
        let eased = async {
            match &mut self.quota {
                Some(waiting) => waiting.eased().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = Followed::any_changed(self.secrets.iter_mut().chain(self.polling.secret_mut())) => return,
            () = gone => {}
            () = eased => {}
        }
        // What was refused for it need not wait any longer.
        self.memory.refused.iter_mut().for_each(Refused::hurry);
    }

    /// One pass and its report.
    async fn turn(&mut self, function: &Function) {
        let seen = Seen {
            generation: function.metadata.generation,
            labels: function.metadata.labels.clone(),
            annotations: function.metadata.annotations.clone(),
        };
        let changed = self.seen.as_ref() != Some(&seen);
        if changed {
            self.seen = Some(seen);
            self.polling.look_now();
        }
        self.due = None;
        self.not_put_back = self.context.drift.not_put_back(&self.owner);
        let mut function = function.clone();
        function.status = Some(self.status.clone());
        let pass = self.pass(&function, changed).await;
        self.polling.tried(&self.context);
        self.report(&function, &pass).await;
    }

    /// Whether break glass has ended for a child that waited for it.
    fn may_resume(&mut self) -> bool {
        let (waiting, drift) = (self.paused.len(), &self.context.drift);
        self.paused.retain(|key| drift.is_paused(key));
        self.paused.len() < waiting
    }

    /// Whether other children than before cannot be put back, or for another reason.
    fn fails_otherwise(&self) -> bool {
        self.context.drift.not_put_back(&self.owner) != self.not_put_back
    }

    pub(super) fn look_within(&mut self, wait: Duration) {
        let at = Instant::now() + wait;
        self.due = Some(self.due.map_or(at, |known| known.min(at)));
    }

    async fn pass(&mut self, function: &Function, changed: bool) -> Pass {
        let refused = |reason: Reason, message: String| Pass {
            said: vec![Said::new(Type::ConfigurationReady, Status::False, reason, message)],
            ..Pass::default()
        };
        let resolved = match resolve(function, &self.context.settings) {
            Ok(resolved) => resolved,
            Err(violations) => {
                self.context.cache.withdraw(&self.owner);
                return refused(reason(&violations), text(&violations));
            }
        };
        let runtime = resolved.runtime.name.to_owned();
        let warnings = resolved.warnings.clone();
        let mut pass = Pass { runtime: Some(runtime), warnings: Some(warnings), ..Pass::default() };
        let [external, default, packages] = &mut self.secrets;
        let (external, default, _) = tokio::join!(external.known(), default.known(), packages.known());
        let repository = match repository::choose(&self.context.settings, &external, &default, &resolved) {
            Ok(repository) => repository,
            Err(why) => {
                self.context.cache.withdraw(&self.owner);
                self.polling.tell(&self.context, &resolved).await;
                let Pass { said, .. } = refused(Reason::RegistryNotConfigured, why);
                return Pass { said, ..pass };
            }
        };
        let family = self.context.cache.family(&self.namespace, &self.uid);
        let source = match self.polling.source(&self.context, &resolved, &family).await {
            Ok(source) => source,
            Err(unread) => {
                self.context.cache.withdraw(&self.owner);
                let Pass { said, .. } = refused(unread.reason, unread.message);
                return Pass { said, ..pass };
            }
        };
        self.note_credentials(&family, changed);
        let (tree, access) = match &source {
            Source::Inline => (None, None),
            Source::Git(found) => (Some(&found.0), Some(&found.1)),
        };
        let recipe = tag::recipe(&resolved, tree.map(|tree| tree.tree.as_str()), &self.context.settings.platform);
        let wanted = Wanted {
            function: &resolved,
            recipe: &recipe,
            repository: &repository,
            git: tree.zip(access),
            settings: &self.context.settings,
        };
        let mut decision = self.decide(&wanted, &family);
        if let Some(unread) = self.polling.unread().filter(|_| tree.is_some()) {
            decision.blame(Said::new(Type::ConfigurationReady, Status::False, unread.reason, &unread.message));
        }
        for said in self.not_put_back.iter().filter_map(|(key, why)| perform::not_put_back(key, why)) {
            decision.blame(said);
        }
        let outcome = self.perform(&decision).await;
        pass.source = tree.map(|tree| (tree.commit.clone(), tree.tree.clone()));
        pass.record.clone_from(&outcome.pass.record);
        pass.said = outcome.pass.said;
        pass.affirmed = outcome.pass.affirmed;
        pass
    }

    fn decide(&self, wanted: &Wanted<'_>, family: &Family) -> Decision {
        let (drift, cache) = (&self.context.drift, &self.context.cache);
        let observed = Observed {
            family,
            status: &self.status,
            kept: &|key| drift.kept_at(&self.owner, key),
            turn: &|| cache.ask(&self.owner, &self.namespace),
            memory: &self.memory,
        };
        stage::drive(wanted, &observed, self.context.now())
    }

    /// A build that failed, or will fail, is tried again at once when something changed that may be the reason.
    fn note_credentials(&mut self, family: &Family, changed: bool) {
        let known = self.secrets.iter().chain(self.polling.secret()).map(|secret| secret.taken().clone());
        let known = known.collect::<Vec<_>>();
        let first = self.credentials.is_empty();
        let differ = std::mem::replace(&mut self.credentials, known) != self.credentials;
        if differ || changed {
            // What was refused before may not be now.
            self.memory.refused.iter_mut().for_each(Refused::hurry);
        }
        if !first && (differ || changed) {
            // One that runs has begun with the old credentials: it may fail for that.
            let may_fail = |job: &&Job| match job.progress {
                Progress::Failed { .. } => true,
                Progress::Running => differ,
                Progress::Complete => false,
            };
            let newest = family.jobs.iter().filter(may_fail).max_by_key(|job| (job.created, job.attempt));
            self.memory.retry_now = newest.map(|job| job.identity.name.clone());
        }
    }
}

/// The kind of Functions.
pub fn functions() -> Kind {
    Kind::custom("serverless.kyma-project.io", "v1alpha1", "Function", "functions", true, true)
}
