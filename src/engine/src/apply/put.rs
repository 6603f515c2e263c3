//! Applies of commits and Functions: writes the desired state and, from then on, enforces it.
//!
//! Invariant: an apply of a new object never overwrites an object that another client created under that name.
//! Invariant: no apply creates the owner itself, a GitSync that manages itself. A user may just have deleted it.
//! Invariant: every apply of a managed object goes through [`Writer::put`], [`Writer::revert`] or
//! [`Writer::hand_over_replicas`], one at a time per object.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use serde_json::{Value, json};

use super::Writer;
use super::follow_up::FollowUp;
use super::replace::{Occasion, Replaced};
use crate::managed::Appliers;
use crate::managed::applied_configuration::AppliedConfiguration;
use crate::managed::desired::{Desired, without_replicas};
use crate::managed::object::Answered;
use crate::managed::pending::Seen;
use crate::managed::replacement::Denied;
use crate::managed::verdict::{LastApplied, is_terminating, resource_version, uid};
use mainstay_api::names::MANAGER;
use mainstay_cluster::{Apply, Error, Terminating};
use mainstay_object::{Digest, Key, Owner, is_established};

/// Maximum number of concurrent applies in a stage.
const AT_ONCE: usize = 16;
/// Longest wait for a CustomResourceDefinition to be established.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);
/// A resource version that no object can have: the largest revision of etcd.
const NO_VERSION: &str = "9223372036854775807";
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// One object to apply, with its preconditions.
#[derive(Clone, Debug)]
pub struct Step {
    /// The desired state.
    pub desired: Arc<Desired>,
    /// The object that the apply expects to find.
    pub expect: Expect,
    /// Field managers whose fields the apply takes over.
    pub appliers: Appliers,
}

/// The object that an apply expects to find.
#[derive(Clone, Debug, PartialEq)]
pub enum Expect {
    /// An object that is already managed for this owner.
    Ours,
    /// No object. An existing object stays unchanged.
    Absent,
    /// An unmanaged object. The apply adopts the object only at this version.
    Version {
        /// The resource version that was read.
        version: String,
        /// `metadata.managedFields` that was read.
        managed_fields: Value,
    },
    /// An object that an owner of another agent offers. As for `Version`, but no write of another client in the meantime
    /// is accepted: the other owner may have withdrawn the offer.
    Offered {
        /// The resource version that was read.
        version: String,
        /// `metadata.managedFields` that was read.
        managed_fields: Value,
    },
    /// An object of this owner that was offered to an owner of another agent until lately. The other owner may just apply it.
    Withdrawn {
        /// The resource version that was read.
        version: String,
        /// The UID that was read.
        uid: String,
    },
}

impl Expect {
    /// Whether an owner of another agent may apply the object meanwhile. Then every write needs the expected version.
    pub(super) fn is_fenced(&self) -> bool {
        matches!(self, Self::Offered { .. } | Self::Withdrawn { .. })
    }
}

/// The effect of an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object was created.
    Created,
    /// The object was changed.
    Changed,
    /// The object already had the desired state.
    Unchanged,
    /// The object is paused and stays unchanged.
    Paused,
    /// The owner was suspended since its commit was planned, and the object stays unchanged.
    Suspended,
    /// The object is being deleted. It is recreated once it is gone.
    Terminating,
    /// Another owner or client has an object of this name, or the owner is no longer known.
    Anothers,
}

/// The outcome of one object of a stage.
#[derive(Debug)]
pub enum Applied {
    /// The object was applied.
    Done(Put),
    /// The apply failed.
    Failed(Error),
    /// The server refused to change an immutable field, and a replacement is not allowed.
    Immutable(Error, Denied),
}

enum NotPut {
    Failed(Error),
    Immutable(Error, Denied),
}

impl From<Error> for NotPut {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The result of an apply.
#[derive(Clone, Debug)]
pub struct Put {
    /// The effect.
    pub change: Change,
    /// UID of the object; empty if it was not applied.
    pub uid: String,
    /// Digest of the applied fields as the server returned them.
    pub digest: Option<Digest>,
    /// The object as the server returned it.
    pub answer: Value,
    /// The finalizers or dependents that block a deletion, if they are known.
    pub awaits: Option<Terminating>,
}

impl Writer {
    /// Applies one stage of a commit concurrently. Yields each outcome as it arrives; a failure does not stop the
    /// other objects.
    pub fn put_stage<'s>(
        &'s self,
        owner: &'s Owner,
        steps: &'s [Step],
    ) -> impl Stream<Item = (Arc<Desired>, Applied)> + 's {
        let puts = steps.iter().map(move |step| async move {
            let _putting = self.begin_put();
            // Reverts go before applies of commits.
            self.yield_to_reverts().await;
            let desired = Arc::clone(&step.desired);
            let applied = match self.put_or_deny(owner, step, true).await {
                Ok(put) if desired.key.is("apiextensions.k8s.io", "CustomResourceDefinition") => {
                    self.await_established(owner, &desired, put).await
                }
                Ok(put) => Applied::Done(put),
                Err(NotPut::Immutable(error, why)) => Applied::Immutable(error, why),
                Err(NotPut::Failed(error)) => Applied::Failed(error),
            };
            (desired, applied)
        });
        stream::iter(puts).buffer_unordered(AT_ONCE)
    }

    /// Applies an object for its owner and stores the response as its last apply.
    pub async fn put(&self, owner: &Owner, step: &Step) -> Result<Put, Error> {
        self.put_or_deny(owner, step, false).await.map_err(|not_put| match not_put {
            NotPut::Failed(error) | NotPut::Immutable(error, _) => error,
        })
    }

    async fn put_or_deny(&self, owner: &Owner, step: &Step, is_of_commit: bool) -> Result<Put, NotPut> {
        let desired = &step.desired;
        let key = &desired.key;
        let _lock = self.lock_object(key).await;
        // The owner was removed while this task waited for the lock.
        let Some(acting) = self.acting_for(owner) else { return Ok(Put::without(Change::Anothers)) };
        let (version, seen, former) = {
            let mut store = self.store();
            if is_of_commit && store.is_suspended(owner) {
                return Ok(Put::without(Change::Suspended));
            }
            let former = store.get(key).filter(|managed| managed.owner != *owner && !managed.phase.is_leaving());
            let former = former.map(|managed| managed.owner.clone());
            // The other owner recreates a missing object, unless this owner takes it, as it would take an existing one.
            let is_missed = step.expect == Expect::Absent && store.is_applied_for_another(owner, key);
            let is_taken = is_missed && !store.outranks(owner, key);
            if is_taken || store.is_outranked(owner, key) {
                return Ok(Put::without(Change::Anothers));
            }
            let Some((version, seen)) = store.begin_put(owner, desired) else {
                store.note_held_back(key, self.now());
                return Ok(Put::without(Change::Paused));
            };
            if store.begin_watch(desired) {
                self.follow_up(FollowUp::Watch(Arc::clone(&desired.kind)));
            }
            (version, seen, former)
        };
        let under_way = UnderWay { writer: self, owner, desired, seen: Some(seen) };
        let outcome = acting.put_now(owner, step, &version).await;
        self.end_put(owner, step, &outcome, under_way.end());
        if let Some(former) = former {
            self.notify(&former);
        }
        outcome
    }

    /// Records the outcome of an apply, and ends it in the store.
    fn end_put(&self, owner: &Owner, step: &Step, outcome: &Result<Put, NotPut>, seen: Option<Box<Seen>>) {
        let desired = &step.desired;
        let key = &desired.key;
        match outcome {
            Ok(put) if put.change == Change::Anothers => self.store().put_failed(desired, seen, false),
            // The live object keeps its last apply until it is gone.
            Ok(put) if put.awaits.is_some() => self.succeed_later(desired, seen),
            Err(NotPut::Immutable(..)) => self.succeed_later(desired, seen),
            Ok(put) => {
                self.forget_backoff(key, put.change);
                self.retry_dependents(desired);
            }
            Err(NotPut::Failed(error)) => {
                let mut store = self.store();
                store.put_failed(desired, seen, error.is_outcome_unknown());
                if matches!(step.expect, Expect::Withdrawn { .. }) {
                    // The other agent may have applied it, so it is not reverted until an apply succeeds.
                    store.leave(owner, key);
                }
            }
        }
        let is_back = is_refused(outcome) && self.store().put_back_outranked(owner, key);
        self.finish_put(key, is_back);
    }

    /// Ends an apply. If the entry of the former owner is back, the object is read.
    fn finish_put(&self, key: &Key, is_back: bool) {
        self.finish(key);
        if is_back {
            self.follow_up(FollowUp::LookAgain(key.clone(), Duration::ZERO));
        }
    }

    /// Makes a desired state the successor of an object that has to be deleted first.
    fn succeed_later(&self, desired: &Arc<Desired>, seen: Option<Box<Seen>>) {
        let mut store = self.store();
        store.put_failed(desired, seen, false);
        store.set_successor(desired);
    }

    /// Enforces an object that an earlier agent applied, without an apply. Returns `false` if the store already has the
    /// object or the earlier agent applied a different configuration.
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

    async fn put_now(&self, owner: &Owner, step: &Step, before: &str) -> Result<Put, NotPut> {
        let desired = &step.desired;
        if self.make_way_for_rerun(owner, desired).await? {
            return Ok(Put::without(Change::Terminating));
        }
        let is_new = step.expect == Expect::Absent && before.is_empty();
        let mut body = if is_new { desired.whole_body() } else { desired.body() };
        let mut expected = self.take_over(step, &body).await?;
        let mut before = before.to_owned();
        // Comes after the takeover, because the fields that the takeover claims may include the replica count.
        let is_counted = desired.sets_replicas(&body) || (!is_new && desired.is_scalable());
        let is_fenced = step.expect.is_fenced();
        let count = if is_counted { self.settle_replicas(desired, &mut body, is_fenced).await? } else { None };
        let ignored = if is_new { None } else { self.settle_ignored(desired, &mut body, None).await? };
        let aliases = if is_new { None } else { self.claim_aliases(desired, &body).await? };
        for given_up in [count, ignored, aliases].into_iter().flatten() {
            // This write changed only `managedFields`, so it does not count as a change of the object.
            for known in [expected.as_mut(), Some(&mut before)].into_iter().flatten() {
                if *known == given_up.known(is_fenced) {
                    known.clone_from(&given_up.after);
                }
            }
        }
        if let Some(version) = &expected {
            body["metadata"]["resourceVersion"] = json!(version);
        }
        if desired.key == owner.key() && !self.bind_to_existing(desired, &mut body).await? {
            return Ok(Put::without(Change::Anothers));
        }
        let applied = if is_new {
            match self.create_now(desired, &body).await? {
                Some(created) => Ok(created),
                None => return Ok(Put::without(Change::Anothers)),
            }
        } else {
            let applied = self.apply_all(owner, step, &mut body).await;
            applied.map(|applied| (applied.answer, applied.answered))
        };
        let (answer, answered) = match applied {
            Err(error) => return self.put_anew(owner, desired, &body, error).await,
            Ok(applied) => applied,
        };
        let digest = answered.last_applied.digest;
        self.store().answered(desired, answered, self.now());
        let known = expected.as_deref().unwrap_or(&before);
        let change = if is_terminating(&answer) {
            Change::Terminating
        } else if is_new {
            Change::Created
        } else if !known.is_empty() && resource_version(&answer) == known {
            Change::Unchanged
        } else {
            Change::Changed
        };
        Ok(Put { change, uid: uid(&answer).to_owned(), digest, answer, awaits: None })
    }

    /// Sets the UID of the existing object in a body, so that an apply creates none. Returns whether an object exists.
    async fn bind_to_existing(&self, desired: &Desired, body: &mut Value) -> Result<bool, Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let Some(found) = self.cluster().get_metadata(&desired.kind, namespace, name).await? else { return Ok(false) };
        body["metadata"]["uid"] = json!(found.uid);
        Ok(true)
    }

    /// Replaces an object if the server refused to change an immutable field and a replacement is allowed.
    async fn put_anew(
        &self,
        owner: &Owner,
        desired: &Arc<Desired>,
        body: &Value,
        refused: Error,
    ) -> Result<Put, NotPut> {
        match self.replace(owner, desired, body, &refused, Occasion::Commit).await? {
            Replaced::No => Err(NotPut::Failed(refused)),
            Replaced::Denied(why) => Err(NotPut::Immutable(refused, why)),
            Replaced::Awaited(awaits) => Ok(Put { awaits: Some(awaits), ..Put::without(Change::Terminating) }),
            Replaced::Gone => {
                let mut body = if desired.ignored.is_some() { self.body_of_new(desired).await } else { body.clone() };
                body["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
                let Some((answer, answered)) = self.create_now(desired, &body).await? else {
                    return Ok(Put::without(Change::Anothers));
                };
                let digest = answered.last_applied.digest;
                self.store().answered(desired, answered, self.now());
                let uid = uid(&answer).to_owned();
                Ok(Put { change: Change::Changed, uid, digest, answer, awaits: None })
            }
        }
    }

    /// Creates an object by an apply. Returns `None` if one of that name exists. The body has a resource version: the
    /// server ignores it for a creation, and responds with a conflict if the object exists.
    pub(super) async fn create_now(
        &self,
        desired: &Arc<Desired>,
        body: &Value,
    ) -> Result<Option<(Value, Answered)>, Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let mut new = body.clone();
        new["metadata"]["resourceVersion"] = json!(NO_VERSION);
        let applied = self.cluster().apply(&desired.kind, namespace, name, &new, Apply::unforced(MANAGER)).await;
        let answer = match applied {
            Err(error) if error.is_conflict() => return Ok(None),
            answer => answer.map_err(|error| error.about(&desired.object))?,
        };
        let answer = self.give_up_applied(desired, answer).await;
        let rules = self.store().health_rules(&desired.key);
        let answered = Answered::of(desired, &answer, body, rules.as_deref());
        Ok(Some((answer, answered)))
    }

    /// Waits until a CustomResourceDefinition is established, because later stages need it.
    async fn await_established(&self, owner: &Owner, definition: &Desired, put: Put) -> Applied {
        let Some(acting) = self.acting_for(owner) else { return Applied::Done(put) };
        let mut waited = Duration::ZERO;
        let mut answer = put.answer.clone();
        while !is_established(&answer) && waited < ESTABLISHED_WITHIN {
            tokio::time::sleep(LOOK_EVERY).await;
            waited += LOOK_EVERY;
            match acting.cluster().get(&definition.kind, None, &definition.key.name).await {
                Ok(Some(live)) => answer = live,
                Ok(None) => {}
                Err(error) => return Applied::Failed(error),
            }
        }
        self.cluster().kinds_changed();
        Applied::Done(put)
    }

    fn forget_backoff(&self, key: &Key, change: Change) {
        if matches!(change, Change::Created | Change::Changed)
            && let Some(mut managed) = self.store().get_mut(key)
        {
            managed.damping = None;
        }
    }
}

/// Whether the server has not carried out an apply. A gateway that waited too long does not know that.
fn is_refused(outcome: &Result<Put, NotPut>) -> bool {
    match outcome {
        Ok(put) => put.change == Change::Anothers,
        Err(NotPut::Failed(error)) => !error.is_outcome_unknown() && error.code() != Some(504),
        Err(NotPut::Immutable(..)) => true,
    }
}

/// An apply in flight. If its future is dropped or panics, `drop` ends the write in the store with an unknown outcome.
struct UnderWay<'w> {
    writer: &'w Writer,
    owner: &'w Owner,
    desired: &'w Arc<Desired>,
    /// The state that was seen before the apply; `None` once the apply has ended.
    seen: Option<Option<Box<Seen>>>,
}

impl UnderWay<'_> {
    /// Ends the apply and returns the state that was seen before it.
    fn end(mut self) -> Option<Box<Seen>> {
        self.seen.take().flatten()
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(seen) = self.seen.take() {
            let key = &self.desired.key;
            self.writer.store().put_failed(self.desired, seen, true);
            // Perhaps no apply of this owner follows. If the API server carried this one out, a later apply takes the object.
            let is_back = self.writer.store().put_back_outranked(self.owner, key);
            self.writer.finish_put(key, is_back);
        }
    }
}

impl Put {
    fn without(change: Change) -> Self {
        Self { change, uid: String::new(), digest: None, answer: Value::Null, awaits: None }
    }
}
