//! A fair queue for permits. Tenants take turns, and none gets more than half of the free permits.
//!
//! So one tenant cannot block the next one, however many permits it requests and however long it holds them. Four
//! tenants can use up eight permits. A further tenant then waits, but every other tenant gets at most one permit before
//! it does: with N other tenants, it gets one after N + 1 returned permits. A permit is held for at most five minutes
//! (unpacking a pack, reading a commit), so at least eight are returned in five minutes. The longest wait is (N + 1) /
//! 8 × 5 min, rounded up to 5 min.
//!
//! Invariant: the tenant with the fewest permits gets the next one; among equals, the tenant that waited longest since
//! its last permit.
//! Invariant: while a tenant without permits waits, no other tenant gets two permits.
//! Not here: waiting, and the work itself.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The namespace on whose behalf work is done; empty for work that belongs to no namespace.
pub(super) type Tenant = Arc<str>;

/// Permits, their holders, and the waiters.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    free: usize,
    held: HashMap<Tenant, usize>,
    /// Waiting tenants, each with its waiters in order. The tenant that got a permit least recently comes first.
    waiting: VecDeque<(Tenant, VecDeque<T>)>,
}

impl<T> FairQueue<T> {
    pub(super) fn new(permits: usize) -> Self {
        Self { free: permits.max(1), held: HashMap::new(), waiting: VecDeque::new() }
    }

    /// Returns the number of permits that a tenant holds.
    pub(super) fn held(&self, tenant: &str) -> usize {
        self.held.get(tenant).copied().unwrap_or(0)
    }

    /// Adds a waiter, and drops waiters of the tenant that no longer wait.
    pub(super) fn wait(&mut self, tenant: &Tenant, waiter: T, has_given_up: impl Fn(&T) -> bool) {
        if let Some((_, line)) = self.waiting.iter_mut().find(|(waiting, _)| waiting == tenant) {
            line.retain(|waiter| !has_given_up(waiter));
            line.push_back(waiter);
        } else {
            self.waiting.push_back((Arc::clone(tenant), [waiter].into()));
        }
    }

    /// Returns the next waiter that gets a permit.
    pub(super) fn next(&mut self) -> Option<(Tenant, T)> {
        let held = |(_, (tenant, _)): &(usize, &(Tenant, VecDeque<T>))| self.held(tenant);
        let (at, (tenant, _)) = self.waiting.iter().enumerate().min_by_key(held)?;
        if self.free <= self.held(tenant) {
            return None;
        }
        let (tenant, mut line) = self.waiting.remove(at)?;
        let waiter = line.pop_front();
        if !line.is_empty() {
            self.waiting.push_back((Arc::clone(&tenant), line));
        }
        let waiter = waiter?;
        self.free -= 1;
        *self.held.entry(Arc::clone(&tenant)).or_default() += 1;
        Some((tenant, waiter))
    }

    /// Takes back a permit.
    pub(super) fn give_back(&mut self, tenant: &Tenant) {
        if let Some(held) = self.held.get_mut(tenant) {
            *held -= 1;
            self.free += 1;
            if *held == 0 {
                self.held.remove(tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues the tenants of `waiting` in this order, and returns the order in which they are served.
    fn served(permits: usize, waiting: &[&str]) -> (FairQueue<usize>, String) {
        let mut queue = FairQueue::new(permits);
        for (number, tenant) in waiting.iter().enumerate() {
            queue.wait(&(*tenant).into(), number, |_| false);
        }
        let served = serve(&mut queue);
        (queue, served)
    }

    fn serve(queue: &mut FairQueue<usize>) -> String {
        let served = std::iter::from_fn(|| queue.next()).map(|(tenant, number)| format!("{tenant}{number}"));
        served.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_tenant_gets_at_most_half_of_the_free_permits() {
        let (mut queue, first) = served(4, &["a", "a", "a", "a", "a"]);
        assert_eq!(first, "a0 a1");
        queue.wait(&"b".into(), 5, |_| false);
        queue.wait(&"b".into(), 6, |_| false);
        assert_eq!(serve(&mut queue), "b5");
        queue.wait(&"c".into(), 7, |_| false);
        assert_eq!(serve(&mut queue), "c7", "there is still one for another tenant");
        queue.give_back(&"a".into());
        assert_eq!(serve(&mut queue), "", "the last one is for a tenant that has none");
        queue.wait(&"d".into(), 8, |_| false);
        assert_eq!(serve(&mut queue), "d8");
    }

    #[test]
    fn tenants_take_turns_however_many_waiters_one_has() {
        let (mut queue, first) = served(1, &["a", "a", "a", "b", "b", "c"]);
        let mut all = first;
        for tenant in ["a", "b", "c", "a", "b"] {
            queue.give_back(&tenant.into());
            all = format!("{all} {}", serve(&mut queue));
        }
        assert_eq!(all, "a0 b3 c5 a1 b4 a2");
        queue.give_back(&"a".into());
        assert!(queue.held.is_empty() && queue.waiting.is_empty() && queue.free == 1);
    }

    /// Greedy tenants with more waiters than permits. They return permits at random.
    struct Crowd {
        queue: FairQueue<()>,
        greedy: Vec<Tenant>,
        random: fastrand::Rng,
    }

    impl Crowd {
        fn new(permits: usize, tenants: usize, seed: u64) -> Self {
            let greedy = (0..tenants).map(|number| format!("greedy-{number}").into()).collect();
            Self { queue: FairQueue::new(permits), greedy, random: fastrand::Rng::with_seed(seed) }
        }

        /// Queues random waiters, hands out as many permits as possible, and returns their tenants.
        fn ask_and_serve(&mut self) -> Vec<Tenant> {
            for _ in 0..self.random.usize(..20) {
                let tenant = self.random.choice(&self.greedy).cloned().unwrap();
                self.queue.wait(&tenant, (), |()| false);
            }
            std::iter::from_fn(|| self.queue.next()).map(|(tenant, ())| tenant).collect()
        }

        /// Takes back one of the held permits at random.
        fn return_one(&mut self) {
            let mut held = self.queue.held.keys().cloned().collect::<Vec<_>>();
            held.sort();
            if let Some(tenant) = self.random.choice(held) {
                self.queue.give_back(&tenant);
            }
        }
    }

    #[test]
    fn four_tenants_use_up_eight_permits_and_three_do_not() {
        for seed in 0..200 {
            let mut crowd = Crowd::new(8, 3, seed);
            for _ in 0..100 {
                crowd.ask_and_serve();
                assert!(crowd.queue.free >= 1, "seed {seed}: {:?}", crowd.queue.held);
                crowd.return_one();
            }
        }
        let mut queue = FairQueue::new(8);
        let filled = ["a", "b", "c", "d"].map(|tenant| {
            (0..8).for_each(|number| queue.wait(&tenant.into(), number, |_| false));
            serve(&mut queue);
            queue.held(tenant)
        });
        assert_eq!((filled, queue.free), ([4, 2, 1, 1], 0));
    }

    #[test]
    fn every_other_tenant_is_served_at_most_once_before_one_that_holds_none() {
        for (others, seed) in (4..30).flat_map(|others| (0..20).map(move |seed| (others, seed))) {
            let mut crowd = Crowd::new(8, others, seed);
            for _ in 0..20 + crowd.random.usize(..50) {
                crowd.return_one();
                crowd.ask_and_serve();
            }
            let patient = Tenant::from("patient");
            crowd.queue.wait(&patient, (), |()| false);
            let (mut passed, mut given_back) = (crowd.ask_and_serve(), 0);
            while !passed.contains(&patient) {
                crowd.return_one();
                given_back += 1;
                assert!(given_back <= others + 1, "{others} others, seed {seed}: {passed:?}");
                passed.extend(crowd.ask_and_serve());
            }
            passed.truncate(passed.iter().position(|tenant| *tenant == patient).unwrap());
            let mut once = passed.clone();
            once.sort();
            once.dedup();
            assert_eq!(once.len(), passed.len(), "{others} others, seed {seed}: {passed:?}");
        }
    }

    #[test]
    fn waiters_that_have_given_up_are_dropped() {
        let mut queue = FairQueue::new(1);
        let tenant = Tenant::from("a");
        for number in 0..1000 {
            queue.wait(&tenant, number, |earlier| earlier % 2 == 0);
        }
        assert_eq!(queue.waiting[0].1.len(), 500);
    }
}
