//! Decides when a remote must be asked again: which references to request, and whether the last response is recent
//! enough.
//!
//! Invariant: one response is used for all recently requested references of a remote. A failure is returned only to
//! callers that were already waiting when the request began.
//! Not here: the request and the clock. Times are arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::Fault;
use super::found_commit::{FoundCommit, KnownCommits};
use super::ref_list::{RefNames, Refs};
use super::reference::{Reference, ResolvedRef};

/// Time after which references that no caller requested are dropped.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// Maximum number of references in one request.
const TOGETHER: usize = 200;

/// The requested references of a remote, and its last response.
#[derive(Debug, Default)]
pub(super) struct Poll {
    asked: BTreeMap<Reference, Instant>,
    last: Option<Answer>,
    /// The last commits of references, including references that were not requested recently.
    known: KnownCommits,
    /// The response to a request that began before this time is returned only to callers that waited for it.
    expired: Option<Instant>,
}

#[derive(Debug)]
struct Answer {
    began: Instant,
    covers: BTreeSet<Reference>,
    outcome: Result<Refs, Arc<Fault>>,
}

impl Poll {
    /// Adds `reference` to all later requests.
    pub(super) fn add(&mut self, reference: &Reference, now: Instant) {
        self.asked.retain(|_, at| now.saturating_duration_since(*at) < REMEMBERED);
        while self.asked.len() >= TOGETHER && !self.asked.contains_key(reference) {
            let oldest = self.asked.iter().min_by_key(|(_, at)| **at).map(|(reference, _)| reference.clone());
            oldest.and_then(|oldest| self.asked.remove(&oldest));
        }
        self.asked.insert(reference.clone(), now);
    }

    /// Returns the references to request, and their names. HEAD is always included, for the name of the default
    /// branch.
    pub(super) fn request(&self) -> (BTreeSet<Reference>, RefNames) {
        let covers: BTreeSet<_> = self.asked.keys().cloned().collect();
        let names = covers.iter().flat_map(Reference::candidates).chain(["HEAD".to_owned()]);
        let wanted = RefNames::new(names).with_ranges(covers.iter().filter_map(Reference::range).cloned());
        (covers, wanted)
    }

    /// Returns the last response, if it is usable for a caller that asked at `asked` and accepts responses of age
    /// `max_age`.
    pub(super) fn answer(
        &self,
        reference: &Reference,
        asked: Instant,
        max_age: Duration,
    ) -> Option<Result<ResolvedRef, Arc<Fault>>> {
        let last = self.last.as_ref().filter(|last| last.covers.contains(reference))?;
        // A caller that waited for this response gets it, regardless of later changes.
        let fresh = last.began >= asked;
        if !fresh && self.expired.is_some_and(|expired| last.began < expired) {
            return None;
        }
        match &last.outcome {
            Ok(refs) if fresh || asked.duration_since(last.began) <= max_age && !max_age.is_zero() => {
                Some(refs.resolve(reference).map_err(Arc::new))
            }
            Err(fault) if fresh => Some(Err(Arc::clone(fault))),
            _ => None,
        }
    }

    /// Records that the remote changed at `at`. Responses to requests that began before are not returned to later
    /// callers, whatever age these accept.
    pub(super) fn expire(&mut self, at: Instant) {
        self.expired = self.expired.max(Some(at));
    }

    /// Returns whether no request was ever sent to the remote.
    pub(super) fn is_new(&self) -> bool {
        self.last.is_none()
    }

    /// Returns whether the last request failed.
    pub(super) fn has_failed(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.outcome.is_err())
    }

    /// Records the response to a request that began at `began`. Returns the references that moved.
    pub(super) fn record(
        &mut self,
        began: Instant,
        covers: BTreeSet<Reference>,
        outcome: Result<Refs, Arc<Fault>>,
    ) -> Vec<FoundCommit> {
        let found = outcome.as_ref().map(|refs| self.known.update(&covers, refs)).unwrap_or_default();
        self.last = Some(Answer { began, covers, outcome });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(text: &str) -> Reference {
        Reference::parse(text).unwrap()
    }

    #[test]
    fn an_answer_serves_callers_that_accept_its_age() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut poll = Poll::default();
        poll.add(&reference("main"), at(0));
        poll.add(&reference("dev"), at(0));
        let (covers, wanted) = poll.request();
        assert_eq!(wanted.names().count(), 5);
        poll.record(at(1), covers, Ok(Refs::default()));
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
    fn only_an_answer_from_after_a_push_serves_consumers() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut poll = Poll::default();
        poll.add(&reference("main"), at(0));
        let record = |poll: &mut Poll, began| {
            let (covers, _) = poll.request();
            poll.record(at(began), covers, Ok(Refs::default()));
        };
        let serves = |poll: &Poll| poll.answer(&reference("main"), at(9), REMEMBERED).is_some();
        record(&mut poll, 1);
        assert!(serves(&poll));
        poll.expire(at(5));
        poll.expire(at(2));
        assert!(!serves(&poll));
        record(&mut poll, 5);
        assert!(serves(&poll));

        // A push arrives during a request. Callers that wait for the request still get its response, but callers after
        // the push do not.
        poll.expire(at(7));
        record(&mut poll, 6);
        let serves = |asked| poll.answer(&reference("main"), at(asked), REMEMBERED).is_some();
        assert!(serves(5) && serves(6));
        assert!(!serves(8));
    }

    #[test]
    fn a_failure_serves_only_callers_that_waited_for_it() {
        let start = Instant::now();
        let mut poll = Poll::default();
        poll.add(&reference("main"), start);
        let (covers, _) = poll.request();
        poll.record(start + Duration::from_secs(1), covers, Err(Arc::new(Fault::WebPage)));
        let serves = |asked| poll.answer(&reference("main"), start + Duration::from_secs(asked), REMEMBERED).is_some();
        assert!(serves(0));
        assert!(!serves(2));
    }

    #[test]
    fn drops_references_that_are_not_requested() {
        let start = Instant::now();
        let mut poll = Poll::default();
        for number in 0..1000 {
            poll.add(&reference(&format!("b{number}")), start + Duration::from_secs(number));
        }
        assert_eq!(poll.asked.len(), TOGETHER);
        poll.add(&reference("main"), start + 2 * REMEMBERED);
        assert_eq!(poll.asked.len(), 1);
    }
}
