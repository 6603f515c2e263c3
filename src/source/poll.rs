//! When a remote has to be asked again: what was asked of it, and whether the last answer still serves.
//!
//! Invariant: one answer serves all references that were asked of a remote lately; a failure serves only those who
//! were already waiting when it began.
//! Deliberately not here: asking; the clock comes in as an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::Fault;
use super::reference::{Found, Reference, Refs, Wanted};

/// References that nobody asked for so long are not asked for again.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// References of one remote that are asked for together at most.
const TOGETHER: usize = 200;

/// What is known of a remote's references.
#[derive(Debug, Default)]
pub(super) struct Poll {
    asked: BTreeMap<Reference, Instant>,
    last: Option<Answer>,
}

#[derive(Debug)]
struct Answer {
    began: Instant,
    covers: BTreeSet<Reference>,
    outcome: Result<Refs, Arc<Fault>>,
}

impl Poll {
    /// Notes that `reference` is wanted, so that whoever asks next asks for it too.
    pub(super) fn want(&mut self, reference: &Reference, now: Instant) {
        self.asked.retain(|_, at| now.saturating_duration_since(*at) < REMEMBERED);
        while self.asked.len() >= TOGETHER && !self.asked.contains_key(reference) {
            let oldest = self.asked.iter().min_by_key(|(_, at)| **at).map(|(reference, _)| reference.clone());
            oldest.and_then(|oldest| self.asked.remove(&oldest));
        }
        self.asked.insert(reference.clone(), now);
    }

    /// The references to ask for, and their names. HEAD is always among them, for the default branch's name.
    pub(super) fn question(&self) -> (BTreeSet<Reference>, Wanted) {
        let covers: BTreeSet<_> = self.asked.keys().cloned().collect();
        let names = covers.iter().flat_map(Reference::candidates).chain(["HEAD".to_owned()]);
        let wanted = Wanted::new(names);
        (covers, wanted)
    }

    /// The last answer, if it serves one who asked at `asked` and takes answers that are `max_age` old.
    pub(super) fn answer(
        &self,
        reference: &Reference,
        asked: Instant,
        max_age: Duration,
    ) -> Option<Result<Found, Arc<Fault>>> {
        let last = self.last.as_ref().filter(|last| last.covers.contains(reference))?;
        let fresh = last.began >= asked;
        match &last.outcome {
            Ok(refs) if fresh || asked.duration_since(last.began) <= max_age && !max_age.is_zero() => {
                Some(reference.resolve(refs).map_err(Arc::new))
            }
            Err(fault) if fresh => Some(Err(Arc::clone(fault))),
            _ => None,
        }
    }

    /// Notes an answer to a question that was asked at `began`.
    pub(super) fn learned(&mut self, began: Instant, covers: BTreeSet<Reference>, outcome: Result<Refs, Arc<Fault>>) {
        self.last = Some(Answer { began, covers, outcome });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(text: &str) -> Reference {
        Reference::parse(text).unwrap()
    }

    #[test]
    fn one_answer_serves_all_who_asked_and_take_its_age() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut poll = Poll::default();
        poll.want(&reference("main"), at(0));
        poll.want(&reference("dev"), at(0));
        let (covers, wanted) = poll.question();
        assert_eq!(wanted.names().count(), 5);
        poll.learned(at(1), covers, Ok(Refs::default()));
        let serves = |text: &str, asked, max_age| {
            poll.answer(&reference(text), at(asked), Duration::from_secs(max_age)).is_some()
        };
        assert!(serves("main", 0, 0), "asked before the question was sent");
        assert!(serves("dev", 30, 30));
        assert!(!serves("main", 32, 30), "too old");
        assert!(!serves("main", 2, 0), "forced");
        assert!(!serves("other", 2, 30), "never asked for");
    }

    #[test]
    fn a_failure_serves_only_those_who_waited_for_it() {
        let start = Instant::now();
        let mut poll = Poll::default();
        poll.want(&reference("main"), start);
        let (covers, _) = poll.question();
        poll.learned(start + Duration::from_secs(1), covers, Err(Arc::new(Fault::WebPage)));
        let serves = |asked| poll.answer(&reference("main"), start + Duration::from_secs(asked), REMEMBERED).is_some();
        assert!(serves(0));
        assert!(!serves(2));
    }

    #[test]
    fn forgets_references_that_nobody_asks_for() {
        let start = Instant::now();
        let mut poll = Poll::default();
        for number in 0..1000 {
            poll.want(&reference(&format!("b{number}")), start + Duration::from_secs(number));
        }
        assert_eq!(poll.asked.len(), TOGETHER);
        poll.want(&reference("main"), start + 2 * REMEMBERED);
        assert_eq!(poll.asked.len(), 1);
    }
}
