//! A queue of places (the namespace and the name of a copy): which are due, being written, or waiting.
//!
//! Invariant: at most one write per place is in flight. The number of writes in flight is bounded per namespace and in
//! total.
//! Invariant: a place that fails or is changed repeatedly waits longer each time. Only time or a new desired content
//! ends the wait.
//!
//! Not here: clocks. `now` is the time since the loop began.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use super::state::Place;
use crate::managed::revert_backoff::{RevertBackoff, Shift};
use mainstay_object::failure::Backoff;

/// Maximum number of concurrent writes.
const AT_ONCE: usize = 8;
/// Maximum number of concurrent writes in a namespace, because an admission webhook of the namespace may hang.
const IN_A_NAMESPACE: usize = 2;
/// Backoff after a failed write.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
/// Longest delay before a copy that changes repeatedly is reverted.
const MOST: Duration = Duration::from_secs(300);
/// Interval at which expired revert backoffs are removed.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
struct Hold {
    until: Option<Duration>,
    failures: u32,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    due: BTreeSet<Place>,
    running: BTreeSet<Place>,
    in_namespaces: BTreeMap<String, usize>,
    /// The place whose write started last. The next search begins after it.
    last: Option<Place>,
    held: HashMap<Place, Hold>,
    /// The ends of the waits, in order.
    ends: BTreeSet<(Duration, Place)>,
    reverts: HashMap<Place, RevertBackoff>,
    swept: Duration,
}

impl Queue {
    /// Makes a place due, unless it waits.
    pub(super) fn enqueue(&mut self, place: Place) {
        if self.held.get(&place).is_none_or(|hold| hold.until.is_none()) {
            self.due.insert(place);
        }
    }

    /// Makes a place due immediately, because its desired content changed.
    pub(super) fn renew(&mut self, place: Place) {
        self.release(&place);
        self.reverts.remove(&place);
        self.due.insert(place);
    }

    /// Returns the next due place; `None` if none may start now.
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

    /// Returns the earliest end of a wait.
    pub(super) fn next_end(&self) -> Option<Duration> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Whether no write is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Ends the wait of a place that needs no write.
    pub(super) fn settle(&mut self, place: &Place) {
        self.release(place);
    }

    /// Makes a place wait until a time.
    pub(super) fn hold(&mut self, place: Place, until: Duration) {
        let hold = self.held.entry(place.clone()).or_default();
        if let Some(end) = hold.until.replace(until) {
            self.ends.remove(&(end, place.clone()));
        }
        self.due.remove(&place);
        self.ends.insert((until, place));
    }

    /// Makes a place wait at least until a time.
    pub(super) fn hold_at_least(&mut self, place: Place, until: Duration) {
        let end = self.held.get(&place).and_then(|hold| hold.until).unwrap_or_default();
        self.hold(place, until.max(end));
    }

    fn release(&mut self, place: &Place) {
        if let Some(end) = self.held.remove(place).and_then(|hold| hold.until) {
            self.ends.remove(&(end, place.clone()));
        }
    }

    /// Records the start of a write.
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

    /// Records the end of a write that is not followed by a wait.
    pub(super) fn ended(&mut self, place: &Place) {
        self.end(place);
        self.release(place);
    }

    /// Records a successful write. Returns whether the copy has become contended.
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

    /// Records a failed write.
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

    /// Starts all due places and returns them in order.
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
        // A place that is being written does not start again.
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
        // Writes come every six seconds at first, and less often after thirty seconds.
        assert!((6..80).contains(&writes), "{writes} writes in ten minutes");
        assert_eq!(shifts, 1);
        queue.renew(a.clone());
        assert_eq!(begun(&mut queue, 600), "a/x");
    }
}
