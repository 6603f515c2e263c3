//! Which place is next: what is due, what is being written, and what has to wait.
//!
//! Invariant: one write at a time at a place; a bounded number in a namespace, and in all.
//! Invariant: what failed, or is changed by somebody again and again, waits longer each time; only time and something else
//! that is wanted there ends that.
//!
//! Deliberately absent: clocks. `now` is a time of the loop's clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use super::state::Place;
use crate::managed::revert_backoff::{RevertBackoff, Shift};
use mainstay_object::failure::Backoff;

/// Copies that are written at the same time.
const AT_ONCE: usize = 8;
/// The same in one namespace, whose admission may hang.
const IN_A_NAMESPACE: usize = 2;
/// Wait after a copy could not be written.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
/// The longest wait before a copy is reverted that somebody keeps changing.
const MOST: Duration = Duration::from_secs(300);
/// How often the places are forgotten that nobody has changed for long.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// A place that waits, or has failed.
#[derive(Debug, Default)]
struct Hold {
    until: Option<Duration>,
    failures: u32,
}

/// What is due, running and waiting.
#[derive(Debug, Default)]
pub(super) struct Queue {
    due: BTreeSet<Place>,
    running: BTreeSet<Place>,
    in_namespaces: BTreeMap<String, usize>,
    /// The place that was begun last: it is the turn of those after it.
    last: Option<Place>,
    held: HashMap<Place, Hold>,
    /// When those that wait are due.
    ends: BTreeSet<(Duration, Place)>,
    reverts: HashMap<Place, RevertBackoff>,
    swept: Duration,
}

impl Queue {
    /// Something may have to be done at a place.
    pub(super) fn enqueue(&mut self, place: Place) {
        if self.held.get(&place).is_none_or(|hold| hold.until.is_none()) {
            self.due.insert(place);
        }
    }

    /// Something else is to be done at a place than before.
    pub(super) fn renew(&mut self, place: Place) {
        self.release(&place);
        self.reverts.remove(&place);
        self.due.insert(place);
    }

    /// The next place to look at.
    pub(super) fn next(&mut self, now: Duration) -> Option<Place> {
        while self.next_end().is_some_and(|end| end <= now) {
            let Some((_, place)) = self.ends.pop_first() else { break };
            if let Some(hold) = self.held.get_mut(&place) {
                hold.until = None;
            }
            self.due.insert(place);
        }
        if self.running.len() >= AT_ONCE {
            return None;
        }
        let may = |place: &&Place| {
            !self.running.contains(*place) && self.in_namespaces.get(&place.0).is_none_or(|n| *n < IN_A_NAMESPACE)
        };
        let after = self.last.as_ref().map(|last| self.due.range((Excluded(last), Unbounded)));
        let next = after.into_iter().flatten().chain(&self.due).find(may).cloned()?;
        self.due.remove(&next);
        self.last = Some(next.clone());
        Some(next)
    }

    /// When the next of those that wait is due.
    pub(super) fn next_end(&self) -> Option<Duration> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Whether nothing is being written.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Nothing is to be done at a place.
    pub(super) fn settle(&mut self, place: &Place) {
        self.release(place);
    }

    /// Nothing is to be done at a place before a time.
    pub(super) fn hold(&mut self, place: Place, until: Duration) {
        let hold = self.held.entry(place.clone()).or_default();
        if let Some(end) = hold.until.replace(until) {
            self.ends.remove(&(end, place.clone()));
        }
        self.due.remove(&place);
        self.ends.insert((until, place));
    }

    /// The same, if it does not wait longer already.
    pub(super) fn hold_at_least(&mut self, place: Place, until: Duration) {
        let end = self.held.get(&place).and_then(|hold| hold.until).unwrap_or_default();
        self.hold(place, until.max(end));
    }

    fn release(&mut self, place: &Place) {
        if let Some(end) = self.held.remove(place).and_then(|hold| hold.until) {
            self.ends.remove(&(end, place.clone()));
        }
    }

    /// A place is being written.
    pub(super) fn begin(&mut self, place: &Place) {
        if self.running.insert(place.clone()) {
            *self.in_namespaces.entry(place.0.clone()).or_default() += 1;
        }
    }

    fn end(&mut self, place: &Place) {
        if self.running.remove(place)
            && let Some(count) = self.in_namespaces.get_mut(&place.0)
        {
            *count -= 1;
            if *count == 0 {
                self.in_namespaces.remove(&place.0);
            }
        }
    }

    /// A write has ended, and what follows is seen by the watch.
    pub(super) fn ended(&mut self, place: &Place) {
        self.end(place);
        self.release(place);
    }

    /// A copy has been written. Whether somebody keeps changing it.
    pub(super) fn written(&mut self, place: &Place, now: Duration) -> Shift {
        self.ended(place);
        let seconds = now.as_secs_f64();
        if now >= self.swept + SWEEP_EVERY {
            self.swept = now;
            self.reverts.retain(|_, backoff| backoff.update_contended(seconds) || !backoff.is_expired(seconds));
        }
        let backoff = self.reverts.entry(place.clone()).or_default();
        backoff.update_contended(seconds);
        let shift = backoff.grow(seconds);
        let delay = backoff.delay(seconds, MOST);
        if delay > Duration::ZERO {
            self.hold(place.clone(), now + delay);
        }
        shift
    }

    /// A write has failed.
    pub(super) fn failed(&mut self, place: &Place, now: Duration) {
        self.end(place);
        let hold = self.held.entry(place.clone()).or_default();
        hold.failures += 1;
        let delay = AGAIN.delay(hold.failures);
        self.hold(place.clone(), now + delay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(namespace: &str, name: &str) -> Place {
        (namespace.to_owned(), name.to_owned())
    }

    /// What is begun at a time, in order.
    fn begun(queue: &mut Queue, now: u64) -> String {
        let mut all = Vec::new();
        while let Some(place) = queue.next(Duration::from_secs(now)) {
            queue.begin(&place);
            all.push(format!("{}/{}", place.0, place.1));
        }
        all.join(" ")
    }

    #[test]
    fn a_namespace_takes_two_of_eight_and_all_have_their_turn() {
        let mut queue = Queue::default();
        for namespace in ["a", "b", "c", "d", "e"] {
            for name in ["x", "y", "z"] {
                queue.enqueue(place(namespace, name));
            }
        }
        assert_eq!(begun(&mut queue, 0), "a/x a/y b/x b/y c/x c/y d/x d/y");
        queue.ended(&place("a", "x"));
        queue.enqueue(place("a", "x"));
        assert_eq!(begun(&mut queue, 0), "e/x", "it is not the turn of the first again");
        // What is being written is not written twice, however often it is due.
        queue.enqueue(place("b", "x"));
        queue.ended(&place("b", "y"));
        assert_eq!(begun(&mut queue, 0), "e/y");
        queue.ended(&place("b", "x"));
        queue.ended(&place("e", "x"));
        assert_eq!(begun(&mut queue, 0), "e/z a/x");
    }

    #[test]
    fn a_failed_copy_waits_through_all_events_until_its_content_changes() {
        let mut queue = Queue::default();
        let a = place("a", "x");
        queue.enqueue(a.clone());
        for (now, wait) in [(0, 1), (1, 2), (3, 4)] {
            assert_eq!(begun(&mut queue, now), "a/x");
            queue.failed(&a, Duration::from_secs(now));
            queue.enqueue(a.clone());
            assert_eq!(begun(&mut queue, now), "");
            assert_eq!(queue.next_end(), Some(Duration::from_secs(now + wait)));
        }
        queue.renew(a.clone());
        assert_eq!((begun(&mut queue, 3).as_str(), queue.next_end()), ("a/x", None));
        queue.failed(&a, Duration::from_secs(3));
        assert_eq!(queue.next_end(), Some(Duration::from_secs(4)));
        queue.settle(&a);
        assert_eq!((begun(&mut queue, 9).as_str(), queue.next_end()), ("", None));
    }

    #[test]
    fn a_copy_that_keeps_being_changed_is_written_ever_less_often() {
        let mut queue = Queue::default();
        let a = place("a", "x");
        let (mut writes, mut shifts) = (0, 0);
        for tenth in 0..6000 {
            queue.enqueue(a.clone());
            let now = Duration::from_millis(tenth * 100);
            if let Some(next) = queue.next(now) {
                queue.begin(&next);
                writes += 1;
                shifts += u32::from(queue.written(&next, now) == Shift::Contended);
            }
        }
        // About every six seconds, and less and less often after thirty of them.
        assert!((6..80).contains(&writes), "{writes} writes in ten minutes");
        assert_eq!(shifts, 1);
        queue.renew(a.clone());
        assert_eq!(begun(&mut queue, 600), "a/x");
    }
}
