//! Suspends a held-up build whose slot other builds need, and resumes the build after a backoff.
//!
//! Suspending a Job deletes its pod and frees the reserved resources. Annotations of the Job record the reason, the
//! count and the end of the suspension, so a new agent continues.
//!
//! Not here: which builds have to yield; see `build_queue`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::decision::Decision;
use super::step::Step;
use crate::child_state::{Job, Suspension};
use mainstay_api::function_conditions::{Reason, Status, Type};
use mainstay_object::failure::Backoff;

const SUBJECT: Type = Type::BuildReady;
/// The first and the maximum duration of a suspension, as in the kubelet's backoff of pulls.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// Suspends a held-up build. `why` is the reason that its pod cannot start.
pub(super) fn suspend(job: &Job, why: String, now: Timestamp, decision: &mut Decision) {
    let count = job.suspensions.saturating_add(1);
    let wait = Backoff::new(BACKOFF.0, BACKOFF.1).delay(count);
    // The annotation has a resolution of seconds. Because of the rounding, the condition does not change when the
    // annotation is read back.
    let until = now.round(jiff::Unit::Second).unwrap_or(now) + SignedDuration::try_from(wait).unwrap_or_default();
    let suspension = Suspension { until: Some(until), why: crate::child_state::short(&why) };
    report(job, &suspension, now, decision);
    decision.steps.push(Step::Suspend { identity: job.identity.clone(), suspension: Some((count, suspension)) });
}

/// Whether a suspended build is due to resume.
pub(super) fn is_due(suspension: &Suspension, now: Timestamp) -> bool {
    suspension.until.is_none_or(|until| until <= now)
}

/// Reports the suspension of a build and its end.
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

/// Resumes a build, which then starts from the beginning.
pub(super) fn resume(job: &Job, decision: &mut Decision) {
    decision.steps.push(Step::Suspend { identity: job.identity.clone(), suspension: None });
    let message = format!("Job {} is still in progress; it was suspended", job.identity.name);
    decision.set_condition(SUBJECT, Status::Unknown, Reason::JobRunning, message);
}
