//! Messages and decisions of the build stage for builds by Kaniko.

use crate::child_state::Job;
use crate::executor::of_log;
use crate::log_tail::log_tail;
use crate::{ResolvedFunction, Settings};
use mainstay_api::build::FailureReason;

/// The API server's words when Pod Security refuses a pod.
const VIOLATES: &str = "violates PodSecurity";

/// Whether a new build would use a different builder or a different image of Kaniko. A working build continues.
pub(super) fn is_of_another_builder(job: &Job, settings: &Settings) -> bool {
    job.executor.as_deref() != settings.executor()
}

/// Returns a hint if a Job has no pod because Pod Security refuses the pod.
pub(super) fn pod_security(job: &Job, problem: &str, function: &ResolvedFunction) -> Option<String> {
    job.executor.as_ref().filter(|_| problem.contains(VIOLATES))?;
    let namespace = &function.namespace;
    Some(format!(
        "Pod Security of namespace {namespace} refuses the pod of Job {}: Kaniko runs as root, which needs the level baseline. Allow \
         it with `kubectl label --overwrite namespace {namespace} pod-security.kubernetes.io/enforce=baseline`, or build with \
         MAINSTAY_BUILDER=mainstay, which needs no root; {problem}",
        job.identity.name
    ))
}

/// Returns why an executor failed, from the end of its log: reason, message, and whether to retry.
pub(super) fn why_failed(how: &str, log: &str) -> Option<(FailureReason, String, bool)> {
    let meaning = of_log(log)?;
    let hint = if meaning.hint.is_empty() { String::new() } else { format!("{}; ", meaning.hint) };
    let tail = log_tail(log);
    Some((meaning.reason, format!("{:?}: {hint}{how}\n{tail}", meaning.reason), meaning.retry))
}
