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
use super::follow_up::FollowUp;
use super::in_place::InPlace;
use super::permits::Sent;
use crate::api::git_sync::{self, Revert};
use crate::cluster::Error;
use crate::failure::Backoff;
use crate::managed::attempts::Ground;
use crate::managed::autoscaler::is_at_zero;
use crate::managed::desired::{Desired, yield_to_people};
use crate::managed::object::{Next, NotPutBack, REMARKABLE};
use crate::managed::reserved;
use crate::managed::revert_backoff::Shift;
use crate::managed::reverts::Begun;
use crate::managed::seen::{Seen, Sight};
use crate::managed::verdict::{Reason, Verdict, resource_version};
use crate::notification::{self, Message};
use crate::object::{Key, Owner};

/// How long a revert that failed waits before it is tried again.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(120));

impl Writer {
    /// Runs a queued revert or report: waits for its backoff and its permit, and puts the object back or reports it, if it
    /// still has to be and no newer generation overtook this one.
    pub(crate) async fn revert(&self, key: &Key, generation: u32) {
        let due = self.store().revert_delay(key, self.clock(), Instant::now());
        if let Some((_, delay)) = due.as_ref().filter(|(_, delay)| !delay.is_zero()) {
            // Even a sleep of nothing lasts until the timer's next millisecond.
            tokio::time::sleep(*delay).await;
        }
        // What has to wait for its own sake keeps nobody else waiting.
        self.permits().wait();
        if let Some((owner, _)) = &due
            && let Some(_permit) = self.permits().acquire(owner).await
        {
            let done = self.liveness().track(async {
                let _lock = self.lock_object(key).await;
                let Begun { desired, seen, reports } = self.store().begin_revert(key, generation)?;
                if let Some(seen) = seen {
                    let sent = self.permits().sent();
                    let done = if reports {
                        self.report_now(&desired, &seen).await
                    } else {
                        self.revert_now(&desired, &seen).await
                    };
                    if let Err(error) = done {
                        self.fail(&desired, seen, &error, reports, sent);
                    }
                }
                self.finish(key);
                Some(())
            });
            done.await;
        }
        self.permits().leave();
    }

    /// Grants as many permits as there may be now.
    pub(crate) fn grant_permits(&self) {
        self.permits().grant();
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
        let asked_by_commit = self.store().get(&desired.key).is_some_and(|managed| managed.applied.is_outdated());
        let mut body = desired.body();
        if desired.sets_replicas(&body) || found.as_deref().is_some_and(is_at_zero) {
            self.settle_replicas(desired, &mut body).await?;
        }
        if let Some(live) = found.as_deref().filter(|_| !asked_by_commit) {
            yield_to_people(&mut body, live);
        }
        let sent = self.permits().sent();
        let InPlace { answer, over, .. } = self.apply_in_place(desired, &mut body, found.as_deref()).await?;
        self.permits().answered(sent);
        self.retry_dependents(desired);
        if asked_by_commit || found.as_deref().is_some_and(|live| resource_version(live) == resource_version(&answer)) {
            self.notify_owner_of(&desired.key);
            return Ok(());
        }
        self.record(desired, seen.at, found.as_deref(), &answer, over);
        Ok(())
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

    fn fail(&self, desired: &Arc<Desired>, seen: Seen, error: &Error, reports: bool, sent: Sent) {
        let key = &desired.key;
        let again = self.store().get(key).is_some_and(|managed| managed.attempts() > 0);
        if let Some(pause) = self.permits().failed(sent, error, again) {
            self.follow_up(FollowUp::GrantPermits(pause));
        }
        let live = seen.live.as_ref().and_then(Sight::value).map(Cow::into_owned);
        let (fields, cause) = (fields_not_put_back(desired, live.as_ref(), error), crate::failure::chain(error));
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
        if let Some(mut managed) = self.store().get_mut(key)
            && let Some(reverts) = &mut managed.failing().reverts
        {
            reverts.not_before = Some(Instant::now() + wait);
        }
        self.notify(&owner);
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

fn shown(change: &notification::Change) -> git_sync::Change {
    git_sync::Change { field: change.field.clone(), found: change.found.clone(), restored: change.restored.clone() }
}
