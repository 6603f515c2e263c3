//! The writes of the backward loop: an object is put back, and what was changed, by whom and for how long is recorded.
//!
//! Deliberately absent: the decision that an object must be put back; it was made when the object was seen, and is made
//! here only for objects that had to be read first.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::Drift;
use super::in_place::Applied;
use super::replicas::REPLICAS;
use crate::api::git_sync::{self, Revert, UNKNOWN, WHOLE_OBJECT};
use crate::api::names::MANAGER;
use crate::cluster::{Apply, Error};
use crate::failure::Backoff;
use crate::managed::attempts::Ground;
use crate::managed::autoscaler::is_at_zero;
use crate::managed::desired::{Desired, without_replicas, yield_to_people};
use crate::managed::fields::readable;
use crate::managed::object::{Next, NotPutBack, REMARKABLE};
use crate::managed::projection::Difference;
use crate::managed::revert_backoff::{Shift, ceiling};
use crate::managed::seen::{Seen, Sight};
use crate::managed::store::Begun;
use crate::managed::verdict::{Reason, Verdict, resource_version};
use crate::managed::{collision, projection, reserved};
use crate::notification::{self, Message};
use crate::object::{Key, Owner};

/// Longest list of changes in one record.
const SHOWN_CHANGES: usize = 10;
/// Fields that a message names.
const SHOWN_FIELDS: usize = 20;
/// How long a revert that failed waits before it is tried again.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(120));

/// What was changed, as it is told.
struct Found {
    fields: Vec<String>,
    changes: Vec<notification::Change>,
    who: String,
}

impl Drift {
    /// Puts one object back or reports it, if it still has to be and no newer generation overtook this one.
    pub(super) async fn put_back_or_report(&self, key: Key, generation: u32) {
        let _lock = self.lock_object(&key).await;
        let begun = self.store().begin_revert(&key, generation);
        let Some(Begun { desired, seen, reports }) = begun else { return };
        if let Some(seen) = seen {
            let sent = self.0.queue.sent();
            let done =
                if reports { self.report_now(&desired, &seen).await } else { self.revert_now(&desired, &seen).await };
            if let Err(error) = done {
                let again = self.store().get(&key).is_some_and(|managed| managed.attempts() > 0);
                self.0.queue.failed(sent, &error, again);
                self.fail(&desired, seen, &error, reports);
            }
        }
        self.finish(&key);
    }

    async fn revert_now(&self, desired: &Arc<Desired>, seen: &Seen) -> Result<(), Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let mut found = seen.live.as_ref().and_then(Sight::value);
        if found.is_none() {
            found = self.cluster().get(&desired.kind, namespace, name).await?.map(Cow::Owned);
            if let Some(live) = &found
                && !self.must_put_back(desired, live)
            {
                return Ok(());
            }
        }
        let asked_by_commit = self.store().get(&desired.key).is_some_and(|managed| managed.outdated);
        let mut body = desired.body();
        self.settle_replicas(desired, &mut body, found.as_deref()).await?;
        if let Some(live) = found.as_deref().filter(|_| !asked_by_commit) {
            yield_to_people(&mut body, live);
        }
        let sent = self.0.queue.sent();
        let Applied { answer, over, .. } = self.apply_in_place(desired, &mut body, found.as_deref()).await?;
        self.0.queue.answered(sent);
        self.retry_what_waited_for(desired);
        if asked_by_commit || found.as_deref().is_some_and(|live| resource_version(live) == resource_version(&answer)) {
            self.changed_for(&desired.key);
            return Ok(());
        }
        self.record(desired, seen.at, found.as_deref(), &answer, over);
        Ok(())
    }

    /// Whether an object that had to be read may and must be put back now.
    fn must_put_back(&self, desired: &Desired, live: &Value) -> bool {
        let key = &desired.key;
        let verdict = self.store().judge(key, live, self.now());
        match verdict {
            Verdict::Revert => return true,
            Verdict::InSync => {
                let resumed = self.store().get_mut(key).is_some_and(|mut managed| managed.phase.end_pause());
                if resumed {
                    self.carry_out(key, Next::Resumed);
                }
            }
            Verdict::LeaveAlone(Reason::BreakGlass(until)) => {
                let new = self.store().get_mut(key).is_some_and(|mut m| m.phase.begin_pause(until));
                if new {
                    self.carry_out(key, Next::Paused(until));
                }
            }
            Verdict::AwaitDeletion | Verdict::LeaveAlone(_) => {}
        }
        let unmarked = !desired.mark.is_on(live);
        if unmarked && matches!(verdict, Verdict::AwaitDeletion | Verdict::LeaveAlone(Reason::BreakGlass(_))) {
            self.watch_by_name(desired);
        }
        self.changed_for(key);
        false
    }

    fn record(
        &self,
        desired: &Arc<Desired>,
        seen_at: Instant,
        before: Option<&Value>,
        answer: &Value,
        over: Option<String>,
    ) {
        let key = &desired.key;
        let latency = seen_at.elapsed();
        let (empty_containers, owner) = {
            let store = self.store();
            let Some(managed) = store.get(key) else { return };
            (managed.last_applied.empty_containers.clone(), managed.owner.clone())
        };
        let reserved = desired.mark.reserved();
        let added = before.map(|before| reserved::differences(reserved, before, answer)).unwrap_or_default();
        let Found { fields, changes, who } = found(key, before, answer, &empty_containers, (added, over));
        self.store().record(
            &owner,
            Revert {
                object: key.to_string(),
                fields: fields.iter().take(SHOWN_CHANGES).cloned().collect(),
                changes: changes.iter().map(shown).collect(),
                who: who.clone(),
                when: Time(self.now() - latency),
                latency_ms: i64::try_from(latency.as_millis()).unwrap_or(i64::MAX),
            },
        );
        let message = Message::Reverted {
            subject: owner.clone(),
            object: key.to_string(),
            fields: fields.clone(),
            changes,
            who: who.clone(),
            millis: latency.as_secs_f64() * 1000.0,
        };
        self.announce(&owner, Some((desired, answer)), &message);
        self.count_change(&owner, desired, answer, fields, who);
    }

    /// How long the revert of an object has to wait.
    pub(super) fn delay(&self, key: &Key) -> Duration {
        let (clock, now) = (self.clock(), Instant::now());
        let store = self.store();
        let Some(managed) = store.get(key) else { return Duration::ZERO };
        let most = ceiling(&key.group, &key.kind);
        let damped = managed.damping.as_ref().map(|damping| damping.backoff.delay(clock, most));
        let not_before = managed.failing.as_ref().and_then(|failing| failing.not_before);
        let failed = not_before.map(|at| at.saturating_duration_since(now));
        damped.max(failed).unwrap_or_default()
    }

    fn fail(&self, desired: &Arc<Desired>, seen: Seen, error: &Error, reports: bool) {
        let key = &desired.key;
        let live = seen.live.as_ref().and_then(Sight::value).map(Cow::into_owned);
        let (fields, cause) = (not_put_back(desired, live.as_ref(), error), crate::failure::chain(error));
        let failure = NotPutBack { reports, fields: fields.clone(), cause: cause.clone(), ground: Ground::of(error) };
        let failed = self.store().revert_failed(key, seen, failure);
        let Some((owner, attempts)) = failed else { return };
        if !reports && attempts >= REMARKABLE {
            let (subject, object) = (owner.clone(), key.to_string());
            let message = Message::NotPutBack { subject, object, fields, cause };
            let live = live.unwrap_or_default();
            self.announce(&owner, Some((desired, &live)), &message);
        }
        let wait = RETRY.jittered(attempts, fastrand::f64()).max(error.retry_after().unwrap_or_default());
        if let Some(mut managed) = self.store().get_mut(key) {
            managed.failing().not_before = Some(Instant::now() + wait);
        }
        self.changed(&owner);
    }

    /// A Namespace or a definition is there: what failed for want of it is tried at once.
    pub(super) fn retry_what_waited_for(&self, desired: &Desired) {
        let key = &desired.key;
        let waited = if key.is("", "Namespace") {
            self.store().failed(|other| other.namespace.as_deref() == Some(&key.name))
        } else if key.is("apiextensions.k8s.io", "CustomResourceDefinition") {
            let group = key.name.split_once('.').map_or("", |(_, group)| group);
            self.store().failed(|other| &*other.group == group)
        } else {
            return;
        };
        for key in waited {
            let ready = self.store().hurry(&key);
            if ready {
                self.enqueue(key);
            }
        }
    }

    /// Tells drift that the policy leaves, by asking the server what a revert would do. Whoever keeps writing is told
    /// less and less often, as one who fights is put back.
    async fn report_now(&self, desired: &Arc<Desired>, seen: &Seen) -> Result<(), Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let live = match seen.live.as_ref().and_then(Sight::value) {
            Some(live) => Some(live),
            None => match self.cluster().get(&desired.kind, namespace, name).await? {
                Some(live) if !self.is_reported_drift(desired, &live) => return Ok(()),
                live => live.map(Cow::Owned),
            },
        };
        let mut body = desired.body();
        let found = match &live {
            None => {
                found(&desired.key, None, &Value::Null, &projection::EmptyContainers::default(), (Vec::new(), None))
            }
            Some(live) => {
                if self.store().is_autoscaled(&desired.key) {
                    without_replicas(&mut body);
                }
                yield_to_people(&mut body, live);
                let how = Apply::forced(MANAGER).dry_run();
                let woken = self.store().woken(desired, live);
                match self.cluster().apply(&desired.kind, namespace, name, &body, how).await {
                    Ok(mut answer) => {
                        if let Some(count) = woken {
                            answer["spec"]["replicas"] = count.into();
                        }
                        let empty_containers = projection::empty_containers(&answer, &body);
                        if woken.is_none() && projection::differences(live, &answer, &empty_containers).is_empty() {
                            return Ok(());
                        }
                        found(&desired.key, Some(live), &answer, &empty_containers, (Vec::new(), None))
                    }
                    // What collides with ours makes way where it is put back, and is told where it is not.
                    Err(error) if error.is_invalid() => {
                        let fields = collision::lost(&body, live);
                        if fields.is_empty() {
                            return Err(error);
                        }
                        let over = collision::known(&body, live, &self.now().to_string()).and_then(|found| found.who);
                        let fields = few(fields);
                        Found { fields, changes: Vec::new(), who: over.unwrap_or_else(|| UNKNOWN.to_owned()) }
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let owner = self.store().get(&desired.key).map(|managed| managed.owner.clone());
        let Some(owner) = owner else { return Ok(()) };
        let Found { fields, who, .. } = found;
        let live = live.as_deref().unwrap_or(&Value::Null);
        let (subject, object) = (owner.clone(), desired.key.to_string());
        let message = Message::DriftSeen { subject, object, fields: fields.clone(), who: who.clone() };
        self.announce(&owner, Some((desired, live)), &message);
        if let Some(mut managed) = self.store().get_mut(&desired.key) {
            managed.succeeded();
        }
        self.count_change(&owner, desired, live, fields, who);
        Ok(())
    }

    /// Somebody changed the object again; tells when that has become a fight.
    fn count_change(&self, owner: &Owner, desired: &Arc<Desired>, live: &Value, fields: Vec<String>, who: String) {
        let key = &desired.key;
        let shift = self.store().count_change(key, self.clock(), &fields, &who);
        if shift == Shift::Contended {
            let message = Message::Contended { subject: owner.clone(), object: key.to_string(), fields, who };
            self.announce(owner, Some((desired, live)), &message);
        }
        self.changed(owner);
    }

    /// Whether an object that had to be read is to be reported.
    fn is_reported_drift(&self, desired: &Desired, live: &Value) -> bool {
        // Judged as ever, for what follows from it besides the report.
        if self.must_put_back(desired, live) {
            return false;
        }
        let verdict = self.store().judge(&desired.key, live, self.now());
        verdict == Verdict::LeaveAlone(Reason::Report)
    }

    /// Ends a write and looks at what was seen meanwhile.
    pub(super) fn finish(&self, key: &Key) {
        let next = self.store().end(key, self.now());
        self.carry_out(key, next);
    }

    /// Does what the store says has to follow an event.
    pub(super) fn carry_out(&self, key: &Key, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Queue => self.enqueue(key.clone()),
            Next::Paused(until) => {
                self.tell_pause(key, true);
                self.look_when_over(key, until);
            }
            Next::Resumed => self.tell_pause(key, false),
        }
    }

    fn tell_pause(&self, key: &Key, paused: bool) {
        let owner = self.store().get(key).map(|managed| managed.owner.clone());
        if let Some(owner) = owner {
            let message = Message::Paused { subject: owner.clone(), object: key.to_string(), paused };
            self.announce(&owner, None, &message);
            self.changed(&owner);
        }
    }

    fn changed_for(&self, key: &Key) {
        let owner = self.store().get(key).map(|managed| managed.owner.clone());
        if let Some(owner) = owner {
            self.changed(&owner);
        }
    }
}

/// What differs between the object as it was found and as it is, or would be, afterwards, with what was `added` beside
/// ours. Values of Secrets are left out. Where nobody wrote the fields, `over` is who wrote in their place.
fn found(
    key: &Key,
    before: Option<&Value>,
    after: &Value,
    empty_containers: &projection::EmptyContainers,
    (added, over): (Vec<Difference>, Option<String>),
) -> Found {
    let mut differences =
        before.map(|before| projection::differences(before, after, empty_containers)).unwrap_or_default();
    for added in added {
        if differences.iter().all(|known| known.path != added.path) {
            differences.push(added);
        }
    }
    differences.extend(before.and_then(|before| woken(before, after, &differences)));
    let mut fields = differences.iter().map(|d| d.path.clone()).collect::<Vec<_>>();
    if before.is_none() {
        fields = vec![WHOLE_OBJECT.to_owned()];
    } else if fields.is_empty() {
        fields = vec!["metadata.managedFields".to_owned()];
    }
    let who = differences.iter().find_map(|d| d.who.clone()).or(over).unwrap_or_else(|| UNKNOWN.to_owned());
    let is_secret = key.is("", "Secret");
    let changes = differences
        .into_iter()
        .filter(|_| !is_secret)
        .take(SHOWN_CHANGES)
        .map(|d| notification::Change { field: d.path, found: d.found, restored: d.restored })
        .collect();
    Found { fields: few(fields), changes, who }
}

/// Fields as messages name them. An object has room for tens of thousands, and nobody reads them.
fn few(mut fields: Vec<String>) -> Vec<String> {
    let more = fields.len().saturating_sub(SHOWN_FIELDS);
    fields.truncate(SHOWN_FIELDS);
    if more > 0 {
        fields.push(format!("… and {more} more"));
    }
    fields
}

/// The count of a workload that was at 0 and is not any more, where it is its autoscaler's.
fn woken(before: &Value, after: &Value, differences: &[Difference]) -> Option<Difference> {
    let path = readable(&REPLICAS);
    let is_woken = is_at_zero(before) && !is_at_zero(after) && differences.iter().all(|found| found.path != path);
    let who = || projection::last_writer(before, &REPLICAS);
    let count = |object: &Value| object.pointer("/spec/replicas").map_or_else(|| "absent".to_owned(), Value::to_string);
    is_woken.then(|| Difference { path, found: count(before), restored: count(after), who: who() })
}

/// The fields that could not be put back: those that are not ours any more, or those that the server spoke of.
fn not_put_back(desired: &Desired, live: Option<&Value>, error: &Error) -> Vec<String> {
    let mut fields = live.map(|live| collision::lost(&desired.body(), live)).unwrap_or_default();
    if fields.is_empty() {
        let causes = error.refusal().into_iter().flat_map(|refusal| &refusal.causes);
        fields = causes.map(|cause| cause.field.clone()).filter(|field| !field.is_empty()).collect();
    }
    if fields.is_empty() {
        fields.push(WHOLE_OBJECT.to_owned());
    }
    fields.dedup();
    fields.truncate(SHOWN_CHANGES);
    fields
}

fn shown(change: &notification::Change) -> git_sync::Change {
    git_sync::Change { field: change.field.clone(), found: change.found.clone(), restored: change.restored.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_fields_a_few_are_named() {
        let many = |count: usize| (0..count).map(|number| format!("data.{number}")).collect::<Vec<_>>();
        assert_eq!(few(many(SHOWN_FIELDS)), many(SHOWN_FIELDS));
        let named = few(many(25_000));
        assert_eq!((named.len(), named.last().map(String::as_str)), (SHOWN_FIELDS + 1, Some("… and 24980 more")));
    }
}
