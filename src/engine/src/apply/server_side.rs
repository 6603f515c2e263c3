//! Server-side apply that resolves collisions with fields of other managers.
//!
//! Invariant: if an apply is refused although `managedFields` were rewritten, they are restored. The same refusal does
//! not cause another rewrite ([`Futile`]).
//!
//! Not here: which fields collide (`collision`).

use std::sync::Arc;

use serde_json::{Value, json};

use super::Writer;
use crate::managed::attempts::{Attempted, Futile, Ground};
use crate::managed::collision::{self, Collision};
use crate::managed::desired::Desired;
use crate::managed::object::{Answered, Managed};
use crate::managed::stale_defaults::{self, Reach};
use crate::managed::verdict::resource_version;
use crate::managed::{additions, ownership, reserved};
use mainstay_api::names::MANAGER;
use mainstay_cluster::{Apply, Error};

/// Maximum number of attempts of a write that needs the object's current version. The rollout of a Deployment writes its
/// status up to ten times in a few milliseconds.
pub(super) const RACES: usize = 20;

/// A successful apply.
pub(super) struct InPlace {
    pub(super) answer: Value,
    /// The state for the caller to store.
    pub(super) answered: Answered,
    /// The manager whose fields the apply overwrote.
    pub(super) over: Option<String>,
}

/// The treatment of colliding fields by an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collisions {
    /// The apply claims the colliding fields, so that the next apply removes them.
    MakeWay,
    /// The apply leaves the colliding fields to their managers.
    Stay,
}

/// The state of an apply that may have collisions.
struct Way<'a> {
    desired: &'a Arc<Desired>,
    body: &'a mut Value,
    seen: Option<&'a Value>,
    collisions: Collisions,
    /// Whether no field is claimed before the first refusal, because an earlier attempt was futile.
    held_back: bool,
    /// Whether claiming fields after the first refusal may help.
    may_help: bool,
    /// The original `managedFields`, and the resource version after they were rewritten.
    before: Option<(Value, String)>,
    who: Option<String>,
    /// The grounds of the refusals so far.
    grounds: Vec<Ground>,
}

impl Writer {
    /// Applies and claims colliding or reserved fields of other managers. Collisions that `seen` shows are claimed
    /// before the apply, others after a refusal or after the response. If `body` contains a resource version, it is
    /// updated by these rewrites.
    pub(super) async fn apply(
        &self,
        desired: &Arc<Desired>,
        body: &mut Value,
        seen: Option<&Value>,
        collisions: Collisions,
    ) -> Result<InPlace, Error> {
        let applied = self.apply_in_place(desired, body, seen, collisions).await;
        applied.map_err(|error| error.about(&desired.object))
    }

    async fn apply_in_place(
        &self,
        desired: &Arc<Desired>,
        body: &mut Value,
        seen: Option<&Value>,
        collisions: Collisions,
    ) -> Result<InPlace, Error> {
        let reserved = desired.mark.reserved();
        let takes_back = self.store().takes_back(desired);
        let known = |body: &Value, live: &Value, now: &str| {
            let collision = reserved::with(collision::known(body, live, now), reserved, live, now);
            let collision = stale_defaults::with(collision, Reach::Nobodys, (desired, body), live, now);
            if takes_back { additions::with(collision, desired, live, now) } else { collision }
        };
        let is_added = |live: &Value| {
            reserved::is_added_to(reserved, live) || (takes_back && additions::are_in(desired, &desired.view(live)))
        };
        // An apply over an addition to a reserved field succeeds without the desired result, so claiming is not held
        // back.
        let is_added_to = seen.is_some_and(&is_added);
        let held_back = collisions == Collisions::MakeWay && !is_added_to && self.holds_back(desired, seen);
        let collides = |live: &&Value| !held_back && known(body, live, &self.now().to_string()).is_some();
        let collided = seen.filter(collides);
        let (before, who, grounds) = (None, None, Vec::new());
        let mut way = Way { desired, body, seen, collisions, held_back, may_help: false, before, who, grounds };
        if collided.is_some() {
            self.make_way(&mut way, collided, known).await?;
        }
        loop {
            let answer = match self.apply_once(desired, way.body).await {
                Ok(answer) => answer,
                Err(refused) => {
                    self.make_way_after(&mut way, refused).await?;
                    continue;
                }
            };
            // The digest is computed without the lock of the store.
            let rules = self.store().health_rules(&desired.key);
            let answered = Answered::of(desired, &answer, way.body, rules.as_deref());
            let is_over = way.collisions == Collisions::Stay || !way.grounds.is_empty();
            if is_over || !(is_added(&answer) || stale_defaults::are_in(desired, way.body, &answer)) {
                return Ok(InPlace { answer, answered, over: way.who });
            }
            // The object does not have the desired state yet. If a later request fails, it is applied again because it
            // is outdated.
            self.store().answered(desired, answered, self.now());
            self.store().mark_outdated(&desired.key);
            if let Some(expected) = way.body.pointer_mut("/metadata/resourceVersion") {
                *expected = json!(resource_version(&answer));
            }
            self.make_way(&mut way, Some(&answer), known).await?;
            way.collisions = Collisions::Stay;
        }
    }

    /// Applies an object once, and removes the entry `before-first-apply` if it only repeats Mainstay's fields.
    async fn apply_once(&self, desired: &Arc<Desired>, body: &Value) -> Result<Value, Error> {
        let (kind, namespace, name) = (&desired.kind, desired.key.namespace.as_deref(), &*desired.key.name);
        let answer = self.cluster().apply(kind, namespace, name, body, Apply::forced(MANAGER)).await?;
        let Some(entries) = ownership::without_first_apply_echo(&answer) else {
            return Ok(self.give_up_applied(desired, answer).await);
        };
        let version = resource_version(&answer).to_owned();
        let answer = match self.cluster().rewrite_managed_fields(kind, namespace, name, &version, &entries).await {
            // The object changed in the meantime; the next apply finds the entry again.
            Err(error) if error.is_conflict() => answer,
            rewritten => rewritten?,
        };
        Ok(self.give_up_applied(desired, answer).await)
    }

    /// Handles a refused apply. After the first refusal, claims the fields in the server's error, and the apply is
    /// repeated.
    ///
    /// # Errors
    /// The refusal, if no field was claimed.
    async fn make_way_after(&self, way: &mut Way<'_>, refused: Error) -> Result<(), Error> {
        if way.collisions == Collisions::Stay {
            return Err(refused);
        }
        let ground = Ground::of(&refused);
        if way.grounds.is_empty() {
            let is_known = way.held_back && self.is_known_refusal(way.desired, &ground);
            way.may_help = refused.is_invalid() && !is_known;
            let causes = refused.refusal().map(|refusal| refusal.causes.clone()).unwrap_or_default();
            let causes = causes.iter().map(|cause| cause.field.as_str()).collect::<Vec<_>>();
            let desired = way.desired;
            let by_refusal = |body: &Value, live: &Value, now: &str| {
                let collision = collision::refused(body, live, &causes, now);
                stale_defaults::with(collision, Reach::Strangers, (desired, body), live, now)
            };
            way.grounds.push(ground);
            // If the read fails, the refusal stays the error.
            if way.may_help && self.make_way(way, None, by_refusal).await.unwrap_or(false) {
                return Ok(());
            }
        } else {
            way.grounds.push(ground);
        }
        if let Some((entries, version)) = &way.before {
            // The claimed fields were not the reason, so their managers get them back. If the object changed in the
            // meantime, the next successful apply removes them.
            let _ = self.rewrite(way.desired, version, entries).await;
        }
        if way.may_help || way.before.is_some() {
            self.was_futile(way.desired, way.seen, std::mem::take(&mut way.grounds));
        }
        Err(refused)
    }

    /// Whether an apply must not claim fields before it is refused for a new reason.
    fn holds_back(&self, desired: &Desired, seen: Option<&Value>) -> bool {
        let mut store = self.store();
        let is_futile = |managed: &Managed| managed.failing.as_ref().is_some_and(|failing| failing.futile.is_some());
        if !store.get(&desired.key).is_some_and(is_futile) {
            return false;
        }
        let attempted = Attempted::over(desired, seen);
        let Some(mut managed) = store.get_mut(&desired.key) else { return false };
        let futile = managed.failing().futile.as_mut().filter(|futile| futile.is_of(&attempted));
        futile.is_some_and(Futile::holds_back)
    }

    fn is_known_refusal(&self, desired: &Desired, ground: &Ground) -> bool {
        let store = self.store();
        let failing = store.get(&desired.key).and_then(|managed| managed.failing.as_ref());
        failing.and_then(|failing| failing.futile.as_ref()).is_some_and(|futile| futile.knows(ground))
    }

    /// Records that claiming fields did not help against a refusal.
    fn was_futile(&self, desired: &Desired, seen: Option<&Value>, grounds: Vec<Ground>) {
        let attempted = Attempted::over(desired, seen);
        let mut store = self.store();
        let Some(mut managed) = store.get_mut(&desired.key) else { return };
        let failing = managed.failing();
        let futile = failing.futile.take().filter(|futile| futile.is_of(&attempted));
        let mut futile = futile.unwrap_or_else(|| Futile::new(attempted));
        for ground in grounds {
            futile.refused(ground);
        }
        failing.futile = Some(futile);
    }

    /// Claims colliding fields, so that the next apply removes them. Returns whether there were any. After a conflict,
    /// the object is read again.
    async fn make_way(
        &self,
        way: &mut Way<'_>,
        seen: Option<&Value>,
        collision: impl Fn(&Value, &Value, &str) -> Option<Collision>,
    ) -> Result<bool, Error> {
        let desired = way.desired;
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let mut read = None;
        for _ in 0..RACES {
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
            let Some(Collision { entries, who }) = collision(way.body, live, &self.now().to_string()) else {
                return Ok(false);
            };
            let rewritten = match self.rewrite(desired, version, &entries).await {
                Err(error) if error.is_conflict() && expected.is_none() => {
                    read = self.cluster().get(&desired.kind, namespace, name).await?;
                    continue;
                }
                rewritten => resource_version(&rewritten?).to_owned(),
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

    /// Writes `managedFields` if the object still has this version. Returns the new object.
    pub(super) async fn rewrite(&self, desired: &Desired, version: &str, entries: &Value) -> Result<Value, Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        self.cluster().rewrite_managed_fields(&desired.kind, namespace, name, version, entries).await
    }
}
