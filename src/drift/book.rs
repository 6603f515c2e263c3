//! The objects of the ledger, and what of them counts for their owners, kept as they change.
//!
//! So what a status says of an owner's objects costs as much as there is to say, however many objects are kept, and for
//! whomever.
//!
//! Invariant: a tally is what counting its owner's objects would give; an object is changed through [`Touched`] alone,
//! which sees to that.
//! Invariant: an object's owner does not change while it is kept.

use std::collections::hash_map::{HashMap, Iter};
use std::collections::{BTreeSet, HashSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::desired::Owner;
use super::managed::{Managed, REMARKABLE};
use crate::object::{Health, Key};

/// All objects that are kept.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Each behind a pointer: a table has room for up to twice as many as are in it.
    objects: HashMap<Key, Box<Managed>>,
    tallies: HashMap<Owner, Tally>,
}

/// Something that a status says of an object, beside that it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    /// It failed for good by its own word.
    Broken,
    /// It is not healthy yet.
    Progressing,
    /// The last revert or report of it failed.
    Failed,
    /// A revert failed so often that Ready says so.
    NotPutBack,
    /// It is under break glass.
    Paused,
    /// Somebody keeps changing it.
    Contended,
}

const TOPICS: [Topic; 6] =
    [Topic::Broken, Topic::Progressing, Topic::Failed, Topic::NotPutBack, Topic::Paused, Topic::Contended];

/// What of an owner's objects counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    keys: HashSet<Key>,
    /// Objects that were applied.
    pub(super) applied: usize,
    /// Of them, how many are healthy.
    pub(super) healthy: usize,
    /// Objects that were put back lately.
    pub(super) heated: usize,
    /// The objects of each topic, in the order of their keys.
    topics: [BTreeSet<Key>; TOPICS.len()],
    /// Objects of which was verified what their owner was not shown.
    pub(super) unnoted: HashSet<Key>,
}

/// How one object counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    applied: bool,
    healthy: bool,
    heated: bool,
    topics: [bool; TOPICS.len()],
    unnoted: bool,
}

/// An object that is being changed; how it counts follows when this is dropped.
pub(super) struct Touched<'b> {
    managed: &'b mut Managed,
    tallies: &'b mut HashMap<Owner, Tally>,
    before: Counts,
}

impl Book {
    pub(super) fn get(&self, key: &Key) -> Option<&Managed> {
        self.objects.get(key).map(|managed| &**managed)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<Touched<'_>> {
        let managed = &mut **self.objects.get_mut(key)?;
        Some(Touched { before: Counts::of(managed), managed, tallies: &mut self.tallies })
    }

    pub(super) fn insert(&mut self, key: Key, managed: Managed) {
        self.remove(&key);
        let tally = self.tallies.entry(Arc::clone(&managed.owner)).or_default();
        tally.keys.insert(key.clone());
        tally.count(&key, Counts::of(&managed));
        self.objects.insert(key, Box::new(managed));
    }

    pub(super) fn remove(&mut self, key: &Key) {
        let Some(managed) = self.objects.remove(key) else { return };
        let Some(tally) = self.tallies.get_mut(&managed.owner) else { return };
        tally.discount(key, Counts::of(&managed));
        tally.keys.remove(key);
        if tally.keys.is_empty() {
            self.tallies.remove(&managed.owner);
        }
    }

    pub(super) fn remove_owner(&mut self, owner: &Owner) {
        for key in self.tallies.remove(owner).into_iter().flat_map(|tally| tally.keys) {
            self.objects.remove(&key);
        }
    }

    /// All objects.
    pub(super) fn iter(&self) -> Iter<'_, Key, Box<Managed>> {
        self.objects.iter()
    }

    /// All objects of an owner.
    pub(super) fn of<'b>(&'b self, owner: &Owner) -> impl Iterator<Item = (&'b Key, &'b Managed)> + use<'b> {
        let keys = self.tallies.get(owner).into_iter().flat_map(|tally| &tally.keys);
        keys.filter_map(|key| Some((key, self.get(key)?)))
    }

    /// What of an owner's objects counts; `None` when it has none.
    pub(super) fn tally(&self, owner: &Owner) -> Option<&Tally> {
        self.tallies.get(owner)
    }
}

impl Tally {
    /// The objects that a status names for this.
    pub(super) fn about(&self, topic: Topic) -> &BTreeSet<Key> {
        &self.topics[topic as usize]
    }

    fn count(&mut self, key: &Key, counts: Counts) {
        self.applied += usize::from(counts.applied);
        self.healthy += usize::from(counts.healthy);
        self.heated += usize::from(counts.heated);
        for (keys, _) in self.topics.iter_mut().zip(counts.topics).filter(|(_, counts)| *counts) {
            keys.insert(key.clone());
        }
        if counts.unnoted {
            self.unnoted.insert(key.clone());
        }
    }

    fn discount(&mut self, key: &Key, counts: Counts) {
        self.applied -= usize::from(counts.applied);
        self.healthy -= usize::from(counts.healthy);
        self.heated -= usize::from(counts.heated);
        for (keys, _) in self.topics.iter_mut().zip(counts.topics).filter(|(_, counts)| *counts) {
            keys.remove(key);
        }
        if counts.unnoted {
            self.unnoted.remove(key);
        }
    }
}

impl Counts {
    fn of(managed: &Managed) -> Self {
        let applied = !managed.tombstoned && managed.is_applied();
        let failure = managed.failure.as_ref().filter(|_| applied);
        let is_about = |topic| match topic {
            Topic::Broken => applied && matches!(managed.health, Health::Failed(_)),
            Topic::Progressing => applied && matches!(managed.health, Health::Progressing(_)),
            Topic::Failed => failure.is_some(),
            Topic::NotPutBack => failure.is_some_and(|failure| !failure.reports) && managed.attempts >= REMARKABLE,
            Topic::Paused => !managed.tombstoned && managed.paused.is_some(),
            Topic::Contended => applied && managed.contended.is_some(),
        };
        Self {
            applied,
            healthy: applied && managed.health == Health::Healthy,
            heated: managed.heat.is_some(),
            topics: TOPICS.map(is_about),
            unnoted: managed.unnoted,
        }
    }
}

impl Deref for Touched<'_> {
    type Target = Managed;

    fn deref(&self) -> &Managed {
        self.managed
    }
}

impl DerefMut for Touched<'_> {
    fn deref_mut(&mut self) -> &mut Managed {
        self.managed
    }
}

impl Drop for Touched<'_> {
    fn drop(&mut self) {
        let after = Counts::of(self.managed);
        if after != self.before
            && let Some(tally) = self.tallies.get_mut(&self.managed.owner)
        {
            // The key of the document is the one that is in the tables already.
            let key = &self.managed.desired.key;
            tally.discount(key, self.before);
            tally.count(key, after);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::cluster::{Kind, Scope};
    use crate::drift::attempts::Ground;
    use crate::drift::decide::Verified;
    use crate::drift::managed::NotPutBack;
    use crate::drift::{Desired, Mark};
    use crate::object::{Object, Place};

    fn managed(owner: &str, name: &str, ticket: u32) -> Managed {
        let kind = Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced));
        let document = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let object = Arc::new(Object::from_value(&document, Place::file("a.yaml")).unwrap());
        let key = kind.key(Some("shop"), name);
        let desired = Arc::new(Desired { key, kind, object, mark: Mark::Label("shop.demo".into()) });
        Managed::new(&owner.into(), desired, Verified::default(), ticket)
    }

    /// The tallies as counting everything gives them.
    fn counted(book: &Book) -> HashMap<Owner, Tally> {
        let mut tallies: HashMap<Owner, Tally> = HashMap::new();
        for (key, managed) in book.iter() {
            let tally = tallies.entry(Arc::clone(&managed.owner)).or_default();
            tally.keys.insert(key.clone());
            tally.count(key, Counts::of(managed));
        }
        tallies
    }

    #[test]
    fn a_tally_is_what_counting_gives_whatever_happens_to_the_objects() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut book = Book::default();
        for step in 0..5000 {
            let (owner, name) = (random.choice(["a", "b", "c"]).unwrap(), format!("o{}", random.u8(..20)));
            let fresh = managed(owner, &name, step);
            let key = fresh.desired.key.clone();
            match random.u8(..12) {
                0 | 1 => book.insert(key, fresh),
                2 => book.remove(&key),
                3 if random.u8(..20) == 0 => book.remove_owner(&owner.into()),
                change => {
                    let Some(mut touched) = book.get_mut(&key) else { continue };
                    match change {
                        4 | 5 => touched.verified.resource_version = random.choice(["", "5"]).unwrap().into(),
                        6 | 7 => touched.health = Health::Healthy,
                        8 => touched.health = Health::Failed("why".into()),
                        9 => {
                            touched.paused =
                                random.choice([None, Some(None), Some(Some(Timestamp::UNIX_EPOCH))]).unwrap();
                        }
                        10 => touched.heat = random.bool().then(Box::default),
                        11 => touched.contended = random.bool().then(Box::default),
                        12 => {
                            let (reports, fields, cause) = (random.bool(), Vec::new(), String::new());
                            let failure = NotPutBack { reports, fields, cause, ground: Ground::default() };
                            touched.failure = random.bool().then(|| Box::new(failure));
                            touched.attempts = random.u32(..3);
                        }
                        13 if random.bool() => touched.unnoted = random.bool(),
                        _ => touched.tombstoned = random.bool(),
                    }
                }
            }
            assert_eq!(book.tallies, counted(&book), "after step {step}");
        }
    }

    #[test]
    fn there_is_nothing_to_walk_where_all_is_well() {
        let mut book = Book::default();
        for number in 0..100 {
            let fresh = managed("a", &format!("o{number}"), 0);
            let key = fresh.desired.key.clone();
            book.insert(key.clone(), fresh);
            let mut touched = book.get_mut(&key).unwrap();
            touched.verified.resource_version = "5".into();
            touched.health = Health::Healthy;
            touched.heat = Some(Box::default());
        }
        let tally = book.tally(&"a".into()).unwrap();
        assert_eq!((tally.applied, tally.healthy, tally.heated), (100, 100, 100));
        assert!(TOPICS.iter().all(|topic| tally.about(*topic).is_empty()));
    }
}
