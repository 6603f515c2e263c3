//! Cached results of successful signature checks.
//!
//! Invariant: only successes are cached, each for one object, commit, name and set of keys, and only while these keys
//! are valid.

use std::collections::VecDeque;

use jiff::Timestamp;

use super::id::{Commit, Id};

/// Maximum number of cached results per remote.
const REMEMBERED: usize = 64;
/// The subject of a check: the object, the commit to which the server resolves it, the name of the reference, and the
/// keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) tip: Id,
    pub(super) commit: Commit,
    pub(super) name: String,
    pub(super) keys: [u8; 32],
}

/// The last successful checks, each with its expiry, if any.
#[derive(Debug, Default)]
pub(super) struct Judgements(VecDeque<(Judged, Option<Timestamp>)>);

impl Judgements {
    /// Caches a success until that time, and drops the oldest entry if there are too many.
    pub(super) fn add(&mut self, judged: Judged, until: Option<Timestamp>) {
        self.0.retain(|(known, _)| *known != judged);
        self.0.truncate(REMEMBERED - 1);
        self.0.push_front((judged, until));
    }

    pub(super) fn has(&self, judged: &Judged, now: Timestamp) -> bool {
        self.0.iter().any(|(known, until)| known == judged && until.is_none_or(|until| now <= until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judgement_is_for_one_commit_whatever_the_server_says_that_a_reference_leads_to() {
        let id = |digit: &str| Id::parse(digit.repeat(40).as_bytes()).unwrap();
        let judged = |commit| Judged { tip: id("1"), commit, name: "refs/heads/main".to_owned(), keys: [7; 32] };
        let mut judgements = Judgements::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        judgements.add(judged(Commit(id("1"))), None);
        assert!(judgements.has(&judged(Commit(id("1"))), at(9)));
        assert!(!judgements.has(&judged(Commit(id("2"))), at(9)), "one that a server says the branch is peeled to");
        judgements.add(judged(Commit(id("1"))), Some(at(10)));
        assert!(judgements.has(&judged(Commit(id("1"))), at(10)));
        assert!(!judgements.has(&judged(Commit(id("1"))), at(11)), "its key has expired");
    }
}
