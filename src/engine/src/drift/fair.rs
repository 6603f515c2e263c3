//! A fair queue of reverts, first by namespace, then by owner.
//!
//! Namespaces take turns, and so do the owners of a namespace. An owner may have at most three times as many reverts in
//! flight as there are free permits. A namespace may have at most seven eighths of all permits. A revert of another
//! owner therefore finds a free permit immediately, even if the reverts in flight take long.
//!
//! Invariant: the reverts of one owner start in order.
//! Invariant: a waiting revert starts as soon as its namespace has a free permit.

use std::collections::{HashMap, VecDeque};

use mainstay_object::Owner;

/// Maximum number of an owner's reverts in flight for each free permit.
const SHARE: usize = 3;
/// The reciprocal of the part of the permits that is reserved for other namespaces.
const FOR_OTHERS: usize = 8;

#[derive(Debug)]
pub(super) struct Fair<T> {
    /// The waiting reverts of each owner.
    lanes: HashMap<Owner, VecDeque<T>>,
    /// The same owners by namespace, both in the order of their turns.
    order: VecDeque<(String, VecDeque<Owner>)>,
    taken: HashMap<Owner, usize>,
    taken_in: HashMap<String, usize>,
    in_flight: usize,
}

impl<T> Default for Fair<T> {
    fn default() -> Self {
        Self {
            lanes: HashMap::new(),
            order: VecDeque::new(),
            taken: HashMap::new(),
            taken_in: HashMap::new(),
            in_flight: 0,
        }
    }
}

impl<T> Fair<T> {
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn push(&mut self, owner: &Owner, waiting: T) {
        let lane = self.lanes.entry(owner.clone()).or_default();
        if lane.is_empty() {
            let namespace = owner.resource().namespace();
            match self.order.iter_mut().find(|(other, _)| other == namespace) {
                Some((_, owners)) => owners.push_back(owner.clone()),
                None => self.order.push_back((namespace.to_owned(), [owner.clone()].into())),
            }
        }
        lane.push_back(waiting);
    }

    /// Starts the next revert; `None` if all permits are taken or no owner may start one.
    pub(super) fn pop(&mut self, allowed: usize) -> Option<(Owner, T)> {
        let free = allowed.checked_sub(self.in_flight).filter(|free| *free > 0)?;
        let most = allowed - allowed / FOR_OTHERS;
        let has_room = |owner: &Owner| self.taken.get(owner).copied().unwrap_or_default() < SHARE * free;
        let is_open = |namespace: &String| self.taken_in.get(namespace).copied().unwrap_or_default() < most;
        let (at, own) = self.order.iter().enumerate().find_map(|(at, (namespace, owners))| {
            let own = owners.iter().position(has_room).filter(|_| is_open(namespace))?;
            Some((at, own))
        })?;
        let (namespace, mut owners) = self.order.remove(at)?;
        let owner = owners.remove(own)?;
        let lane = self.lanes.get_mut(&owner)?;
        let waiting = lane.pop_front()?;
        if lane.is_empty() {
            self.lanes.remove(&owner);
        } else {
            owners.push_back(owner.clone());
        }
        *self.taken.entry(owner.clone()).or_default() += 1;
        *self.taken_in.entry(namespace.clone()).or_default() += 1;
        self.in_flight += 1;
        if !owners.is_empty() {
            self.order.push_back((namespace, owners));
        }
        Some((owner, waiting))
    }

    /// Gives back the permit of an owner's revert.
    pub(super) fn done(&mut self, owner: &Owner) {
        let Some(taken) = self.taken.get_mut(owner) else { return };
        *taken -= 1;
        if *taken == 0 {
            self.taken.remove(owner);
        }
        let namespace = owner.resource().namespace();
        if let Some(taken) = self.taken_in.get_mut(namespace) {
            *taken -= 1;
            if *taken == 0 {
                self.taken_in.remove(namespace);
            }
        }
        self.in_flight -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Owner {
        Owner::git_sync("shop", name)
    }

    fn popped(fair: &mut Fair<u32>, allowed: usize) -> String {
        let popped = std::iter::from_fn(|| fair.pop(allowed))
            .map(|(owner, waiting)| format!("{}{waiting}", owner.resource().name()));
        popped.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn owners_take_turns_and_each_keeps_its_order() {
        let mut fair = Fair::default();
        for waiting in 1..=4 {
            fair.push(&owner("a"), waiting);
        }
        fair.push(&owner("b"), 1);
        fair.push(&owner("c"), 1);
        assert_eq!(popped(&mut fair, 100), "a1 b1 c1 a2 a3 a4");
        assert_eq!(fair.in_flight(), 6);
    }

    #[test]
    fn a_storm_leaves_room_for_the_next_owner() {
        let mut fair = Fair::default();
        for waiting in 0..500 {
            fair.push(&owner("storm"), waiting);
        }
        while fair.pop(32).is_some() {}
        assert_eq!(fair.in_flight(), 24);
        fair.push(&owner("b"), 1);
        assert_eq!(popped(&mut fair, 32), "b1", "although nothing of the storm is over");
        fair.done(&owner("storm"));
        fair.done(&owner("b"));
        assert_eq!(fair.pop(32).map(|(owner, _)| owner), Some(owner("storm")));
    }

    #[test]
    fn a_namespace_with_many_owners_takes_nothing_from_the_others() {
        let mut fair = Fair::default();
        for number in 0..20 {
            for waiting in 0..100 {
                fair.push(&owner(&format!("storm-{number}")), waiting);
            }
        }
        while fair.pop(32).is_some() {}
        assert_eq!(fair.in_flight(), 28);
        let other = Owner::git_sync("team", "own");
        for waiting in 0..3 {
            fair.push(&other, waiting);
        }
        let mut begun = std::iter::from_fn(|| fair.pop(32)).map(|(owner, _)| owner).collect::<Vec<_>>();
        begun.dedup();
        assert_eq!(begun, std::slice::from_ref(&other), "although nothing of the storm is over");
        for number in 0..3 {
            fair.done(&owner(&format!("storm-{number}")));
        }
        fair.push(&other, 3);
        let next = [fair.pop(32), fair.pop(32)].map(|begun| begun.unwrap().0.resource().namespace().to_owned());
        assert!(next.contains(&"team".to_owned()), "{next:?}: namespaces take turns, whatever they have");
    }

    #[test]
    fn a_storm_proceeds_under_a_low_limit() {
        for allowed in 1..=4 {
            let mut fair = Fair::default();
            for waiting in 0..10 {
                fair.push(&owner("storm"), waiting);
            }
            let mut taken = 0;
            while taken < 10 {
                while fair.pop(allowed).is_some() {
                    taken += 1;
                }
                assert!((1..=allowed).contains(&fair.in_flight()), "{allowed}");
                fair.done(&owner("storm"));
            }
            assert!(fair.pop(0).is_none());
        }
    }

    #[test]
    fn idle_owners_leave_no_state() {
        let mut fair = Fair::default();
        for name in ["a", "b"] {
            fair.push(&owner(name), 1);
        }
        popped(&mut fair, 9);
        fair.done(&owner("a"));
        fair.done(&owner("b"));
        assert!(fair.lanes.is_empty() && fair.order.is_empty() && fair.taken.is_empty() && fair.taken_in.is_empty());
    }
}
