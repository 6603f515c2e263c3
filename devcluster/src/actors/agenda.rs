//! What is to be looked at, and when.
//!
//! Invariant: a subject is on an actor's list once, at the earliest of the times that were asked for.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use super::Subject;

/// The looks to come, of all actors.
#[derive(Default)]
pub(super) struct Agenda {
    order: BTreeSet<(Instant, usize, Subject)>,
    times: HashMap<(usize, Subject), Instant>,
}

impl Agenda {
    /// Puts a look on the list, unless an earlier one is on it.
    pub(super) fn add(&mut self, actor: usize, subject: Subject, at: Instant) {
        let key = (actor, subject);
        if let Some(known) = self.times.get(&key) {
            if *known <= at {
                return;
            }
            self.order.remove(&(*known, actor, key.1.clone()));
        }
        self.order.insert((at, actor, key.1.clone()));
        self.times.insert(key, at);
    }

    /// Takes the first look whose time has come.
    pub(super) fn due(&mut self, now: Instant) -> Option<(usize, Subject)> {
        if self.order.first()?.0 > now {
            return None;
        }
        let (_, actor, subject) = self.order.pop_first()?;
        self.times.remove(&(actor, subject.clone()));
        Some((actor, subject))
    }

    /// When the next look is due.
    pub(super) fn next(&self) -> Option<Instant> {
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
        let mut agenda = Agenda::default();
        agenda.add(0, subject(), start + later);
        agenda.add(0, subject(), start);
        agenda.add(0, subject(), start + later * 2);
        agenda.add(1, subject(), start + later);
        assert_eq!(agenda.due(start), Some((0, subject())));
        assert_eq!(agenda.due(start), None);
        assert_eq!(agenda.next(), Some(start + later));
        assert_eq!(agenda.due(start + later), Some((1, subject())));
    }
}
