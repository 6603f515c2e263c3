//! The commit that a GitSync applies: which one this agent has begun, and how far it got.
//!
//! Not here: the commits that are applied in full (`applied_commits`).

use jiff::Timestamp;

use super::resolve::SyncRequest;
use super::tally::Tally;
use mainstay_api::git_sync::WindowOverride;
use mainstay_git::Commit;

/// The progress of the present commit.
#[derive(Debug, Default)]
pub(super) struct CommitState {
    enforced: Enforced,
    /// The last commit whose round has ended, and when its first round ended.
    since: Option<(Commit, Timestamp)>,
    /// Counts of changed objects so far, for a commit that is not applied in full.
    tally: Option<Box<(Commit, Tally)>>,
    /// The generation of the spec of the last published plan.
    planned_for: Option<i64>,
    /// The last request that was carried out in full.
    settled: Option<SyncRequest>,
    /// The time when this agent first held a commit back.
    frozen_since: Option<Timestamp>,
    /// The last commit that was applied in spite of a window.
    window_override: Option<Box<WindowOverride>>,
}

/// The commit whose objects this agent enforces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Enforced {
    /// No commit yet.
    #[default]
    Nothing,
    /// The commit that an earlier agent applied was restored, or can never be.
    Earlier,
    /// The last commit that this agent began to apply. A window that closes afterwards does not stop this commit.
    Begun(Commit),
}

impl CommitState {
    /// Begins to apply a commit.
    pub(super) fn begin(&mut self, commit: Commit) {
        self.enforced = Enforced::Begun(commit);
    }

    /// Whether this agent began to apply a commit.
    pub(super) fn has_begun(&self) -> bool {
        matches!(self.enforced, Enforced::Begun(_))
    }

    /// Whether this commit is the last one that this agent began to apply.
    pub(super) fn was_begun(&self, commit: Commit) -> bool {
        self.enforced == Enforced::Begun(commit)
    }

    /// Records that the commit of an earlier agent was restored, or can never be.
    pub(super) fn restore(&mut self) {
        if self.enforced == Enforced::Nothing {
            self.enforced = Enforced::Earlier;
        }
    }

    /// Whether a commit is enforced, or it is known that the one of an earlier agent cannot be.
    pub(super) fn is_enforced(&self) -> bool {
        self.enforced != Enforced::Nothing
    }

    /// Returns when the first round of a commit ended. `now` is the end of a round.
    pub(super) fn ended(&mut self, commit: Commit, now: Timestamp) -> Timestamp {
        let known = self.since.filter(|(of, _)| *of == commit);
        let (_, since) = *self.since.insert(known.unwrap_or((commit, now)));
        since
    }

    /// Returns since when the present commit is enforced while a window holds the next one back. If this agent has ended
    /// no round, this is the time when it first held a commit back.
    pub(super) fn freeze(&mut self, now: Timestamp) -> Timestamp {
        let frozen_since = *self.frozen_since.get_or_insert(now);
        self.since.map_or(frozen_since, |(_, since)| since)
    }

    /// Takes the counts of changed objects of the earlier rounds of a commit.
    pub(super) fn take_tally(&mut self, commit: Commit) -> Tally {
        let earlier = self.tally.take().filter(|earlier| earlier.0 == commit);
        earlier.map(|earlier| earlier.1).unwrap_or_default()
    }

    /// Keeps the counts of a commit that is not applied in full, for its next round.
    pub(super) fn keep_tally(&mut self, commit: Commit, tally: Tally) {
        self.tally = Some(Box::new((commit, tally)));
    }

    /// Records that a commit is planned for a generation of the spec.
    pub(super) fn plan_for(&mut self, generation: Option<i64>) {
        self.planned_for = generation;
    }

    /// Returns the generation of the spec of the last published plan.
    pub(super) fn planned_for(&self) -> Option<i64> {
        self.planned_for
    }

    /// Records a request that was carried out in full. It is not checked again.
    pub(super) fn settle(&mut self, request: SyncRequest) {
        self.settled = Some(request);
    }

    /// Returns the last request that was carried out in full.
    pub(super) fn settled(&self) -> Option<&SyncRequest> {
        self.settled.as_ref()
    }

    /// Makes the next attempt check the request again.
    pub(super) fn unsettle(&mut self) {
        self.settled = None;
    }

    /// Records a commit that is applied in spite of a window.
    pub(super) fn override_window(&mut self, by: WindowOverride) {
        self.window_override = Some(Box::new(by));
    }

    /// Returns the last commit that was applied in spite of a window.
    pub(super) fn window_override(&self) -> Option<&WindowOverride> {
        self.window_override.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn commits() -> [Commit; 2] {
        ["1", "2"].map(|digit| digit.repeat(40).parse().unwrap())
    }

    #[test]
    fn the_commit_of_an_earlier_agent_is_restored_only_before_this_agent_begins_one() {
        let ([first, second], mut state) = (commits(), CommitState::default());
        assert!(!state.is_enforced() && !state.has_begun());
        state.restore();
        assert!(state.is_enforced() && !state.has_begun() && !state.was_begun(first));
        state.begin(first);
        state.restore();
        assert!(state.is_enforced() && state.was_begun(first) && !state.was_begun(second));
    }

    #[test]
    fn the_first_round_of_a_commit_is_the_time_since_which_it_is_enforced() {
        let ([first, second], mut state) = (commits(), CommitState::default());
        assert_eq!(state.freeze(at(1)), at(1));
        assert_eq!(state.freeze(at(2)), at(1), "no commit was applied");
        assert_eq!([state.ended(first, at(3)), state.ended(first, at(4))], [at(3); 2]);
        assert_eq!(state.freeze(at(5)), at(3));
        assert_eq!(state.ended(second, at(6)), at(6));
        assert_eq!(state.ended(first, at(7)), at(7), "it is applied again");
    }

    #[test]
    fn the_counts_of_a_commit_are_not_those_of_the_next_one() {
        let ([first, second], mut state) = (commits(), CommitState::default());
        let tally = Tally::default().next_round(2);
        state.keep_tally(first, tally.clone());
        assert_eq!(state.take_tally(first).unchanged, 2);
        assert_eq!(state.take_tally(first).unchanged, 0, "the round keeps them again if it is not complete");
        state.keep_tally(first, tally);
        assert_eq!(state.take_tally(second).unchanged, 0);
    }
}
