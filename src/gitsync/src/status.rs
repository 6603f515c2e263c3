//! The status of a GitSync after an attempt.
//!
//! Invariant: equal facts give equal statuses, so an unchanged status is not written.
//!
//! Not here: conditions (`conditions`), the writes, and their rate (`report`).

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::conditions::{Conditions, Kept};
pub use super::outcome::{Facts, Outcome};
use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::{Failure, Frozen, GitSyncStatus, Pause, Unread};
use mainstay_api::short_id;
use mainstay_engine::managed::{PauseEnd, SHOWN, Summary};
use mainstay_object::Key;
use mainstay_object::failure::Class;

/// Time without a response of the repository, after which Ready shows that the repository does not respond.
const SILENCE: Duration = Duration::from_secs(3600);

/// Returns the status after an attempt.
pub fn after(old: &GitSyncStatus, facts: &Facts<'_>, now: Timestamp) -> GitSyncStatus {
    let summary = facts.summary;
    let (failures, failed) = failures(facts);
    let (held, held_objects) = match facts.outcome {
        Outcome::Applied { held, .. } => (held.iter().take(SHOWN).cloned().collect(), count(held.len())),
        _ => (old.held.clone(), old.held_objects),
    };
    let (terminating, terminating_objects) = match facts.terminating {
        Some(listed) => (listed.first.clone(), count(listed.count)),
        None => (old.terminating.clone(), old.terminating_objects),
    };
    let applied_commit = facts.applied.map(|(commit, _)| commit.to_owned()).or_else(|| old.applied_commit.clone());
    let mut status = GitSyncStatus {
        observed_generation: facts.generation,
        attempted_commit: facts.attempted.map(str::to_owned).or_else(|| old.attempted_commit.clone()),
        attempted_reference: match facts.attempted {
            Some(_) => facts.reference.map(str::to_owned),
            None => old.attempted_reference.clone(),
        },
        short_commit: applied_commit.as_deref().map(short_id),
        applied_commit,
        history: facts.history.map_or_else(|| old.history.clone(), <[_]>::to_vec),
        applied_tree_id: facts.applied.map(|(_, tree)| tree.to_owned()).or_else(|| old.applied_tree_id.clone()),
        last_handled_request: facts.request.map(str::to_owned).or_else(|| old.last_handled_request.clone()),
        last_handled_rerun: facts.rerun.map(str::to_owned).or_else(|| old.last_handled_rerun.clone()),
        unreachable_since: unreachable_since(old, facts.outcome, now),
        cluster: facts.cluster.map(str::to_owned),
        objects: count(summary.objects),
        healthy: count(summary.healthy),
        failed: count(failed),
        reverted: summary.reverted,
        last_reverts: summary.last_reverts.clone(),
        replaced: summary.replaced,
        last_replacements: summary.last_replacements.clone(),
        last_decisions: summary.last_decisions.clone(),
        drifted_objects: if facts.looks_for_drift() { count(summary.drifted.count) } else { 0 },
        drifted: if facts.looks_for_drift() { summary.drifted.first.clone() } else { Vec::new() },
        failures,
        paused: pauses(summary),
        paused_objects: count(summary.paused.count),
        unread: unread(summary),
        held,
        held_objects,
        terminating,
        terminating_objects,
        frozen: frozen(facts.outcome),
        window_override: facts.window_override.cloned().or_else(|| old.window_override.clone()),
        shared: facts.shared.cloned(),
        conditions: old.conditions.clone(),
    };
    set_conditions(&mut status, facts, now);
    status
}

/// Returns the shown failures, and the number of objects that could not be applied or reverted.
fn failures(facts: &Facts<'_>) -> (Vec<Failure>, usize) {
    let summary = facts.summary;
    let mut failures = Vec::new();
    if let Outcome::Applied { failures: failed, .. } = facts.outcome {
        failures.extend(failed.iter().map(|(_, _, failure)| failure.clone()));
    }
    let failed = failures.len() + summary.failures.count;
    failures.extend(summary.failures.first.iter().cloned());
    let broken = summary.broken.first.iter().map(|object| ("Unhealthy", object));
    let unhealthy = broken.chain(summary.progressing.first.iter().map(|object| ("Progressing", object)));
    failures.extend(unhealthy.map(|(reason, (key, why))| Failure {
        object: key.to_string(),
        reason: reason.to_owned(),
        message: why.clone(),
    }));
    failures.truncate(SHOWN);
    (failures, failed)
}

fn pauses(summary: &Summary) -> Vec<Pause> {
    let pause = |(key, until): &(Key, PauseEnd)| Pause {
        object: key.to_string(),
        until: until.time().map(|time| time.to_string()),
        problem: until.problem().map(str::to_owned),
    };
    summary.paused.first.iter().map(pause).collect()
}

fn unread(summary: &Summary) -> Vec<Unread> {
    let unread = summary.unread.iter();
    unread.map(|(key, since)| Unread { object: key.to_string(), since: Time(*since) }).collect()
}

fn set_conditions(status: &mut GitSyncStatus, facts: &Facts<'_>, now: Timestamp) {
    let kept = Kept {
        applied: status.applied_commit.as_deref(),
        silent_since: status.unreachable_since.as_ref().map(|since| since.0).filter(|since| is_long_ago(*since, now)),
    };
    let mut conditions = Conditions { all: &mut status.conditions, generation: facts.generation, now };
    conditions.health(facts);
    conditions.contention(facts.summary);
    conditions.drift(facts);
    conditions.freeze(facts);
    conditions.prevention(facts);
    conditions.suspension(facts);
    conditions.ready(facts, &kept);
}

fn frozen(outcome: &Outcome) -> Option<Frozen> {
    let Outcome::Frozen { commit, freeze, .. } = outcome else { return None };
    Some(Frozen { commit: commit.clone(), by: freeze.by.clone(), until: freeze.until.map(Time) })
}

/// Returns the time since which the repository has not responded.
fn unreachable_since(old: &GitSyncStatus, outcome: &Outcome, now: Timestamp) -> Option<Time> {
    let is_silent =
        matches!(outcome, Outcome::Refused { class: Class::Unavailable, reason: Reason::SourceUnavailable, .. });
    is_silent.then(|| old.unreachable_since.clone().unwrap_or(Time(now)))
}

fn is_long_ago(since: Timestamp, now: Timestamp) -> bool {
    now.duration_since(since).unsigned_abs() >= SILENCE
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a merge patch from `old` to `new`. Removed fields become null.
pub fn patch(old: &GitSyncStatus, new: &GitSyncStatus) -> Value {
    let value = |status: &GitSyncStatus| serde_json::to_value(status).unwrap_or_default();
    let (old, mut new) = (value(old), value(new));
    if let (Some(old), Some(new)) = (old.as_object(), new.as_object_mut()) {
        for key in old.keys() {
            new.entry(key.clone()).or_insert(Value::Null);
        }
    }
    serde_json::json!({ "status": new })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_api::DriftPolicy;
    use mainstay_api::conditions::{self, Type};
    use mainstay_engine::managed::Summary;
    use mainstay_object::Key;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn applied(failures: Vec<(Class, Reason, Failure)>) -> Outcome {
        Outcome::Applied {
            failures,
            held: vec![],
            safeguarded: vec![],
            guard: None,
            pruning: 0,
            note: None,
            since: at(0),
        }
    }

    fn check(outcome: &Outcome, summary: &Summary, now: i64) -> (String, String) {
        let facts = Facts {
            name: ("apps", "shop"),
            generation: Some(1),
            attempted: Some("c1"),
            reference: Some("refs/heads/main"),
            applied: None,
            request: None,
            history: None,
            outcome,
            summary,
            drift: DriftPolicy::Revert,
            base_dir: "/",
            left_out: None,
            wait: Some(Duration::from_secs(60)),
            windows: false,
            unprotected: false,
            prevent: false,
            prevention: None,
            window_override: None,
            terminating: None,
            refused_permission: None,
            rerun: None,
            shared: None,
            cluster: None,
        };
        let status = after(&GitSyncStatus::default(), &facts, at(now));
        let text = |kind: Type| {
            let c = conditions::status(&status.conditions, kind).unwrap();
            format!("{} {}", c.status, c.reason)
        };
        let short = |kind: Type| text(kind).split(' ').next().unwrap().to_owned();
        (text(Type::Ready), format!("{} {}", short(Type::Reconciling), short(Type::Stalled)))
    }

    fn key(name: &str) -> Key {
        Key::new("apps", "Deployment", Some("shop"), name)
    }

    #[test]
    fn is_ready_when_everything_is_applied_and_healthy() {
        let summary = Summary { objects: 2, healthy: 2, ..Summary::default() };
        assert_eq!(check(&applied(vec![]), &summary, 1), ("True Applied".into(), "False False".into()));
    }

    #[test]
    fn names_a_subscriber_that_cannot_deliver_events() {
        let trigger = Key::new("eventing.knative.dev", "Trigger", Some("shop"), "mine");
        let subscription = Key::new("eventing.kyma-project.io", "Subscription", Some("shop"), "mine");
        let after_a_minute = |progressing: Vec<(Key, String)>| {
            let summary = Summary { objects: 2, healthy: 0, progressing: progressing.into(), ..Summary::default() };
            check(&applied(vec![]), &summary, 61).0
        };
        for key in [trigger, subscription] {
            assert_eq!(after_a_minute(vec![(key, "no Broker".into())]), "False EventsNotDelivered");
        }
        let broker = Key::new("eventing.knative.dev", "Broker", Some("shop"), "mine");
        assert_eq!(after_a_minute(vec![(broker, "x".into())]), "False HealthTimeout");
    }

    #[test]
    fn waits_for_health_and_gives_up_after_the_timeout() {
        let summary = Summary {
            objects: 2,
            healthy: 1,
            progressing: vec![(key("web"), "0 of 1".into())].into(),
            ..Summary::default()
        };
        assert_eq!(check(&applied(vec![]), &summary, 1), ("Unknown Progressing".into(), "True False".into()));
        assert_eq!(check(&applied(vec![]), &summary, 61), ("False HealthTimeout".into(), "True False".into()));
    }

    #[test]
    fn stalls_only_when_nothing_but_the_user_can_help() {
        let failure = |class| {
            let failure = Failure { object: "a".into(), reason: "ApplyFailed".into(), message: "b".into() };
            (class, Reason::ApplyFailed, failure)
        };
        let summary = Summary::default();
        let invalid = applied(vec![failure(Class::Invalid)]);
        assert_eq!(check(&invalid, &summary, 1), ("False ApplyFailed".into(), "False True".into()));
        let both = applied(vec![failure(Class::Invalid), failure(Class::NotReady)]);
        assert_eq!(check(&both, &summary, 1), ("False ApplyFailed".into(), "True False".into()));
    }

    #[test]
    fn keeps_saying_ready_while_git_is_away_for_a_moment() {
        let ok = applied(vec![]);
        let summary = Summary::default();
        let facts = |outcome| Facts {
            name: ("apps", "shop"),
            generation: Some(1),
            attempted: Some("c1"),
            reference: Some("refs/heads/main"),
            applied: Some(("c1", "t1")),
            request: None,
            history: None,
            outcome,
            summary: &summary,
            drift: DriftPolicy::Revert,
            base_dir: "/",
            left_out: None,
            wait: None,
            windows: false,
            unprotected: false,
            prevent: false,
            prevention: None,
            window_override: None,
            terminating: None,
            refused_permission: None,
            rerun: None,
            shared: None,
            cluster: None,
        };
        let first = after(&GitSyncStatus::default(), &facts(&ok), at(1));
        let away = Outcome::Refused {
            class: Class::Unavailable,
            reason: Reason::SourceUnavailable,
            message: "no answer".into(),
        };
        let second = after(&first, &facts(&away), at(2));
        let ready = conditions::status(&second.conditions, Type::Ready).unwrap();
        assert_eq!((ready.status.as_str(), ready.last_transition_time.0), ("True", at(1)));
        assert_eq!(conditions::status(&second.conditions, Type::Reconciling).unwrap().status, "True");
    }

    #[test]
    fn patches_what_went_away_to_null() {
        let old = GitSyncStatus { held: vec!["a".into()], ..GitSyncStatus::default() };
        let patch = patch(&old, &GitSyncStatus::default());
        assert_eq!(patch["status"]["held"], Value::Null);
        assert!(patch["status"].as_object().unwrap().contains_key("held"));
    }

    /// Returns status, reason and message of Ready after the repository stopped responding at second 2.
    fn silent(now: i64, summary: &Summary) -> (String, String) {
        let facts = |outcome| Facts {
            name: ("apps", "shop"),
            generation: Some(1),
            attempted: Some("c1"),
            reference: Some("refs/heads/main"),
            applied: Some(("c1", "t1")),
            request: None,
            history: None,
            outcome,
            summary,
            drift: DriftPolicy::Revert,
            base_dir: "/",
            left_out: None,
            wait: None,
            windows: false,
            unprotected: false,
            prevent: false,
            prevention: None,
            window_override: None,
            terminating: None,
            refused_permission: None,
            rerun: None,
            shared: None,
            cluster: None,
        };
        let away = Outcome::Refused {
            class: Class::Unavailable,
            reason: Reason::SourceUnavailable,
            message: "no answer".into(),
        };
        let ok = applied(vec![]);
        let first = after(&GitSyncStatus::default(), &facts(&ok), at(1));
        let second = after(&first, &facts(&away), at(2));
        let third = after(&second, &facts(&away), at(now));
        assert_eq!(third.unreachable_since, Some(Time(at(2))));
        let back = after(&third, &facts(&ok), at(now + 1));
        assert_eq!(back.unreachable_since, None);
        let ready = conditions::status(&third.conditions, Type::Ready).unwrap();
        (format!("{} {}", ready.status, ready.reason), ready.message.clone())
    }

    #[test]
    fn does_not_keep_saying_ready_when_git_was_away_for_an_hour() {
        let summary = Summary { objects: 1, healthy: 1, ..Summary::default() };
        assert_eq!(silent(3601, &summary).0, "True Applied");
        let (ready, message) = silent(3602, &summary);
        assert_eq!(ready, "Unknown SourceUnavailable");
        let expected =
            "the repository has not responded since 1970-01-01T00:00:02Z; commit c1 is kept applied: no answer";
        assert_eq!(message, expected);
    }

    #[test]
    fn is_not_ready_while_an_object_cannot_be_reverted() {
        let summary = Summary { not_put_back: vec![(key("web"), "spec.x: no".into())].into(), ..Summary::default() };
        assert_eq!(check(&applied(vec![]), &summary, 1), ("False RevertFailed".into(), "True False".into()));
        let (ready, message) = silent(3, &summary);
        assert_eq!(ready, "False RevertFailed");
        assert_eq!(message, "1 of the objects cannot be reverted: Deployment.apps shop/web: spec.x: no");
    }
}
