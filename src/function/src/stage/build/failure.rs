//! Why an attempt to build failed, from its Job, its pods and their logs.

use super::situation::Situation;
use crate::child_state::{End, Job, Progress};
use crate::children::job::{EXECUTOR, INSTALL, PUSH};
use crate::log_tail::log_tail;
use crate::stage::decision::Decision;
use crate::stage::kaniko;
use crate::stage::observed::Observed;
use crate::syntax_error;
use mainstay_api::build::{BuildFailure, FailureReason, Termination};

/// Reason of a Job that exceeded its deadline, and the exit codes of its killed containers.
const DEADLINE: &str = "DeadlineExceeded";
const KILLED: [i64; 2] = [137, 143];

/// A failed attempt.
pub(super) struct Failure {
    pub(super) reason: Option<FailureReason>,
    pub(super) message: String,
    pub(super) retry: bool,
    /// Whether the failure lasts until the registry accepts an upload.
    pub(super) waits_for_registry: bool,
}

impl Failure {
    pub(super) fn of(message: &str, retry: bool) -> Self {
        Self { reason: None, message: message.to_owned(), retry, waits_for_registry: false }
    }
}

/// Returns why a Job failed, from its condition and its pods. `problem` is the last problem of the Job's pod.
pub(super) fn why_failed(
    job: &Job,
    (reason, message): (&str, &str),
    problem: Option<String>,
    observed: &Observed<'_>,
) -> Failure {
    let mut pods = observed.children.pods.iter().filter(|pod| pod.is_of(&job.identity.uid));
    let end = pods.clone().find_map(|pod| pod.end.as_ref());
    let stopped = pods.find_map(|pod| pod.problem.clone().filter(|_| pod.over));
    match end {
        // The containers were killed with the pod, so their exit codes are not the cause.
        _ if stopped.is_some() => Failure::of(&stopped.map_or_else(String::new, text), true),
        Some(end) if end.code != 0 && !(reason == DEADLINE && KILLED.contains(&end.code)) => ended(end),
        _ => {
            let why = problem.map_or_else(String::new, |problem| format!("; {problem}"));
            Failure::of(&format!("{reason}: {message}{why}"), true)
        }
    }
}

/// Converts a container's termination into a failure.
fn ended(end: &End) -> Failure {
    match &end.termination {
        Termination::Failed(BuildFailure { reason, message, retry, waits_for_registry }) => Failure {
            reason: Some(*reason),
            message: format!("{reason:?}: {message}"),
            retry: *retry,
            // Only this container has the registry's credentials.
            waits_for_registry: *waits_for_registry && end.container == PUSH,
        },
        Termination::Built(_) => Failure::of("the build reported an image and failed all the same", true),
        Termination::Other(log) => {
            let how = format!("{} ended with exit code {} ({})", end.container, end.code, end.reason);
            let known = Some(log).filter(|_| end.container == EXECUTOR).and_then(|log| kaniko::why_failed(&how, log));
            if let Some((reason, message, retry)) = known {
                return Failure { reason: Some(reason), message, retry, waits_for_registry: false };
            }
            if let Some(error) =
                Some(log).filter(|_| end.container == INSTALL).and_then(|log| syntax_error::of_log(log))
            {
                return source_invalid(&error);
            }
            let tail = log_tail(log);
            let lines = if tail.is_empty() { String::new() } else { format!("\n{tail}") };
            if end.container == INSTALL {
                let reason = FailureReason::InstallFailed;
                let message = format!("{reason:?}: {how}{lines}");
                return Failure { reason: Some(reason), message, retry: true, waits_for_registry: false };
            }
            Failure::of(&format!("{how}{lines}"), true)
        }
    }
}

/// Returns the failure for a source that no further attempt can build.
fn source_invalid(error: &str) -> Failure {
    let reason = FailureReason::SourceInvalid;
    Failure { reason: Some(reason), message: format!("{reason:?}: {error}"), retry: false, waits_for_registry: false }
}

/// Returns the last problem of a Job's pod.
pub(super) fn last_problem(job: &Job, observed: &Observed<'_>) -> Option<String> {
    let (uid, problem) = observed.state.problem.as_ref()?;
    (*uid == job.identity.uid).then(|| problem.clone())
}

/// Returns why the previous attempt failed, as a suffix for messages; empty for the first attempt. The message comes
/// from the failed Job while it exists, then from the kept state.
pub(super) fn previous_failure(situation: &Situation<'_>, attempt: i64, decision: &mut Decision) -> String {
    let Situation { resolved, observed, .. } = *situation;
    let tag = &resolved.recipe.tag;
    let image = format!("{}:{tag}", resolved.repository.push);
    let before = observed.children.jobs.iter().filter(|job| job.image == image && job.attempt < attempt);
    let seen = before.max_by_key(|job| job.attempt).and_then(|job| match &job.progress {
        Progress::Failed { reason, message } => {
            let failure = why_failed(job, (reason, message), last_problem(job, observed), observed);
            Some((tag.clone(), format!("; attempt {} failed: {}", job.attempt, failure.message)))
        }
        Progress::Running | Progress::Complete => None,
    });
    let known = observed.state.failed.clone().filter(|(of, _)| of == tag && attempt > 1);
    decision.state.failed = seen.or(known);
    decision.state.failed.clone().map(|(_, text)| text).unwrap_or_default()
}

pub(super) fn text((reason, text): (String, String)) -> String {
    format!("{reason}: {text}")
}
