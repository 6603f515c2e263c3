//! Reverts: applies the desired state over drift, and records which fields changed, which manager changed them, and for
//! how long.
//!
//! Not here: the decision to revert. `managed` makes it when an event arrives. Only objects that had to be read are
//! checked here.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::Writer;
use super::edit::{Edit, fields_not_put_back};
use super::load::{ServerLoad, is_overloaded};
use super::replace::{Occasion, Replaced};
use super::server_side::{Collisions, InPlace};
use crate::managed::attempts::Ground;
use crate::managed::autoscaler::is_at_zero;
use crate::managed::desired::{Desired, Mark, yield_to_people};
use crate::managed::object::{Answered, NotPutBack, REMARKABLE};
use crate::managed::pending::{Next, Seen, Sight};
use crate::managed::revert_backoff::Shift;
use crate::managed::verdict::{Reason, Verdict, resource_version, uid};
use crate::managed::writes::Begun;
use crate::managed::{additions, projection, reserved};
use crate::notification::Message;
use mainstay_api::git_sync::{DriftReason, WHOLE_OBJECT};
use mainstay_cluster::Error;
use mainstay_object::failure::{Backoff, caught, caught_now};
use mainstay_object::{Key, Owner, printable};
use mainstay_traces::{KeyValue, Span};

/// Backoff of a failed revert.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(120));

/// Returns the trace of a revert that began this long ago; `None` while tracing is off.
fn traced(owner: &Owner, key: &Key, age: Duration, fields: usize) -> Option<Span> {
    let began = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    Span::root("revert", began, None, || {
        vec![
            KeyValue::new("mainstay.owner", owner.to_string()),
            KeyValue::new("mainstay.object", key.to_string()),
            KeyValue::new("mainstay.fields", i64::try_from(fields).unwrap_or(i64::MAX)),
        ]
    })
}

struct NotDone {
    error: Error,
    /// Advice about an immutable field.
    advice: Option<String>,
}

impl From<Error> for NotDone {
    fn from(error: Error) -> Self {
        Self { error, advice: None }
    }
}

impl Writer {
    /// Reverts a queued object or reports its drift, unless the drift is gone or `generation` is outdated. Returns the
    /// server load that the requests saw.
    pub(crate) async fn revert(&self, key: &Key, generation: u32) -> Option<ServerLoad> {
        let reverted = caught(self.liveness().track(self.revert_now(key, generation))).await;
        let Err(panicked) = reverted else { return reverted.unwrap_or_default() };
        // A panic counts as a failed revert and is retried after the backoff.
        let _lock = self.lock_object(key).await;
        let desired = self.desired(key)?;
        let seen = Seen::gone(None, Instant::now());
        let cause = panicked.to_string();
        let failure = NotPutBack { reports: false, fields: Vec::new(), cause, advice: None, ground: Ground::default() };
        // A second panic has no effect: the next event of the object starts the revert again.
        let _ = caught_now(|| self.note_failure(&desired, seen, failure, None));
        self.finish(key);
        None
    }

    async fn revert_now(&self, key: &Key, generation: u32) -> Option<ServerLoad> {
        let _lock = self.lock_object(key).await;
        let Begun { owner, desired, seen, reports } = self.store().begin_revert(key, generation)?;
        let Some(acting) = self.urgent().acting_for(&owner) else {
            self.finish(key);
            return None;
        };
        let mut load = None;
        if let Some(seen) = seen {
            let sent = Instant::now();
            let dead_owner = if seen.live.is_none() && !reports { acting.dead_owner(&desired).await } else { None };
            if let Some(cause) = dead_owner {
                self.store().note_absent(key);
                let (fields, ground) = (vec![WHOLE_OBJECT.to_owned()], Ground::default());
                self.note_failure(&desired, seen, NotPutBack { reports, fields, cause, advice: None, ground }, None);
            } else {
                let done = if reports {
                    acting.report_now(&desired, &seen).await.map(|()| None).map_err(NotDone::from)
                } else {
                    acting.put_back(&owner, &desired, &seen).await
                };
                load = match done {
                    Ok(load) => load,
                    Err(not_done) => self.fail(&desired, seen, &not_done, reports, sent),
                };
            }
        }
        self.finish(key);
        load
    }

    /// Applies the desired state and records the edit that it reverts.
    async fn put_back(
        &self,
        owner: &Owner,
        desired: &Arc<Desired>,
        seen: &Seen,
    ) -> Result<Option<ServerLoad>, NotDone> {
        let (key, namespace) = (&desired.key, desired.key.namespace.as_deref());
        let mut found = seen.live.as_ref().and_then(Sight::value);
        if found.is_none() {
            found = self.cluster().get(&desired.kind, namespace, &key.name).await?.map(Cow::Owned);
            match &found {
                Some(live) if !self.must_put_back(desired, live) => return Ok(None),
                None if self.stays_absent(key) => return Ok(None),
                None => self.store().note_absent(key),
                Some(_) => {}
            }
        }
        let found = found.as_deref();
        let successor = self.store().successor(key).filter(|_| found.is_none());
        let is_outdated = self.store().get(key).is_some_and(|managed| managed.applied.is_outdated());
        let asked_by_commit = is_outdated || successor.is_some();
        let desired = successor.as_ref().unwrap_or(desired);
        let mut body = desired.body();
        self.settle_ignored(desired, &mut body, found).await?;
        if desired.is_scalable() || found.is_some_and(is_at_zero) {
            self.settle_replicas(desired, &mut body, false).await?;
        }
        if let Some(live) = found.filter(|_| !asked_by_commit) {
            yield_to_people(&mut body, live);
        }
        if let Some(live) = found.filter(|_| *key == owner.key()) {
            // An owner that a user has just deleted is not created.
            body["metadata"]["uid"] = json!(uid(live));
        }
        // Another agent or owner may have taken the object over during these requests.
        let Some(true) = self.store().get(key).map(|managed| managed.owner == *owner) else { return Ok(None) };
        let (sent, in_flight) = (Instant::now(), self.reverts_in_flight());
        let mut is_replaced = false;
        let InPlace { answer, answered, over } = match self.apply(desired, &mut body, found, Collisions::MakeWay).await
        {
            Ok(applied) => applied,
            Err(refused) => {
                is_replaced = true;
                let Some(created) = self.put_back_anew(desired, &body, refused).await? else { return Ok(None) };
                created
            }
        };
        let load = Some(ServerLoad::Answered { sent, in_flight, at: Instant::now() });
        let is_unchanged = found.is_some_and(|live| resource_version(live) == resource_version(&answer));
        let edit = (!asked_by_commit && !is_replaced && !is_unchanged)
            .then(|| self.reverted_edit(desired, found, (&answer, &answered), over));
        let owner = self.store().answered(desired, answered, self.now());
        self.retry_dependents(desired);
        let Some(owner) = owner else { return Ok(load) };
        if let Some(edit) = edit {
            self.record_revert(&owner, (desired, &answer), &edit, seen.at.elapsed());
        }
        self.notify(&owner);
        Ok(load)
    }

    /// Returns the edit that an apply has reverted.
    fn reverted_edit(
        &self,
        desired: &Arc<Desired>,
        found: Option<&Value>,
        (answer, answered): (&Value, &Answered),
        over: Option<String>,
    ) -> Edit {
        let differences = found.map(|found| {
            let empty_containers = &answered.last_applied.empty_containers;
            let mut all = projection::differences(&desired.view(found), &desired.view(answer), empty_containers);
            reserved::add_differences(&mut all, desired.mark.reserved(), found, answer);
            if self.store().takes_back(desired) {
                additions::add_differences(&mut all, desired, &desired.view(found), answer);
            }
            all
        });
        Edit::of(desired, differences, over)
    }

    /// Records and announces a revert, and counts the edit for the backoff.
    fn record_revert(&self, owner: &Owner, object: (&Arc<Desired>, &Value), edit: &Edit, latency: Duration) {
        let key = &object.0.key;
        drop(traced(owner, key, latency, edit.fields.len()));
        self.store().record(owner, edit.revert(key, latency, self.now() - latency));
        self.announce(owner, Some(object), &edit.reverted(owner, key, latency));
        if self.store().count_change(key, self.clock(), &edit.fields, &edit.who) == Shift::Contended {
            self.announce(owner, Some(object), &edit.contended(owner, key));
        }
    }

    /// Replaces an object if the server refused to change an immutable field. Returns `None` if the old object is
    /// still being deleted; the drift loop creates the new one when it is gone.
    async fn put_back_anew(
        &self,
        desired: &Arc<Desired>,
        body: &Value,
        refused: Error,
    ) -> Result<Option<InPlace>, NotDone> {
        let owner = self.store().get(&desired.key).map(|managed| managed.owner.clone());
        let Some(owner) = owner else { return Err(refused.into()) };
        match self.replace(&owner, desired, body, &refused, Occasion::Drift).await? {
            Replaced::No => Err(refused.into()),
            Replaced::Denied(why) => {
                let advice = format!("an immutable field differs; {}", why.text(&desired.key));
                Err(NotDone { error: refused, advice: Some(advice) })
            }
            Replaced::Awaited(_) => Ok(None),
            Replaced::Gone => match self.create_anew(desired, body).await? {
                Some((answer, answered)) => Ok(Some(InPlace { answer, answered, over: None })),
                // Another client was the first to create an object of that name.
                None => Err(refused.into()),
            },
        }
    }

    /// Recreates an object after its deletion. `body` is the refused update.
    async fn create_anew(&self, desired: &Arc<Desired>, body: &Value) -> Result<Option<(Value, Answered)>, Error> {
        if desired.ignored.is_none() {
            return self.create_now(desired, body).await;
        }
        let whole = self.body_of_new(desired).await;
        self.create_now(desired, &whole).await
    }

    /// Whether the live object has the state that was last applied for its owner. Returns `false` if the object cannot
    /// be read.
    pub async fn is_in_sync(&self, owner: &Owner, key: &Key) -> bool {
        let Some(desired) = self.desired(key) else { return false };
        let Some(acting) = self.acting_for(owner) else { return false };
        let live = acting.cluster().get(&desired.kind, key.namespace.as_deref(), &key.name).await;
        live.ok().flatten().is_some_and(|live| self.store().is_in_sync(owner, key, &live, self.now()))
    }

    /// Whether an object that had to be read must be reverted. Records the start or end of a pause.
    pub(super) fn must_put_back(&self, desired: &Desired, live: &Value) -> bool {
        let key = &desired.key;
        let (verdict, is_over) = {
            let mut store = self.store();
            let was_paused = store.pause_of(key).is_some();
            let verdict = store.judge(key, live, self.now());
            (verdict, was_paused && store.pause_of(key).is_none())
        };
        match verdict {
            Verdict::Revert => return true,
            Verdict::InSync => {
                let resumed = self.store().end_pause(key, self.now());
                if resumed {
                    self.carry_out(key, Next::Resumed);
                }
            }
            Verdict::LeaveAlone(Reason::BreakGlass(until)) => {
                let new = self.store().begin_pause(key, until, self.now());
                if new {
                    self.carry_out(key, Next::Paused(until));
                }
            }
            // The report of drift shows the end of its pause.
            Verdict::LeaveAlone(Reason::Ignore) if is_over => self.carry_out(key, Next::Resumed),
            Verdict::AwaitDeletion | Verdict::LeaveAlone(_) => {}
        }
        let unmarked = !desired.mark.is_on(live);
        if unmarked && matches!(verdict, Verdict::AwaitDeletion | Verdict::LeaveAlone(Reason::BreakGlass(_))) {
            self.watch_by_name(desired);
        }
        self.notify_owner_of(key);
        false
    }

    /// Records a failed revert or report and returns the server load that it shows.
    fn fail(
        &self,
        desired: &Arc<Desired>,
        seen: Seen,
        NotDone { error, advice }: &NotDone,
        reports: bool,
        sent: Instant,
    ) -> Option<ServerLoad> {
        let key = &desired.key;
        let again = self.store().get(key).is_some_and(|managed| managed.attempts() > 0);
        let overloaded = ServerLoad::Overloaded { sent, retry_after: error.retry_after() };
        let load = is_overloaded(error, again).then_some(overloaded);
        let live = seen.live.as_ref().and_then(Sight::value).map(Cow::into_owned);
        let fields = fields_not_put_back(desired, live.as_ref(), error);
        let cause = match &desired.mark {
            Mark::Label(_) => error.cause_at(&desired.object),
            Mark::Controller { .. } => error.cause_text(),
        };
        let failure = NotPutBack { reports, fields, cause, advice: advice.clone(), ground: Ground::of(error) };
        self.note_failure(desired, seen, failure, error.retry_after());
        load
    }

    /// Records a failure. The next attempt comes after the backoff, and at the earliest after `after`.
    fn note_failure(&self, desired: &Arc<Desired>, seen: Seen, failure: NotPutBack, after: Option<Duration>) {
        let key = &desired.key;
        let live = seen.live.as_ref().and_then(Sight::value).map(Cow::into_owned);
        let NotPutBack { reports, fields, .. } = failure.clone();
        let cause = failure.text();
        let age = seen.at.elapsed();
        let failed = self.store().revert_failed(key, seen, failure);
        let Some((owner, attempts)) = failed else { return };
        if let Some(mut span) = (!reports).then(|| traced(&owner, key, age, fields.len())).flatten() {
            span.fail("RevertFailed");
        }
        if !reports && attempts >= REMARKABLE {
            let (subject, object) = (owner.clone(), key.to_string());
            let message = Message::NotPutBack { subject, object, fields, cause };
            let live = live.as_ref().unwrap_or(&Value::Null);
            self.announce(&owner, Some((desired, live)), &message);
        }
        let wait = RETRY.jittered(attempts, fastrand::f64()).max(after.unwrap_or_default());
        if let Some(mut managed) = self.store().get_mut(key)
            && let Some(reverts) = &mut managed.failing().reverts
        {
            reverts.not_before = Some(Instant::now() + wait);
        }
        let reason = if reports { DriftReason::Report } else { DriftReason::RevertFailed };
        let now = self.now();
        self.store().note_not_put_back(key, live.as_ref(), reason, now + wait, now);
        self.notify(&owner);
    }

    /// Whether a missing object is not recreated, because it had ended.
    pub(super) fn stays_absent(&self, key: &Key) -> bool {
        let stays = self.store().stays_absent(key);
        if stays {
            self.notify_owner_of(key);
        }
        stays
    }

    /// Returns a cause if none of the owners in the manifest's `ownerReferences` exists: the garbage collector deletes
    /// the object after each revert. An owner that cannot be read counts as existing.
    async fn dead_owner(&self, desired: &Desired) -> Option<String> {
        if self.store().get(&desired.key).is_some_and(|managed| managed.ended.is_some()) {
            return None;
        }
        let body = desired.object.value();
        let owners = body.pointer("/metadata/ownerReferences")?.as_array().filter(|owners| !owners.is_empty())?;
        let mut named = String::new();
        for owner in owners {
            let text = |field: &str| owner[field].as_str().unwrap_or_default();
            let kind = self.cluster().kind(text("apiVersion"), text("kind")).await.ok()??;
            let namespace = desired.key.namespace.as_deref().filter(|_| kind.namespaced);
            let live = self.cluster().get_metadata(&kind, namespace, text("name")).await.ok()?;
            if live.is_some_and(|live| live.uid.as_deref() == Some(text("uid"))) {
                return None;
            }
            let [kind, name, uid] = [text("kind"), text("name"), text("uid")].map(printable);
            named = format!("its owner {kind} {name} (uid {uid})");
        }
        Some(format!(
            "{named} does not exist, so the garbage collector deletes it; take metadata.ownerReferences out of its manifest"
        ))
    }

    /// Retries failed objects that a new Namespace, CustomResourceDefinition or RBAC rule may unblock.
    pub(super) fn retry_dependents(&self, desired: &Desired) {
        let key = &desired.key;
        let waited = if key.is("", "Namespace") {
            self.store().failed(|other| other.namespace.as_deref() == Some(&key.name))
        } else if key.is("apiextensions.k8s.io", "CustomResourceDefinition") {
            let group = key.name.split_once('.').map_or("", |(_, group)| group);
            self.store().failed(|other| &*other.group == group)
        } else if &*key.group == "rbac.authorization.k8s.io" {
            self.store().failed(|other| key.namespace.is_none() || key.namespace == other.namespace)
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

    /// Ends a write and handles the events that arrived during the write.
    pub(super) fn finish(&self, key: &Key) {
        let next = self.store().end(key, self.now());
        self.carry_out(key, next);
    }

    pub(super) fn notify_owner_of(&self, key: &Key) {
        let owner = self.store().get(key).map(|managed| managed.owner.clone());
        if let Some(owner) = owner {
            self.notify(&owner);
        }
    }
}
