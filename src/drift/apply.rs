//! The writes of the forward loop, and what both loops' writes share: an object is applied, and the answer becomes what
//! is verified of it.
//!
//! Invariant: what is said to be new is never written over what somebody else has put under the name meanwhile.
//! Invariant: every apply of a managed object goes through [`Drift::put`] or [`Drift::revert`], one at a time per
//! object.

use std::sync::Arc;

use serde_json::{Value, json};

use super::autoscaler::is_at_zero;
use super::collision::{self, Collision};
use super::decide::{Verified, is_terminating, resource_version, uid};
use super::desired::{Desired, Owner, without_replicas};
use super::standing::Standing;
use super::{Drift, fields, foreign, ownership};
use crate::api::names::{HANDOVER_MANAGER, MANAGER};
use crate::cluster::{Apply, Error};
use crate::notification::Message;
use crate::object::{Digest, Key};

/// Where a workload's replicas are.
pub(super) const REPLICAS: [&str; 2] = ["f:spec", "f:replicas"];

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
    /// Whether the object is known to exist. If not, it is only created: one that somebody else has created meanwhile
    /// stays as it is.
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
    /// It was to be new, and somebody else has created one of that name meanwhile.
    Anothers,
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

/// How often an object that is written all the time is read again before something in it makes way.
const WRITTEN_MEANWHILE: usize = 5;

/// An apply that went through.
pub(super) struct Applied {
    pub(super) answer: Value,
    pub(super) digest: Option<Digest>,
    /// Who had written in the place of ours.
    pub(super) over: Option<String>,
}

/// An apply for which something makes way.
struct Way<'a> {
    desired: &'a Arc<Desired>,
    body: Value,
    /// `managedFields` as they were, and the version that the object has since they were rewritten.
    before: Option<(Value, String)>,
    who: Option<String>,
}

impl Drift {
    /// Applies an object for the forward loop. What is verified of it from then on is the answer.
    pub async fn put(&self, intent: Intent) -> Result<Put, Error> {
        let key = intent.desired.key.clone();
        let _turn = self.turn(&key).await;
        let is_anothers = !intent.exists && self.ledger().is_applied_for_another(&intent.owner, &key);
        if is_anothers {
            return Ok(Put::untouched(Change::Anothers));
        }
        let begun = self.ledger().begin_put(&intent.owner, &intent.desired);
        let Some((version, seen)) = begun else { return Ok(Put::untouched(Change::Paused)) };
        self.watch_kind(&intent.desired);
        let outcome = self.put_now(&intent, &version).await;
        match &outcome {
            Ok(put) if put.change == Change::Anothers => self.ledger().put_failed(&intent.desired, seen, false),
            Ok(put) => {
                self.clear_heat(&key, put.change);
                self.retry_what_waited_for(&intent.desired);
            }
            Err(error) => self.ledger().put_failed(&intent.desired, seen, error.is_outcome_unknown()),
        }
        self.finish(&key);
        outcome
    }

    /// Keeps an object that an agent before this one applied and that is not kept yet, if it stands as it would be
    /// applied now; whether it does.
    pub async fn keep_standing(&self, owner: &Owner, desired: &Arc<Desired>, uid: &str, standing: &Standing) -> bool {
        let mut body = desired.body();
        if desired.sets_replicas(&body) {
            self.know_autoscalers().await;
            if self.ledger().is_autoscaled(&desired.key) {
                without_replicas(&mut body);
            }
        }
        let mut ledger = self.ledger();
        if !standing.is_of(body) || ledger.get(&desired.key).is_some() {
            return false;
        }
        let verified = Verified { uid: uid.into(), digest: Some(standing.projection), ..Verified::default() };
        ledger.hold(owner, Arc::clone(desired), verified);
        true
    }

    async fn put_now(&self, intent: &Intent, before: &str) -> Result<Put, Error> {
        let desired = &intent.desired;
        let mut body = desired.body();
        self.settle_replicas(desired, &mut body, None).await?;
        let mut expected = intent.only_version.clone();
        if let (Some(entries), Some(version)) = (&intent.take_over, &expected) {
            expected = Some(self.rewrite(desired, version, entries).await?);
        }
        if let Some(version) = &expected {
            body["metadata"]["resourceVersion"] = json!(version);
        }
        let is_new = !intent.exists && before.is_empty();
        let applied = if is_new {
            match self.create_now(desired, &body).await? {
                Some(created) => Ok(created),
                None => return Ok(Put::untouched(Change::Anothers)),
            }
        } else {
            self.apply_in_place(desired, body.clone(), None).await.map(|applied| (applied.answer, applied.digest))
        };
        let (answer, digest) = match applied {
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
        let change = if is_terminating(&answer) {
            Change::Terminating
        } else if is_new {
            Change::Created
        } else if !known.is_empty() && resource_version(&answer) == known {
            Change::Unchanged
        } else {
            Change::Changed
        };
        Ok(Put { change, uid: uid(&answer).to_owned(), digest, answer })
    }

    /// Applies an object that is to be new; `None` when somebody else has created one of that name, which is left as it
    /// was. An apply cannot be told to create only; but unforced it changes nothing that others own.
    async fn create_now(&self, desired: &Arc<Desired>, body: &Value) -> Result<Option<(Value, Option<Digest>)>, Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let apply = async |body: &Value| {
            self.cluster().apply(&desired.kind, namespace, name, body, Apply::unforced(MANAGER)).await
        };
        let answer = match apply(body).await {
            Err(error) if error.is_conflict() => return Ok(None),
            answer => answer?,
        };
        if fields::entries(&answer).any(|entry| entry.manager != MANAGER) {
            // Nothing of theirs was changed, but ours was added: it goes out again. By its UID, for if theirs is gone by
            // now, an apply would create one that holds nothing.
            let nothing = json!({
                "apiVersion": desired.kind.api_version(), "kind": &*desired.kind.kind,
                "metadata": {"name": name, "namespace": namespace, "uid": uid(&answer)},
            });
            return match apply(&nothing).await {
                Err(error) if !error.is_conflict() => Err(error),
                _ => Ok(None),
            };
        }
        let digest = self.ledger().verify(&desired.key, desired, &answer, body);
        Ok(Some((answer, digest)))
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

    fn clear_heat(&self, key: &Key, change: Change) {
        if matches!(change, Change::Created | Change::Changed)
            && let Some(mut managed) = self.ledger().get_mut(key)
        {
            managed.heat = None;
            managed.contended = None;
        }
    }

    /// Applies. What somebody wrote in the place of ours, or in a reserved field, makes way for it: before, where that is
    /// known from the object as it was `seen`, or after the server has refused to have both or has answered what is there.
    pub(super) async fn apply_in_place(
        &self,
        desired: &Arc<Desired>,
        body: Value,
        seen: Option<&Value>,
    ) -> Result<Applied, Error> {
        let mut way = Way { desired, body, before: None, who: None };
        let known = |body: &Value, live: &Value, now: &str| {
            foreign::with(collision::known(body, live, now), desired.mark.reserved(), live, now)
        };
        if let Some(live) = seen {
            self.make_way(&mut way, Some(live), known).await?;
        }
        let refused = match self.apply_now(desired, way.body.clone()).await {
            Ok((answer, _)) if foreign::is_added_to(desired.mark.reserved(), &answer) => {
                // What has just been verified is not all that was wanted: whoever fails now has to come back.
                self.ledger().is_stale(&desired.key);
                self.make_way(&mut way, Some(&answer), known).await?;
                let (answer, digest) = self.apply_now(desired, way.body.clone()).await?;
                return Ok(Applied { answer, digest, over: way.who });
            }
            Ok((answer, digest)) => return Ok(Applied { answer, digest, over: way.who }),
            Err(error) => error,
        };
        let causes = refused.refusal().map(|refusal| refusal.causes.clone()).unwrap_or_default();
        let causes = causes.iter().map(|cause| cause.field.as_str()).collect::<Vec<_>>();
        let by_refusal = |body: &Value, live: &Value, now: &str| collision::refused(body, live, &causes, now);
        // What cannot be read now is no reason to forget the refusal.
        let applied = if refused.is_invalid() && self.make_way(&mut way, None, by_refusal).await.unwrap_or(false) {
            self.apply_now(desired, way.body.clone()).await
        } else {
            Err(refused)
        };
        if let (Err(_), Some((entries, version))) = (&applied, &way.before) {
            // It was not because of them: they stay whose they were. Where somebody has written meanwhile, the next apply
            // that is taken removes them.
            let _ = self.rewrite(desired, version, entries).await;
        }
        applied.map(|(answer, digest)| Applied { answer, digest, over: way.who })
    }

    /// Makes what collides with ours ours as well, so that the next apply removes it; whether there was something. The
    /// object may have been written since it was `seen`, and for as long as it is, it is read again.
    async fn make_way(
        &self,
        way: &mut Way<'_>,
        seen: Option<&Value>,
        collision: impl Fn(&Value, &Value, &str) -> Option<Collision>,
    ) -> Result<bool, Error> {
        let desired = way.desired;
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let mut read = None;
        for _ in 0..WRITTEN_MEANWHILE {
            let Some(live) = seen.filter(|_| read.is_none()).or(read.as_ref()) else {
                read = self.cluster().get(&desired.kind, namespace, name).await?;
                if read.is_none() {
                    return Ok(false);
                }
                continue;
            };
            let version = resource_version(live);
            let expected = way.body.pointer("/metadata/resourceVersion").cloned();
            if expected.as_ref().is_some_and(|expected| *expected != version) {
                return Ok(false);
            }
            let Some(Collision { entries, who }) = collision(&way.body, live, &self.now().to_string()) else {
                return Ok(false);
            };
            let rewritten = match self.rewrite(desired, version, &entries).await {
                Err(error) if error.is_conflict() && expected.is_none() => {
                    read = self.cluster().get(&desired.kind, namespace, name).await?;
                    continue;
                }
                rewritten => rewritten?,
            };
            if expected.is_some() {
                way.body["metadata"]["resourceVersion"] = json!(rewritten);
            }
            let before = live.pointer("/metadata/managedFields").cloned().unwrap_or_default();
            let before = way.before.take().map_or(before, |(first, _)| first);
            way.before = Some((before, rewritten));
            way.who = who.or(way.who.take());
            return Ok(true);
        }
        Ok(false)
    }

    /// Applies, verifies the answer, and takes our paths out of `before-first-apply`.
    pub(super) async fn apply_now(
        &self,
        desired: &Arc<Desired>,
        body: Value,
    ) -> Result<(Value, Option<Digest>), Error> {
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

    /// Leaves `spec.replicas` to an autoscaler, without letting the count fall to the default on the way. What it does not
    /// scale, because somebody `seen` to have done so scaled it to 0, is scaled up first.
    pub(super) async fn settle_replicas(
        &self,
        desired: &Desired,
        body: &mut Value,
        seen: Option<&Value>,
    ) -> Result<(), Error> {
        let sets = desired.sets_replicas(body);
        if !sets && !seen.is_some_and(is_at_zero) {
            return Ok(());
        }
        self.know_autoscalers().await;
        if !self.ledger().is_autoscaled(&desired.key) {
            return Ok(());
        }
        without_replicas(body);
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let Some(live) = self.cluster().get(&desired.kind, namespace, name).await? else { return Ok(()) };
        let woken = self.ledger().woken(desired, &live);
        let ours = fields::applied_by(&live, MANAGER).is_some_and(|f| fields::owns(f, &REPLICAS));
        let shared = fields::entries(&live).any(|e| e.manager != MANAGER && fields::owns(e.fields, &REPLICAS));
        let (count, how) = match woken {
            Some(count) => (json!(count), Apply::forced(HANDOVER_MANAGER)),
            None if ours && !shared => {
                let count = live.pointer("/spec/replicas").cloned().unwrap_or(json!(1));
                (count, Apply::unforced(HANDOVER_MANAGER))
            }
            None => return Ok(()),
        };
        let handover = json!({
            "apiVersion": desired.kind.api_version(), "kind": &*desired.kind.kind,
            "metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": count},
        });
        self.cluster().apply(&desired.kind, namespace, name, &handover, how).await?;
        Ok(())
    }
}

impl Put {
    fn untouched(change: Change) -> Self {
        Self { change, uid: String::new(), digest: None, answer: Value::Null }
    }
}
