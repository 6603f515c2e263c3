//! What a GitSync's status says after an attempt.
//!
//! Invariant: equal facts give equal statuses, so nothing is written when nothing changed.
//!
//! Deliberately absent: writing it, and how often.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::Value;

use super::windows::{Freeze, is_in_part};
use crate::api::conditions::{self, Reason, Type};
use crate::api::git_sync::{Failure, Frozen, GitSyncStatus, Pause, WindowOverride};
use crate::failure::Class;
use crate::managed::{SHOWN, Summary};

/// How many of them a condition's message names.
const NAMED: usize = 3;
/// How long a repository may keep silent before Ready says so.
const SILENCE: Duration = Duration::from_secs(3600);

/// How the last attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Both loops are stopped.
    Suspended {
        /// When they go on by themselves.
        until: Option<Timestamp>,
    },
    /// A new commit waits for a window; what was applied before stays enforced.
    Frozen {
        /// The commit that waits.
        commit: String,
        /// What holds it back.
        freeze: Freeze,
        /// When the commit before it was applied.
        since: Timestamp,
    },
    /// It did not come to applying anything.
    Refused {
        /// What kind of failure it was.
        class: Class,
        /// Its word.
        reason: Reason,
        /// What happened and what to do.
        message: String,
    },
    /// The commit was applied, in whole or in part.
    Applied {
        /// Objects that failed: with the class, and what to show.
        failures: Vec<(Class, Reason, Failure)>,
        /// Objects that left and are kept, with the reason.
        held: Vec<String>,
        /// What holds all of them, and what to do.
        guard: Option<String>,
        /// Deletions that are under way.
        pruning: usize,
        /// Something worth saying although nothing failed.
        note: Option<String>,
        /// When the commit was applied.
        since: Timestamp,
    },
}

/// What a status is made from.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// `metadata.generation` of the GitSync.
    pub generation: Option<i64>,
    /// Commit that was tried.
    pub attempted: Option<&'a str>,
    /// Full name of the reference at which it was found.
    pub reference: Option<&'a str>,
    /// Commit and tree that were last applied in full.
    pub applied: Option<(&'a str, &'a str)>,
    /// Request that was acted on.
    pub request: Option<&'a str>,
    /// How it ended.
    pub outcome: &'a Outcome,
    /// What is known of the objects.
    pub summary: &'a Summary,
    /// Whether Ready waits for health, and for how long.
    pub wait: Option<Duration>,
    /// Whether there are windows.
    pub windows: bool,
    /// The commit that was applied although a window held it back.
    pub window_override: Option<&'a WindowOverride>,
}

/// The status after an attempt.
pub fn after(old: &GitSyncStatus, facts: &Facts<'_>, now: Timestamp) -> GitSyncStatus {
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
    let held = match facts.outcome {
        Outcome::Applied { held, .. } => held.iter().take(SHOWN).cloned().collect(),
        _ => old.held.clone(),
    };
    let mut status = GitSyncStatus {
        observed_generation: facts.generation,
        attempted_commit: facts.attempted.map(str::to_owned).or_else(|| old.attempted_commit.clone()),
        attempted_reference: match facts.attempted {
            Some(_) => facts.reference.map(str::to_owned),
            None => old.attempted_reference.clone(),
        },
        applied_commit: facts.applied.map(|(commit, _)| commit.to_owned()).or_else(|| old.applied_commit.clone()),
        applied_tree_id: facts.applied.map(|(_, tree)| tree.to_owned()).or_else(|| old.applied_tree_id.clone()),
        last_handled_request: facts.request.map(str::to_owned).or_else(|| old.last_handled_request.clone()),
        unreachable_since: unreachable_since(old, facts.outcome, now),
        objects: count(summary.objects),
        healthy: count(summary.healthy),
        failed: count(failed),
        reverted: summary.reverted,
        last_reverts: summary.last_reverts.clone(),
        failures,
        paused: summary
            .paused
            .first
            .iter()
            .map(|(key, until)| Pause { object: key.to_string(), until: until.map(|t| t.to_string()) })
            .collect(),
        held,
        frozen: frozen(facts.outcome),
        window_override: facts.window_override.cloned().or_else(|| old.window_override.clone()),
        conditions: old.conditions.clone(),
    };
    let kept = Kept {
        applied: status.applied_commit.as_deref(),
        silent_since: status.unreachable_since.as_ref().map(|since| since.0).filter(|since| is_long_ago(*since, now)),
    };
    let mut write = Conditions { all: &mut status.conditions, generation: facts.generation, now };
    write.health(facts);
    write.contention(summary);
    write.freeze(facts);
    write.ready(facts, &kept);
    status
}

/// What stays as it is while Git does not answer.
struct Kept<'a> {
    /// The commit that is applied.
    applied: Option<&'a str>,
    /// Since when the repository has kept silent, once that is long ago.
    silent_since: Option<Timestamp>,
}

fn frozen(outcome: &Outcome) -> Option<Frozen> {
    let Outcome::Frozen { commit, freeze, .. } = outcome else { return None };
    Some(Frozen { commit: commit.clone(), by: freeze.by.clone(), until: freeze.until.map(Time) })
}

/// The commit that waits, why, and until when.
pub(super) fn waits(commit: &str, freeze: &Freeze) -> String {
    let until = freeze.until.map_or_else(
        || "no time is known at which that ends".to_owned(),
        |until| format!("until {}", until.strftime("%Y-%m-%dT%H:%M:%SZ")),
    );
    format!("commit {commit} is held back: {}, {until}", freeze.by)
}

/// Since when the repository has not answered.
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

/// How applying a commit went; see [`Outcome::Applied`].
struct Progress<'a> {
    failures: &'a [(Class, Reason, Failure)],
    guard: Option<&'a str>,
    held: &'a [String],
    pruning: usize,
    note: Option<&'a str>,
    since: Timestamp,
}

impl Progress<'_> {
    /// Nothing failed, nothing is held.
    fn at(since: Timestamp) -> Self {
        Self { failures: &[], guard: None, held: &[], pruning: 0, note: None, since }
    }
}

struct Conditions<'a> {
    all: &'a mut Vec<Condition>,
    generation: Option<i64>,
    now: Timestamp,
}

impl Conditions<'_> {
    fn set(&mut self, kind: Type, status: &str, reason: Reason, message: &str) {
        conditions::set(self.all, kind, status, reason, message, self.generation, self.now);
    }

    fn progress(&mut self, reconciling: bool, stalled: bool, reason: Reason, message: &str) {
        let text = |on: bool| if on { "True" } else { "False" };
        self.set(Type::Reconciling, text(reconciling), reason, if reconciling { message } else { "" });
        self.set(Type::Stalled, text(stalled), reason, if stalled { message } else { "" });
    }

    fn health(&mut self, facts: &Facts<'_>) {
        let summary = facts.summary;
        if let Some((key, why)) = summary.broken.first.first() {
            let message = format!("{key}: {why}{}", and_more(summary.broken.count - 1));
            self.set(Type::Healthy, "False", Reason::ObjectFailed, &message);
        } else if let Some((key, why)) = summary.progressing.first.first() {
            let message = format!("{key}: {why}{}", and_more(summary.progressing.count - 1));
            self.set(Type::Healthy, "Unknown", Reason::Progressing, &message);
        } else {
            self.set(Type::Healthy, "True", Reason::Healthy, &format!("{} objects are healthy", summary.objects));
        }
    }

    fn contention(&mut self, summary: &Summary) {
        match summary.contended.first.as_slice() {
            [] => self.set(Type::Contended, "False", Reason::NotContended, ""),
            fought => {
                let named = fought.iter().take(NAMED);
                let text = named
                    .map(|(key, fields, who)| format!("{who} keeps writing to {key}: {}", fields.join(", ")))
                    .collect::<Vec<_>>();
                let message = format!("{}{}", text.join("; "), and_more(summary.contended.count.saturating_sub(NAMED)));
                self.set(Type::Contended, "True", Reason::Contended, &message);
            }
        }
    }

    fn freeze(&mut self, facts: &Facts<'_>) {
        if let Outcome::Frozen { commit, freeze, .. } = facts.outcome {
            let message = format!("{}; `mainstay sync --override-window` applies it now", waits(commit, freeze));
            self.set(Type::Frozen, "True", Reason::WindowClosed, &message);
        } else if facts.windows || conditions::status(self.all, Type::Frozen).is_some() {
            self.set(Type::Frozen, "False", Reason::WindowOpen, "");
        }
    }

    fn ready(&mut self, facts: &Facts<'_>, kept: &Kept<'_>) {
        match facts.outcome {
            Outcome::Suspended { until } => {
                let until = until.map(|until| format!(" until {}", until.strftime("%Y-%m-%dT%H:%M:%SZ")));
                let until = until.unwrap_or_default();
                let message = format!("suspended{until}: nothing is applied and nothing is reverted");
                self.set(Type::Ready, "False", Reason::Suspended, &message);
                self.progress(false, false, Reason::Suspended, "");
            }
            // What failed of the commit before has not become better.
            Outcome::Frozen { .. } if is_in_part(self.all) => {}
            Outcome::Frozen { commit, freeze, since } => {
                let waits = waits(commit, freeze);
                if let Some(applied) = kept.applied {
                    self.applied(facts, applied, &Progress { note: Some(&waits), ..Progress::at(*since) });
                } else {
                    self.set(Type::Ready, "False", Reason::WindowClosed, &waits);
                    self.progress(false, false, Reason::WindowClosed, "");
                }
            }
            Outcome::Refused { class, reason, message } => {
                if *class == Class::Unavailable && self.was_applied() {
                    self.while_git_is_away(facts, kept, *reason, message);
                } else {
                    self.set(Type::Ready, "False", *reason, message);
                }
                self.progress(*class != Class::Invalid, *class == Class::Invalid, *reason, message);
            }
            Outcome::Applied { failures, guard, held, pruning, note, since } => {
                let part = Progress {
                    failures,
                    guard: guard.as_deref(),
                    held,
                    pruning: *pruning,
                    note: note.as_deref(),
                    since: *since,
                };
                self.applied(facts, facts.attempted.unwrap_or_default(), &part);
            }
        }
    }

    /// Whether what Ready says is about what was applied, and not about how that failed.
    fn was_applied(&self) -> bool {
        conditions::status(self.all, Type::Ready).is_some_and(|ready| {
            ready.status == "True"
                || ready.reason == Reason::RevertFailed.as_str()
                || (ready.status == "Unknown" && ready.reason == Reason::SourceUnavailable.as_str())
        })
    }

    /// A passing trouble does not make wrong what was applied: Ready keeps saying how that is. After a long time nobody
    /// knows whether it is still what Git says.
    fn while_git_is_away(&mut self, facts: &Facts<'_>, kept: &Kept<'_>, reason: Reason, message: &str) {
        let commit = kept.applied.unwrap_or_default();
        if let Some(message) = not_put_back(facts.summary) {
            self.set(Type::Ready, "False", Reason::RevertFailed, &message);
        } else if let Some(since) = kept.silent_since {
            let since = since.strftime("%Y-%m-%dT%H:%M:%SZ");
            let message =
                format!("the repository has not answered since {since}; commit {commit} is kept applied: {message}");
            self.set(Type::Ready, "Unknown", reason, &message);
        } else if conditions::status(self.all, Type::Ready).is_some_and(|ready| ready.status != "True") {
            self.set(Type::Ready, "True", Reason::Applied, &format!("applied commit {commit}"));
        }
    }

    fn applied(&mut self, facts: &Facts<'_>, commit: &str, part: &Progress<'_>) {
        let Progress { failures, guard, held, pruning, note, since } = *part;
        if let Some((_, reason, _)) = failures.first() {
            let named = failures.iter().take(NAMED);
            let text = named.map(|(_, _, f)| format!("{}: {}", f.object, f.message)).collect::<Vec<_>>().join("; ");
            let more = and_more(failures.len().saturating_sub(NAMED));
            let message = format!("{} of the objects failed: {text}{more}", failures.len());
            let stalled = failures.iter().all(|(class, _, _)| *class == Class::Invalid);
            self.set(Type::Ready, "False", *reason, &message);
            self.progress(!stalled, stalled, *reason, &message);
            return;
        }
        if let Some(message) = not_put_back(facts.summary) {
            self.set(Type::Ready, "False", Reason::RevertFailed, &message);
            self.progress(true, false, Reason::RevertFailed, &message);
            return;
        }
        if let Some(guard) = guard {
            self.set(Type::Ready, "False", Reason::PruneHeld, guard);
            self.progress(false, true, Reason::PruneHeld, guard);
            return;
        }
        if let Some((resource, why)) = facts.summary.unwatched.first() {
            let more = and_more(facts.summary.unwatched.len() - 1);
            let message = format!(
                "applied commit {commit}, but {resource} cannot be watched{more}, so changes to them are not seen: {why}"
            );
            self.set(Type::Ready, "False", Reason::WatchFailed, &message);
            self.progress(true, false, Reason::WatchFailed, &message);
            return;
        }
        let mut message = format!("applied commit {commit}");
        for text in note
            .into_iter()
            .map(str::to_owned)
            .chain((!held.is_empty()).then(|| format!("{} objects that left are kept", held.len())))
        {
            message = format!("{message}; {text}");
        }
        let Some(timeout) = facts.wait.filter(|_| facts.summary.objects > facts.summary.healthy) else {
            self.set(Type::Ready, "True", Reason::Applied, &message);
            self.progress(pruning > 0, false, Reason::Applied, "waiting for deletions to finish");
            return;
        };
        if let Some((key, why)) = facts.summary.broken.first.first() {
            let message = format!("{message}; {key} failed: {why}");
            self.set(Type::Ready, "False", Reason::ObjectFailed, &message);
            self.progress(true, false, Reason::ObjectFailed, &message);
        } else if self.now.duration_since(since).unsigned_abs() > timeout {
            let message = format!("{message}; not healthy within the timeout: {}", progressing(facts.summary));
            self.set(Type::Ready, "False", Reason::HealthTimeout, &message);
            self.progress(true, false, Reason::HealthTimeout, &message);
        } else {
            let message = format!("{message}; waiting for {}", progressing(facts.summary));
            self.set(Type::Ready, "Unknown", Reason::Progressing, &message);
            self.progress(true, false, Reason::Progressing, &message);
        }
    }
}

/// What was changed by somebody and cannot be put back; `None` when there is nothing.
fn not_put_back(summary: &Summary) -> Option<String> {
    let all = &summary.not_put_back;
    let named = all.first.iter().take(NAMED).map(|(key, why)| format!("{key}: {why}")).collect::<Vec<_>>();
    let more = and_more(all.count.saturating_sub(NAMED));
    (all.count > 0).then(|| format!("{} of the objects cannot be put back: {}{more}", all.count, named.join("; ")))
}

fn progressing(summary: &Summary) -> String {
    let named = summary.progressing.first.iter().take(NAMED);
    let text = named.map(|(key, why)| format!("{key} ({why})")).collect::<Vec<_>>().join(", ");
    format!("{text}{}", and_more(summary.progressing.count.saturating_sub(NAMED)))
}

fn and_more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" and {count} more") }
}

/// Whether two statuses are equal: then nothing is written.
pub fn same(a: &GitSyncStatus, b: &GitSyncStatus) -> bool {
    a == b
}

/// A merge patch that makes `old` say what `new` says: fields that went away are set to null.
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
    use crate::object::Key;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn applied(failures: Vec<(Class, Reason, Failure)>) -> Outcome {
        Outcome::Applied { failures, held: vec![], guard: None, pruning: 0, note: None, since: at(0) }
    }

    fn check(outcome: &Outcome, summary: &Summary, now: i64) -> (String, String) {
        let facts = Facts {
            generation: Some(1),
            attempted: Some("c1"),
            reference: Some("refs/heads/main"),
            applied: None,
            request: None,
            outcome,
            summary,
            wait: Some(Duration::from_secs(60)),
            windows: false,
            window_override: None,
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
            generation: Some(1),
            attempted: Some("c1"),
            reference: Some("refs/heads/main"),
            applied: Some(("c1", "t1")),
            request: None,
            outcome,
            summary: &summary,
            wait: None,
            windows: false,
            window_override: None,
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

    /// Status and reason of Ready, and its message, after the repository kept silent from second 2 on.
    fn silent(now: i64, summary: &Summary) -> (String, String) {
        let facts = |outcome| Facts {
            generation: Some(1),
            attempted: Some("c1"),
            reference: Some("refs/heads/main"),
            applied: Some(("c1", "t1")),
            request: None,
            outcome,
            summary,
            wait: None,
            windows: false,
            window_override: None,
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
        assert_eq!(silent(3601, &Summary::default()).0, "True Applied");
        let (ready, message) = silent(3602, &Summary::default());
        assert_eq!(ready, "Unknown SourceUnavailable");
        let expected =
            "the repository has not answered since 1970-01-01T00:00:02Z; commit c1 is kept applied: no answer";
        assert_eq!(message, expected);
    }

    #[test]
    fn is_not_ready_while_something_cannot_be_put_back() {
        let summary = Summary { not_put_back: vec![(key("web"), "spec.x: no".into())].into(), ..Summary::default() };
        assert_eq!(check(&applied(vec![]), &summary, 1), ("False RevertFailed".into(), "True False".into()));
        let (ready, message) = silent(3, &summary);
        assert_eq!(ready, "False RevertFailed");
        assert_eq!(message, "1 of the objects cannot be put back: Deployment.apps shop/web: spec.x: no");
    }
}
