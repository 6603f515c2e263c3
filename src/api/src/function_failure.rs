//! Decides whether a condition of a Function reports a lasting failure: it ends only when the Function, its source or
//! its settings change.
//!
//! All other failures may pass, such as a registry that is away. The agent retries after both kinds.

use super::build::FailureReason;
use super::function_conditions::Reason;

/// Precedes the cause in the message of [`Reason::JobFailed`].
pub const BUILD_FAILED: &str = "failed, it will be re-run: ";
/// Precedes the cause in the message of [`Reason::DeploymentFailed`] if the API server refuses pods, for example because
/// of a quota.
pub const NO_PODS: &str = "cannot create pods: ";
/// The kubelet's reason for a container that ends again and again. It precedes the cause in the message.
pub const CRASH_LOOP: &str = "CrashLoopBackOff";

/// Failures of a build that another attempt repeats.
const OF_THE_SOURCE: [FailureReason; 4] = [
    FailureReason::SourceInvalid,
    FailureReason::DependencyInvalid,
    FailureReason::InstallFailed,
    FailureReason::TooLarge,
];

/// Returns whether a condition with this reason and message, which is not healthy, reports a lasting failure.
pub fn is_lasting(reason: &str, message: &str) -> bool {
    let Some(reason) = Reason::ALL.iter().find(|known| known.name() == reason) else { return false };
    match reason {
        Reason::SpecInvalid | Reason::RuntimeNotSupported => true,
        Reason::JobFailed => message.split_once(BUILD_FAILED).is_some_and(|(_, cause)| is_of_the_source(cause)),
        Reason::DeploymentFailed => !message.contains(NO_PODS),
        Reason::DeploymentWaiting
        | Reason::ServiceWaiting
        | Reason::ServiceFailed
        | Reason::MinReplicasNotAvailable => message.contains(&format!(": {CRASH_LOOP}: ")),
        _ => false,
    }
}

fn is_of_the_source(cause: &str) -> bool {
    let word = cause.split_once(": ").map_or("", |(word, _)| word);
    OF_THE_SOURCE.iter().any(|reason| format!("{reason:?}") == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_lasts_if_no_attempt_of_the_agent_ends_it() {
        let check = |reason: Reason, message: &str, expected: bool| {
            assert_eq!(is_lasting(reason.name(), message), expected, "{reason:?}: {message}");
        };
        let built = |cause: &str, expected| {
            check(Reason::JobFailed, &format!("Job a {BUILD_FAILED}{cause} (attempt 1, the next one at 1)"), expected);
        };
        built("SourceInvalid: handler.js:3: SyntaxError: Unexpected token ')'", true);
        built("DependencyInvalid: package.json is not JSON", true);
        built("InstallFailed: install ended with exit code 1 (Error)\nnpm error 404", true);
        built("TooLarge: the image has 2 GiB", true);
        built("Registry: it answered 503", false);
        built("Git: SourceInvalid: 503", false);
        built("Evicted: the node was low on memory", false);
        built("", false);
        check(Reason::JobRunning, "InstallFailed: x", false);
        check(Reason::SpecInvalid, "spec.source is empty", true);
        check(Reason::RuntimeNotSupported, "x", true);
        check(Reason::SourceUpdateFailed, "x", false);
        let crash = "Deployment a is not ready yet: CrashLoopBackOff: container function: the module fails";
        check(Reason::DeploymentWaiting, crash, true);
        check(Reason::DeploymentWaiting, &format!("{crash}; the previous version serves"), true);
        check(Reason::DeploymentWaiting, "Deployment a is not ready yet: ImagePullBackOff: denied", false);
        check(Reason::ServiceWaiting, "Service a is not ready yet", false);
        check(Reason::ServiceFailed, "Service a failed: the revision failed: CrashLoopBackOff: container a", true);
        check(Reason::DeploymentFailed, "Deployment a failed with condition: x", true);
        check(Reason::DeploymentFailed, &format!("Deployment a {NO_PODS}FailedCreate: exceeded quota"), false);
        assert!(!is_lasting("Unknown", crash));
    }
}
