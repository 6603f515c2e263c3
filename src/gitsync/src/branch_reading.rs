//! The last reading of the followed reference: its newest commit, and the last commit that was fetched.
//!
//! Not here: the lookup and the fetch (`observe`).

use std::time::Instant;

use mainstay_git::{Commit, RemoteUrl, ResolvedRef};

/// The last reading of the followed reference by this agent; empty before the first lookup.
#[derive(Debug, Default)]
pub(super) struct BranchReading {
    seen: Option<SeenCommit>,
    fetched: Option<FetchedCommit>,
}

/// The newest known commit of the reference.
#[derive(Debug)]
struct SeenCommit {
    commit: Commit,
    /// The time of the first lookup that found the commit.
    since: Instant,
    /// The full name of the reference; `None` if it is a commit id.
    reference: Option<String>,
}

/// A commit that was fetched from a reference of a remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FetchedCommit {
    pub(super) commit: Commit,
    /// The full name of the reference.
    pub(super) reference: String,
    pub(super) url: RemoteUrl,
}

impl FetchedCommit {
    /// Returns the name of the branch whose commit was `old` before; `None` if it is the same commit, or if `old` is of a
    /// different branch. A branch of the same name in a different repository is a different branch.
    pub(super) fn branch_since(&self, old: &Self) -> Option<&str> {
        let is_same = self.reference == old.reference && self.url == old.url;
        self.reference.strip_prefix("refs/heads/").filter(|_| is_same && self.commit != old.commit)
    }
}

impl BranchReading {
    /// Records the result of a lookup at `now`. Returns whether the commit is new.
    pub(super) fn see(&mut self, found: &ResolvedRef, now: Instant) -> bool {
        let (commit, reference) = (found.commit, found.full_name().map(str::to_owned));
        let known = self.seen.as_ref().filter(|seen| seen.commit == commit).map(|seen| seen.since);
        self.seen = Some(SeenCommit { commit, since: known.unwrap_or(now), reference });
        known.is_none()
    }

    /// Returns the newest known commit.
    pub(super) fn commit(&self) -> Option<Commit> {
        self.seen.as_ref().map(|seen| seen.commit)
    }

    /// Returns the time of the first lookup that found the newest known commit.
    pub(super) fn since(&self) -> Option<Instant> {
        self.seen.as_ref().map(|seen| seen.since)
    }

    /// Returns the full name of the reference; `None` if it is a commit id.
    pub(super) fn reference(&self) -> Option<&str> {
        self.seen.as_ref()?.reference.as_deref()
    }

    /// Records a fetched commit. Returns the one before.
    pub(super) fn fetch(&mut self, commit: FetchedCommit) -> Option<FetchedCommit> {
        self.fetched.replace(commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(digit: &str, reference: &str, url: &str) -> FetchedCommit {
        let (commit, url) = (digit.repeat(40).parse().unwrap(), RemoteUrl::parse(url).unwrap());
        FetchedCommit { commit, reference: reference.to_owned(), url }
    }

    #[test]
    fn a_branch_moves_only_within_its_repository() {
        let (main, url) = ("refs/heads/main", "https://git.example.org/shop.git");
        let new = fetched("2", main, url);
        assert_eq!(new.branch_since(&fetched("1", main, url)), Some("main"));
        assert_eq!(new.branch_since(&fetched("2", main, url)), None);
        assert_eq!(new.branch_since(&fetched("1", "refs/heads/next", url)), None);
        assert_eq!(new.branch_since(&fetched("1", main, "https://git.example.org/other.git")), None);
        let tag = "refs/tags/main";
        assert_eq!(fetched("2", tag, url).branch_since(&fetched("1", tag, url)), None);
    }

    #[test]
    fn the_reading_names_the_commit_that_was_fetched_before() {
        let (mut reading, url) = (BranchReading::default(), "https://git.example.org/shop.git");
        let [first, second] = ["1", "2"].map(|digit| fetched(digit, "refs/heads/main", url));
        assert_eq!(reading.fetch(first.clone()), None);
        assert_eq!(reading.fetch(second), Some(first));
        assert_eq!((reading.commit(), reading.since(), reading.reference()), (None, None, None));
    }
}
