//! Limits the memory for bodies of deliveries, by number and bytes, in total and per namespace and Receiver.
//!
//! Invariant: a namespace never uses more than is still free, and a Receiver at most [`OF_ONE`]. So clients that know
//! paths of one namespace can take at most half of the memory.
//! Invariant: a reservation never waits.
//! Invariant: the overhead of a body does not depend on the pieces in which it arrives.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use mainstay_object::Owner;

/// Limit of all Receivers.
const OF_ALL: Amount = Amount { bodies: 64, bytes: 24 << 20 };
/// Limit of one Receiver.
const OF_ONE: Amount = Amount { bodies: 16, bytes: 6 << 20 };

/// A number of bodies, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    bodies: usize,
    bytes: usize,
}

/// The memory in use.
#[derive(Debug, Default)]
struct Used {
    all: Amount,
    namespaces: BTreeMap<String, Amount>,
    receivers: BTreeMap<Owner, Amount>,
}

/// The memory for bodies.
#[derive(Debug, Default)]
pub(super) struct Room(Mutex<Used>);

/// The memory of one body, reserved until this value is dropped.
#[derive(Debug)]
pub(super) struct Held {
    room: Arc<Room>,
    owner: Owner,
    amount: Amount,
}

impl Amount {
    fn plus(self, more: Self) -> Self {
        Self { bodies: self.bodies + more.bodies, bytes: self.bytes + more.bytes }
    }

    fn minus(self, less: Self) -> Self {
        Self { bodies: self.bodies - less.bodies, bytes: self.bytes - less.bytes }
    }

    fn fits(self, most: Self) -> bool {
        self.bodies <= most.bodies && self.bytes <= most.bytes
    }
}

impl Used {
    /// Reserves memory for a Receiver. Returns false if a limit would be exceeded.
    fn take(&mut self, owner: &Owner, more: Amount) -> bool {
        let namespace = owner.resource().namespace();
        let free = OF_ALL.minus(self.all);
        let of_namespace = self.namespaces.get(namespace).copied().unwrap_or_default().plus(more);
        let of_receiver = self.receivers.get(owner).copied().unwrap_or_default().plus(more);
        let is_room = more.fits(free) && of_namespace.fits(free) && of_receiver.fits(OF_ONE);
        if is_room {
            self.all = self.all.plus(more);
            self.namespaces.insert(namespace.to_owned(), of_namespace);
            self.receivers.insert(owner.clone(), of_receiver);
        }
        is_room
    }

    /// Releases memory.
    fn give_back(&mut self, owner: &Owner, amount: Amount) {
        let namespace = owner.resource().namespace();
        self.all = self.all.minus(amount);
        if let Some(used) = self.namespaces.get_mut(namespace) {
            *used = used.minus(amount);
        }
        if let Some(used) = self.receivers.get_mut(owner) {
            *used = used.minus(amount);
        }
        self.namespaces.retain(|_, used| used.bodies > 0);
        self.receivers.retain(|_, used| used.bodies > 0);
    }
}

impl Room {
    /// Reserves memory for one more body of a Receiver, with zero bytes so far.
    pub(super) fn enter(self: &Arc<Self>, owner: &Owner) -> Option<Held> {
        let amount = Amount { bodies: 1, bytes: 0 };
        let is_room = self.0.lock().take(owner, amount);
        is_room.then(|| Held { room: Arc::clone(self), owner: owner.clone(), amount })
    }
}

impl Held {
    /// Reserves memory for more bytes of the body. Returns false if there is none.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let more = Amount { bodies: 0, bytes };
        let is_room = self.room.0.lock().take(&self.owner, more);
        if is_room {
            self.amount = self.amount.plus(more);
        }
        is_room
    }

    /// Returns the reserved bytes.
    pub(super) fn bytes(&self) -> usize {
        self.amount.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.0.lock().give_back(&self.owner, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 3 << 20;

    /// Reserves memory for as many bodies of a size as a Receiver may have.
    fn fill(room: &Arc<Room>, namespace: &str, name: &str, bytes: usize) -> Vec<Held> {
        let owner = Owner::receiver(namespace, name);
        let one = || room.enter(&owner).and_then(|mut held| held.grow(bytes).then_some(held));
        std::iter::from_fn(one).take(1000).collect()
    }

    #[test]
    fn neither_a_receiver_nor_a_namespace_takes_all_the_room() {
        for (bytes, of_one, of_namespace) in [(LARGE, 2, 4), (0, 16, 32)] {
            let room = Arc::new(Room::default());
            let first = fill(&room, "shop", "a", bytes);
            assert_eq!(first.len(), of_one);
            let names = ["b", "c", "d"].map(|name| fill(&room, "shop", name, bytes));
            let held = first.len() + names.iter().map(Vec::len).sum::<usize>();
            assert_eq!(held, of_namespace, "of one namespace");
            assert_eq!(fill(&room, "bank", "a", bytes).len(), of_one, "another namespace has its own");
            assert!(!fill(&room, "bank", "a", 100 << 10).is_empty());
            drop((first, names));
            assert_eq!(fill(&room, "shop", "a", bytes).len(), of_one, "room that is free again is used again");
        }
    }

    #[test]
    fn a_dropped_body_leaves_no_reservation() {
        let room = Arc::new(Room::default());
        for number in 0..100 {
            let held = fill(&room, &format!("n{number}"), "a", LARGE);
            assert_eq!(held.len(), 2);
        }
        let used = room.0.lock();
        assert_eq!((used.all, used.namespaces.len(), used.receivers.len()), (Amount::default(), 0, 0));
    }
}
