//! The written form of the store: one inventory for each GitSync, changed together with the objects.
//!
//! Invariant: an entry shows the last apply of its object, or that there is none.
//!
//! Not here: reads and writes of the ConfigMaps (`gitsync`).

use std::collections::HashSet;
use std::sync::Arc;

use super::desired::Desired;
use super::inventory::{Entry, Inventory, Written, uid_text};
use super::object::Managed;
use super::pause_end::PauseEnd;
use super::store::Store;
use super::verdict::LastApplied;
use mainstay_object::{Key, Owner};

/// The consequences of an accepted commit.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    /// Objects that an earlier agent applied and that must be checked.
    pub(crate) expected: Vec<Arc<Desired>>,
    /// Objects that had been removed and are desired again. They were not checked in between.
    pub(crate) back: Vec<Key>,
}

impl Store {
    /// Returns the inventory of an owner, after it was loaded.
    pub fn inventory(&self, owner: &Owner) -> Option<Arc<Inventory>> {
        self.written.get(owner).map(|written| Arc::clone(&written.inventory))
    }

    /// Sets the loaded inventory of an owner. Removes recalled decisions about other objects. The pause of an object that
    /// was never applied is in no inventory, and it was recorded when it began.
    pub fn set_inventory(&mut self, owner: &Owner, inventory: Inventory) {
        let known = self.accounts.get(owner).map(|account| &account.known);
        let is_paused = |object: &str| known.is_some_and(|known| known.has_pause(object, PauseEnd::Open));
        self.decisions.keep_listed(owner, &inventory, is_paused);
        self.written
            .insert(owner.clone(), Written { inventory: Arc::new(inventory), unsaved: false, is_urgent: false });
    }

    /// Returns the applied objects of an owner. Omits removed objects, because their changes since the removal are
    /// unknown.
    pub fn applied(&self, owner: &Owner) -> HashSet<Key> {
        let applied = self.kept_for(owner).filter(|(_, m)| m.is_applied() && !m.phase.is_leaving());
        applied.map(|(key, _)| key.clone()).collect()
    }

    /// Adds objects to the inventory before their apply. Returns whether one is new.
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

    /// Accepts the desired objects of a commit. Objects that already have this state are enforced from now on; the
    /// others follow with their apply.
    pub(crate) fn accept(&mut self, owner: &Owner, desired: &[Arc<Desired>]) -> Accepted {
        let mut accepted = Accepted::default();
        let Some(inventory) = self.inventory(owner) else { return accepted };
        for desired in desired {
            let Some(entry) = inventory.0.get(&desired.key).filter(|entry| entry.is_for(desired)) else { continue };
            if let Some(mut managed) = self.get_mut(&desired.key).filter(|m| m.owner == *owner && m.is_applied()) {
                // The location of the document may have changed, or the document was decoded again.
                managed.desired = Arc::clone(desired);
                // A pending replacement with the same document continues.
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

    /// Removes an object that is gone or no longer belongs to this owner, with its entry and the decisions about it.
    pub(crate) fn remove(&mut self, owner: &Owner, key: &Key) {
        let own = self.objects.get(key).filter(|m| m.owner == *owner);
        // An object that another client created is removed before its pause is found again.
        if own.is_none_or(Managed::is_applied) {
            self.decisions.remove_object(owner, key);
        }
        if own.is_some() {
            self.objects.remove(key);
        } else if let Some(mut managed) = self.objects.get_mut(key) {
            managed.outranked.take_if(|outranked| outranked.owner == *owner);
        }
        if let Some(written) = self.written.get_mut(owner).filter(|written| written.inventory.0.contains_key(key)) {
            Arc::make_mut(&mut written.inventory).0.remove(key);
            written.unsaved = true;
        }
    }

    /// Clears the entries of objects that another owner will take over. If such an object is desired again, it is
    /// applied again.
    pub fn give_up(&mut self, owner: &Owner, keys: &[Key]) {
        let Some(written) = self.written.get_mut(owner) else { return };
        for key in keys {
            let Some(entry) = written.inventory.0.get(key) else { continue };
            let given_up = Entry { version: Arc::clone(&entry.version), ..Entry::default() };
            written.set(key, given_up);
        }
    }

    /// Returns the inventory of an owner to save it.
    pub fn save(&mut self, owner: &Owner) -> Option<Arc<Inventory>> {
        let written = self.written.get_mut(owner)?;
        written.unsaved = false;
        Some(Arc::clone(&written.inventory))
    }

    /// Whether the inventory of an owner changed since it was saved.
    pub fn is_unsaved(&self, owner: &Owner) -> bool {
        self.written.get(owner).is_some_and(|written| written.unsaved)
    }

    /// Records that the inventory of an owner was not saved.
    pub fn not_saved(&mut self, owner: &Owner) {
        if let Some(written) = self.written.get_mut(owner) {
            written.unsaved = true;
        }
    }

    /// Whether an object of an owner ended and the inventory is not saved yet. Clears the urgent mark.
    pub fn take_urgent(&mut self, owner: &Owner) -> bool {
        self.written.get_mut(owner).is_some_and(|written| std::mem::take(&mut written.is_urgent) && written.unsaved)
    }

    /// Sets the urgent mark again after a failed save.
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
    fn a_revert_with_an_equal_result_does_not_change_the_inventory() {
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
    fn the_uid_of_an_expected_object_is_recorded_when_it_is_seen() {
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
