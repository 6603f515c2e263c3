//! The work queue: objects to reconcile, by controller and time.
//!
//! Invariant: each controller has an object at most once in the queue, at the earliest requested time.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use devcluster_apiserver::client::Subject;

/// The pending reconciles of all controllers.
#[derive(Default)]
pub(super) struct WorkQueue {
    order: BTreeSet<(Instant, usize, Subject)>,
    times: HashMap<(usize, Subject), Instant>,
}

impl WorkQueue {
    /// Enqueues an object unless it is already due earlier.
    pub(super) fn add(&mut self, controller: usize, subject: Subject, at: Instant) {
        let key = (controller, subject);
        if let Some(known) = self.times.get(&key) {
            if *known <= at {
                return;
            }
            self.order.remove(&(*known, controller, key.1.clone()));
        }
        self.order.insert((at, controller, key.1.clone()));
        self.times.insert(key, at);
    }

    /// Takes the first object that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(usize, Subject)> {
        if self.order.first()?.0 > now {
            return None;
        }
        let (_, controller, subject) = self.order.pop_first()?;
        self.times.remove(&(controller, subject.clone()));
        Some((controller, subject))
    }

    /// Time of the next due object.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.order.first().map(|(at, _, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn keeps_the_earliest_time_of_a_subject() {
        let (start, later) = (Instant::now(), Duration::from_secs(5));
        let subject = || Subject::new("pods", "n", "p");
        let mut queue = WorkQueue::default();
        queue.add(0, subject(), start + later);
        queue.add(0, subject(), start);
        queue.add(0, subject(), start + later * 2);
        queue.add(1, subject(), start + later);
        assert_eq!(queue.take_due(start), Some((0, subject())));
        assert_eq!(queue.take_due(start), None);
        assert_eq!(queue.next_due(), Some(start + later));
        assert_eq!(queue.take_due(start + later), Some((1, subject())));
    }
}
