//! The objects of the store, with a tally for each owner that follows every change. A status reads the tally, so its
//! cost does not grow with the number of objects.
//!
//! Invariant: a tally equals a count of its owner's objects. Objects are changed only through [`WriteGuard`], which
//! updates it.
//! Invariant: the owner of a stored object does not change.

use std::collections::hash_map::{HashMap, Iter};
use std::collections::{BTreeSet, HashSet};
use std::ops::{Deref, DerefMut};

use super::object::{Managed, REMARKABLE};
use super::phase::Phase;
use mainstay_object::{Health, Key, Owner};

/// All stored objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// Each object is behind a pointer, because the table may allocate twice as many entries as it has.
    by_key: HashMap<Key, Box<Managed>>,
    tallies: HashMap<Owner, Tally>,
    /// Objects whose revert or report is queued.
    queued: usize,
}

/// A category of objects in a status, in addition to the number of all objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// The object reports a permanent failure.
    Broken,
    /// The object is not healthy yet.
    Progressing,
    /// The last revert or report of the object failed.
    Failed,
    /// Reverts of the object failed often enough to affect the condition Ready.
    NotPutBack,
    /// The object is paused.
    Paused,
    /// Another manager keeps changing the object.
    Contended,
    /// The object drifted and is not reverted immediately.
    Drifted,
    /// The object is missing and is not recreated immediately.
    Absent,
}

const TOPICS: [Topic; 8] = [
    Topic::Broken,
    Topic::Progressing,
    Topic::Failed,
    Topic::NotPutBack,
    Topic::Paused,
    Topic::Contended,
    Topic::Drifted,
    Topic::Absent,
];

/// Counts and sets of an owner's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    keys: HashSet<Key>,
    /// Number of objects that were applied.
    pub(crate) applied: usize,
    /// Number of those that are healthy.
    pub(crate) healthy: usize,
    /// Number of objects that were reverted recently.
    pub(crate) backing_off: usize,
    /// The objects of each topic, sorted by key.
    topics: [BTreeSet<Key>; TOPICS.len()],
}

/// The contribution of one object to a tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    applied: bool,
    healthy: bool,
    backing_off: bool,
    queued: bool,
    topics: [bool; TOPICS.len()],
}

/// A write guard of an object. Updates the tally when it is dropped.
pub(crate) struct WriteGuard<'o> {
    managed: &'o mut Managed,
    tallies: &'o mut HashMap<Owner, Tally>,
    queued: &'o mut usize,
    before: Counts,
}

impl Objects {
    pub(crate) fn get(&self, key: &Key) -> Option<&Managed> {
        self.by_key.get(key).map(|managed| &**managed)
    }

    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<WriteGuard<'_>> {
        let managed = &mut **self.by_key.get_mut(key)?;
        let before = Counts::of(managed);
        Some(WriteGuard { managed, tallies: &mut self.tallies, queued: &mut self.queued, before })
    }

    pub(crate) fn insert(&mut self, key: Key, managed: Managed) {
        self.remove(&key);
        let tally = self.tallies.entry(managed.owner.clone()).or_default();
        tally.keys.insert(key.clone());
        let counts = Counts::of(&managed);
        tally.count(&key, counts);
        self.queued += usize::from(counts.queued);
        self.by_key.insert(key, Box::new(managed));
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        drop(self.take(key));
    }

    /// Removes an object and returns it.
    pub(crate) fn take(&mut self, key: &Key) -> Option<Box<Managed>> {
        let managed = self.by_key.remove(key)?;
        let counts = Counts::of(&managed);
        self.queued -= usize::from(counts.queued);
        if let Some(tally) = self.tallies.get_mut(&managed.owner) {
            tally.discount(key, counts);
            tally.keys.remove(key);
            if tally.keys.is_empty() {
                self.tallies.remove(&managed.owner);
            }
        }
        Some(managed)
    }

    pub(crate) fn remove_owner(&mut self, owner: &Owner) {
        for key in self.tallies.remove(owner).into_iter().flat_map(|tally| tally.keys) {
            let removed = self.by_key.remove(&key);
            self.queued -= usize::from(removed.is_some_and(|managed| managed.write.is_queued()));
        }
    }

    /// Returns the number of queued reverts and reports.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Returns all objects.
    pub(crate) fn iter(&self) -> Iter<'_, Key, Box<Managed>> {
        self.by_key.iter()
    }

    /// Returns the objects of an owner.
    pub(crate) fn of<'o>(&'o self, owner: &Owner) -> impl Iterator<Item = (&'o Key, &'o Managed)> + use<'o> {
        let keys = self.tallies.get(owner).into_iter().flat_map(|tally| &tally.keys);
        keys.filter_map(|key| Some((key, self.get(key)?)))
    }

    /// Returns the tally of an owner; `None` if it has no objects.
    pub(crate) fn tally(&self, owner: &Owner) -> Option<&Tally> {
        self.tallies.get(owner)
    }
}

impl Tally {
    /// Returns the objects of a topic.
    pub(crate) fn about(&self, topic: Topic) -> &BTreeSet<Key> {
        &self.topics[topic as usize]
    }

    fn count(&mut self, key: &Key, counts: Counts) {
        self.applied += usize::from(counts.applied);
        self.healthy += usize::from(counts.healthy);
        self.backing_off += usize::from(counts.backing_off);
        for (keys, _) in self.topics.iter_mut().zip(counts.topics).filter(|(_, counts)| *counts) {
            keys.insert(key.clone());
        }
    }

    fn discount(&mut self, key: &Key, counts: Counts) {
        self.applied -= usize::from(counts.applied);
        self.healthy -= usize::from(counts.healthy);
        self.backing_off -= usize::from(counts.backing_off);
        for (keys, _) in self.topics.iter_mut().zip(counts.topics).filter(|(_, counts)| *counts) {
            keys.remove(key);
        }
    }
}

impl Counts {
    fn of(managed: &Managed) -> Self {
        let applied = !managed.phase.is_leaving() && managed.is_applied();
        let failure = managed.failure().filter(|_| applied);
        let is_absent = applied && managed.remains_absent();
        // The last health of a missing object is outdated.
        let is_there = applied && !is_absent;
        let is_about = |topic| match topic {
            Topic::Broken => is_there && matches!(managed.health, Health::Failed(_)),
            Topic::Progressing => is_there && matches!(managed.health, Health::Progressing(_)),
            Topic::Failed => failure.is_some(),
            Topic::NotPutBack => failure.is_some_and(|failure| !failure.reports) && managed.attempts() >= REMARKABLE,
            Topic::Paused => matches!(managed.phase, Phase::Paused(_)),
            Topic::Contended => applied && managed.damping.as_ref().is_some_and(|damping| damping.contended.is_some()),
            Topic::Drifted => applied && managed.drift.is_some(),
            Topic::Absent => is_absent,
        };
        Self {
            applied,
            healthy: is_there && managed.health == Health::Healthy,
            backing_off: managed.damping.is_some(),
            queued: managed.write.is_queued(),
            topics: TOPICS.map(is_about),
        }
    }
}

impl Deref for WriteGuard<'_> {
    type Target = Managed;

    fn deref(&self) -> &Managed {
        self.managed
    }
}

impl DerefMut for WriteGuard<'_> {
    fn deref_mut(&mut self) -> &mut Managed {
        self.managed
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        let after = Counts::of(self.managed);
        *self.queued += usize::from(after.queued);
        *self.queued -= usize::from(self.before.queued);
        if after != self.before
            && let Some(tally) = self.tallies.get_mut(&self.managed.owner)
        {
            // The key of the document equals the key in the tables.
            let key = &self.managed.desired.key;
            tally.discount(key, self.before);
            tally.count(key, after);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::managed::apply_state::ApplyState;
    use crate::managed::attempts::Ground;
    use crate::managed::object::{Damping, FailedReverts, Failing, NotPutBack};
    use crate::managed::verdict::LastApplied;
    use crate::managed::{Desired, Mark, PauseEnd};
    use mainstay_cluster::{Kind, Scope};
    use mainstay_object::{Object, Place};

    fn managed(owner: &str, name: &str, generation: u32) -> Managed {
        let kind = Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced));
        let document = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let object = Arc::new(Object::from_value(&document, Place::file("a.yaml")).unwrap());
        let key = kind.key(Some("shop"), name);
        let desired = Arc::new(Desired { key, kind, object, mark: Mark::Label("shop.demo".into()), ignored: None });
        Managed::new(&Owner::git_sync("shop", owner), desired, LastApplied::default(), generation)
    }

    fn applied(version: &str) -> ApplyState {
        ApplyState::known(LastApplied { resource_version: version.into(), ..LastApplied::default() })
    }

    /// Counts all objects, to compare with the tallies.
    fn counted(objects: &Objects) -> HashMap<Owner, Tally> {
        let mut tallies: HashMap<Owner, Tally> = HashMap::new();
        for (key, managed) in objects.iter() {
            let tally = tallies.entry(managed.owner.clone()).or_default();
            tally.keys.insert(key.clone());
            tally.count(key, Counts::of(managed));
        }
        tallies
    }

    #[test]
    fn a_tally_equals_a_count_after_any_change() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut objects = Objects::default();
        for step in 0..5000 {
            let (owner, name) = (random.choice(["a", "b", "c"]).unwrap(), format!("o{}", random.u8(..20)));
            let fresh = managed(owner, &name, step);
            let key = fresh.desired.key.clone();
            match random.u8(..12) {
                0 | 1 => objects.insert(key, fresh),
                2 => objects.remove(&key),
                3 if random.u8(..20) == 0 => objects.remove_owner(&Owner::git_sync("shop", owner)),
                change => {
                    let Some(mut guard) = objects.get_mut(&key) else { continue };
                    match change {
                        4 | 5 => guard.applied = applied(random.choice(["", "5"]).unwrap()),
                        6 | 7 => guard.health = Health::Healthy,
                        8 => guard.health = Health::Failed("why".into()),
                        9 => match random.choice([None, Some(PauseEnd::Open), Some(PauseEnd::Unreadable)]).unwrap() {
                            Some(until) => _ = guard.phase.begin_pause(until),
                            None => _ = guard.phase.end_pause(),
                        },
                        10 => guard.damping = random.bool().then(Box::default),
                        11 => {
                            let contended = random.bool().then(|| (Vec::new(), String::new()));
                            guard.damping = Some(Box::new(Damping { contended, ..Damping::default() }));
                        }
                        12 => {
                            let (reports, fields, cause) = (random.bool(), Vec::new(), String::new());
                            let failure =
                                NotPutBack { reports, fields, cause, advice: None, ground: Ground::default() };
                            let reverts = FailedReverts { failure, attempts: random.u32(..3), not_before: None };
                            let failing = Failing { reverts: Some(reverts), futile: None };
                            guard.failing = random.bool().then(|| Box::new(failing));
                        }
                        _ if random.bool() => guard.phase.leave(),
                        _ => _ = guard.phase.stay(),
                    }
                }
            }
            assert_eq!(objects.tallies, counted(&objects), "after step {step}");
        }
    }

    #[test]
    fn healthy_objects_have_no_topics() {
        let mut objects = Objects::default();
        for number in 0..100 {
            let fresh = managed("a", &format!("o{number}"), 0);
            let key = fresh.desired.key.clone();
            objects.insert(key.clone(), fresh);
            let mut guard = objects.get_mut(&key).unwrap();
            guard.applied = applied("5");
            guard.health = Health::Healthy;
            guard.damping = Some(Box::default());
        }
        let tally = objects.tally(&Owner::git_sync("shop", "a")).unwrap();
        assert_eq!((tally.applied, tally.healthy, tally.backing_off), (100, 100, 100));
        assert!(TOPICS.iter().all(|topic| tally.about(*topic).is_empty()));
    }
}
