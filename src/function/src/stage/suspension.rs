//! A held-up build whose place others wait for is suspended, and tried again with backoff.
//!
//! Suspending a Job deletes its pod, and with it what the pod reserves. The Job keeps in annotations why, how often and until when
//! it is suspended, so a new agent goes on where the former one was.
//!
//! Deliberately absent: which builds have to yield; that is `build_queue`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{Decision, Step};
use crate::child_state::{Job, Suspension};
use mainstay_api::function_conditions::{Reason, Status, Type};
use mainstay_object::failure::Backoff;

const SUBJECT: Type = Type::BuildReady;
/// The first and the longest time that a build is suspended: what a kubelet waits between two pulls.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// Suspends a held-up build, whose pod cannot start for this reason.
pub(super) fn suspend(job: &Job, why: String, now: Timestamp, decision: &mut Decision) {
    let count = job.suspensions.saturating_add(1);
    let wait = Backoff::new(BACKOFF.0, BACKOFF.1).delay(count);
    // The annotation has whole seconds, and the condition says the same before and after it is read.
    let until = now.round(jiff::Unit::Second).unwrap_or(now) + SignedDuration::try_from(wait).unwrap_or_default();
    let suspension = Suspension { until: Some(until), why: crate::child_state::short(&why) };
    report(job, &suspension, now, decision);
    decision.steps.push(Step::Suspend { identity: job.identity.clone(), suspension: Some((count, suspension)) });
}

/// Whether a suspended build is to be tried again.
pub(super) fn is_due(suspension: &Suspension, now: Timestamp) -> bool {
    suspension.until.is_none_or(|until| until <= now)
}

/// Says that a build is suspended, and until when.
pub(super) fn report(job: &Job, suspension: &Suspension, now: Timestamp, decision: &mut Decision) {
    let Suspension { until, why } = suspension;
    let Some(until) = until else { return };
    let message = format!(
        "Job {} is suspended, because its pod cannot start and other builds wait for its place: {why} (tried again at {until:.0})",
        job.identity.name
    );
    decision.set_condition(SUBJECT, Status::Unknown, Reason::JobQueued, message);
    decision.requeue_within(Duration::try_from(until.duration_since(now)).unwrap_or_default());
}

/// Resumes a build, which starts again.
pub(super) fn resume(job: &Job, decision: &mut Decision) {
    decision.steps.push(Step::Suspend { identity: job.identity.clone(), suspension: None });
    let message = format!("Job {} is still in progress; it was suspended", job.identity.name);
    decision.set_condition(SUBJECT, Status::Unknown, Reason::JobRunning, message);
}
