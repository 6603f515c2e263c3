//! The commits that are applied in full, and their history for the status.
//!
//! Not here: an entry of the history (`history`).

use super::contents::Contents;
use mainstay_api::git_sync::{AppliedCommit, HISTORY};
use mainstay_git::Commit;

/// The commits that this agent has applied; empty before the first one.
#[derive(Debug, Default)]
pub(super) struct AppliedCommits {
    /// The last commit that was applied in full, with its contents.
    last: Option<(Commit, Option<Contents>)>,
    /// The last planned commit, if it was applied without failures. Removed objects may still be kept.
    carried_out: Option<Commit>,
    history: History,
}

/// The last applied commits, newest first.
#[derive(Debug, Default)]
enum History {
    /// They were not restored from the status.
    #[default]
    Unknown,
    /// The written status has them.
    Written(Vec<AppliedCommit>),
    /// They are newer than those in the written status.
    Unwritten(Vec<AppliedCommit>),
}

impl AppliedCommits {
    /// Records a commit that is applied in full.
    pub(super) fn complete(&mut self, commit: Commit, contents: Option<Contents>) {
        self.last = Some((commit, contents));
    }

    /// Returns the last commit that was applied in full, with its contents.
    pub(super) fn last(&self) -> Option<(Commit, Option<Contents>)> {
        self.last
    }

    /// Returns the last commit that was applied in full.
    pub(super) fn commit(&self) -> Option<Commit> {
        self.last.map(|(commit, _)| commit)
    }

    /// Records the commit of a round that had no failures; `None` after one that had.
    pub(super) fn set_carried_out(&mut self, commit: Option<Commit>) {
        self.carried_out = commit;
    }

    /// Returns the last planned commit, if it was applied without failures.
    pub(super) fn carried_out(&self) -> Option<Commit> {
        self.carried_out
    }

    /// Takes the history, before [`remember`](Self::remember) adds a commit; `None` if it was not restored.
    pub(super) fn take_history(&mut self) -> Option<Vec<AppliedCommit>> {
        match std::mem::take(&mut self.history) {
            History::Unknown => None,
            History::Written(commits) | History::Unwritten(commits) => Some(commits),
        }
    }

    /// Adds a commit to the earlier history.
    pub(super) fn remember(&mut self, applied: AppliedCommit, earlier: Vec<AppliedCommit>) {
        self.history = History::Unwritten(std::iter::once(applied).chain(earlier).take(HISTORY).collect());
    }

    /// Returns the history if the written status has an older one.
    pub(super) fn unwritten_history(&self) -> Option<&[AppliedCommit]> {
        match &self.history {
            History::Unwritten(commits) => Some(commits),
            History::Unknown | History::Written(_) => None,
        }
    }

    /// Records that the status was written with the history.
    pub(super) fn history_written(&mut self) {
        if let Some(commits) = self.take_history() {
            self.history = History::Written(commits);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn applied(number: usize) -> AppliedCommit {
        AppliedCommit {
            commit: number.to_string(),
            subject: String::new(),
            author: String::new(),
            authored_at: None,
            reference: None,
            when: Time(Timestamp::UNIX_EPOCH),
            duration_ms: 1,
            created: 0,
            changed: 0,
            unchanged: 1,
            pruned: 0,
            objects: Vec::new(),
        }
    }

    #[test]
    fn a_history_is_unwritten_until_a_status_has_it() {
        let mut commits = AppliedCommits::default();
        commits.history_written();
        assert_eq!(commits.take_history(), None, "a status without a history does not restore it");
        commits.remember(applied(0), Vec::new());
        assert_eq!(commits.unwritten_history().map(<[_]>::len), Some(1));
        commits.history_written();
        assert_eq!(commits.unwritten_history(), None);
        let earlier = commits.take_history().unwrap();
        commits.remember(applied(1), earlier);
        let names = commits.unwritten_history().unwrap().iter().map(|one| one.commit.clone());
        assert_eq!(names.collect::<Vec<_>>(), ["1", "0"]);
    }

    #[test]
    fn a_history_has_a_bounded_length() {
        let mut commits = AppliedCommits::default();
        for number in 0..2 * HISTORY {
            let earlier = commits.take_history().unwrap_or_default();
            commits.remember(applied(number), earlier);
        }
        assert_eq!(commits.unwritten_history().map(<[_]>::len), Some(HISTORY));
    }
}
