//! Whose turn it is to have a slot: namespaces take turns, and none takes more than half of the slots that it finds free.
//!
//! So however many slots one namespace would like to have, and however long it holds them, the next one finds a free one.
//! It takes four namespaces to fill eight slots. Then one that holds none waits, but every other namespace comes before
//! it at most once: with N others it has its slot when N + 1 were given back. What holds a slot ends within five minutes
//! (a pack that is unpacked, a commit that is read), so at least eight are given back in every five minutes, and the
//! longest wait is (N + 1) / 8 × 5 min, rounded up to 5 min, whatever the others do.
//!
//! Invariant: of those who may have a slot, the one with the fewest comes first; among equals, the one that was served
//! longest ago.
//! Invariant: while a party waits that holds nothing, no other is served twice.
//! Deliberately not here: waiting, and the work itself.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// On whose behalf work is done: a namespace, or nobody in particular (the empty text).
pub(super) type Party = Arc<str>;

/// Slots, who holds them, and who waits for them.
#[derive(Debug)]
pub(super) struct Turns<T> {
    free: usize,
    held: HashMap<Party, usize>,
    /// Parties that wait, the one that was served longest ago first, each with its waiters in the order they came.
    waiting: VecDeque<(Party, VecDeque<T>)>,
}

impl<T> Turns<T> {
    pub(super) fn new(slots: usize) -> Self {
        Self { free: slots.max(1), held: HashMap::new(), waiting: VecDeque::new() }
    }

    /// Slots that a party holds.
    pub(super) fn held(&self, party: &str) -> usize {
        self.held.get(party).copied().unwrap_or(0)
    }

    /// Someone waits for a slot. Who has given up waiting is dropped from the party's line.
    pub(super) fn wait(&mut self, party: &Party, waiter: T, has_given_up: impl Fn(&T) -> bool) {
        if let Some((_, line)) = self.waiting.iter_mut().find(|(waiting, _)| waiting == party) {
            line.retain(|waiter| !has_given_up(waiter));
            line.push_back(waiter);
        } else {
            self.waiting.push_back((Arc::clone(party), [waiter].into()));
        }
    }

    /// The next who gets a slot, if there is one for anybody; from now on its party holds it.
    pub(super) fn next(&mut self) -> Option<(Party, T)> {
        let held = |(_, (party, _)): &(usize, &(Party, VecDeque<T>))| self.held(party);
        let (at, (party, _)) = self.waiting.iter().enumerate().min_by_key(held)?;
        if self.free <= self.held(party) {
            return None;
        }
        let (party, mut line) = self.waiting.remove(at)?;
        let waiter = line.pop_front();
        if !line.is_empty() {
            self.waiting.push_back((Arc::clone(&party), line));
        }
        let waiter = waiter?;
        self.free -= 1;
        *self.held.entry(Arc::clone(&party)).or_default() += 1;
        Some((party, waiter))
    }

    /// A party has done its work.
    pub(super) fn give_back(&mut self, party: &Party) {
        if let Some(held) = self.held.get_mut(party) {
            *held -= 1;
            self.free += 1;
            if *held == 0 {
                self.held.remove(party);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parties of `waiting` ask in this order; returns who gets a slot, and what each was named.
    fn served(slots: usize, waiting: &[&str]) -> (Turns<usize>, String) {
        let mut turns = Turns::new(slots);
        for (number, party) in waiting.iter().enumerate() {
            turns.wait(&(*party).into(), number, |_| false);
        }
        let served = serve(&mut turns);
        (turns, served)
    }

    fn serve(turns: &mut Turns<usize>) -> String {
        let served = std::iter::from_fn(|| turns.next()).map(|(party, number)| format!("{party}{number}"));
        served.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_namespace_takes_no_more_than_half_of_what_it_finds_free() {
        let (mut turns, first) = served(4, &["a", "a", "a", "a", "a"]);
        assert_eq!(first, "a0 a1");
        turns.wait(&"b".into(), 5, |_| false);
        turns.wait(&"b".into(), 6, |_| false);
        assert_eq!(serve(&mut turns), "b5");
        turns.wait(&"c".into(), 7, |_| false);
        assert_eq!(serve(&mut turns), "c7", "there is still one for somebody else");
        turns.give_back(&"a".into());
        assert_eq!(serve(&mut turns), "", "the last one is for who has none");
        turns.wait(&"d".into(), 8, |_| false);
        assert_eq!(serve(&mut turns), "d8");
    }

    #[test]
    fn namespaces_take_turns_however_many_of_one_are_waiting() {
        let (mut turns, first) = served(1, &["a", "a", "a", "b", "b", "c"]);
        let mut all = first;
        for party in ["a", "b", "c", "a", "b"] {
            turns.give_back(&party.into());
            all = format!("{all} {}", serve(&mut turns));
        }
        assert_eq!(all, "a0 b3 c5 a1 b4 a2");
        turns.give_back(&"a".into());
        assert!(turns.held.is_empty() && turns.waiting.is_empty() && turns.free == 1);
    }

    /// Greedy parties, each with more waiters than it can ever have slots, that give slots back at random.
    struct Crowd {
        turns: Turns<()>,
        greedy: Vec<Party>,
        random: fastrand::Rng,
    }

    impl Crowd {
        fn new(slots: usize, parties: usize, seed: u64) -> Self {
            let greedy = (0..parties).map(|number| format!("greedy-{number}").into()).collect();
            Self { turns: Turns::new(slots), greedy, random: fastrand::Rng::with_seed(seed) }
        }

        /// Some of them ask, and whoever may be served is; returns who was.
        fn ask_and_serve(&mut self) -> Vec<Party> {
            for _ in 0..self.random.usize(..20) {
                let party = self.random.choice(&self.greedy).cloned().unwrap();
                self.turns.wait(&party, (), |()| false);
            }
            std::iter::from_fn(|| self.turns.next()).map(|(party, ())| party).collect()
        }

        /// One of the slots that are held is given back, whoever holds it.
        fn give_back_one(&mut self) {
            let mut held = self.turns.held.keys().cloned().collect::<Vec<_>>();
            held.sort();
            if let Some(party) = self.random.choice(held) {
                self.turns.give_back(&party);
            }
        }
    }

    #[test]
    fn three_namespaces_do_not_fill_eight_slots_and_four_do() {
        for seed in 0..200 {
            let mut crowd = Crowd::new(8, 3, seed);
            for _ in 0..100 {
                crowd.ask_and_serve();
                assert!(crowd.turns.free >= 1, "seed {seed}: {:?}", crowd.turns.held);
                crowd.give_back_one();
            }
        }
        let mut turns = Turns::new(8);
        let filled = ["a", "b", "c", "d"].map(|party| {
            (0..8).for_each(|number| turns.wait(&party.into(), number, |_| false));
            serve(&mut turns);
            turns.held(party)
        });
        assert_eq!((filled, turns.free), ([4, 2, 1, 1], 0));
    }

    #[test]
    fn who_holds_none_is_passed_by_each_other_namespace_at_most_once() {
        for (others, seed) in (4..30).flat_map(|others| (0..20).map(move |seed| (others, seed))) {
            let mut crowd = Crowd::new(8, others, seed);
            for _ in 0..20 + crowd.random.usize(..50) {
                crowd.give_back_one();
                crowd.ask_and_serve();
            }
            let patient = Party::from("patient");
            crowd.turns.wait(&patient, (), |()| false);
            let (mut passed, mut given_back) = (crowd.ask_and_serve(), 0);
            while !passed.contains(&patient) {
                crowd.give_back_one();
                given_back += 1;
                assert!(given_back <= others + 1, "{others} others, seed {seed}: {passed:?}");
                passed.extend(crowd.ask_and_serve());
            }
            passed.truncate(passed.iter().position(|party| *party == patient).unwrap());
            let mut once = passed.clone();
            once.sort();
            once.dedup();
            assert_eq!(once.len(), passed.len(), "{others} others, seed {seed}: {passed:?}");
        }
    }

    #[test]
    fn who_has_given_up_waiting_is_not_kept() {
        let mut turns = Turns::new(1);
        let party = Party::from("a");
        for number in 0..1000 {
            turns.wait(&party, number, |earlier| earlier % 2 == 0);
        }
        assert_eq!(turns.waiting[0].1.len(), 500);
    }
}
