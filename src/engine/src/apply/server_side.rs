//! A server-side apply, in the place of what somebody wrote where ours has to be: that makes way for it, where it helps.
//!
//! Invariant: what makes way for an apply that is refused all the same stays whose it was, and does not make way again for
//! the same refusal ([`Futile`]).
//!
//! Deliberately absent: what makes way; that is `collision`'s.

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

/// How often an object that is written all the time is read again before something in it makes way.
const WRITTEN_MEANWHILE: usize = 5;

/// An apply that went through.
pub(super) struct InPlace {
    pub(super) answer: Value,
    /// What is remembered of the answer: the caller hands it to the store.
    pub(super) answered: Answered,
    /// Who had written in the place of ours.
    pub(super) over: Option<String>,
}

/// What an apply does about what collides with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collisions {
    /// It makes way.
    MakeWay,
    /// It stays.
    Stay,
}

/// An apply for which something makes way.
struct Way<'a> {
    desired: &'a Arc<Desired>,
    body: &'a mut Value,
    seen: Option<&'a Value>,
    collisions: Collisions,
    /// Nothing made way before the first refusal, because it would not have helped.
    held_back: bool,
    /// Something was to make way because of the first refusal.
    may_help: bool,
    /// `managedFields` as they were, and the version that the object has since they were rewritten.
    before: Option<(Value, String)>,
    who: Option<String>,
    /// Why it was refused.
    grounds: Vec<Ground>,
}

impl Writer {
    /// Applies. What somebody wrote in the place of ours, or in a reserved field, makes way for it: before, where that is
    /// known from the object as it was `seen`, or after the server has refused to have both or has answered what is there.
    /// The version that the body expects follows what was written for that.
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
        let (namespace, name, reserved) =
            (desired.key.namespace.as_deref(), &*desired.key.name, desired.mark.reserved());
        let takes_back = self.store().takes_back(desired);
        let known = |body: &Value, live: &Value, now: &str| {
            let collision = reserved::with(collision::known(body, live, now), reserved, live, now);
            let collision = stale_defaults::with(collision, Reach::Nobodys, (desired, body), live, now);
            if takes_back { additions::with(collision, desired, live, now) } else { collision }
        };
        let is_added = |live: &Value| {
            reserved::is_added_to(reserved, live) || (takes_back && additions::are_in(desired, &desired.view(live)))
        };
        // An apply that leaves a reserved field to others is taken, and is not what is wanted: there is no use in it.
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
            let applied = async {
                let how = Apply::forced(MANAGER);
                let answer = self.cluster().apply(&desired.kind, namespace, name, way.body, how).await?;
                let Some(entries) = ownership::without_first_apply_echo(&answer) else {
                    return Ok(self.give_up_applied(desired, answer).await);
                };
                let version = resource_version(&answer).to_owned();
                let answer = match self
                    .cluster()
                    .rewrite_managed_fields(&desired.kind, namespace, name, &version, &entries)
                    .await
                {
                    // Someone wrote meanwhile: the next apply finds the entry again.
                    Err(error) if error.is_conflict() => answer,
                    rewritten => rewritten?,
                };
                Ok(self.give_up_applied(desired, answer).await)
            };
            let answer = match applied.await {
                Ok(answer) => answer,
                Err(refused) => {
                    self.make_way_after(&mut way, refused).await?;
                    continue;
                }
            };
            // Read without the store's lock: others wait for that.
            let rules = self.store().health_rules(&desired.key);
            let answered = Answered::of(desired, &answer, way.body, rules.as_deref());
            let is_over = way.collisions == Collisions::Stay || !way.grounds.is_empty();
            if is_over || !(is_added(&answer) || stale_defaults::are_in(desired, way.body, &answer)) {
                return Ok(InPlace { answer, answered, over: way.who });
            }
            // This is not all that was wanted: whoever fails now has to come back.
            self.store().answered(desired, answered);
            self.store().mark_outdated(&desired.key);
            if let Some(expected) = way.body.pointer_mut("/metadata/resourceVersion") {
                *expected = json!(resource_version(&answer));
            }
            self.make_way(&mut way, Some(&answer), known).await?;
            way.collisions = Collisions::Stay;
        }
    }

    /// An apply was refused: of the first refusal, what the server says that collides makes way, for the apply to be repeated.
    ///
    /// # Errors
    /// The refusal, where nothing makes way.
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
            // What cannot be read now is no reason to forget the refusal.
            if way.may_help && self.make_way(way, None, by_refusal).await.unwrap_or(false) {
                return Ok(());
            }
        } else {
            way.grounds.push(ground);
        }
        if let Some((entries, version)) = &way.before {
            // It was not because of them: they stay whose they were. Where somebody has written meanwhile, the next
            // apply that is taken removes them.
            let _ = self.rewrite(way.desired, version, entries).await;
        }
        if way.may_help || way.before.is_some() {
            self.was_futile(way.desired, way.seen, std::mem::take(&mut way.grounds));
        }
        Err(refused)
    }

    /// Whether nothing makes way for an apply before it is refused for a new reason.
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

    /// An apply was refused although something made way for it, or nothing could.
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

    /// Writes `managedFields`, if the object still has this version; the version that it has then.
    pub(super) async fn rewrite(&self, desired: &Desired, version: &str, entries: &Value) -> Result<Value, Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        self.cluster().rewrite_managed_fields(&desired.kind, namespace, name, version, entries).await
    }
}
