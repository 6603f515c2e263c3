//! When a consumer looks up its remote ahead of its interval, and which responses are recent enough for that lookup.
//!
//! Not here: which consumers are woken (`pushes`), and the lookup.

use std::time::Instant;

use super::Commit;

/// A lookup ahead of the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupDue {
    /// When the lookup is due.
    pub at: Instant,
    /// Minimum start time of a request whose response is recent enough.
    pub after: Instant,
    /// The commit that another consumer found; `None` after a push.
    commit: Option<Commit>,
}

impl LookupDue {
    /// Returns the lookup after a push. Earlier responses are too old.
    pub(super) fn pushed(at: Instant) -> Self {
        Self { at, after: at, commit: None }
    }

    /// Returns the lookup after another consumer found a commit by a request that began at `after`.
    pub(super) fn found(commit: Commit, at: Instant, after: Instant) -> Self {
        Self { at, after, commit: Some(commit) }
    }

    /// Returns whether a consumer at this commit needs no lookup.
    pub fn is_known(&self, commit: Option<Commit>) -> bool {
        self.commit.is_some() && self.commit == commit
    }

    /// Combines two lookups into one.
    #[must_use]
    pub fn and(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        let at = self.at.min(other.at);
        if self.commit.is_some() && self.commit == other.commit {
            // Several consumers have found the same commit, so the earliest of their responses is recent enough.
            return Self { at, after: self.after.min(other.after), ..self };
        }
        Self { at, after: self.after.max(other.after), commit: None }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_lookup_serves_two_reasons_and_neither_is_lost() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let commit = |digit: &str| digit.repeat(40).parse::<Commit>().unwrap();
        let (one, two) = (LookupDue::found(commit("1"), at(3), at(1)), LookupDue::found(commit("2"), at(5), at(2)));
        let push = LookupDue::pushed(at(4));
        assert!(one.is_known(Some(commit("1"))));
        assert!(!one.is_known(Some(commit("2"))) && !one.is_known(None) && !push.is_known(None));

        let again = LookupDue::found(commit("1"), at(4), at(2));
        assert_eq!(again.and(Some(one)), LookupDue { at: at(3), after: at(1), commit: Some(commit("1")) });
        for both in [two.and(Some(one)), one.and(Some(two))] {
            assert_eq!(both, LookupDue { at: at(3), after: at(2), commit: None });
        }
        for both in [push.and(Some(one)), one.and(Some(push))] {
            assert_eq!(both, LookupDue { at: at(3), after: at(4), commit: None }, "the push counts");
            assert!(!both.is_known(Some(commit("1"))));
        }
        assert_eq!(one.and(None), one);
    }
}
