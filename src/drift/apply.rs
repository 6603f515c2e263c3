//! The writes of the forward loop, and what both loops' writes share: an object is applied, and the answer becomes what
//! is verified of it.
//!
//! Invariant: what is said to be new is never written over what somebody else has put under the name meanwhile.
//! Invariant: every apply of a managed object goes through [`Drift::put`] or [`Drift::revert`], one at a time per
//! object.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Drift;
use crate::api::names::MANAGER;
use crate::cluster::{Apply, Error};
use crate::managed::applied_configuration::AppliedConfiguration;
use crate::managed::desired::{Desired, without_replicas};
use crate::managed::object::Answered;
use crate::managed::verdict::{LastApplied, is_terminating, resource_version, uid};
use crate::managed::{fields, ownership};
use crate::notification::Message;
use crate::object::{Digest, Key, Owner};

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

impl Drift {
    /// Applies an object for the forward loop. What is verified of it from then on is the answer.
    pub async fn put(&self, intent: Intent) -> Result<Put, Error> {
        let key = intent.desired.key.clone();
        let _lock = self.lock_object(&key).await;
        let is_anothers = !intent.exists && self.store().is_applied_for_another(&intent.owner, &key);
        if is_anothers {
            return Ok(Put::untouched(Change::Anothers));
        }
        let begun = self.store().begin_put(&intent.owner, &intent.desired);
        let Some((version, seen)) = begun else { return Ok(Put::untouched(Change::Paused)) };
        self.watch_kind(&intent.desired);
        let outcome = self.put_now(&intent, &version).await;
        match &outcome {
            Ok(put) if put.change == Change::Anothers => self.store().put_failed(&intent.desired, seen, false),
            Ok(put) => {
                self.forget_backoff(&key, put.change);
                self.retry_what_waited_for(&intent.desired);
            }
            Err(error) => self.store().put_failed(&intent.desired, seen, error.is_outcome_unknown()),
        }
        self.finish(&key);
        outcome
    }

    /// Keeps an object that an agent before this one applied and that is not kept yet, if the live object is
    /// what an apply would make of it now; whether it is.
    pub async fn keep_applied(
        &self,
        owner: &Owner,
        desired: &Arc<Desired>,
        uid: &str,
        applied: &AppliedConfiguration,
    ) -> bool {
        let mut body = desired.body();
        if desired.sets_replicas(&body) {
            self.know_autoscalers().await;
            if self.store().is_autoscaled(&desired.key) {
                without_replicas(&mut body);
            }
        }
        let mut store = self.store();
        if !applied.is_of(body) || store.get(&desired.key).is_some() {
            return false;
        }
        let verified = LastApplied { uid: uid.into(), digest: Some(applied.projection), ..LastApplied::default() };
        store.hold(owner, Arc::clone(desired), verified);
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
            self.apply_in_place(desired, &mut body, None).await.map(|applied| (applied.answer, applied.digest))
        };
        let (answer, digest) = match applied {
            // What we took over cannot be removed: it is left, as nobody's, and the rest is applied.
            Err(error) if error.is_invalid() && intent.take_over.is_some() => {
                let version = self.give_up_ownership(desired).await?;
                body["metadata"]["resourceVersion"] = json!(version);
                let applied = self.apply_now(desired, &body).await?;
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
        let digest = self.verify(desired, &answer, body);
        Ok(Some((answer, digest)))
    }

    /// Writes `managedFields`, if the object still has this version; the version that it has then.
    pub(super) async fn rewrite(&self, desired: &Desired, version: &str, entries: &Value) -> Result<String, Error> {
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
        let (subject, object) = (intent.owner.clone(), intent.desired.key.to_string());
        let message = Message::NotRemoved { subject, object, cause: crate::failure::chain(error) };
        self.announce(&intent.owner, None, &message);
    }

    fn forget_backoff(&self, key: &Key, change: Change) {
        if matches!(change, Change::Created | Change::Changed)
            && let Some(mut managed) = self.store().get_mut(key)
        {
            managed.damping = None;
        }
    }

    /// Applies, verifies the answer, and takes our paths out of `before-first-apply`.
    pub(super) async fn apply_now(
        &self,
        desired: &Arc<Desired>,
        body: &Value,
    ) -> Result<(Value, Option<Digest>), Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let mut answer = self.cluster().apply(&desired.kind, namespace, name, body, Apply::forced(MANAGER)).await?;
        if let Some(entries) = ownership::without_first_apply_echo(&answer) {
            let version = resource_version(&answer).to_owned();
            match self.cluster().rewrite_managed_fields(&desired.kind, namespace, name, &version, &entries).await {
                Ok(rewritten) => answer = rewritten,
                // Someone wrote meanwhile: the next apply finds the entry again.
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
        let digest = self.verify(desired, &answer, body);
        Ok((answer, digest))
    }

    /// What the server answered to `sent` is what the object must be from now on. Read without the lock: others wait for
    /// that.
    fn verify(&self, desired: &Arc<Desired>, answer: &Value, sent: &Value) -> Option<Digest> {
        let answered = Answered::of(desired, answer, sent);
        let digest = answered.last_applied.digest;
        self.store().verify(&desired.key, desired, answered);
        digest
    }
}

impl Put {
    fn untouched(change: Change) -> Self {
        Self { change, uid: String::new(), digest: None, answer: Value::Null }
    }
}
