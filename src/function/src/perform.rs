//! Performs a decision: writes and deletes children, and collects the condition updates.
//!
//! Invariant: an object with a child's name that the Function does not control is not changed, even if it was created
//! after the observation.
//! Invariant: a refused write ends the reconcile, and a condition reports it.

mod knative;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::child_kind::ChildKind;
use super::child_state::{ChildIdentity, Job, Suspension};
use super::context::Context;
use super::name_conflict::NameConflict;
use super::reconcile::Task;
use super::refusals::{RefusalCause, RefusedWrite, Write};
use super::stage::{ConditionUpdate, Decision, Put, Step};
use super::status::Reconciled;
use mainstay_api::function_conditions::{Reason, Status, Type};
use mainstay_api::names::{BUILD_SUSPENDED_FOR, BUILD_SUSPENDED_UNTIL, BUILD_SUSPENSIONS};
use mainstay_cluster::{Error, FieldSelector, Kind, Part, Scope, Selection};
use mainstay_engine::apply::{self, Change, Expect, Version};
use mainstay_engine::managed::{Appliers, pause_of};
use mainstay_object::failure::chain;
use mainstay_object::{Key, Owner};

/// How often the Events of a Job without a pod are read.
const EVENTS_INTERVAL: Duration = Duration::from_secs(30);

/// Reasons of Events that report the end of a Job. The end deletes the pod, so these Events do not explain why the pod
/// is missing.
const ENDS: [&str; 2] = ["DeadlineExceeded", "BackoffLimitExceeded"];

/// Delay after a conflict during a suspension.
const SUSPEND_AGAIN: Duration = Duration::from_secs(1);

/// The kind of the owner of a Knative Service's Service.
const ROUTE: &str = "Route ";

/// The result of performing a decision.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The condition updates.
    pub(super) reconciled: Reconciled,
    /// Whether the reconcile ended early because a write was refused, in this reconcile or in an earlier one.
    pub(super) is_cut: bool,
    /// The refused write, the cause, and the condition update.
    refused: Option<(Write, RefusalCause, Option<ConditionUpdate>)>,
    /// Whether a Job was created.
    pub(super) started: bool,
    /// Paused children. They are written after the pause ends.
    paused: Vec<Key>,
    /// An object of another owner with the name of a child.
    name_conflict: Option<(Arc<Kind>, Key)>,
    changed: Vec<Type>,
    /// When to reconcile again because a step was not complete.
    again: Option<Duration>,
    /// Whether unused Revisions remain.
    revisions_left: bool,
}

impl Outcome {
    fn look_again(&mut self, wait: Duration) {
        self.again = Some(self.again.map_or(wait, |known| known.min(wait)));
    }
}

/// Writes the children of one Function.
pub(super) struct Performer<'a> {
    pub(super) context: &'a Context,
    pub(super) owner: &'a Owner,
    pub(super) namespace: &'a str,
    pub(super) uid: &'a str,
}

impl Task {
    /// Performs the decision and keeps the state for the next reconcile.
    pub(super) async fn perform(&mut self, decision: &Decision) -> Outcome {
        let context = Arc::clone(&self.context);
        let (owner, namespace, uid) = (self.owner.clone(), Arc::clone(&self.namespace), self.uid.clone());
        let performer = Performer { context: &context, owner: &owner, namespace: &namespace, uid: &uid };
        let _permit = context.permits.acquire().await;
        let mut outcome = performer.perform(decision).await;
        // A held-back write was not attempted, so it did not check for a name conflict.
        if outcome.refused.is_some() || !outcome.is_cut {
            self.follow(outcome.name_conflict.take());
        }
        self.remember(decision, &mut outcome);
        let by_quota = self.state.refused.as_ref().is_some_and(RefusedWrite::is_by_quota);
        let waiting = self.quota.take().filter(|_| by_quota);
        self.quota = waiting.or_else(|| by_quota.then(|| context.quotas.wait(&namespace)));
        self.paused.extend(outcome.paused.drain(..));
        if let Some(job) = &decision.without_pod
            && self.events_read.is_none_or(|asked| asked.elapsed() >= EVENTS_INTERVAL)
        {
            let why = performer.pod_problem(job).await;
            self.events_read = Some(Instant::now());
            if why.is_some() {
                self.context.cache.set_held_up(&namespace, &uid, &job.identity);
            }
            self.state.problem = why.map(|why| (job.identity.uid.clone(), why)).or(self.state.problem.take());
            self.requeue_within(if self.state.problem.is_some() { Duration::ZERO } else { EVENTS_INTERVAL });
        } else if decision.without_pod.is_some() {
            self.state.problem.clone_from(&decision.state.problem);
            self.requeue_within(EVENTS_INTERVAL);
        }
        if !decision.in_queue || outcome.started || outcome.is_cut {
            self.context.cache.withdraw(&self.owner);
        }
        for wait in [decision.requeue_after, outcome.again].into_iter().flatten() {
            self.requeue_within(wait);
        }
        outcome
    }

    /// Keeps the state for the next reconcile.
    fn remember(&mut self, decision: &Decision, outcome: &mut Outcome) {
        let before = self.state.refused.take();
        self.state = decision.state.clone();
        if outcome.is_cut || outcome.revisions_left {
            self.state.cleaned_up = None;
        }
        let Some((write, cause, update)) = outcome.refused.take() else {
            // The reconcile completed, so no write was refused.
            self.state.refused = before.filter(|_| outcome.is_cut);
            return;
        };
        let now = self.context.now();
        let when = (now, self.context.settings().requeue, fastrand::f64());
        let refused = RefusedWrite::after(before.as_ref(), write.clone(), cause, update, when);
        outcome.reconciled.updates.extend(refused.update().cloned());
        self.requeue_within(refused.holds(&write, now).unwrap_or_default());
        self.state.refused = Some(refused);
    }

    /// Watches the object that has the name of a child.
    fn follow(&mut self, other: Option<(Arc<Kind>, Key)>) {
        let Some((kind, key)) = other else {
            self.name_conflict = None;
            return;
        };
        if !self.name_conflict.as_ref().is_some_and(|known| known.is(&key)) {
            self.name_conflict = Some(NameConflict::follow(self.context.writer.cluster(), &kind, key));
        }
    }
}

impl Performer<'_> {
    /// Performs the steps in order.
    pub(super) async fn perform(&self, decision: &Decision) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some([name, uid]) = &decision.reported {
            let key = Key::new("batch", "Job", Some(self.namespace), name.as_str());
            self.context.writer.note_success(self.owner, &key, uid);
        }
        for (at, step) in decision.steps.iter().enumerate() {
            let done = match step {
                Step::SetCondition(update) => {
                    outcome.reconciled.updates.push(update.clone());
                    Ok(())
                }
                Step::ConfirmCondition(kind) => {
                    outcome.reconciled.confirmed.push(*kind);
                    Ok(())
                }
                Step::SetConditionUnlessWritten(update) => {
                    if !outcome.changed.contains(&update.condition) {
                        outcome.reconciled.updates.push(update.clone());
                    }
                    Ok(())
                }
                Step::Put(put) => self.put(put, &mut outcome).await,
                Step::Refused(update) => {
                    outcome.reconciled.updates.extend(update.clone());
                    outcome.is_cut = true;
                    Ok(())
                }
                Step::Delete { child_kind, identity } => self.delete(*child_kind, identity).await,
                Step::HandOver { deployment, replicas } => self.hand_over(deployment, *replicas).await,
                Step::GiveAddress { knative, .. } => self.give_address(knative, &mut outcome).await,
                Step::TakeAddress { document, knative, .. } => self.take_address(document, knative, &mut outcome).await,
                Step::CleanUp { knative } => self.clean_up(knative, &mut outcome).await,
                Step::Suspend { identity, suspension } => {
                    self.suspend(identity, suspension.as_ref(), &mut outcome).await;
                    Ok(())
                }
            };
            if let Err(error) = done {
                self.refuse(step, &error, &mut outcome);
            }
            if outcome.is_cut {
                outcome.reconciled.record = Some(decision.record_at(at).clone());
                return outcome;
            }
        }
        outcome.reconciled.record = Some(decision.record.clone());
        outcome
    }

    fn refuse(&self, step: &Step, error: &Error, outcome: &mut Outcome) {
        let update = if let Step::Put(put) = step {
            if !error.is_outcome_unknown() {
                self.context.writer.forget_unapplied(self.owner, &put.desired.key);
            }
            Some(refusal(put, chain(error)))
        } else {
            tracing::warn!(function = self.owner.resource().as_str(), why = chain(error), "a step failed");
            not_moved(step, error)
        };
        outcome.refused = Write::of(step, self.namespace).map(|write| (write, RefusalCause::of(error), update));
        outcome.is_cut = true;
    }

    async fn put(&self, put: &Put, outcome: &mut Outcome) -> Result<(), Error> {
        if self.is_applied(put).await {
            return Ok(());
        }
        let desired = &put.desired;
        let (cluster, name) = (self.context.writer.cluster(), &*desired.key.name);
        let mut known = put.version.clone();
        // An object that is not managed yet may have another owner.
        let is_kept = self.context.writer.desired(&desired.key).is_some();
        if (known.is_none() || !is_kept)
            && let Some(live) = cluster.get_metadata(&desired.kind, Some(self.namespace), name).await?
        {
            if let Some(whose) = self.foreign_owner(&live) {
                self.refuse_foreign(put, &whose, outcome);
                return Ok(());
            }
            if let Some(until) = pause_of(&live, Timestamp::now()) {
                self.context.writer.insert_paused(self.owner, desired, until);
                outcome.paused.push(desired.key.clone());
                return Ok(());
            }
            known.clone_from(&live.resource_version);
        }
        let expect = if known.is_some() { Expect::Ours } else { Expect::Absent };
        let step = apply::Step { desired: Arc::clone(desired), expect, appliers: Appliers::default() };
        let done = self.context.writer.put(self.owner, &step).await?;
        if done.change == Change::Anothers {
            self.context.writer.remove(self.owner, &desired.key);
            self.refuse_foreign(put, "another client, which has just created it", outcome);
            return Ok(());
        }
        if done.change == Change::Paused {
            outcome.paused.push(desired.key.clone());
            return Ok(());
        }
        self.context.cache.upsert(put.child_kind, &done.answer);
        let [created, updated] = put.reasons;
        let kind = &desired.kind.kind;
        let version = done.answer.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let update = match done.change {
            // This was a new agent's first apply, and it changed no field.
            Change::Changed if known.is_some() && version == known.as_deref() => return Ok(()),
            Change::Created => (created, format!("{kind} {name} created")),
            Change::Changed => (updated, format!("{kind} {name} updated")),
            Change::Unchanged | Change::Paused | Change::Suspended | Change::Terminating | Change::Anothers => {
                return Ok(());
            }
        };
        outcome.started |= put.child_kind == ChildKind::Job;
        outcome.changed.push(put.condition);
        let holds = put.serves || put.condition == Type::ConfigurationReady;
        let status = if holds { Status::True } else { Status::Unknown };
        let update = ConditionUpdate::new(put.condition, status, update.0, update.1 + &put.note);
        outcome.reconciled.updates.push(ConditionUpdate { done: true, outdated: put.outdated, ..update });
        Ok(())
    }

    /// Whether an earlier agent applied exactly this object. Such an object becomes managed without a write.
    async fn is_applied(&self, put: &Put) -> bool {
        let (Some((uid, last_applied)), Some(version)) = (&put.last_applied, &put.version) else { return false };
        let desired = &put.desired;
        // The cache may have received a newer version before the object became managed.
        self.context.writer.keep_applied(self.owner, desired, uid, last_applied).await
            && self.context.cache.is_at(put.child_kind, self.namespace, self.uid, &desired.key.name, version)
    }

    fn refuse_foreign(&self, put: &Put, whose: &str, outcome: &mut Outcome) {
        let (kind, name, namespace) = (&put.desired.kind.kind, &put.desired.key.name, self.namespace);
        let message = format!("{kind} {namespace}/{name} exists already and belongs to {whose}");
        let update = if put.moves && put.child_kind == ChildKind::Service && whose == format!("{ROUTE}{name}") {
            let status = if put.serves { Status::True } else { Status::Unknown };
            let message = format!("Service {name} belongs to {whose} until the Knative Service is deleted");
            let update = ConditionUpdate::new(put.condition, status, Reason::DeploymentWaiting, message);
            ConditionUpdate { outdated: put.outdated, ..update }
        } else {
            refusal(put, message)
        };
        outcome.refused = Some((Write::apply(&put.desired), RefusalCause::foreign(), Some(update)));
        outcome.is_cut = true;
        outcome.name_conflict = Some((Arc::clone(&put.desired.kind), put.desired.key.clone()));
    }

    /// Returns the owner of an object that the Function does not control; `None` if the Function controls the object.
    fn foreign_owner(&self, live: &ObjectMeta) -> Option<String> {
        let owners = live.owner_references.as_deref().unwrap_or_default();
        match owners.iter().find(|owner| owner.controller == Some(true)) {
            Some(owner) if owner.uid == self.uid => None,
            Some(owner) => Some(format!("{} {}", owner.kind, owner.name)),
            None => {
                let managers = live.managed_fields.as_deref().unwrap_or_default();
                let manager = managers.iter().rev().find_map(|entry| entry.manager.as_deref());
                Some(format!("another owner (written by {})", manager.unwrap_or("an unknown manager")))
            }
        }
    }

    async fn delete(&self, child_kind: ChildKind, identity: &ChildIdentity) -> Result<(), Error> {
        let kind = child_kind.kind();
        let key = kind.key(Some(self.namespace), &identity.name);
        let judged =
            identity.may_go.then(|| Version { uid: identity.uid.clone(), resource_version: identity.version.clone() });
        let function = (self.owner, self.uid);
        match self.context.writer.delete_child(function, &kind, &key, &identity.uid, judged).await? {
            Some(why) => tracing::info!(function = self.owner.resource().as_str(), %key, %why, "a child is kept"),
            None => self.context.cache.remove_deleted(child_kind, self.namespace, self.uid, identity),
        }
        Ok(())
    }

    /// Suspends or resumes a build Job. Afterwards the Job is unmanaged, because the drift loop would revert the
    /// change.
    async fn suspend(&self, identity: &ChildIdentity, suspension: Option<&(u32, Suspension)>, outcome: &mut Outcome) {
        let (kind, cluster) = (ChildKind::Job.kind(), self.context.writer.cluster());
        self.context.writer.remove(self.owner, &kind.key(Some(self.namespace), &identity.name));
        let mut annotations = json!({ BUILD_SUSPENDED_UNTIL: null, BUILD_SUSPENDED_FOR: null });
        if let Some((count, Suspension { until, why })) = suspension {
            annotations = json!({
                BUILD_SUSPENSIONS: count.to_string(),
                BUILD_SUSPENDED_UNTIL: until.map(|until| until.to_string()),
                BUILD_SUSPENDED_FOR: why,
            });
        }
        let metadata = json!({
            "uid": identity.uid, "resourceVersion": identity.version, "annotations": annotations,
        });
        let patch = json!({ "metadata": metadata, "spec": { "suspend": suspension.is_some() } });
        match cluster.patch_merge(&kind, Some(self.namespace), &identity.name, Part::Main, &patch).await {
            Ok(live) => {
                self.context.cache.upsert(ChildKind::Job, &live);
                outcome.started |= suspension.is_none();
            }
            // The Job was changed or deleted, so the watch delivers its current state.
            Err(error) if error.is_conflict() || error.is_not_found() => outcome.look_again(SUSPEND_AGAIN),
            Err(error) => {
                tracing::warn!(job = identity.name, why = chain(&error), "a build could not be suspended or resumed");
                outcome.look_again(SUSPEND_AGAIN.saturating_mul(10));
            }
        }
    }

    async fn hand_over(&self, deployment: &str, replicas: i64) -> Result<(), Error> {
        let kind = ChildKind::Deployment.kind();
        let key = kind.key(Some(self.namespace), deployment);
        match self.context.writer.hand_over_replicas(&kind, &key, &replicas.into()).await {
            Ok(()) => Ok(()),
            // Another field manager owns the field now, so the value stays.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns why a Job has no pod: the newest Warning among its Events.
    pub(super) async fn pod_problem(&self, job: &Job) -> Option<String> {
        let kind = Arc::new(Kind::fixed("v1", "Event", "events", Scope::Namespaced));
        let of_job = FieldSelector::equals("involvedObject.uid", &job.identity.uid);
        let warnings = of_job.and(&FieldSelector::equals("type", "Warning"));
        let selection = Selection::by_fields(warnings).within(self.namespace);
        let mut events = self.context.writer.cluster().list(&kind, selection).take(50);
        let mut newest: Option<(Option<Timestamp>, String)> = None;
        while let Some(Ok(event)) = events.next().await {
            let text = |field: &str| event[field].as_str().unwrap_or_default();
            if ENDS.contains(&text("reason")) {
                continue;
            }
            let when = text("lastTimestamp").parse().ok().or_else(|| text("eventTime").parse().ok());
            if newest.as_ref().is_none_or(|(known, _)| *known <= when) {
                let message = mainstay_api::conditions::cut(text("message"), 512).replace(char::is_control, " ");
                newest = Some((when, format!("{}: {message}", text("reason"))));
            }
        }
        newest.map(|(_, text)| text)
    }
}

/// Returns the condition update for a failed transfer of the Function's address between Deployment and Knative.
fn not_moved(step: &Step, error: &Error) -> Option<ConditionUpdate> {
    let (Step::GiveAddress { serves, .. } | Step::TakeAddress { serves, .. }) = step else { return None };
    let status = if *serves { Status::True } else { Status::False };
    let message = format!("the URL of the Function cannot be handed over: {}", chain(error));
    let update = ConditionUpdate::new(Type::Running, status, Reason::ServiceFailed, message);
    Some(ConditionUpdate { outdated: *serves, ..update })
}

fn refusal(put: &Put, message: String) -> ConditionUpdate {
    ConditionUpdate { outdated: put.outdated, ..failed(put.child_kind, put.condition, message) }
}

fn failed(child_kind: ChildKind, condition: Type, message: String) -> ConditionUpdate {
    let reason = if matches!(child_kind, ChildKind::Service | ChildKind::KnativeService) {
        Reason::ServiceFailed
    } else {
        Reason::ApplyFailed
    };
    ConditionUpdate::new(condition, Status::False, reason, message)
}

/// Returns the condition update for a child that cannot be reverted.
pub(super) fn not_put_back(key: &Key, why: &str) -> Option<ConditionUpdate> {
    let mut all = ChildKind::ALL.into_iter().chain([ChildKind::KnativeService]);
    let child_kind = all.find(|child_kind| key.is(&child_kind.kind().group, &child_kind.kind().kind))?;
    let condition = match child_kind {
        ChildKind::ConfigMap => Type::ConfigurationReady,
        ChildKind::Job => Type::BuildReady,
        ChildKind::Pod
        | ChildKind::Deployment
        | ChildKind::Service
        | ChildKind::Autoscaler
        | ChildKind::KnativeService => Type::Running,
    };
    Some(failed(child_kind, condition, format!("{} {} cannot be reverted: {why}", key.kind, key.name)))
}
