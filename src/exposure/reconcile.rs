//! The task of one APIRule: makes its objects be as they should, and says so in its status.
//!
//! Invariant: what is written or deleted is this APIRule's, or was there under its name for nobody else.
//! Invariant: while an APIRule is not valid, or its host is somebody else's, the last valid version stays as it is.
//! Invariant: a path is not routed while a policy that guards it is not there, whatever keeps it away.
//! Invariant: what somebody keeps changing is put back less and less often.
//! Invariant: what is refused is tried again when its time has come, whatever is said of it, and is said once.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::child::{Child, ChildKind};
use super::context::{Context, Facts, Place};
use super::denied::explain;
use super::resolve::{Failure, Identity, Resolved, identity, resolve, text};
use super::routes::{Routes, build};
use super::seen::{Seen, Verdict};
use super::served::{Means, Served};
use super::services::{Services, Unread};
use super::status::{self, Elsewhere, Outcome};
use super::workload::Workloads;
use crate::api::ApiRule;
use crate::api::api_rule::ApiRuleStatus;
use crate::api::conditions::{self, Type};
use crate::api::names::EXPOSURE_MANAGER;
use crate::apply::Version;
use crate::cluster::{Apply, Error, Kind, Part};
use crate::failure::{Class, caught, chain};
use crate::managed::attempts::Ground;
use crate::managed::revert_backoff::RevertBackoff;
use crate::notification::Message;
use crate::object::{Digest, Owner};

const FAR: Duration = Duration::from_secs(86_400);
/// The wait before an object is written again that was gone before its write was answered.
const SOON: Duration = Duration::from_secs(1);
/// The longest wait before an object is put back that somebody keeps changing.
const MOST: Duration = Duration::from_secs(300);

/// The newest state of one APIRule; `None` once it is gone.
pub type Input = watch::Receiver<Option<Arc<ApiRule>>>;

/// The kind of APIRules.
pub fn api_rules() -> Kind {
    Kind::custom("gateway.kyma-project.io", "v1alpha1", "APIRule", "apirules", true, true)
}

/// Serves one APIRule until it is gone or `stop` is cancelled.
pub async fn run(context: Arc<Context>, namespace: String, name: String, mut input: Input, stop: CancellationToken) {
    let owner = Owner::api_rule(&namespace, &name);
    let notify = context.enter(&owner);
    let mut task = Task {
        owner,
        began: Instant::now(),
        written: None,
        elsewhere: None,
        applied: HashMap::new(),
        good: None,
        services: Services::default(),
        reverts: RevertBackoff::default(),
        held_until: 0.0,
        refused: Vec::new(),
        failures: 0,
        unreported: 0,
        context: Arc::clone(&context),
    };
    loop {
        let Some(rule) = input.borrow_and_update().clone() else { break };
        let turn: std::pin::Pin<Box<dyn Future<Output = Duration> + Send + '_>> = Box::pin(task.reconcile(&rule));
        let again = tokio::select! {
            () = stop.cancelled() => return,
            done = caught(context.liveness.track(turn)) => done,
        };
        let wait = again.unwrap_or_else(|panicked| {
            tracing::error!(apirule = task.owner.resource().as_str(), why = panicked.to_string(), "not reconciled");
            task.failures += 1;
            Class::Bug.status_delay(task.failures, None, fastrand::f64())
        });
        tokio::select! {
            () = stop.cancelled() => return,
            changed = input.changed() => if changed.is_err() { return },
            () = notify.notified() => {}
            () = sleep_until((Instant::now() + wait).into()) => {}
        }
    }
    context.leave(&task.owner);
}

/// An object as it was written last.
struct Applied {
    desired: Digest,
    fingerprint: Digest,
}

struct Task {
    context: Arc<Context>,
    owner: Owner,
    began: Instant,
    written: Option<ApiRuleStatus>,
    /// The generation of the APIRule whose status another controller has written, and the time that it has written.
    elsewhere: Option<(Option<i64>, Timestamp)>,
    applied: HashMap<(ChildKind, String), Applied>,
    /// The last valid version.
    good: Option<Resolved>,
    /// The Services that policies are for.
    services: Services,
    reverts: RevertBackoff,
    /// Nothing is put back before this time of the task's clock.
    held_until: f64,
    /// The writes that were refused since all of them went well.
    refused: Vec<Refused>,
    /// Writes of objects that failed in a row.
    failures: u32,
    /// Writes of the status that failed in a row.
    unreported: u32,
}

/// A write that was refused.
struct Refused {
    write: Write,
    /// When it is tried again, on the task's clock.
    until: f64,
    /// Texts may be others every time: the first one for this reason is said.
    ground: Ground,
    why: String,
}

/// A write of an object; without a digest, its deletion.
#[derive(Clone, PartialEq)]
struct Write {
    kind: ChildKind,
    name: String,
    desired: Option<Digest>,
}

impl Write {
    /// Whether it still counts, where these are wanted.
    fn is_of(&self, wanted: &[Child]) -> bool {
        self.desired.is_none() || wanted.iter().any(|child| child.kind == self.kind && child.name == self.name)
    }
}

/// What a reconcile has come to, and when to look again at the latest.
struct Attempt {
    outcome: Outcome,
    wait: Duration,
}

impl Attempt {
    fn of(outcome: Outcome) -> Self {
        Self { outcome, wait: FAR }
    }

    /// The same, and not later than this.
    fn within(self, wait: Duration) -> Self {
        Self { wait: self.wait.min(wait), ..self }
    }
}

impl Task {
    /// Reconciles; how long to wait before that is tried again.
    async fn reconcile(&mut self, rule: &ApiRule) -> Duration {
        // What is being deleted takes its objects along.
        if rule.metadata.deletion_timestamp.is_some() {
            return FAR;
        }
        let Some(attempt) = self.attempt(rule).await else { return FAR };
        let reported = self.report(rule, &attempt.outcome).await;
        match reported {
            Ok(()) => {
                self.unreported = 0;
                attempt.wait
            }
            Err(error) => {
                self.unreported += 1;
                attempt.wait.min(delay(self.unreported, &error))
            }
        }
    }

    async fn attempt(&mut self, rule: &ApiRule) -> Option<Attempt> {
        let means = match self.context.facts() {
            Facts::NotYet => return None,
            Facts::Failing(why) => return Some(Attempt::of(Outcome::Unreadable(why))),
            Facts::Known(means) => means,
        };
        let identity = identity(rule);
        let children = self.context.children(&self.owner, &identity.uid);
        let is_foreign = |seen: &Seen| !seen.is_ours && !seen.is_terminating;
        if let Some((place, _)) = children.iter().find(|(_, seen)| is_foreign(seen)) {
            let child = format!("{} {}", place.0.names().1, place.2);
            self.give_up();
            let left = self.prune(&identity, &[]).await;
            let wait = left.map_or_else(|refused| refused.wait(), |()| FAR);
            return Some(Attempt { outcome: Outcome::ManagedElsewhere(Elsewhere::Made(child)), wait });
        }
        if self.is_reported_elsewhere(rule) {
            // What it serves now may be what was made here.
            self.applied.clear();
            return Some(Attempt::of(Outcome::ManagedElsewhere(Elsewhere::Reported)));
        }
        let Some((means, served)) = means else {
            self.give_up();
            return Some(Attempt::of(Outcome::NoRouteApi));
        };
        let problem = self.resolve(rule, &identity);
        let is_served = !children.is_empty();
        let Some(good) = self.good.clone() else {
            return problem.map(|problem| Attempt::of(problem(is_served)));
        };
        let attempt = self.serve(&good, means, &served).await;
        Some(match problem {
            Some(problem) => Attempt { outcome: problem(is_served), wait: attempt.wait },
            None => attempt,
        })
    }

    /// Whether another controller has written the status after this agent. With another generation that is tried anew.
    fn is_reported_elsewhere(&mut self, rule: &ApiRule) -> bool {
        let time = |status: Option<&ApiRuleStatus>| status?.last_processed_time.as_ref().map(|at| at.0);
        let (written, known) = (time(self.written.as_ref()), self.elsewhere.map(|(_, at)| at));
        // An older state than the written one may still come, with the time that was known before, whatever their clock says.
        let is_new = |live: &Timestamp| written.is_some_and(|written| *live > written) && known != Some(*live);
        if let Some(at) = time(rule.status.as_ref()).filter(is_new) {
            self.elsewhere = Some((rule.metadata.generation, at));
            // What is compared from now on.
            self.written.clone_from(&rule.status);
        }
        self.elsewhere.is_some_and(|(generation, _)| generation == rule.metadata.generation)
    }

    /// Nothing is served by this agent.
    fn give_up(&mut self) {
        self.good = None;
        self.applied.clear();
        self.context.withdraw(&self.owner);
        self.context.keep_only(&self.owner, None);
    }

    /// Makes this version the one to serve, if it is valid and its host is free. Otherwise, why not.
    fn resolve(&mut self, rule: &ApiRule, identity: &Identity) -> Option<impl FnOnce(bool) -> Outcome + use<>> {
        let (context, owner, uid) = (&self.context, &self.owner, &identity.uid);
        let is_occupied = |host: &str| context.is_occupied(owner, uid, identity.created, host);
        let occupied = vec![Failure::occupied(identity.is_newer)];
        let failures = match resolve(rule, &context.settings, is_occupied) {
            Ok(resolved) if context.take(owner, uid, &resolved.host) => {
                self.good = Some(resolved);
                return None;
            }
            Ok(_) => occupied.clone(),
            Err(failures) => failures,
        };
        let is_occupied = failures == occupied;
        if !is_occupied {
            context.withdraw(owner);
        }
        let text = text(&failures);
        Some(
            move |is_served| {
                if is_occupied { Outcome::Occupied(text, is_served) } else { Outcome::Invalid(text, is_served) }
            },
        )
    }

    /// Makes the objects be as they should.
    async fn serve(&mut self, good: &Resolved, means: Means, served: &Served) -> Attempt {
        let now = self.clock();
        let workloads = match self.services.workloads(&self.context, good, means, now).await {
            Ok(workloads) => workloads,
            Err(Unread { why, wait }) => return Attempt { outcome: Outcome::Unreadable(why), wait },
        };
        let Routes { mut children, problem } = build(good, means, served.features, &workloads);
        self.guard_as_long_as_routed(good, served, &mut children);
        self.refused.retain(|refused| refused.write.is_of(&children));
        let services: BTreeSet<String> = good.rules.iter().map(|rule| rule.service.clone()).collect();
        let missing = self.context.missing_services(&self.owner, services);
        let guarded = self.guard(good, &children).await;
        if guarded.is_err() {
            // As where no proxy makes the checks. Policies that are there stay.
            let bare = build(good, means, served.features, &Workloads::default()).children;
            children.retain(|child| child.kind.guards());
            children.extend(bare);
        }
        let wait = match (self.route(good, &children).await, &guarded) {
            (Ok(wait), _) => wait,
            (Err(failed), Ok(())) => return failed.into(),
            (Err(failed), Err(unguarded)) => return Attempt::from(failed).within(unguarded.wait()),
        };
        self.context.keep_only(&self.owner, Some(&good.host));
        if let Err(unguarded) = guarded {
            let failed = unguarded.with("; until then, no path that asks for a token is routed");
            return Attempt::from(failed).within(wait);
        }
        self.failures = 0;
        self.refused.clear();
        let verdict = self.verdict(good, &children);
        let outcome = match (problem, verdict) {
            (Some(problem), _) => Outcome::AuthNotSupported(problem),
            (None, Verdict::Waiting) => Outcome::NotAccepted(None),
            (None, Verdict::Refused(why)) => Outcome::NotAccepted(Some(why)),
            (None, Verdict::Accepted) if !missing.is_empty() => Outcome::NoServices(missing),
            (None, Verdict::Accepted) => Outcome::Served(good.host.clone()),
        };
        Attempt { outcome, wait }
    }

    /// Makes what guards routes be there; otherwise, why it is not.
    async fn guard(&mut self, good: &Resolved, children: &[Child]) -> Result<(), NotPut> {
        for child in children.iter().filter(|child| child.kind.guards()) {
            let what = format!("{} {}", child.kind.names().1, child.name);
            if let Some(wait) = self.put(good, child).await? {
                let why = format!("{what} is changed or deleted again and again, and is put back later");
                return Err(NotPut::Refused { why, wait });
            }
            if self.context.seen(&place(good, child)).is_none_or(|seen| seen.is_terminating) {
                return Err(NotPut::Refused { why: format!("{what} is being deleted"), wait: FAR });
            }
        }
        Ok(())
    }

    /// Makes what routes be there, and deletes what is not wanted any more; how long what is put back has to wait.
    async fn route(&mut self, good: &Resolved, children: &[Child]) -> Result<Duration, NotPut> {
        let mut wait = FAR;
        let (routes, access_rules): (Vec<&Child>, Vec<&Child>) =
            children.iter().filter(|child| !child.kind.guards()).partition(|child| child.kind != ChildKind::AccessRule);
        for child in routes {
            let later = self.put(good, child).await.map_err(|failed| failed.with(&self.old_rules(&good.identity)))?;
            wait = wait.min(later.unwrap_or(FAR));
        }
        // Before the new Rules, so that no old one answers for one of them that is refused.
        let pruned = self.prune(&good.identity, children).await;
        for child in access_rules {
            wait = wait.min(self.put(good, child).await?.unwrap_or(FAR));
        }
        pruned.map(|()| wait)
    }

    /// What guards a route goes after it, when the garbage collector deletes both.
    fn guard_as_long_as_routed(&self, good: &Resolved, served: &Served, children: &mut [Child]) {
        let Some(route) = children.iter().find(|child| child.kind == ChildKind::VirtualService) else { return };
        let Some(seen) = self.context.seen(&place(good, route)) else { return };
        if seen.is_terminating || !seen.is_of(&self.owner, &good.identity.uid) {
            return;
        }
        let (version, name) = (served.kind.api_version(), route.name.clone());
        for child in children.iter_mut().filter(|child| child.kind.guards()) {
            child.also_of(&version, ChildKind::VirtualService, &name, &seen.uid);
        }
    }

    /// The access rules that are there, as words.
    fn old_rules(&self, identity: &Identity) -> String {
        let children = self.context.children(&self.owner, &identity.uid);
        let rules =
            children.into_iter().filter(|(place, seen)| place.0 == ChildKind::AccessRule && !seen.is_terminating);
        let mut names: Vec<String> = rules.map(|(place, _)| place.2).collect();
        names.sort();
        match names.as_slice() {
            [] => String::new(),
            [one] => format!("; until then, Rule {one} goes on serving as it is"),
            [one, rest @ ..] => format!("; until then, Rule {one} and {} more go on serving as they are", rest.len()),
        }
    }

    /// What is said of the objects: the worst.
    fn verdict(&self, good: &Resolved, children: &[Child]) -> Verdict {
        let mut verdict = Verdict::Accepted;
        for child in children {
            match self.context.seen(&place(good, child)).map(|seen| seen.verdict) {
                Some(Verdict::Accepted) => {}
                Some(refused @ Verdict::Refused(_)) => return refused,
                Some(Verdict::Waiting) | None => verdict = Verdict::Waiting,
            }
        }
        verdict
    }

    /// Writes an object unless it is as it was written; or how long that has to wait.
    async fn put(&mut self, good: &Resolved, child: &Child) -> Result<Option<Duration>, NotPut> {
        let (place, context) = (place(good, child), Arc::clone(&self.context));
        let desired = Digest::of(child.body.to_string().as_bytes());
        let seen = context.seen(&place);
        let key = (child.kind, child.name.clone());
        let known = self.applied.get(&key).filter(|applied| applied.desired == desired);
        if known.zip(seen.as_ref()).is_some_and(|(known, seen)| known.fingerprint == seen.fingerprint) {
            return Ok(None);
        }
        let is_revert = known.is_some();
        let now = self.clock();
        if is_revert && now < self.held_until {
            return Ok(Some(Duration::from_secs_f64(self.held_until - now)));
        }
        if seen.as_ref().is_some_and(|seen| !seen.is_ours && !seen.is_of(&self.owner, &good.identity.uid)) {
            return Err(NotPut::Taken(format!("{} {} is not this APIRule's", child.kind.names().1, child.name)));
        }
        // Its deletion is seen, and then it is made again.
        if seen.as_ref().is_some_and(|seen| seen.is_terminating) {
            return Ok(None);
        }
        let Some(served) = context.served(child.kind) else { return Ok(None) };
        let mut body = child.body.clone();
        body["apiVersion"] = served.kind.api_version().into();
        if let Some(seen) = &seen {
            body["metadata"]["uid"] = Value::from(&*seen.uid);
        }
        let write = Write { kind: child.kind, name: child.name.clone(), desired: Some(desired) };
        self.may_try(&write)?;
        // It is never closed.
        let _permit = context.permits.acquire().await;
        let (namespace, how) = (Some(place.1.as_str()), Apply::forced(EXPOSURE_MANAGER));
        let live = context.writer.cluster().apply(&served.kind, namespace, &child.name, &body, how).await;
        let live = live.map_err(|error| self.refuse(write, &error))?;
        let Some(seen) = context.wrote(child.kind, &live) else {
            self.applied.remove(&key);
            return Ok(Some(SOON));
        };
        self.applied.insert(key, Applied { desired, fingerprint: seen.fingerprint });
        if is_revert {
            self.reverts.grow(now);
            self.held_until = now + self.reverts.delay(now, MOST).as_secs_f64();
            tracing::info!(apirule = self.owner.resource().as_str(), "put back {} {}", served.kind.kind, child.name);
        }
        Ok(None)
    }

    /// Deletes what this agent has made for the APIRule and is not wanted any more.
    async fn prune(&mut self, identity: &Identity, wanted: &[Child]) -> Result<(), NotPut> {
        let is_wanted = |place: &Place| wanted.iter().any(|child| child.kind == place.0 && child.name == place.2);
        for (place, seen) in self.context.children(&self.owner, &identity.uid) {
            if !seen.is_ours || seen.is_terminating || is_wanted(&place) {
                continue;
            }
            let Some(served) = self.context.served(place.0) else { continue };
            let write = Write { kind: place.0, name: place.2.clone(), desired: None };
            self.may_try(&write)?;
            let key = served.kind.key(Some(&place.1), &place.2);
            let version = Version { uid: seen.uid.into(), resource_version: seen.resource_version.into() };
            let judge = |meta: &ObjectMeta| if is_made_for(&identity.uid, meta) { Ok(()) } else { Err(()) };
            let done = self.context.writer.delete_unowned(&served.kind, &key, Some(version), judge).await;
            done.map_err(|error| self.refuse(write, &error))?;
            self.applied.remove(&(place.0, place.2));
        }
        Ok(())
    }

    /// Whether a write may be tried now: its own status, too, wakes an APIRule whose write was refused.
    fn may_try(&self, write: &Write) -> Result<(), NotPut> {
        let now = self.clock();
        let is_held = |refused: &&Refused| refused.write == *write && now < refused.until;
        self.refused.iter().find(is_held).map_or(Ok(()), |refused| {
            let wait = Duration::from_secs_f64(refused.until - now);
            Err(NotPut::Refused { why: refused.why.clone(), wait })
        })
    }

    /// A write was refused.
    fn refuse(&mut self, write: Write, error: &Error) -> NotPut {
        self.failures += 1;
        let wait = delay(self.failures, error);
        let (ground, until) = (Ground::of(error), self.clock() + wait.as_secs_f64());
        let is_known = |known: &Refused| known.write == write && known.ground == ground;
        let known = self.refused.iter().find(|known| is_known(known));
        let why = known.map_or_else(|| explain(error), |known| known.why.clone());
        self.refused.retain(|known| (known.write.kind, &known.write.name) != (write.kind, &write.name));
        self.refused.push(Refused { write, until, ground, why: why.clone() });
        NotPut::Refused { why, wait }
    }

    fn clock(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Writes the status if it changed.
    async fn report(&mut self, rule: &ApiRule, outcome: &Outcome) -> Result<(), Error> {
        let old = self.written.clone().or_else(|| rule.status.clone()).unwrap_or_default();
        let new = status::after(&old, outcome, rule.metadata.generation, Timestamp::now());
        if new == old {
            self.written = Some(old);
            return Ok(());
        }
        let patch = status::patch(&new, outcome);
        let written = match self.patch(&patch).await {
            // Kyma's own definition has no conditions.
            Err(error) if matches!(error.code(), Some(400 | 422)) => {
                let mut bare = patch;
                bare["status"].as_object_mut().and_then(|status| status.remove("conditions"));
                self.patch(&bare).await
            }
            written => written,
        };
        match written {
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => {
                tracing::warn!(apirule = self.owner.resource().as_str(), why = chain(&error), "status not written");
                return Err(error);
            }
            Ok(_) => {}
        }
        let said = |status: &ApiRuleStatus| {
            let said = conditions::status(&status.conditions, Type::Exposed)?;
            Some((said.status.clone(), said.reason.clone(), said.message.clone()))
        };
        if let Some((status, reason, message)) = said(&new).filter(|new| said(&old).as_ref() != Some(new)) {
            let (subject, condition) = (self.owner.clone(), Type::Exposed.as_str().to_owned());
            let message = Message::Stage { subject, condition, status, reason, message };
            self.context.emit(&self.owner, &message);
        }
        self.written = Some(new);
        Ok(())
    }

    async fn patch(&self, patch: &Value) -> Result<Value, Error> {
        let (cluster, name) = (self.context.writer.cluster(), self.owner.resource());
        cluster.patch_merge(&api_rules(), Some(name.namespace()), name.name(), Part::Status, patch).await
    }
}

/// Why an object was not written.
enum NotPut {
    /// Its name is somebody else's.
    Taken(String),
    /// The server says so, and when to try again.
    Refused { why: String, wait: Duration },
}

impl NotPut {
    /// With more words.
    fn with(self, more: &str) -> Self {
        match self {
            Self::Taken(why) => Self::Taken(why + more),
            Self::Refused { why, wait } => Self::Refused { why: why + more, wait },
        }
    }

    fn wait(&self) -> Duration {
        match self {
            Self::Taken(_) => FAR,
            Self::Refused { wait, .. } => *wait,
        }
    }
}

impl From<NotPut> for Attempt {
    fn from(failed: NotPut) -> Self {
        let wait = failed.wait();
        let (NotPut::Taken(why) | NotPut::Refused { why, .. }) = failed;
        Self { outcome: Outcome::NotWritten(why), wait }
    }
}

/// How long to wait after this many failures in a row.
fn delay(failures: u32, error: &Error) -> Duration {
    error.class().status_delay(failures, error.retry_after(), fastrand::f64())
}

fn place(good: &Resolved, child: &Child) -> Place {
    (child.kind, good.identity.namespace.clone(), child.name.clone())
}

/// Whether this agent has made an object for an APIRule.
fn is_made_for(rule: &str, meta: &ObjectMeta) -> bool {
    let is_owned =
        meta.owner_references.iter().flatten().any(|owner| owner.uid == rule && owner.controller == Some(true));
    let managers = meta.managed_fields.iter().flatten();
    is_owned && managers.into_iter().any(|field| field.manager.as_deref() == Some(EXPOSURE_MANAGER))
}
