//! The writes of both loops: an object is applied, the answer becomes what is verified of it, and a revert is recorded.
//!
//! Invariant: every apply of a managed object goes through [`Drift::put`] or [`Drift::revert`], one at a time per
//! object.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::decide::{break_glass_of, is_controlled, resource_version, uid};
use super::desired::{Desired, Owner, without_replicas, yield_to_people};
use super::heat::{Heat, Shift, ceiling};
use super::ledger::{Next, Seen};
use super::{Drift, fields, ownership, projection};
use crate::api::git_sync::{self, Failure, Revert};
use crate::api::names::{HANDOVER_MANAGER, MANAGER};
use crate::cluster::{Apply, Error};
use crate::notification::{self, Message};
use crate::object::{Digest, Key};

/// Field path that stands for the object itself.
const WHOLE_OBJECT: &str = "(object)";
/// Longest list of changes in one record.
const SHOWN_CHANGES: usize = 10;
/// First wait before a failed revert is tried again; it doubles up to [`LAST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LAST_WAIT: Duration = Duration::from_secs(120);

/// One apply that the forward loop asks for.
#[derive(Clone, Debug)]
pub struct Intent {
    /// Who wants it.
    pub owner: Owner,
    /// What it must be.
    pub desired: Arc<Desired>,
    /// Only if the object still has this resource version: it is not ours yet.
    pub only_version: Option<String>,
    /// `managedFields` to write first, at that version.
    pub take_over: Option<Value>,
    /// Whether the object is known to exist.
    pub exists: bool,
}

/// What an apply did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object is new.
    Created,
    /// It was changed.
    Changed,
    /// It was already so.
    Unchanged,
    /// It is under break glass and was not touched.
    Paused,
    /// It is being deleted; it will be created again when it is gone.
    Terminating,
}

/// An answered apply.
#[derive(Clone, Debug)]
pub struct Put {
    /// What it did.
    pub change: Change,
    /// UID of the object.
    pub uid: String,
    /// What is verified of it now.
    pub digest: Option<Digest>,
    /// The object.
    pub answer: Value,
}

impl Drift {
    /// Applies an object for the forward loop. What is verified of it from then on is the answer.
    pub async fn put(&self, intent: Intent) -> Result<Put, Error> {
        let key = intent.desired.key.clone();
        let _turn = self.turn(&key).await;
        let before = {
            let mut ledger = self.ledger();
            ledger.hold(&intent.owner, Arc::clone(&intent.desired), super::decide::Verified::default());
            let Some(managed) = ledger.get_mut(&key) else { return Ok(Put::untouched(Change::Paused)) };
            if managed.owner != intent.owner {
                // Handed over by another owner: its verified state goes with it.
                managed.owner = Arc::clone(&intent.owner);
            }
            managed.tombstoned = false;
            if managed.paused.is_some() {
                return Ok(Put::untouched(Change::Paused));
            }
            managed.in_flight = true;
            // What was seen before this write no longer says anything.
            managed.pending = None;
            managed.verified.resource_version.to_string()
        };
        self.watch_kind(&intent.desired.kind);
        let outcome = self.put_now(&intent, &before).await;
        if let Ok(put) = &outcome {
            self.clear_heat(&key, put.change);
        }
        self.finish(&key);
        outcome
    }

    async fn put_now(&self, intent: &Intent, before: &str) -> Result<Put, Error> {
        let desired = &intent.desired;
        let mut body = desired.body();
        self.settle_replicas(desired, &mut body).await?;
        let mut expected = intent.only_version.clone();
        if let (Some(entries), Some(version)) = (&intent.take_over, &expected) {
            expected = Some(self.rewrite(desired, version, entries).await?);
        }
        if let Some(version) = &expected {
            body["metadata"]["resourceVersion"] = json!(version);
        }
        let (answer, digest) = match self.apply_now(desired, body.clone()).await {
            // What we took over cannot be removed: it is left, as nobody's, and the rest is applied.
            Err(error) if error.is_invalid() && intent.take_over.is_some() => {
                let version = self.give_up_ownership(desired).await?;
                body["metadata"]["resourceVersion"] = json!(version);
                let applied = self.apply_now(desired, body).await?;
                self.report_left(intent, &error);
                applied
            }
            applied => applied?,
        };
        let known = expected.as_deref().unwrap_or(before);
        let change = if answer.pointer("/metadata/deletionTimestamp").is_some_and(|v| !v.is_null()) {
            Change::Terminating
        } else if !intent.exists && before.is_empty() {
            Change::Created
        } else if !known.is_empty() && resource_version(&answer) == known {
            Change::Unchanged
        } else {
            Change::Changed
        };
        Ok(Put { change, uid: uid(&answer).to_owned(), digest, answer })
    }

    /// Writes `managedFields`, if the object still has this version; the version that it has then.
    async fn rewrite(&self, desired: &Desired, version: &str, entries: &Value) -> Result<String, Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let answer = self.cluster().rewrite_managed_fields(&desired.kind, namespace, name, version, entries).await?;
        Ok(resource_version(&answer).to_owned())
    }

    async fn give_up_ownership(&self, desired: &Desired) -> Result<String, Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let Some(live) = self.cluster().get(&desired.kind, namespace, name).await? else { return Ok(String::new()) };
        let entries = ownership::released(live.pointer("/metadata/managedFields").unwrap_or(&Value::Null));
        self.rewrite(desired, resource_version(&live), &entries).await
    }

    fn report_left(&self, intent: &Intent, error: &Error) {
        let key = &intent.desired.key;
        let problem =
            format!("{key}: what people's tools left in it could not be removed: {}", crate::failure::chain(error));
        let message = Message::Failed { sync: intent.owner.to_string(), commit: None, problems: vec![problem] };
        self.announce(&intent.owner, None, "NotRemoved", &message);
    }

    /// Applies, verifies the answer, and takes our paths out of `before-first-apply`.
    async fn apply_now(&self, desired: &Arc<Desired>, body: Value) -> Result<(Value, Option<Digest>), Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let mut answer = self.cluster().apply(&desired.kind, namespace, name, &body, Apply::forced(MANAGER)).await?;
        if let Some(entries) = ownership::without_first_apply_echo(&answer) {
            let version = resource_version(&answer).to_owned();
            match self.cluster().rewrite_managed_fields(&desired.kind, namespace, name, &version, &entries).await {
                Ok(rewritten) => answer = rewritten,
                // Someone wrote meanwhile: the next apply finds the entry again.
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
        let digest = self.ledger().verify(&desired.key, desired, &answer, &body);
        Ok((answer, digest))
    }

    /// Leaves `spec.replicas` to an autoscaler, without letting the count fall to the default on the way.
    async fn settle_replicas(&self, desired: &Desired, body: &mut Value) -> Result<(), Error> {
        if !desired.sets_replicas(body) {
            return Ok(());
        }
        self.know_autoscalers().await;
        if !self.ledger().is_autoscaled(&desired.key) {
            return Ok(());
        }
        without_replicas(body);
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let Some(live) = self.cluster().get(&desired.kind, namespace, name).await? else { return Ok(()) };
        const PATH: [&str; 2] = ["f:spec", "f:replicas"];
        let ours = fields::applied_by(&live, MANAGER).is_some_and(|f| fields::owns(f, &PATH));
        let shared = fields::entries(&live).any(|e| e.manager != MANAGER && fields::owns(e.fields, &PATH));
        if ours && !shared {
            let count = live.pointer("/spec/replicas").cloned().unwrap_or(json!(1));
            let handover = json!({
                "apiVersion": desired.kind.api_version(), "kind": &*desired.kind.kind,
                "metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": count},
            });
            self.cluster().apply(&desired.kind, namespace, name, &handover, Apply::unforced(HANDOVER_MANAGER)).await?;
        }
        Ok(())
    }

    /// Puts one object back, if it still has to be.
    pub(super) async fn revert(&self, key: Key) {
        let _turn = self.turn(&key).await;
        let begun = self.ledger().begin(&key);
        let Some((desired, seen)) = begun else { return };
        if let Some(seen) = seen {
            match self.revert_now(&desired, &seen).await {
                Ok(()) => {}
                Err(error) => self.fail(&key, seen, &error),
            }
        }
        self.finish(&key);
    }

    async fn revert_now(&self, desired: &Arc<Desired>, seen: &Seen) -> Result<(), Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let mut found = seen.live.clone();
        if found.is_none() {
            found = self.cluster().get(&desired.kind, namespace, name).await?;
            if let Some(live) = &found
                && !self.may_touch(desired, live)
            {
                return Ok(());
            }
        }
        let mut body = desired.body();
        self.settle_replicas(desired, &mut body).await?;
        if let Some(live) = &found {
            yield_to_people(&mut body, live);
        }
        let (answer, _) = self.apply_now(desired, body).await?;
        if found.as_ref().is_some_and(|live| resource_version(live) == resource_version(&answer)) {
            return Ok(());
        }
        self.record(desired, seen.at, found.as_ref(), &answer);
        self.retry_what_waited_for(&desired.key);
        Ok(())
    }

    /// Whether an object that vanished from our watch, and is there all the same, may be put back now.
    fn may_touch(&self, desired: &Desired, live: &Value) -> bool {
        if let Some(until) = break_glass_of(live, self.now()) {
            self.pause(&desired.key, until);
            self.watch_paused(desired);
            return false;
        }
        if live.pointer("/metadata/deletionTimestamp").is_some_and(|v| !v.is_null()) {
            self.look_again(&desired.key, None, FIRST_WAIT);
            return false;
        }
        !is_controlled(live)
    }

    fn record(&self, desired: &Arc<Desired>, seen_at: Instant, found: Option<&Value>, answer: &Value) {
        let key = &desired.key;
        let latency = seen_at.elapsed();
        let (emptied, owner) = {
            let ledger = self.ledger();
            let Some(managed) = ledger.get(key) else { return };
            (managed.verified.emptied.clone(), Arc::clone(&managed.owner))
        };
        let differences = found.map(|found| projection::differences(found, answer, &emptied)).unwrap_or_default();
        let mut fields = differences.iter().map(|d| d.path.clone()).collect::<Vec<_>>();
        if found.is_none() {
            fields = vec![WHOLE_OBJECT.to_owned()];
        } else if fields.is_empty() {
            fields = vec!["metadata.managedFields".to_owned()];
        }
        let who = differences.iter().find_map(|d| d.who.clone()).unwrap_or_else(|| "unknown".to_owned());
        let secret = key.is("", "Secret");
        let changes = differences
            .into_iter()
            .filter(|_| !secret)
            .take(SHOWN_CHANGES)
            .map(|d| notification::Change { field: d.path, found: d.found, restored: d.restored })
            .collect::<Vec<_>>();
        let now = self.now();
        let when = now - latency;
        self.ledger().record(
            &owner,
            Revert {
                object: key.to_string(),
                fields: fields.iter().take(SHOWN_CHANGES).cloned().collect(),
                changes: changes
                    .iter()
                    .map(|c| git_sync::Change {
                        field: c.field.clone(),
                        found: c.found.clone(),
                        restored: c.restored.clone(),
                    })
                    .collect(),
                who: who.clone(),
                when: Time(when),
                latency_ms: i64::try_from(latency.as_millis()).unwrap_or(i64::MAX),
            },
        );
        let shift = self.heat(key, &fields, &who);
        let message = Message::Reverted {
            sync: owner.to_string(),
            object: key.to_string(),
            fields: fields.clone(),
            changes,
            who: who.clone(),
            millis: latency.as_secs_f64() * 1000.0,
        };
        self.announce(&owner, Some((desired, answer)), "Reverted", &message);
        if shift == Shift::Contended {
            let message = Message::Contended { sync: owner.to_string(), object: key.to_string(), fields, who };
            self.announce(&owner, Some((desired, answer)), "Contended", &message);
        }
        self.changed(&owner);
    }

    fn heat(&self, key: &Key, fields: &[String], who: &str) -> Shift {
        let clock = self.clock();
        let mut ledger = self.ledger();
        let Some(managed) = ledger.get_mut(key) else { return Shift::Same };
        let heat = managed.heat.get_or_insert_with(Box::<Heat>::default);
        let shift = heat.grow(clock);
        if heat.contended(clock) {
            managed.contended = Some(Box::new((fields.to_vec(), who.to_owned())));
        }
        shift
    }

    fn clear_heat(&self, key: &Key, change: Change) {
        if matches!(change, Change::Created | Change::Changed)
            && let Some(managed) = self.ledger().get_mut(key)
        {
            managed.heat = None;
            managed.contended = None;
        }
    }

    /// How long the revert of an object has to wait.
    pub(super) fn delay(&self, key: &Key) -> Duration {
        let ledger = self.ledger();
        let heat = ledger.get(key).and_then(|managed| managed.heat.as_deref().copied());
        heat.map_or(Duration::ZERO, |heat| heat.delay(self.clock(), ceiling(&key.group, &key.kind)))
    }

    fn fail(&self, key: &Key, seen: Seen, error: &Error) {
        let (owner, wait) = {
            let mut ledger = self.ledger();
            let Some(managed) = ledger.get_mut(key) else { return };
            managed.attempts += 1;
            managed.failure = Some(Box::new(Failure {
                object: key.to_string(),
                reason: "RevertFailed".to_owned(),
                message: crate::failure::chain(error),
            }));
            let doubled = FIRST_WAIT.saturating_mul(2u32.saturating_pow(managed.attempts.saturating_sub(1).min(10)));
            (Arc::clone(&managed.owner), doubled.min(LAST_WAIT))
        };
        let wait = error.retry_after().unwrap_or(Duration::ZERO).max(wait);
        self.look_again(key, Some(seen), wait.mul_f64(0.9 + 0.2 * fastrand::f64()));
        self.changed(&owner);
    }

    /// A Namespace or a definition came back: what failed for want of it is tried at once.
    fn retry_what_waited_for(&self, key: &Key) {
        if key.is("", "Namespace") {
            for key in self.ledger().failed_in(&key.name) {
                self.look_again(&key, None, Duration::ZERO);
            }
        }
    }

    /// Records drift that the policy leaves, by asking the server what a revert would do.
    pub(super) async fn report(&self, key: Key) {
        let _turn = self.turn(&key).await;
        let Some((desired, Some(seen))) = self.ledger().begin(&key) else {
            self.finish(&key);
            return;
        };
        if let Some(found) = &seen.live {
            let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
            let how = Apply::forced(MANAGER).dry_run();
            if let Ok(answer) = self.cluster().apply(&desired.kind, namespace, name, &desired.body(), how).await {
                let owner = self.ledger().get(&key).map(|managed| Arc::clone(&managed.owner));
                let differences =
                    projection::differences(found, &answer, &projection::emptied(&answer, &desired.body()));
                if let Some(owner) = owner.filter(|_| !differences.is_empty()) {
                    let message = Message::DriftSeen {
                        sync: owner.to_string(),
                        object: key.to_string(),
                        fields: differences.iter().map(|d| d.path.clone()).collect(),
                        who: differences.iter().find_map(|d| d.who.clone()).unwrap_or_else(|| "unknown".to_owned()),
                    };
                    self.announce(&owner, Some((&desired, found)), "DriftSeen", &message);
                }
            }
        }
        self.finish(&key);
    }

    /// Ends a write and looks at what was seen meanwhile.
    fn finish(&self, key: &Key) {
        let (seen, kind) = {
            let mut ledger = self.ledger();
            let seen = ledger.end(key);
            let kind = ledger.get(key).map(|managed| Arc::clone(&managed.desired.kind));
            (seen, kind)
        };
        let (Some(seen), Some(kind)) = (seen, kind) else { return };
        let next = match seen.live {
            Some(live) => self.ledger().see(&kind, key, live, seen.at, self.now()),
            None => self.ledger().miss(&kind, key, None, seen.at),
        };
        self.carry_out(key, next);
    }

    /// Does what the ledger says has to follow an event.
    pub(super) fn carry_out(&self, key: &Key, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Queue => self.enqueue(key.clone()),
            Next::Report => self.enqueue_report(key.clone()),
            Next::Paused(until) => {
                self.tell_pause(key, true);
                self.look_when_over(key, until);
            }
            Next::Resumed => self.tell_pause(key, false),
        }
    }

    fn tell_pause(&self, key: &Key, paused: bool) {
        let owner = self.ledger().get(key).map(|managed| Arc::clone(&managed.owner));
        if let Some(owner) = owner {
            let message = Message::Paused { sync: owner.to_string(), object: key.to_string(), paused };
            self.announce(&owner, None, if paused { "Paused" } else { "Resumed" }, &message);
            self.changed(&owner);
        }
    }

    fn pause(&self, key: &Key, until: Option<jiff::Timestamp>) {
        let new = self.ledger().get_mut(key).is_some_and(|m| m.paused.replace(until) != Some(until));
        if new {
            self.carry_out(key, Next::Paused(until));
        }
    }
}

impl Put {
    fn untouched(change: Change) -> Self {
        Self { change, uid: String::new(), digest: None, answer: Value::Null }
    }
}
