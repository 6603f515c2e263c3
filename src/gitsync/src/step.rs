//! The step of a running attempt, and the status that shows it.
//!
//! Not here: when it is shown (`running`).

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::commit_trace::CommitTrace;
use super::outcome::{Outcome, Refused};
use mainstay_api::conditions::{self, Reason, Type};
use mainstay_api::git_sync::GitSyncStatus;
use mainstay_git::{Commit, Consumer};
use mainstay_object::counted;
use mainstay_traces::{KeyValue, is_on};

/// A step of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Step {
    /// The reference is looked up.
    #[default]
    LookUp,
    /// The commit is fetched.
    Fetch(Commit),
    /// The commit is read and rendered.
    Render(Commit),
    /// Objects are applied: the number of applied objects so far, and of all objects.
    Apply(Commit, usize, usize),
    /// This many removed objects are deleted.
    Delete(Commit, usize),
}

impl Step {
    /// Returns the text of the step.
    fn text(self) -> String {
        match self {
            Self::LookUp => "looking up the reference".to_owned(),
            Self::Fetch(commit) => format!("fetching commit {commit}"),
            Self::Render(commit) => format!("rendering commit {commit}"),
            Self::Apply(commit, done, all) => {
                format!("applying {done} of {} of commit {commit}", counted(all, "object"))
            }
            Self::Delete(commit, all) => {
                format!("deleting {} that commit {commit} removed", counted(all, "object"))
            }
        }
    }

    /// Returns the name of the step in a trace, and its commit. Stages have spans of their own.
    fn traced(self) -> Option<(&'static str, Commit)> {
        match self {
            Self::LookUp | Self::Apply(..) => None,
            Self::Fetch(commit) => Some(("fetch", commit)),
            Self::Render(commit) => Some(("compile", commit)),
            Self::Delete(commit, _) => Some(("prune", commit)),
        }
    }

    /// Whether the step is worth a status write: it belongs to the first sync, renders a commit other than the applied
    /// one, or changes the cluster. A restarted agent and an idle one show nothing, and neither does a GitSync that
    /// waits for a fetch that other GitSyncs share.
    fn is_shown(self, status: &GitSyncStatus) -> bool {
        match self {
            Self::LookUp => conditions::status(&status.conditions, Type::Ready).is_none(),
            Self::Fetch(_) => status.applied_commit.is_none(),
            Self::Render(commit) => status.applied_commit != Some(commit.to_string()),
            Self::Apply(_, _, all) | Self::Delete(_, all) => all > 0,
        }
    }
}

/// The step, shared by the attempt and the task that shows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<Mutex<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    step: Step,
    /// The shown status, until the report of the attempt replaces it.
    shown: Option<Box<GitSyncStatus>>,
    /// The trace of the newest commit; `None` while tracing is off.
    trace: Option<Box<CommitTrace>>,
}

impl Progress {
    pub(super) fn begin(&self, step: Step) {
        let mut shared = self.0.lock();
        shared.step = step;
        if let (Some(trace), Some((name, commit))) = (&mut shared.trace, step.traced()) {
            trace.begin(name, commit, Vec::new);
        }
    }

    /// Begins an attempt. Returns the span for its log lines, which is none while tracing is off.
    pub(super) fn trace(&self, consumer: &Consumer) -> tracing::Span {
        if !is_on() {
            return tracing::Span::none();
        }
        self.0.lock().trace.get_or_insert_with(|| Box::new(CommitTrace::new(consumer))).look_up()
    }

    /// Begins a plan, which only the trace shows.
    pub(super) fn trace_plan(&self, commit: Commit) {
        if let Some(trace) = &mut self.0.lock().trace {
            trace.begin("plan", commit, Vec::new);
        }
    }

    /// Begins a stage with this many objects, which only the trace shows.
    pub(super) fn trace_stage(&self, number: u8, objects: usize) {
        let mut shared = self.0.lock();
        if let (Step::Apply(commit, ..), Some(trace)) = (shared.step, &mut shared.trace) {
            let objects = i64::try_from(objects).unwrap_or(i64::MAX);
            let attributes =
                || vec![KeyValue::new("mainstay.stage", i64::from(number)), KeyValue::new("mainstay.objects", objects)];
            trace.begin("stage", commit, attributes);
        }
    }

    /// Ends the attempt in the trace.
    pub(super) fn trace_end(&self, attempted: &Result<Option<Outcome>, Refused>) {
        if let Some(trace) = &mut self.0.lock().trace {
            trace.ended(attempted);
        }
    }

    /// Ends the trace of an applied commit, because all objects are healthy.
    pub(super) fn trace_healthy(&self) {
        if let Some(trace) = &mut self.0.lock().trace {
            trace.healthy();
        }
    }

    /// Counts an applied object.
    pub(super) fn advance(&self) {
        if let Step::Apply(_, done, all) = &mut self.0.lock().step {
            *done = (*done + 1).min(*all);
        }
    }

    /// Returns whether the step is worth a status.
    pub(super) fn is_worth_showing(&self, old: &GitSyncStatus) -> bool {
        self.0.lock().step.is_shown(old)
    }

    /// Returns the status that shows the step, if it is worth it and was not shown yet.
    pub(super) fn show(&self, old: &GitSyncStatus, since: Timestamp, now: Timestamp) -> Option<GitSyncStatus> {
        let mut shared = self.0.lock();
        let before = shared.shown.as_deref().unwrap_or(old);
        let new = shared.step.is_shown(old).then(|| running(before, shared.step, since, now))?;
        if *before == new {
            return None;
        }
        shared.shown = Some(Box::new(new.clone()));
        Some(new)
    }

    /// Returns the status that was shown last, if the report of the attempt has not replaced it.
    pub(super) fn shown(&self) -> Option<GitSyncStatus> {
        self.0.lock().shown.as_deref().cloned()
    }

    /// Forgets the shown status, because a different status was written.
    pub(super) fn forget_shown(&self) {
        self.0.lock().shown = None;
    }
}

/// Returns the status of a running attempt. Ready stays as it was.
fn running(old: &GitSyncStatus, step: Step, since: Timestamp, now: Timestamp) -> GitSyncStatus {
    let mut status = old.clone();
    let message = format!("{}; running since {}", step.text(), since.strftime("%Y-%m-%dT%H:%M:%SZ"));
    let mut set = |kind: Type, to: &str, message: &str| {
        let known = conditions::status(&status.conditions, kind);
        let generation = known.and_then(|known| known.observed_generation).or(status.observed_generation);
        conditions::set(&mut status.conditions, kind, to, Reason::Progressing, message, generation, now);
    };
    set(Type::Reconciling, "True", &message);
    // The two exclude each other.
    set(Type::Stalled, "False", "");
    let ready = conditions::status(&status.conditions, Type::Ready);
    if ready.is_none_or(|ready| {
        ready.status == "Unknown" && ready.reason == Reason::Progressing.as_str() && status.attempted_commit.is_none()
    }) {
        let generation = status.observed_generation;
        conditions::set(&mut status.conditions, Type::Ready, "Unknown", Reason::Progressing, &message, generation, now);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn commit(digit: &str) -> Commit {
        digit.repeat(40).parse().unwrap()
    }

    fn text(status: &GitSyncStatus, kind: Type) -> String {
        let found = conditions::status(&status.conditions, kind);
        found.map_or_else(String::new, |c| format!("{} {}: {}", c.status, c.reason, c.message))
    }

    /// The status of a GitSync that has applied a commit, or has failed to.
    fn applied(ready: &str, reason: Reason) -> GitSyncStatus {
        let mut status = GitSyncStatus {
            observed_generation: Some(3),
            applied_commit: Some(commit("1").to_string()),
            attempted_commit: Some(commit("1").to_string()),
            ..GitSyncStatus::default()
        };
        conditions::set(&mut status.conditions, Type::Ready, ready, reason, "as it was", Some(3), at(0));
        conditions::set(&mut status.conditions, Type::Stalled, "True", reason, "x", Some(3), at(0));
        status
    }

    #[test]
    fn the_step_is_in_reconciling_and_ready_stays() {
        let (old, progress) = (applied("True", Reason::Applied), Progress::default());
        progress.begin(Step::Apply(commit("2"), 0, 40));
        (0..12).for_each(|_| progress.advance());
        let shown = progress.show(&old, at(0), at(5)).unwrap();
        let expected = format!(
            "True Progressing: applying 12 of 40 objects of commit {}; running since 1970-01-01T00:00:00Z",
            commit("2")
        );
        assert_eq!(text(&shown, Type::Reconciling), expected);
        assert_eq!(text(&shown, Type::Ready), "True Applied: as it was");
        assert_eq!(text(&shown, Type::Stalled), "False Progressing: ");
        assert_eq!((shown.observed_generation, &shown.applied_commit), (old.observed_generation, &old.applied_commit));
        assert_eq!(progress.show(&old, at(0), at(6)), None, "it is the same");
        progress.advance();
        assert!(text(&progress.show(&old, at(0), at(7)).unwrap(), Type::Reconciling).contains("applying 13 of 40"));
        assert!(progress.shown().is_some());
        progress.forget_shown();
        assert_eq!(progress.shown(), None);
    }

    #[test]
    fn a_new_git_sync_is_not_ready_meanwhile() {
        let (old, progress) = (GitSyncStatus::default(), Progress::default());
        let shown = progress.show(&old, at(0), at(2)).unwrap();
        let looking = "looking up the reference; running since 1970-01-01T00:00:00Z";
        assert_eq!(text(&shown, Type::Ready), format!("Unknown Progressing: {looking}"));
        progress.begin(Step::Fetch(commit("2")));
        let shown = progress.show(&old, at(0), at(7)).unwrap();
        assert!(text(&shown, Type::Ready).starts_with("Unknown Progressing: fetching commit 2222"));
    }

    #[test]
    fn an_idle_and_a_restarted_agent_show_nothing() {
        let old = applied("False", Reason::ApplyFailed);
        let fetches = [Step::Fetch(commit("1")), Step::Fetch(commit("2"))];
        for step in [Step::LookUp, Step::Render(commit("1")), Step::Apply(commit("1"), 0, 0)].into_iter().chain(fetches)
        {
            let progress = Progress::default();
            progress.begin(step);
            assert_eq!(progress.show(&old, at(0), at(9)), None, "{step:?}");
        }
        for step in [Step::Render(commit("2")), Step::Apply(commit("1"), 0, 1), Step::Delete(commit("1"), 1)] {
            let progress = Progress::default();
            progress.begin(step);
            assert!(progress.show(&old, at(0), at(9)).is_some(), "{step:?}");
        }
    }
}
