//! The numbers of changed objects for a commit, over all rounds, and the first of these objects.
//!
//! Invariant: a tally keeps at most [`NAMED_OBJECTS`] objects, so that a commit with many objects takes no more memory.
//! Invariant: the kept objects do not depend on the order in which objects are counted.

use mainstay_api::git_sync::{ChangedObject, NAMED_OBJECTS, ObjectChange};
use mainstay_object::Key;

/// The counts so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) created: usize,
    pub(super) changed: usize,
    pub(super) unchanged: usize,
    /// Deletions that the server has accepted.
    pub(super) pruned: usize,
    /// Whether this round created or changed a Namespace or CustomResourceDefinition.
    pub(super) has_definitions: bool,
    /// The first objects by change and key, sorted.
    first: Vec<(ObjectChange, Key)>,
}

impl Tally {
    /// Counts a change of an object.
    pub(super) fn add(&mut self, change: ObjectChange, key: &Key) {
        match change {
            ObjectChange::Created => self.created += 1,
            ObjectChange::Changed => self.changed += 1,
            ObjectChange::Pruned => self.pruned += 1,
        }
        let place = self.first.binary_search_by(|(known, of)| (known, of).cmp(&(&change, key)));
        if let Err(at) = place
            && at < NAMED_OBJECTS
        {
            self.first.truncate(NAMED_OBJECTS - 1);
            self.first.insert(at, (change, key.clone()));
        }
    }

    /// Returns the first objects: the created ones, then the changed and the pruned ones, each sorted by key.
    pub(super) fn first(&self) -> impl Iterator<Item = ChangedObject> {
        self.first.iter().map(|(change, key)| ChangedObject { object: key.to_string(), change: *change })
    }

    /// Returns the tally at the start of the next round. Objects that an earlier round created or changed are
    /// `unchanged` in the next round, so they are subtracted.
    pub(super) fn next_round(self, unchanged: usize) -> Self {
        let unchanged = unchanged.saturating_sub(self.created + self.changed);
        Self { unchanged, has_definitions: false, ..self }
    }

    /// Returns the number of writes.
    pub(super) fn affected(&self) -> usize {
        self.created + self.changed + self.pruned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: &str, name: &str) -> Key {
        Key::new("", kind, Some("shop"), name)
    }

    fn first(tally: &Tally) -> Vec<String> {
        tally.first().map(|one| format!("{} {}", one.change.word(), one.object)).collect()
    }

    #[test]
    fn created_objects_are_first_then_changed_then_pruned_ones_sorted_by_key() {
        let changes = [
            (ObjectChange::Created, key("Secret", "a")),
            (ObjectChange::Created, key("ConfigMap", "z")),
            (ObjectChange::Changed, key("ConfigMap", "b")),
            (ObjectChange::Pruned, key("ConfigMap", "a")),
        ];
        let expected = [
            "created ConfigMap shop/z",
            "created Secret shop/a",
            "changed ConfigMap shop/b",
            "pruned ConfigMap shop/a",
        ];
        // The responses arrive in any order.
        for turn in 0..changes.len() {
            let mut tally = Tally::default();
            for (change, key) in changes.iter().cycle().skip(turn).take(changes.len()) {
                tally.add(*change, key);
            }
            assert_eq!(first(&tally), expected);
            assert_eq!((tally.created, tally.changed, tally.pruned, tally.affected()), (2, 1, 1, 4));
        }
    }

    #[test]
    fn ten_of_ten_thousand_objects_are_kept() {
        let mut tally = Tally::default();
        for number in (0..10_000).rev() {
            tally.add(ObjectChange::Changed, &key("ConfigMap", &format!("map-{number:04}")));
        }
        tally.add(ObjectChange::Pruned, &key("ConfigMap", "map"));
        let expected: Vec<String> = (0..10).map(|number| format!("changed ConfigMap shop/map-000{number}")).collect();
        assert_eq!(first(&tally), expected);
        assert!(tally.first.capacity() <= 2 * NAMED_OBJECTS, "{}", tally.first.capacity());
        assert_eq!(tally.affected(), 10_001);
        // A created object comes before the changed ones, and the last one makes way.
        tally.add(ObjectChange::Created, &key("Secret", "new"));
        assert_eq!(first(&tally)[..2], ["created Secret shop/new", "changed ConfigMap shop/map-0000"]);
        assert_eq!(tally.first.len(), NAMED_OBJECTS);
    }

    #[test]
    fn an_object_is_named_once_for_each_kind_of_change() {
        let mut tally = Tally::default();
        let replaced = key("ConfigMap", "a");
        for change in [ObjectChange::Changed, ObjectChange::Created, ObjectChange::Changed] {
            tally.add(change, &replaced);
            tally = tally.next_round(1);
        }
        assert_eq!(first(&tally), ["created ConfigMap shop/a", "changed ConfigMap shop/a"]);
        assert_eq!((tally.created, tally.changed, tally.unchanged), (1, 2, 0));
    }
}
