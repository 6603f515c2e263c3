//! Carries a decision out: writes and deletes children, and says what became of it.
//!
//! Invariant: what exists under a child's name and is not the Function's own is left as it is, also when it was created
//! after this was looked at.
//! Invariant: a refused write ends the pass and is said.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::context::Context;
use super::facts::{Identity, Job};
use super::family::What;
use super::in_the_way::InTheWay;
use super::reconcile::Task;
use super::refusals::{Cause, Refused, Write};
use super::stage::{Decision, Put, Said, Step};
use super::status::Pass;
use crate::api::function_conditions::{Reason, Status, Type};
use crate::api::names::HANDOVER_MANAGER;
use crate::cluster::{Apply, Error, Guard, Kind, Propagation, Scope, Selection};
use crate::drift::{Change, Intent, Owner, is_paused};
use crate::failure::chain;
use crate::object::Key;

/// How often somebody asks why a Job has no pod.
const ASK_WHY: Duration = Duration::from_secs(30);

/// Reasons of Events that say that a Job is over, which is no reason for it to have no pod: its pod went because of that,
/// and what kept that pod from its work is still what there is to say.
const ENDS: [&str; 2] = ["DeadlineExceeded", "BackoffLimitExceeded"];

/// What became of a decision.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What was said, and what still holds.
    pub(super) pass: Pass,
    /// Whether the pass ended early because a write was refused, now or before.
    pub(super) is_cut: bool,
    /// The write that was refused, why, and what is said of it.
    refused: Option<(Write, Cause, Option<Said>)>,
    /// Whether a Job was created.
    pub(super) started: bool,
    /// What is under break glass: it is written when that ends.
    paused: Vec<Key>,
    /// What has the name of a child and is somebody else's.
    in_the_way: Option<(Arc<Kind>, Key)>,
    changed: Vec<Type>,
}

/// One Function's hands.
pub(super) struct Performer<'a> {
    pub(super) context: &'a Context,
    pub(super) owner: &'a Owner,
    pub(super) namespace: &'a str,
    pub(super) uid: &'a str,
}

impl Task {
    /// Does what was decided, and what follows from it for the next pass.
    pub(super) async fn perform(&mut self, decision: &Decision) -> Outcome {
        let context = Arc::clone(&self.context);
        let (owner, namespace, uid) = (Arc::clone(&self.owner), Arc::clone(&self.namespace), self.uid.clone());
        let hands = Performer { context: &context, owner: &owner, namespace: &namespace, uid: &uid };
        let _room = context.room.acquire().await;
        let mut outcome = hands.perform(decision).await;
        // A write that only waits has not looked at what is in its way.
        if outcome.refused.is_some() || !outcome.is_cut {
            self.follow(outcome.in_the_way.take());
        }
        self.remember(decision, &mut outcome);
        let by_quota = self.memory.refused.as_ref().is_some_and(Refused::is_by_quota);
        let waiting = self.quota.take().filter(|_| by_quota);
        self.quota = waiting.or_else(|| by_quota.then(|| context.quotas.wait(&namespace)));
        self.paused.extend(outcome.paused.drain(..));
        if let Some(job) = &decision.podless
            && self.asked_why.is_none_or(|asked| asked.elapsed() >= ASK_WHY)
        {
            let why = hands.why_podless(job).await;
            self.asked_why = Some(Instant::now());
            if why.is_some() {
                self.context.cache.refused_a_pod(&namespace, &uid, &job.identity);
            }
            self.memory.trouble = why.map(|why| (job.identity.uid.clone(), why)).or(self.memory.trouble.take());
            self.look_within(if self.memory.trouble.is_some() { Duration::ZERO } else { ASK_WHY });
        } else if decision.podless.is_some() {
            self.memory.trouble.clone_from(&decision.memory.trouble);
            self.look_within(ASK_WHY);
        }
        if !decision.in_queue || outcome.started || outcome.is_cut {
            self.context.cache.withdraw(&self.owner);
        }
        if let Some(wait) = decision.look_again {
            self.look_within(wait);
        }
        outcome
    }

    /// What the next pass has to know of this one.
    fn remember(&mut self, decision: &Decision, outcome: &mut Outcome) {
        let before = self.memory.refused.take();
        self.memory = decision.memory.clone();
        let Some((write, cause, said)) = outcome.refused.take() else {
            // A pass that came to its end was refused nothing.
            self.memory.refused = before.filter(|_| outcome.is_cut);
            return;
        };
        let now = self.context.now();
        let when = (now, self.context.settings.requeue, fastrand::f64());
        let refused = Refused::after(before.as_ref(), write.clone(), cause, said, when);
        outcome.pass.said.extend(refused.said().cloned());
        self.look_within(refused.holds(&write, now).unwrap_or_default());
        self.memory.refused = Some(refused);
    }

    /// Follows what is in the way of a child, so that its end is not missed.
    fn follow(&mut self, other: Option<(Arc<Kind>, Key)>) {
        let Some((kind, key)) = other else {
            self.in_the_way = None;
            return;
        };
        if !self.in_the_way.as_ref().is_some_and(|known| known.is(&key)) {
            self.in_the_way = Some(InTheWay::follow(self.context.drift.cluster(), &kind, key));
        }
    }
}

impl Performer<'_> {
    /// Does the steps one after the other.
    pub(super) async fn perform(&self, decision: &Decision) -> Outcome {
        let mut outcome = Outcome::default();
        for (at, step) in decision.steps.iter().enumerate() {
            let done = match step {
                Step::Say(said) => {
                    outcome.pass.said.push(said.clone());
                    Ok(())
                }
                Step::Affirm(kind) => {
                    outcome.pass.affirmed.push(*kind);
                    Ok(())
                }
                Step::SayUnlessChanged(said) => {
                    if !outcome.changed.contains(&said.condition) {
                        outcome.pass.said.push(said.clone());
                    }
                    Ok(())
                }
                Step::Put(put) => self.put(put, &mut outcome).await,
                Step::Refused(said) => {
                    outcome.pass.said.extend(said.clone());
                    outcome.is_cut = true;
                    Ok(())
                }
                Step::Delete { what, identity } => self.delete(*what, identity).await,
                Step::HandOver { deployment, replicas } => self.hand_over(deployment, *replicas).await,
            };
            if let Err(error) = done {
                self.refuse(step, &error, &mut outcome);
            }
            if outcome.is_cut {
                outcome.pass.record = Some(decision.record_at(at).clone());
                return outcome;
            }
        }
        outcome.pass.record = Some(decision.record.clone());
        outcome
    }

    fn refuse(&self, step: &Step, error: &Error, outcome: &mut Outcome) {
        let said = if let Step::Put(put) = step {
            if !error.is_outcome_unknown() {
                self.context.drift.forget_unapplied(self.owner, &put.desired.key);
            }
            Some(refusal(put, chain(error)))
        } else {
            tracing::warn!(function = &**self.owner, why = chain(error), "a step failed");
            None
        };
        outcome.refused = Write::of(step, self.namespace).map(|write| (write, Cause::of(error), said));
        outcome.is_cut = true;
    }

    async fn put(&self, put: &Put, outcome: &mut Outcome) -> Result<(), Error> {
        if self.stands(put).await {
            return Ok(());
        }
        let desired = &put.desired;
        let (cluster, name) = (self.context.drift.cluster(), &*desired.key.name);
        let mut known = put.version.clone();
        // Of what is not kept yet nobody has seen whether it may be touched.
        let is_kept = self.context.drift.desired(&desired.key).is_some();
        if (known.is_none() || !is_kept)
            && let Some(live) = cluster.get_metadata(&desired.kind, Some(self.namespace), name).await?
        {
            if let Some(whose) = self.anothers(&live) {
                self.refuse_anothers(put, &whose, outcome);
                return Ok(());
            }
            if is_paused(&live, Timestamp::now()) {
                self.context.drift.await_resume(self.owner, desired);
                outcome.paused.push(desired.key.clone());
                return Ok(());
            }
            known.clone_from(&live.resource_version);
        }
        let intent = Intent {
            owner: Arc::clone(self.owner),
            desired: Arc::clone(desired),
            only_version: None,
            take_over: None,
            exists: known.is_some(),
        };
        let done = self.context.drift.put(intent).await?;
        if done.change == Change::Anothers {
            self.context.drift.forget(self.owner, &desired.key);
            self.refuse_anothers(put, "somebody else, who has just created it", outcome);
            return Ok(());
        }
        if done.change == Change::Paused {
            outcome.paused.push(desired.key.clone());
            return Ok(());
        }
        self.context.cache.note(put.what, &done.answer);
        let [created, updated] = put.reasons;
        let kind = &desired.kind.kind;
        let version = done.answer.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let said = match done.change {
            // A new agent's first look at it.
            Change::Changed if known.is_some() && version == known.as_deref() => return Ok(()),
            Change::Created => (created, format!("{kind} {name} created")),
            Change::Changed => (updated, format!("{kind} {name} updated")),
            Change::Unchanged | Change::Paused | Change::Terminating | Change::Anothers => return Ok(()),
        };
        outcome.started |= put.what == What::Job;
        outcome.changed.push(put.condition);
        let holds = put.serves || put.condition == Type::ConfigurationReady;
        let status = if holds { Status::True } else { Status::Unknown };
        let said = Said::new(put.condition, status, said.0, said.1 + &put.note);
        outcome.pass.said.push(Said { done: true, outdated: put.outdated, ..said });
        Ok(())
    }

    /// Whether an earlier agent left the object as it would be applied; then it is kept so.
    async fn stands(&self, put: &Put) -> bool {
        let (Some((uid, standing)), Some(version)) = (&put.standing, &put.version) else { return false };
        let desired = &put.desired;
        // Nobody kept it when a newer state of it was heard of.
        self.context.drift.keep_standing(self.owner, desired, uid, standing).await
            && self.context.cache.is_at(put.what, self.namespace, self.uid, &desired.key.name, version)
    }

    fn refuse_anothers(&self, put: &Put, whose: &str, outcome: &mut Outcome) {
        let (kind, name, namespace) = (&put.desired.kind.kind, &put.desired.key.name, self.namespace);
        let message = format!("{kind} {namespace}/{name} exists already and belongs to {whose}");
        outcome.refused = Some((Write::apply(&put.desired), Cause::anothers(), Some(refusal(put, message))));
        outcome.is_cut = true;
        outcome.in_the_way = Some((Arc::clone(&put.desired.kind), put.desired.key.clone()));
    }

    /// Whose an object is, if it is not the Function's own.
    fn anothers(&self, live: &ObjectMeta) -> Option<String> {
        let owners = live.owner_references.as_deref().unwrap_or_default();
        match owners.iter().find(|owner| owner.controller == Some(true)) {
            Some(owner) if owner.uid == self.uid => None,
            Some(owner) => Some(format!("{} {}", owner.kind, owner.name)),
            None => {
                let managers = live.managed_fields.as_deref().unwrap_or_default();
                let manager = managers.iter().rev().find_map(|entry| entry.manager.as_deref());
                Some(format!("somebody else (written by {})", manager.unwrap_or("an unknown manager")))
            }
        }
    }

    async fn delete(&self, what: What, identity: &Identity) -> Result<(), Error> {
        let (kind, drift) = (what.kind(), &self.context.drift);
        let key = kind.key(Some(self.namespace), &identity.name);
        drift.tombstone(self.owner, &key);
        let _alone = drift.alone_with(&key).await;
        let guard = Guard { uid: Some(&identity.uid), resource_version: None };
        let deleted =
            drift.cluster().delete(&kind, Some(self.namespace), &identity.name, guard, Propagation::Background).await;
        match deleted {
            Ok(_) => {}
            // Another object has the name by now.
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
        drift.forget(self.owner, &key);
        self.context.cache.drop_identity(what, self.namespace, self.uid, identity);
        Ok(())
    }

    async fn hand_over(&self, deployment: &str, replicas: i64) -> Result<(), Error> {
        let kind = What::Deployment.kind();
        let body = json!({
            "apiVersion": kind.api_version(), "kind": &*kind.kind,
            "metadata": {"name": deployment, "namespace": self.namespace}, "spec": {"replicas": replicas},
        });
        let cluster = self.context.drift.cluster();
        let how = Apply::unforced(HANDOVER_MANAGER);
        match cluster.apply(&kind, Some(self.namespace), deployment, &body, how).await {
            Ok(_) => Ok(()),
            // Somebody else has come to own the number: it will not fall.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Why a Job has no pod: the newest complaint in its Events.
    pub(super) async fn why_podless(&self, job: &Job) -> Option<String> {
        let kind = Arc::new(Kind::fixed("v1", "Event", "events", Scope::Namespaced));
        let selection = Selection {
            namespace: Some(self.namespace.to_owned()),
            fields: Some(format!("involvedObject.uid={},type=Warning", job.identity.uid)),
            ..Selection::default()
        };
        let mut events = self.context.drift.cluster().list(&kind, selection).take(50);
        let mut newest: Option<(Option<Timestamp>, String)> = None;
        while let Some(Ok(event)) = events.next().await {
            let text = |field: &str| event[field].as_str().unwrap_or_default();
            if ENDS.contains(&text("reason")) {
                continue;
            }
            let when = text("lastTimestamp").parse().ok().or_else(|| text("eventTime").parse().ok());
            if newest.as_ref().is_none_or(|(known, _)| *known <= when) {
                let message = crate::api::conditions::cut(text("message"), 512).replace(char::is_control, " ");
                newest = Some((when, format!("{}: {message}", text("reason"))));
            }
        }
        newest.map(|(_, text)| text)
    }
}

fn refusal(put: &Put, message: String) -> Said {
    Said { outdated: put.outdated, ..failed(put.what, put.condition, message) }
}

fn failed(what: What, condition: Type, message: String) -> Said {
    let reason = if what == What::Service { Reason::ServiceFailed } else { Reason::ApplyFailed };
    Said::new(condition, Status::False, reason, message)
}

/// What is said of a child that somebody has changed and that cannot be put back.
pub(super) fn not_put_back(key: &Key, why: &str) -> Option<Said> {
    let what = What::ALL.into_iter().find(|what| what.kind().kind == key.kind)?;
    let condition = match what {
        What::ConfigMap => Type::ConfigurationReady,
        What::Job => Type::BuildReady,
        What::Pod | What::Deployment | What::Service | What::Autoscaler => Type::Running,
    };
    Some(failed(what, condition, format!("{} {} cannot be put back: {why}", key.kind, key.name)))
}
