//! Retries a failed attempt to build after a backoff, or immediately after a change that may fix the cause.

use std::time::Duration;

use super::failure::Failure;
use super::situation::{SUBJECT, Situation};
use super::start::{After, start_after};
use crate::child_state::Job;
use crate::stage::decision::Decision;
use crate::stage::kaniko;
use crate::stage::state::RetryCause;
use crate::tag::BuildCause;
use mainstay_api::build::FailureReason;
use mainstay_api::function_conditions::{Reason, Status};
use mainstay_api::function_failure::BUILD_FAILED;
use mainstay_object::failure::Backoff;

/// Maximum backoff between attempts. This is also the delay after a failure that only different inputs can fix.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(3600);
/// Maximum number of attempts without delay, after failures whose cause the next attempt removes.
const MAX_IMMEDIATE: i64 = 5;

pub(super) fn failed(situation: &Situation<'_>, job: &Job, failure: &Failure, decision: &mut Decision) {
    let Situation { resolved, observed, now, .. } = *situation;
    let status = observed.status;
    let known = status.building.as_deref() == Some(&job.tag) && status.builds == Some(job.attempt);
    let at_once = matches!(failure.reason, Some(FailureReason::BranchMoved | FailureReason::PreviousGone));
    let may_pass = |cause: RetryCause| cause == RetryCause::Credentials || failure.retry;
    let asked = observed.state.retry_cause(&job.identity.name).is_some_and(may_pass)
        || kaniko::is_of_another_builder(job, resolved.settings);
    let due = match status.retry_at.as_ref().filter(|_| known) {
        Some(at) => at.0,
        None => now + backoff(resolved.settings.requeue, job.attempt, failure.retry),
    };
    if asked || now >= due || (at_once && job.attempt < MAX_IMMEDIATE) {
        decision.record.retry_at = status.retry_at.as_ref().filter(|_| known).map(|at| at.0);
        let mut causes = situation.causes.to_vec();
        if !at_once {
            causes.push(BuildCause::Retry);
        }
        let after =
            if failure.reason == Some(FailureReason::PreviousGone) { After::PreviousGone } else { After::Other };
        let situation = &Situation { causes: &causes, ..*situation };
        start_after(situation, job.attempt.saturating_add(1), after, decision);
        return;
    }
    decision.record.retry_at = Some(due);
    decision.waits_for_registry = failure.waits_for_registry.then(|| job.identity.name.clone());
    decision.requeue_within(Duration::try_from(due.duration_since(now)).unwrap_or_default());
    let message = format!(
        "Job {} {BUILD_FAILED}{} (attempt {}, the next one at {:.0})",
        job.identity.name, failure.message, job.attempt, due
    );
    decision.set_condition(SUBJECT, Status::False, Reason::JobFailed, message);
}

/// Returns the delay before a failed build is retried.
fn backoff(first: Duration, attempt: i64, retry: bool) -> Duration {
    if !retry {
        return MAX_RETRY_DELAY;
    }
    Backoff::new(first, MAX_RETRY_DELAY).delay(u32::try_from(attempt).unwrap_or(u32::MAX))
}
