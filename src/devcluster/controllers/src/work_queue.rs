//! Which objects are to be reconciled, by which controller, and when.
//!
//! Invariant: an object is in a controller's queue once, at the earliest of the times that were asked for.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use devcluster_apiserver::client::Subject;

/// The reconciles to come, of all controllers.
#[derive(Default)]
pub(super) struct WorkQueue {
    order: BTreeSet<(Instant, usize, Subject)>,
    times: HashMap<(usize, Subject), Instant>,
}

impl WorkQueue {
    /// Adds an object, unless it is in the queue for an earlier time.
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

    /// Takes the first object whose time has come.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(usize, Subject)> {
        if self.order.first()?.0 > now {
            return None;
        }
        let (_, controller, subject) = self.order.pop_first()?;
        self.times.remove(&(controller, subject.clone()));
        Some((controller, subject))
    }

    /// When the next object is due.
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
