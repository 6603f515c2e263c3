//! The status of a GitSync after each attempt.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_api::DriftPolicy;
use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::{Drifted, Failure, GitSyncStatus};
use mainstay_engine::managed::{Listed, PauseEnd, Summary};
use mainstay_gitsync::status::{Facts, Outcome, after};
use mainstay_gitsync::windows::Freeze;
use mainstay_object::Key;
use mainstay_object::failure::Class;
use serde::Deserialize;

use crate::{check, key};

/// Successive attempts of a GitSync.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    #[serde(rename = "case")]
    _title: String,
    /// How long Ready waits for health, in seconds; `null` if it does not wait.
    wait: Option<u64>,
    /// Whether the GitSync has windows.
    #[serde(default)]
    windows: bool,
    attempts: Vec<Attempt>,
}

/// An attempt, and the state of the objects at that time.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Attempt {
    /// Second in which the status is computed.
    at: i64,
    #[serde(default)]
    suspended: bool,
    /// The window or freeze that holds the commit, and its end in seconds.
    frozen: Option<(String, i64)>,
    refused: Option<Refused>,
    /// Second since which everything is applied.
    #[serde(default)]
    since: i64,
    #[serde(default)]
    failed: Vec<Failed>,
    #[serde(default)]
    held: Vec<String>,
    guard: Option<String>,
    #[serde(default)]
    pruning: usize,
    note: Option<String>,
    request: Option<String>,
    #[serde(default)]
    drift: DriftPolicy,
    #[serde(default)]
    objects: Objects,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    class: String,
    reason: String,
    message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Failed {
    class: String,
    reason: String,
    object: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Objects {
    all: usize,
    healthy: usize,
    broken: Vec<(String, String)>,
    progressing: Vec<(String, String)>,
    revert_failed: Vec<(String, String)>,
    not_put_back: Vec<(String, String)>,
    paused: Vec<(String, Option<Timestamp>)>,
    contended: Vec<(String, Vec<String>, String)>,
    unwatched: Vec<(String, String)>,
    drifted: Vec<Drifted>,
    reverted: i64,
}

fn reason(word: &str) -> Reason {
    let all = [
        Reason::ApplyFailed,
        Reason::Immutable,
        Reason::OwnershipConflict,
        Reason::PruneFailed,
        Reason::SpecInvalid,
        Reason::SourceInvalid,
        Reason::SourceUnavailable,
        Reason::GitAuthorizationFailed,
        Reason::ManifestInvalid,
        Reason::ClusterUnavailable,
        Reason::InternalError,
    ];
    all.into_iter().find(|reason| reason.as_str() == word).unwrap_or_else(|| panic!("{word} is not a reason"))
}

fn class(word: &str) -> Class {
    let all = [Class::Conflict, Class::NotReady, Class::Unavailable, Class::Denied, Class::Invalid, Class::Bug];
    all.into_iter().find(|class| format!("{class:?}") == word).unwrap_or_else(|| panic!("{word} is no class"))
}

fn second(at: i64) -> Timestamp {
    Timestamp::from_second(at).unwrap()
}

fn outcome(attempt: &Attempt, commit: &str) -> Outcome {
    if attempt.suspended {
        return Outcome::Suspended { until: None };
    }
    if let Some((by, until)) = &attempt.frozen {
        let freeze = Freeze { by: by.clone(), until: Some(second(*until)) };
        return Outcome::Frozen { commit: commit.to_owned(), freeze, since: second(attempt.since) };
    }
    if let Some(refused) = &attempt.refused {
        let message = refused.message.clone();
        return Outcome::Refused { class: class(&refused.class), reason: reason(&refused.reason), message };
    }
    let failure = |failed: &Failed| {
        let (object, message) = (failed.object.clone(), failed.message.clone());
        (class(&failed.class), reason(&failed.reason), Failure { object, reason: failed.reason.clone(), message })
    };
    Outcome::Applied {
        failures: attempt.failed.iter().map(failure).collect(),
        held: attempt.held.clone(),
        safeguarded: Vec::new(),
        guard: attempt.guard.clone(),
        pruning: attempt.pruning,
        note: attempt.note.clone(),
        since: second(attempt.since),
    }
}

fn named(all: &[(String, String)]) -> Listed<(Key, String)> {
    all.iter().map(|(object, why)| (key(object), why.clone())).collect::<Vec<_>>().into()
}

fn summary(objects: &Objects) -> Summary {
    let failure = |(object, why): &(String, String)| Failure {
        object: object.clone(),
        reason: "RevertFailed".into(),
        message: why.clone(),
    };
    let contended = |(object, fields, who): &(String, Vec<String>, String)| (key(object), fields.clone(), who.clone());
    Summary {
        objects: objects.all,
        healthy: objects.healthy,
        broken: named(&objects.broken),
        progressing: named(&objects.progressing),
        failures: objects.revert_failed.iter().map(failure).collect::<Vec<_>>().into(),
        not_put_back: named(&objects.not_put_back),
        paused: objects
            .paused
            .iter()
            .map(|(object, until)| (key(object), until.map_or(PauseEnd::Open, PauseEnd::At)))
            .collect::<Vec<_>>()
            .into(),
        contended: objects.contended.iter().map(contended).collect::<Vec<_>>().into(),
        unwatched: objects.unwatched.clone(),
        reverted: objects.reverted,
        absent: objects.drifted.iter().filter(|d| d.is_absent()).map(|d| key(&d.object)).collect::<Vec<_>>().into(),
        drifted: objects.drifted.clone().into(),
        ..Summary::default()
    }
}

fn decide(case: &Case) -> String {
    let mut status = GitSyncStatus::default();
    let mut text = String::new();
    for (number, attempt) in case.attempts.iter().enumerate() {
        let (commit, tree) = (format!("c{}", number + 1), format!("t{}", number + 1));
        let outcome = outcome(attempt, &commit);
        let is_complete = matches!(&outcome, Outcome::Applied { failures, guard: None, .. } if failures.is_empty());
        let facts = Facts {
            name: ("apps", "shop"),
            generation: Some(1),
            attempted: Some(&commit),
            reference: Some("refs/heads/main"),
            applied: is_complete.then_some((&*commit, &*tree)),
            history: None,
            request: attempt.request.as_deref(),
            outcome: &outcome,
            summary: &summary(&attempt.objects),
            drift: attempt.drift,
            base_dir: "/apps",
            left_out: None,
            wait: case.wait.map(Duration::from_secs),
            windows: case.windows,
            unprotected: false,
            window_override: None,
            terminating: None,
            prevent: false,
            prevention: None,
            refused_permission: None,
            rerun: None,
            shared: None,
            cluster: None,
        };
        status = after(&status, &facts, second(attempt.at));
        let shown = serde_yaml::to_string(&status).unwrap();
        let _ = writeln!(text, "at second {}:\n{}", attempt.at, shown.trim_end());
    }
    text
}

#[test]
fn an_attempt_becomes_a_status() {
    check("status", decide);
}
