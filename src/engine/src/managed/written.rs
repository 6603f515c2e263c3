//! The store as it is written down: one inventory for each GitSync, changed in the same step as the objects.
//!
//! Invariant: an entry says what was last applied to its object, or that nothing was; nobody has to copy that from one to
//! the other.
//!
//! Deliberately absent: reading and writing the ConfigMaps (`gitsync`).

use std::collections::HashSet;
use std::sync::Arc;

use super::desired::Desired;
use super::inventory::{Entry, Inventory, Written, uid_text};
use super::store::Store;
use super::verdict::LastApplied;
use mainstay_object::{Key, Owner};

/// What follows from a commit that counts from now on.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    /// Objects that an earlier agent applied: they have to be looked at.
    pub(crate) expected: Vec<Arc<Desired>>,
    /// Objects that had left and are back: nobody looked at them meanwhile.
    pub(crate) back: Vec<Key>,
}

impl Store {
    /// The inventory of an owner, once it was read.
    pub fn inventory(&self, owner: &Owner) -> Option<Arc<Inventory>> {
        self.written.get(owner).map(|written| Arc::clone(&written.inventory))
    }

    /// The inventory of an owner was read.
    pub fn set_inventory(&mut self, owner: &Owner, inventory: Inventory) {
        self.written
            .insert(owner.clone(), Written { inventory: Arc::new(inventory), unsaved: false, is_urgent: false });
    }

    /// The objects that were applied for an owner, without those that have left: if one comes back, nobody knows what was
    /// done to it meanwhile.
    pub fn applied(&self, owner: &Owner) -> HashSet<Key> {
        let applied = self.kept_for(owner).filter(|(_, m)| m.is_applied() && !m.phase.is_leaving());
        applied.map(|(key, _)| key.clone()).collect()
    }

    /// These objects are about to be applied for an owner: they are listed from now on. Whether one was not.
    pub fn intend<'d>(&mut self, owner: &Owner, desired: impl Iterator<Item = &'d Arc<Desired>>) -> bool {
        let written = self.written.entry(owner.clone()).or_default();
        let mut grew = false;
        for desired in desired.filter(|desired| !written.inventory.0.contains_key(&desired.key)).collect::<Vec<_>>() {
            let entry = Entry { version: Arc::clone(&desired.kind.version), ..Entry::default() };
            Arc::make_mut(&mut written.inventory).0.insert(desired.key.clone(), entry);
            grew = true;
        }
        written.unsaved |= grew;
        grew
    }

    /// A commit wants these objects. What was applied as it wants it is kept at that from now on; the others are, once
    /// they are applied.
    pub(crate) fn accept(&mut self, owner: &Owner, desired: &[Arc<Desired>]) -> Accepted {
        let mut accepted = Accepted::default();
        let Some(inventory) = self.inventory(owner) else { return accepted };
        for desired in desired {
            let Some(entry) = inventory.0.get(&desired.key).filter(|entry| entry.is_for(desired)) else { continue };
            if let Some(mut managed) = self.get_mut(&desired.key).filter(|m| m.owner == *owner && m.is_applied()) {
                // The document may have moved, or was decoded again.
                managed.desired = Arc::clone(desired);
                // What is being created anew as it was is still on its way.
                if managed.successor.as_ref().is_some_and(|successor| successor.source() != desired.source()) {
                    managed.successor = None;
                }
                if managed.phase.stay() {
                    accepted.back.push(desired.key.clone());
                }
            } else if let Some(digest) = entry.digest {
                let uid = entry.uid.map(uid_text).unwrap_or_default().into();
                let last_applied = LastApplied { uid, digest: Some(digest), ..LastApplied::default() };
                let ended = entry.ended;
                self.hold(owner, Arc::clone(desired), last_applied);
                let Some(mut managed) = self.get_mut(&desired.key).filter(|m| m.owner == *owner) else { continue };
                managed.ended = ended;
                accepted.expected.push(Arc::clone(desired));
            }
        }
        accepted
    }

    /// An object is gone, or somebody else's: it is neither kept nor listed for this owner any more.
    pub(crate) fn remove(&mut self, owner: &Owner, key: &Key) {
        if self.objects.get(key).is_some_and(|m| m.owner == *owner) {
            self.objects.remove(key);
        }
        if let Some(written) = self.written.get_mut(owner).filter(|written| written.inventory.0.contains_key(key)) {
            Arc::make_mut(&mut written.inventory).0.remove(key);
            written.unsaved = true;
        }
    }

    /// Another owner is to take these objects. What is known of them is no longer true then: one that comes back to us is
    /// applied anew.
    pub fn give_up(&mut self, owner: &Owner, keys: &[Key]) {
        let Some(written) = self.written.get_mut(owner) else { return };
        for key in keys {
            let Some(entry) = written.inventory.0.get(key) else { continue };
            let given_up = Entry { version: Arc::clone(&entry.version), ..Entry::default() };
            written.set(key, given_up);
        }
    }

    /// The inventory of an owner, which is saved now.
    pub fn save(&mut self, owner: &Owner) -> Option<Arc<Inventory>> {
        let written = self.written.get_mut(owner)?;
        written.unsaved = false;
        Some(Arc::clone(&written.inventory))
    }

    /// Whether the inventory of an owner has changed since it was saved.
    pub fn is_unsaved(&self, owner: &Owner) -> bool {
        self.written.get(owner).is_some_and(|written| written.unsaved)
    }

    /// The inventory of an owner could not be saved.
    pub fn not_saved(&mut self, owner: &Owner) {
        if let Some(written) = self.written.get_mut(owner) {
            written.unsaved = true;
        }
    }

    /// Whether an object of an owner ended and its inventory does not say so yet. It is about to.
    pub fn take_urgent(&mut self, owner: &Owner) -> bool {
        self.written.get_mut(owner).is_some_and(|written| std::mem::take(&mut written.is_urgent) && written.unsaved)
    }

    /// That could not be saved.
    pub fn set_urgent(&mut self, owner: &Owner) {
        if let Some(written) = self.written.get_mut(owner) {
            written.is_urgent = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use jiff::Timestamp;
    use serde_json::Value;

    use super::*;
    use crate::managed::History;
    use crate::managed::fixtures::{POLICY, applied, live, verify};
    use crate::managed::inventory::uid_bytes;
    use crate::managed::pending::Next;

    #[test]
    fn a_revert_that_ends_as_the_last_apply_did_is_no_news_for_the_inventory() {
        let (mut store, desired) = applied();
        let owner = Owner::git_sync("shop", "demo");
        assert!(store.intend(&owner, std::iter::once(&desired)) && !store.intend(&owner, std::iter::once(&desired)));
        let mut unsaved = |answer: &Value| {
            verify(&mut store, &desired, answer, &desired.body());
            let unsaved = store.is_unsaved(&owner);
            assert!(store.save(&owner).unwrap().0[&desired.key].is_for(&desired));
            unsaved
        };
        assert!(unsaved(&live(5, "1")), "its first apply is answered");
        assert!(!unsaved(&live(6, "1")));
        assert!(unsaved(&live(7, "2")), "the server made something else of it");
        let mut other = live(8, "2");
        other["metadata"]["uid"] = "other".into();
        assert!(unsaved(&other), "it is another object");
    }

    #[test]
    fn the_uid_of_an_object_that_was_expected_without_one_is_written_down_when_it_is_seen() {
        let (before, desired) = applied();
        let (mut store, owner) = (Store::default(), Owner::git_sync("shop", "demo"));
        store.set_policy(&owner, POLICY, History::default());
        store.intend(&owner, std::iter::once(&desired));
        let digest = before.get(&desired.key).unwrap().applied.last().unwrap().digest;
        store.hold(&owner, Arc::clone(&desired), LastApplied { digest, ..LastApplied::default() });
        store.save(&owner);
        let see = |store: &mut Store, version| {
            store.see(&desired.kind, &desired.key, live(version, "1"), Instant::now(), Timestamp::UNIX_EPOCH)
        };
        assert_eq!(see(&mut store, 9), Next::Nothing);
        assert!(store.is_unsaved(&owner));
        assert_eq!(store.save(&owner).unwrap().0[&desired.key].uid, Some(uid_bytes("u")));
        assert_eq!(see(&mut store, 10), Next::Nothing);
        assert!(!store.is_unsaved(&owner), "it is the same object");
    }

    #[test]
    fn the_inventory_keeps_the_known_state_of_a_removed_object() {
        let (mut store, desired) = applied();
        let owner = Owner::git_sync("shop", "demo");
        store.intend(&owner, std::iter::once(&desired));
        verify(&mut store, &desired, &live(6, "1"), &desired.body());
        let known = store.save(&owner).unwrap();
        store.leave(&owner, &desired.key);
        verify(&mut store, &desired, &live(7, "2"), &desired.body());
        assert!(!store.is_unsaved(&owner) && store.save(&owner).unwrap() == known);
        store.remove(&owner, &desired.key);
        assert!(store.is_unsaved(&owner) && store.save(&owner).unwrap().0.is_empty());
    }
}
