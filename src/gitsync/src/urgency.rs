//! Decides how soon a changed status is written: immediately, or when its counters are due.
//!
//! Invariant: a status is written at most [`BURST`] times in a row, then at most once per [`REFILL`]. An object with
//! alternating health costs no more.
//! Invariant: changes of counters alone wait until [`COUNTERS_EVERY`] has passed since the last write.
//!
//! Not here: the content of a status (`status`), and the write (`report`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::GitSyncStatus;

/// Minimum time between the last write and a write for counters alone.
pub(super) const COUNTERS_EVERY: Duration = Duration::from_secs(5);
/// Number of writes that are allowed without a wait.
const BURST: u32 = 5;
/// Time after which one more write is allowed.
const REFILL: Duration = Duration::from_secs(1);

/// Delay of a status that shows unhealthy objects. Objects that become healthy in this time cause one write instead of
/// two.
const HEALTH_GRACE: Duration = Duration::from_millis(50);
/// Delay of the first status of a new agent that has applied nothing, because it has not seen its objects yet.
const FIRST_LOOK: Duration = Duration::from_millis(700);
/// Maximum delay of the first status of a new agent while kinds are listed for the first time: seconds, with hundreds of
/// GitSyncs.
const FIRST_LISTS: Duration = Duration::from_secs(30);

/// Minimum time between two writes for all running attempts.
pub(super) const BETWEEN: Duration = Duration::from_millis(250);

/// The urgency of a status write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// No write is necessary.
    Nothing,
    /// Only counters and texts changed.
    Counters,
    /// Users wait for the change: a commit, readiness, a failure, a first revert.
    Now,
}

/// Returns how soon `new` must be written over `old`.
pub(super) fn urgency(old: &GitSyncStatus, new: &GitSyncStatus) -> Urgency {
    if old == new {
        Urgency::Nothing
    } else if without_counters(old) == without_counters(new) && !has_first_revert(old, new) {
        Urgency::Counters
    } else {
        Urgency::Now
    }
}

/// Whether `new` only names a new commit, which has changed none of the objects, beside counters and texts.
pub(super) fn only_names_commit(old: &GitSyncStatus, new: &GitSyncStatus) -> bool {
    let is_new = old.attempted_commit != new.attempted_commit || old.applied_commit != new.applied_commit;
    // Several commits may be applied before a status is written. A commit may be applied twice.
    let known = new.history.iter().rposition(|entry| Some(&entry.commit) == old.applied_commit.as_ref());
    let applied = new.history.iter().take(known.unwrap_or(new.history.len()));
    let has_changed = applied.flat_map(|entry| [entry.created, entry.changed, entry.pruned]).any(|count| count > 0);
    is_new && !has_changed && !has_first_revert(old, new) && without_commit(old) == without_commit(new)
}

/// Removes the fields that a new commit changes, and counters.
fn without_commit(status: &GitSyncStatus) -> GitSyncStatus {
    let mut status = without_counters(status);
    (status.attempted_commit, status.attempted_reference) = (None, None);
    (status.applied_commit, status.short_commit, status.applied_tree_id) = (None, None, None);
    status.history.clear();
    if let Some(shared) = &mut status.shared {
        shared.commit.clear();
    }
    status
}

/// Whether an object was reverted that is not among the reverts in the written status.
fn has_first_revert(old: &GitSyncStatus, new: &GitSyncStatus) -> bool {
    let known = old.last_reverts.iter().map(|revert| &*revert.object).collect::<BTreeSet<_>>();
    new.last_reverts.iter().any(|revert| !known.contains(&*revert.object))
}

/// Removes the fields that change with every step of a rollout and every revert. A new field of the status is urgent
/// unless it is removed here.
fn without_counters(status: &GitSyncStatus) -> GitSyncStatus {
    let mut status = status.clone();
    (status.objects, status.healthy, status.failed, status.reverted) = (0, 0, 0, 0);
    status.last_reverts.clear();
    // The change of state that a decision causes is urgent; the record of it is not.
    status.last_decisions.clear();
    status.drifted_objects = 0;
    // The set of differing objects is urgent; their fields and retry times are not.
    for drifted in &mut status.drifted {
        let is_absent = drifted.is_absent();
        drifted.fields.retain(|_| is_absent);
        (drifted.changes, drifted.who, drifted.next_attempt) = (Vec::new(), String::new(), None);
    }
    status.failures.retain(|failure| failure.reason != Reason::Progressing.as_str());
    for failure in &mut status.failures {
        failure.message.clear();
    }
    for condition in &mut status.conditions {
        condition.message.clear();
        condition.last_transition_time.0 = jiff::Timestamp::UNIX_EPOCH;
    }
    status
}

/// Returns the delay of a status that shows unhealthy objects. `is_same` is whether a new agent found the commit of the status
/// applied; `None` for a later status, and without a commit. `is_listing` is whether objects are not seen yet. Otherwise a new
/// commit would be shown twice: with unseen objects, and with healthy ones soon after.
pub(super) fn first_grace(is_same: Option<bool>, is_listing: bool) -> Duration {
    match is_same {
        Some(_) if is_listing => FIRST_LISTS,
        Some(true) => FIRST_LOOK,
        Some(false) | None => HEALTH_GRACE,
    }
}

/// The budget of status writes: a token bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriteBudget {
    /// Time at which the bucket is full. A time in the past means that the bucket is full now.
    full_at: Option<Instant>,
    last: Option<Instant>,
    /// Earliest time of the next write after a failed one.
    not_before: Option<Instant>,
}

impl WriteBudget {
    /// Returns the time of the next allowed write with this urgency, at least `now`; `None` if no write is necessary.
    pub(super) fn due(&self, urgency: Urgency, now: Instant) -> Option<Instant> {
        let allowed = match urgency {
            Urgency::Nothing => return None,
            Urgency::Counters => self.last.map(|last| last + COUNTERS_EVERY),
            Urgency::Now => self.full_at.and_then(|full| full.checked_sub(REFILL * (BURST - 1))),
        };
        Some(allowed.into_iter().chain(self.not_before).fold(now, Instant::max))
    }

    /// Records a successful write.
    pub(super) fn written(&mut self, now: Instant) {
        self.full_at = Some(self.full_at.map_or(now, |full| full.max(now)) + REFILL);
        self.last = Some(now);
        self.not_before = None;
    }

    /// Records a failed write. The next write is made at `not_before` or later.
    pub(super) fn refused(&mut self, not_before: Instant) {
        self.not_before = Some(not_before);
    }

    /// Whether no status was written yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.last.is_none() && self.not_before.is_none()
    }
}

/// The time of the last status write for a running attempt, shared by all GitSyncs of an agent.
#[derive(Clone, Debug, Default)]
pub(super) struct ShowTurns(Arc<Mutex<Option<Instant>>>);

impl ShowTurns {
    /// Takes the turn, if the last write was long enough ago.
    pub(super) fn take(&self, now: Instant) -> bool {
        let mut last = self.0.lock();
        let is_free = last.is_none_or(|last| now.duration_since(last) >= BETWEEN);
        if is_free {
            *last = Some(now);
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
    use mainstay_api::git_sync::{
        AppliedCommit, Decided, Decision, DriftReason, Drifted, Failure, Revert, SharedPlan, WHOLE_OBJECT,
    };

    fn ready(status: &str, message: &str) -> Condition {
        Condition {
            type_: "Ready".into(),
            status: status.into(),
            reason: "Any".into(),
            message: message.into(),
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
            observed_generation: None,
        }
    }

    fn failing(reason: &str, message: &str) -> Failure {
        Failure { object: "Deployment.apps shop/web".into(), reason: reason.into(), message: message.into() }
    }

    fn put_back(object: &str, latency_ms: i64) -> Revert {
        Revert {
            object: object.into(),
            fields: vec![],
            changes: vec![],
            who: "kubectl-edit".into(),
            when: Time(jiff::Timestamp::UNIX_EPOCH),
            latency_ms,
        }
    }

    fn drifted(object: &str, fields: &[&str]) -> Drifted {
        Drifted {
            object: object.into(),
            fields: fields.iter().map(|&field| field.into()).collect(),
            changes: vec![],
            who: "kubectl-edit".into(),
            since: Time(jiff::Timestamp::UNIX_EPOCH),
            reason: DriftReason::Report,
            next_attempt: None,
        }
    }

    fn status() -> GitSyncStatus {
        GitSyncStatus {
            applied_commit: Some("c1".into()),
            objects: 3,
            reverted: 1,
            last_reverts: vec![put_back("a", 1)],
            drifted_objects: 1,
            drifted: vec![drifted("a", &["data.key"])],
            failures: vec![failing("Progressing", "0 of 3")],
            conditions: vec![ready("Unknown", "waiting for web (0 of 3)")],
            ..GitSyncStatus::default()
        }
    }

    fn check(expected: Urgency, change: impl FnOnce(&mut GitSyncStatus)) {
        let mut new = status();
        change(&mut new);
        assert_eq!(urgency(&status(), &new), expected, "{new:?}");
    }

    #[test]
    fn counters_and_texts_wait_and_everything_else_does_not() {
        check(Urgency::Nothing, |_| {});
        check(Urgency::Counters, |new| new.healthy = 2);
        check(Urgency::Counters, |new| new.failures[0].message = "1 of 3".into());
        check(Urgency::Counters, |new| new.failures.push(failing("Progressing", "0 of 1")));
        check(Urgency::Counters, |new| new.conditions[0].message = "waiting for web (1 of 3)".into());
        check(Urgency::Counters, |new| {
            new.reverted = 2;
            new.last_reverts.insert(0, put_back("a", 2));
        });
        check(Urgency::Counters, |new| {
            let when = Time(jiff::Timestamp::UNIX_EPOCH);
            let decided = Decided::SlowedDown;
            let object = "a".into();
            new.last_decisions.push(Decision { object, decided, who: None, until: None, times: 2, when });
        });
        check(Urgency::Now, |new| new.applied_commit = Some("c2".into()));
        check(Urgency::Now, |new| new.conditions[0].status = "True".into());
        check(Urgency::Now, |new| new.last_handled_request = Some("now".into()));
        check(Urgency::Now, |new| new.failures.push(failing("RevertFailed", "no")));
        check(Urgency::Now, |new| new.last_reverts.insert(0, put_back("b", 2)));
        check(Urgency::Now, |new| new.held.push("Namespace shop".into()));
        check(Urgency::Now, |new| new.drifted.push(drifted("b", &["data.key"])));
        check(Urgency::Now, |new| new.drifted.clear());
        check(Urgency::Now, |new| new.drifted[0].fields = vec![WHOLE_OBJECT.into()]);
        check(Urgency::Counters, |new| new.drifted[0].fields.push("data.other".into()));
        check(Urgency::Counters, |new| new.drifted[0].next_attempt = Some(Time(jiff::Timestamp::UNIX_EPOCH)));
    }

    fn only_names(change: impl FnOnce(&mut GitSyncStatus)) -> bool {
        let plan = SharedPlan { commit: "c1".into(), carried_out: true, wanted: vec!["a".into()], wanted_objects: 1 };
        let old = GitSyncStatus { attempted_commit: Some("c1".into()), shared: Some(plan), ..status() };
        let mut new = old.clone();
        new.conditions[0].message = "applied commit c2".into();
        (new.attempted_commit, new.applied_commit) = (Some("c2".into()), Some("c2".into()));
        (new.short_commit, new.applied_tree_id) = (Some("c2".into()), Some("t2".into()));
        if let Some(shared) = &mut new.shared {
            shared.commit = "c2".into();
        }
        change(&mut new);
        only_names_commit(&old, &new)
    }

    fn applied(commit: &str, changed: i64) -> AppliedCommit {
        AppliedCommit {
            commit: commit.into(),
            subject: String::new(),
            author: String::new(),
            authored_at: None,
            reference: None,
            when: Time(jiff::Timestamp::UNIX_EPOCH),
            duration_ms: 1,
            created: 0,
            changed,
            unchanged: 1,
            pruned: 0,
            objects: Vec::new(),
        }
    }

    #[test]
    fn a_commit_that_changes_no_object_of_the_git_sync_is_only_named() {
        assert!(only_names(|_| {}));
        assert!(only_names(|new| new.healthy = 2), "counters");
        assert!(only_names(|new| new.history = vec![applied("c2", 0), applied("c1", 1)]));
        assert!(!only_names(|new| new.history = vec![applied("c2", 1)]), "a user waits for the change");
        let of_two = |changed| vec![applied("c2", 0), applied("c1b", changed), applied("c1", 1)];
        assert!(only_names(|new| new.history = of_two(0)));
        assert!(!only_names(|new| new.history = of_two(1)), "the earlier commit has changed an object");
        let returned = || vec![applied("c2", 0), applied("c1", 1), applied("c0", 1), applied("c1", 1)];
        assert!(!only_names(|new| new.history = returned()), "the commit of the status was applied again");
        assert!(!only_names(|new| new.conditions[0].status = "False".into()));
        assert!(!only_names(|new| new.held.push("Namespace shop".into())));
        assert!(!only_names(|new| new.last_reverts.insert(0, put_back("b", 2))));
        assert!(!only_names(|new| new.observed_generation = Some(2)));
        assert!(!only_names(|new| new.last_handled_request = Some("now".into())));
        assert!(!only_names(|new| new.shared.as_mut().unwrap().carried_out = false), "others wait for it");
        assert!(!only_names(|new| new.shared.as_mut().unwrap().wanted.clear()), "others wait for it");
        let same = status();
        assert!(!only_names_commit(&same, &same), "no commit");
    }

    #[test]
    fn the_first_status_of_a_new_agent_waits_until_objects_are_seen() {
        assert_eq!([first_grace(Some(true), true), first_grace(Some(false), true)], [FIRST_LISTS; 2]);
        assert_eq!(first_grace(Some(true), false), FIRST_LOOK);
        assert_eq!([first_grace(Some(false), false), first_grace(None, true)], [HEALTH_GRACE; 2]);
    }

    #[test]
    fn a_flapping_object_costs_a_burst_and_then_one_write_per_second() {
        let (start, mut budget) = (Instant::now(), WriteBudget::default());
        let step = Duration::from_millis(10);
        let mut writes = [0; 20];
        for tick in 0..2000 {
            let now = start + step * tick;
            if budget.due(Urgency::Now, now) == Some(now) {
                budget.written(now);
                writes[(tick / 100) as usize] += 1;
            }
        }
        assert_eq!(writes[0], BURST);
        assert!(writes[1..].iter().all(|count| *count == 1), "{writes:?}");
    }

    #[test]
    fn counters_wait_for_their_time_and_a_refused_write_for_its_backoff() {
        let (start, mut budget) = (Instant::now(), WriteBudget::default());
        assert_eq!(budget.due(Urgency::Counters, start), Some(start));
        budget.written(start);
        assert_eq!(budget.due(Urgency::Counters, start), Some(start + COUNTERS_EVERY));
        assert_eq!(budget.due(Urgency::Now, start), Some(start));
        budget.refused(start + REFILL * 60);
        assert_eq!(budget.due(Urgency::Now, start), Some(start + REFILL * 60));
        assert_eq!(budget.due(Urgency::Nothing, start), None);
        let later = start + REFILL * 100;
        assert_eq!(budget.due(Urgency::Now, later), Some(later));
    }

    #[test]
    fn running_attempts_take_turns_to_be_shown() {
        let (turns, start) = (ShowTurns::default(), Instant::now());
        let taken = (0..1000).filter(|tick| turns.take(start + Duration::from_millis(*tick))).count();
        assert_eq!(taken, 4);
    }
}
