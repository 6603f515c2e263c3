//! A revert: an object is put back, and what was changed, by whom and for how long is recorded.
//!
//! Deliberately absent: the decision that an object must be put back; it was made when the object was seen, and is made
//! here only for objects that had to be read first.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::Writer;
use super::edit::{Edit, SHOWN_CHANGES, edit_between, fields_not_put_back};
use super::in_place::InPlace;
use crate::api::git_sync::{self, Revert};
use crate::cluster::{Cause, Error};
use crate::failure::Backoff;
use crate::managed::attempts::Ground;
use crate::managed::autoscaler::is_at_zero;
use crate::managed::desired::{Desired, yield_to_people};
use crate::managed::object::{NotPutBack, REMARKABLE};
use crate::managed::reserved;
use crate::managed::revert_backoff::Shift;
use crate::managed::reverts::Begun;
use crate::managed::seen::{Seen, Sight};
use crate::managed::verdict::{Reason, Verdict, resource_version};
use crate::managed::write::Next;
use crate::notification::{self, Message};
use crate::object::{Key, Owner};

/// How long a revert that failed waits before it is tried again.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(120));

/// What a revert says about the server.
#[derive(Clone, Copy, Debug)]
pub enum ServerLoad {
    /// A write was answered as it should be.
    Answered {
        /// When it was sent.
        sent: Instant,
        /// How many reverts were in flight then, this one among them.
        in_flight: usize,
        /// When it was answered.
        at: Instant,
    },
    /// The server has too much to do.
    Overloaded {
        /// When the first request was sent.
        sent: Instant,
        /// For how long the server wants to be left alone, if it says so.
        retry_after: Option<Duration>,
    },
}

impl Writer {
    /// Puts a queued object back, or reports its drift, if that still has to be done and no newer generation overtook this
    /// one. What that says about the server.
    pub(crate) async fn revert(&self, key: &Key, generation: u32) -> Option<ServerLoad> {
        let revert = async {
            let _lock = self.object_lock(key).lock().await;
            let Begun { desired, seen, reports } = self.store().begin_revert(key, generation)?;
            let mut load = None;
            if let Some(seen) = seen {
                let sent = Instant::now();
                let done = if reports {
                    self.report_now(&desired, &seen).await.map(|()| None)
                } else {
                    self.put_back(&desired, &seen).await
                };
                load = match done {
                    Ok(load) => load,
                    Err(error) => self.fail(&desired, seen, &error, reports, sent),
                };
            }
            self.finish(key);
            load
        };
        self.liveness().track(revert).await
    }

    async fn put_back(&self, desired: &Arc<Desired>, seen: &Seen) -> Result<Option<ServerLoad>, Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let mut found = seen.live.as_ref().and_then(Sight::value);
        if found.is_none() {
            found = self.cluster().get(&desired.kind, namespace, name).await?.map(Cow::Owned);
            if let Some(live) = &found
                && !self.must_put_back(desired, live)
            {
                return Ok(None);
            }
        }
        let asked_by_commit = self.store().get(&desired.key).is_some_and(|managed| managed.applied.is_outdated());
        let mut body = desired.body();
        if desired.sets_replicas(&body) || found.as_deref().is_some_and(is_at_zero) {
            self.settle_replicas(desired, &mut body).await?;
        }
        if let Some(live) = found.as_deref().filter(|_| !asked_by_commit) {
            yield_to_people(&mut body, live);
        }
        let (sent, in_flight) = (Instant::now(), self.reverts_in_flight());
        let InPlace { answer, over, .. } = self.apply_in_place(desired, &mut body, found.as_deref()).await?;
        let load = ServerLoad::Answered { sent, in_flight, at: Instant::now() };
        self.retry_dependents(desired);
        if asked_by_commit || found.as_deref().is_some_and(|live| resource_version(live) == resource_version(&answer)) {
            self.notify_owner_of(&desired.key);
        } else {
            self.record(desired, seen.at, found.as_deref(), &answer, over);
        }
        Ok(Some(load))
    }

    /// Whether an object that had to be read may and must be put back now.
    pub(super) fn must_put_back(&self, desired: &Desired, live: &Value) -> bool {
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
        self.notify_owner_of(key);
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
            let last = managed.applied.last();
            (last.map(|last| last.empty_containers.clone()).unwrap_or_default(), managed.owner.clone())
        };
        let reserved = desired.mark.reserved();
        let added = before.map(|before| reserved::differences(reserved, before, answer)).unwrap_or_default();
        let Edit { fields, changes, who } = edit_between(key, before, answer, &empty_containers, (added, over));
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

    /// A revert or report failed. What that says about the server.
    fn fail(
        &self,
        desired: &Arc<Desired>,
        seen: Seen,
        error: &Error,
        reports: bool,
        sent: Instant,
    ) -> Option<ServerLoad> {
        let key = &desired.key;
        let again = self.store().get(key).is_some_and(|managed| managed.attempts() > 0);
        let overloaded = ServerLoad::Overloaded { sent, retry_after: error.retry_after() };
        let load = is_overloaded(error, again).then_some(overloaded);
        let live = seen.live.as_ref().and_then(Sight::value).map(Cow::into_owned);
        let (fields, cause) = (fields_not_put_back(desired, live.as_ref(), error), crate::failure::chain(error));
        let failure = NotPutBack { reports, fields: fields.clone(), cause: cause.clone(), ground: Ground::of(error) };
        let failed = self.store().revert_failed(key, seen, failure);
        let Some((owner, attempts)) = failed else { return load };
        if !reports && attempts >= REMARKABLE {
            let (subject, object) = (owner.clone(), key.to_string());
            let message = Message::NotPutBack { subject, object, fields, cause };
            let live = live.unwrap_or_default();
            self.announce(&owner, Some((desired, &live)), &message);
        }
        let wait = RETRY.jittered(attempts, fastrand::f64()).max(error.retry_after().unwrap_or_default());
        if let Some(mut managed) = self.store().get_mut(key)
            && let Some(reverts) = &mut managed.failing().reverts
        {
            reverts.not_before = Some(Instant::now() + wait);
        }
        self.notify(&owner);
        load
    }

    /// A Namespace or a definition is there: what failed for want of it is tried at once.
    pub(super) fn retry_dependents(&self, desired: &Desired) {
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
            let ready = self.store().reset_failure(&key);
            if ready {
                self.carry_out(&key, Next::Queue);
            }
        }
    }

    /// Somebody changed the object again; says when that has become a fight.
    pub(super) fn count_change(
        &self,
        owner: &Owner,
        desired: &Arc<Desired>,
        live: &Value,
        fields: Vec<String>,
        who: String,
    ) {
        let key = &desired.key;
        let shift = self.store().count_change(key, self.clock(), &fields, &who);
        if shift == Shift::Contended {
            let message = Message::Contended { subject: owner.clone(), object: key.to_string(), fields, who };
            self.announce(owner, Some((desired, live)), &message);
        }
        self.notify(owner);
    }

    /// Ends a write and looks at what was seen meanwhile.
    pub(super) fn finish(&self, key: &Key) {
        let next = self.store().end(key, self.now());
        self.carry_out(key, next);
    }

    fn notify_owner_of(&self, key: &Key) {
        let owner = self.store().get(key).map(|managed| managed.owner.clone());
        if let Some(owner) = owner {
            self.notify(&owner);
        }
    }
}

/// Whether a request failed because the server has too much to do. `again`: that the object is refused is nothing new.
fn is_overloaded(error: &Error, again: bool) -> bool {
    match error.code() {
        Some(code) => code == 429 || code > 500 || (code == 500 && !again),
        None => matches!(&*error.cause, Cause::TimedOut(_)),
    }
}

fn shown(change: &notification::Change) -> git_sync::Change {
    git_sync::Change { field: change.field.clone(), found: change.found.clone(), restored: change.restored.clone() }
}
