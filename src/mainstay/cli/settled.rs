//! Decides from the status of a GitSync whether a requested sync has ended. `mainstay sync` waits for this decision.
//!
//! Invariant: a sync succeeded only if Ready is True for the current generation and for the last commit read. It is not
//! a success if an old commit stays applied while the repository is unreachable.

use jiff::Timestamp;

use mainstay_api::{
    GitSync, GitSyncStatus,
    conditions::{self, Reason, Type},
};

/// Whether a command waits until the objects are healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Waits until the objects are healthy.
    UntilHealthy,
    /// Waits until the commit is applied, regardless of the health of the objects.
    UntilApplied,
}

/// The progress of a requested sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// The agent has not handled the request yet.
    Unanswered,
    /// The agent has handled the request, and the GitSync may still become Ready.
    Waiting,
    /// The commit is applied and Ready. With `UntilApplied`, Progressing is enough.
    Succeeded,
    /// The sync failed, and waiting does not help.
    Failed,
}

/// Returns the progress of the sync that was requested with `token`.
pub(super) fn settled(sync: &GitSync, token: &str, wait: Wait, now: Timestamp) -> Settled {
    if sync.spec.suspended(now).is_some() {
        return Settled::Failed;
    }
    let is_answered =
        |status: &&GitSyncStatus| status.last_handled_request.as_deref().is_some_and(|at| answers(at, token));
    let Some(status) = sync.status.as_ref().filter(is_answered) else { return Settled::Unanswered };
    if status.observed_generation < sync.metadata.generation {
        // The spec has changed since that reconcile.
        return Settled::Waiting;
    }
    if status.frozen.is_some() {
        // This commit waits for a window, independently of the previous commit.
        return Settled::Failed;
    }
    let Some(ready) = conditions::status(&status.conditions, Type::Ready) else { return Settled::Waiting };
    let is_current = status.applied_commit.is_some() && status.applied_commit == status.attempted_commit;
    match ready.status.as_str() {
        "True" if is_current && !is_out_of_reach(status) => Settled::Succeeded,
        "True" | "False" => Settled::Failed,
        // Unknown can also mean that the repository has not responded for a long time.
        _ if ready.reason != Reason::Progressing.as_str() => Settled::Failed,
        _ if wait == Wait::UntilApplied => Settled::Succeeded,
        _ => Settled::Waiting,
    }
}

/// Returns whether a handled request covers the request with `token`: it is the same request or a later one.
fn answers(handled: &str, token: &str) -> bool {
    let time = |text: &str| text.parse::<Timestamp>().ok();
    handled == token || time(handled).zip(time(token)).is_some_and(|(handled, token)| handled > token)
}

/// Returns whether Ready describes an earlier commit, because the last read failed.
fn is_out_of_reach(status: &GitSyncStatus) -> bool {
    let reconciling = conditions::status(&status.conditions, Type::Reconciling);
    reconciling.is_some_and(|condition| condition.status == "True" && condition.reason != Reason::Applied.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const TOKEN: &str = "2030-01-01T00:00:00Z";

    /// Checks a GitSync with a handled request that is Ready at its commit, after `change` is merged over it.
    fn check(change: Value, wait: Wait, expected: &Settled) {
        let mut sync = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
            "metadata": { "name": "shop", "namespace": "apps", "generation": 2 },
            "spec": { "gitRepository": "shop" },
            "status": {
                "observedGeneration": 2, "lastHandledRequest": TOKEN, "appliedCommit": "c2", "attemptedCommit": "c2",
                "conditions": conditions("True", "Applied", "False", "Applied"),
            },
        });
        json_patch::merge(&mut sync, &change);
        let sync = serde_json::from_value(sync).unwrap();
        assert_eq!(&settled(&sync, TOKEN, wait, Timestamp::UNIX_EPOCH), expected, "{change}");
    }

    fn conditions(ready: &str, reason: &str, reconciling: &str, why: &str) -> Value {
        let at = "2030-01-01T00:00:00Z";
        json!([
            { "type": "Ready", "status": ready, "reason": reason, "message": "", "lastTransitionTime": at },
            { "type": "Reconciling", "status": reconciling, "reason": why, "message": "", "lastTransitionTime": at },
        ])
    }

    fn with(ready: &str, reason: &str, reconciling: &str, why: &str) -> Value {
        json!({ "status": { "conditions": conditions(ready, reason, reconciling, why) } })
    }

    #[test]
    fn succeeds_only_when_ready_at_the_commit_that_was_read_last() {
        let wait = Wait::UntilHealthy;
        check(json!({}), wait, &Settled::Succeeded);
        check(with("True", "Applied", "True", "Applied"), wait, &Settled::Succeeded);
        check(json!({ "status": { "attemptedCommit": "c3" } }), wait, &Settled::Failed);
        check(json!({ "status": { "appliedCommit": null, "attemptedCommit": null } }), wait, &Settled::Failed);
        check(with("True", "Applied", "True", "SourceUnavailable"), wait, &Settled::Failed);
        check(json!({ "status": { "frozen": { "commit": "c3", "by": "a window" } } }), wait, &Settled::Failed);
        let mut held = with("Unknown", "Progressing", "True", "Progressing");
        held["status"]["frozen"] = json!({ "commit": "c3", "by": "a window" });
        check(held, Wait::UntilApplied, &Settled::Failed);
        // Another client has requested a sync in the meantime.
        check(json!({ "status": { "lastHandledRequest": "2030-01-01T00:00:00.5Z" } }), wait, &Settled::Succeeded);
        check(json!({ "status": { "lastHandledRequest": "2029-12-31T23:59:59Z" } }), wait, &Settled::Unanswered);
        check(json!({ "spec": { "suspend": true } }), wait, &Settled::Failed);
    }

    #[test]
    fn waits_for_health_unless_switched_off() {
        let progressing = with("Unknown", "Progressing", "True", "Progressing");
        check(progressing.clone(), Wait::UntilHealthy, &Settled::Waiting);
        check(progressing, Wait::UntilApplied, &Settled::Succeeded);
        for reason in ["ObjectFailed", "HealthTimeout", "ApplyFailed", "ManifestInvalid"] {
            for wait in [Wait::UntilHealthy, Wait::UntilApplied] {
                check(with("False", reason, "True", reason), wait, &Settled::Failed);
            }
        }
        let silent = with("Unknown", "SourceUnavailable", "True", "SourceUnavailable");
        check(silent, Wait::UntilHealthy, &Settled::Failed);
    }

    #[test]
    fn an_answer_to_another_request_or_about_another_spec_is_none() {
        let wait = Wait::UntilApplied;
        check(json!({ "status": { "lastHandledRequest": "before" } }), wait, &Settled::Unanswered);
        check(json!({ "status": null }), wait, &Settled::Unanswered);
        check(json!({ "metadata": { "generation": 3 } }), wait, &Settled::Waiting);
    }
}
