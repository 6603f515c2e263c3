//! What the stage of the image says and does about builds by Kaniko.

use crate::child_state::Job;
use crate::executor::of_log;
use crate::log_tail::log_tail;
use crate::{ResolvedFunction, Settings};
use mainstay_api::build::FailureReason;

/// How an API server says that Pod Security refuses a pod.
const VIOLATES: &str = "violates PodSecurity";

/// Whether another builder, or another image of Kaniko, would build now. A build that works goes on with what it began with.
pub(super) fn is_of_another_builder(job: &Job, settings: &Settings) -> bool {
    job.executor.as_deref() != settings.executor()
}

/// What to do where Pod Security refuses the pod of a Job, and that is why it has none.
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

/// Why an executor has failed, from the end of its log: reason, message, and whether another attempt may succeed.
pub(super) fn why_failed(how: &str, log: &str) -> Option<(FailureReason, String, bool)> {
    let meaning = of_log(log)?;
    let hint = if meaning.hint.is_empty() { String::new() } else { format!("{}; ", meaning.hint) };
    let tail = log_tail(log);
    Some((meaning.reason, format!("{:?}: {hint}{how}\n{tail}", meaning.reason), meaning.retry))
}
