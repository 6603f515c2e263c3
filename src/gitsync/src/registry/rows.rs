//! The rows of all GitSyncs, indexed by object and by label.
//!
//! Invariant: the index of an object contains exactly the GitSyncs whose rows contain the object.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::row::{ChangedSync, Row};
use mainstay_object::{Key, Owner};

/// All rows, with the indexes.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(super) owners: HashMap<Owner, Row>,
    naming: HashMap<Key, Vec<Owner>>,
    labelled: HashMap<Arc<str>, Vec<Owner>>,
}

/// The indexed parts of a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Indexed {
    label: Arc<str>,
    /// Managed, applied and desired objects, and the readable objects of an unreadable commit.
    sets: [Option<Arc<HashSet<Key>>>; 4],
    reads_by: Arc<[Key]>,
}

impl Indexed {
    pub(super) fn of(row: &Row) -> Self {
        let readable = row.cannot_read.as_ref().map(|one| Arc::clone(&one.readable));
        let sets = [row.managed.clone(), row.taken.clone(), row.desired.clone(), readable];
        Self { label: Arc::clone(&row.label), sets, reads_by: Arc::clone(&row.reads_by) }
    }

    fn names(&self, key: &Key) -> bool {
        self.sets.iter().flatten().any(|set| set.contains(key)) || self.reads_by.contains(key)
    }

    /// Returns every object in the row; some occur twice.
    fn keys(&self) -> impl Iterator<Item = &Key> {
        self.sets.iter().flatten().flat_map(|set| set.iter()).chain(self.reads_by.iter())
    }

    /// Whether two rows share their sets. Equal but separate sets count as different.
    fn is_same(&self, other: &Self) -> bool {
        let is_same = |(own, other): (&Option<Arc<_>>, &Option<Arc<_>>)| match (own, other) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        };
        self.label == other.label
            && self.sets.iter().zip(&other.sets).all(is_same)
            && Arc::ptr_eq(&self.reads_by, &other.reads_by)
    }
}

impl Rows {
    /// Returns the GitSyncs whose rows contain an object.
    pub(super) fn naming(&self, key: &Key) -> impl Iterator<Item = &Owner> {
        self.naming.get(key).into_iter().flatten()
    }

    /// Returns the GitSyncs with a label.
    pub(super) fn labelled(&self, label: &str) -> impl Iterator<Item = &Owner> {
        self.labelled.get(label).into_iter().flatten()
    }

    /// Updates the indexes after a change of a row; `before` is its earlier state.
    pub(super) fn index(&mut self, owner: &Owner, before: Option<Indexed>) {
        let now = self.owners.get(owner).map(Indexed::of);
        if let (Some(before), Some(now)) = (&before, &now)
            && before.is_same(now)
        {
            return;
        }
        let (is_new, is_gone) = (before.is_none(), now.is_none());
        let (before, now) = (before.unwrap_or_default(), now.unwrap_or_default());
        for key in before.keys().filter(|key| !now.names(key)) {
            remove(&mut self.naming, key, owner);
        }
        for key in now.keys().filter(|key| !before.names(key)) {
            let owners = self.naming.entry(key.clone()).or_default();
            if !owners.contains(owner) {
                owners.push(owner.clone());
            }
        }
        if !is_new && (is_gone || before.label != now.label) {
            remove(&mut self.labelled, &before.label, owner);
        }
        if !is_gone && (is_new || before.label != now.label) {
            self.labelled.entry(now.label).or_default().push(owner.clone());
        }
    }

    /// Ends the wait for a GitSync that has made an attempt with the spec that a commit gave it. Later changes of it delay
    /// no other GitSync.
    pub(super) fn forget_tried(&mut self, owner: &Owner) {
        let Some((tried, spec)) = self.owners.get(owner).map(|row| (row.tried, row.spec.clone())) else { return };
        let tried = Row { tried, spec, ..Row::default() };
        let has_tried = |changed: &ChangedSync| matches!(changed, ChangedSync::Applied(spec) if tried.has_tried(spec));
        for row in self.owners.values_mut() {
            if row.changed_syncs.get(owner).is_some_and(has_tried) {
                row.changed_syncs.remove(owner);
            }
        }
    }

    /// Removes a GitSync, which wants no object any more.
    pub(super) fn remove(&mut self, owner: &Owner) {
        let before = self.owners.remove(owner);
        for row in self.owners.values_mut() {
            if matches!(row.changed_syncs.get(owner), Some(ChangedSync::Applied(_))) {
                row.changed_syncs.remove(owner);
            }
        }
        self.index(owner, before.as_ref().map(Indexed::of));
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty() && self.naming.is_empty() && self.labelled.is_empty()
    }
}

fn remove<K: Eq + std::hash::Hash>(index: &mut HashMap<K, Vec<Owner>>, key: &K, owner: &Owner) {
    let Some(owners) = index.get_mut(key) else { return };
    owners.retain(|other| other != owner);
    if owners.is_empty() {
        index.remove(key);
    }
}
