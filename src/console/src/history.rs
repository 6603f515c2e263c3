//! The history of a GitSync, from its status and its Events: commits, their failures, and replaced objects.
//!
//! Not here: manual changes, which have a list of their own (`edits`).

use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;

use crate::command::Command;
use crate::field::{text_at, time_at};
use crate::shown::EventRow;
use crate::text::{SHORT, lasted, plain};
use mainstay_api::git_sync::{NAMED_BYTES, NAMED_OBJECTS, ObjectChange};
use mainstay_api::{conditions, events};

/// Maximum number of moments.
const MOST: usize = 100;
/// Maximum number of applied commits, of replaced objects, and of fields of each replaced object.
const REPLACED: usize = 20;

/// A moment of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Moment<'h> {
    /// A complete application of a commit, from the status.
    Applied {
        when: Option<Timestamp>,
        commit: String,
        subject: String,
        effect: String,
        /// The changed objects that the status names, each with the word for its change.
        objects: Vec<(&'static str, String)>,
        /// Number of the other changed objects; 0 if none is named.
        more: i64,
        /// The command that takes the changes back, in a clone of the repository; `None` if the source is not a Git
        /// repository.
        revert: Option<Command>,
    },
    /// Another outcome of a commit. If the status has no history, this may also be a complete application.
    Commit(&'h EventRow),
    /// An object that was deleted in order to be recreated.
    Replaced { when: Option<Timestamp>, object: String, fields: String },
}

/// The outcome of a commit that an Event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    Failure,
    /// A decision about the commit, such as a window that delays it or that a user overrode.
    Neutral,
}

impl Outcome {
    /// Returns the outcome that an Event reports. The Event of an override is a warning for those who watch Events, but no
    /// failure of the commit.
    pub(crate) fn of(event: &EventRow) -> Self {
        use events::Reason::{BranchRewritten, CommitHeld, WindowOverridden};
        if [BranchRewritten, CommitHeld, WindowOverridden].iter().any(|one| one.name() == event.reason) {
            return Self::Neutral;
        }
        if event.severity == "Warning" { Self::Failure } else { Self::Success }
    }
}

impl Moment<'_> {
    /// Returns the time of the moment.
    pub(crate) fn when(&self) -> Option<Timestamp> {
        match self {
            Self::Commit(event) => event.last,
            Self::Applied { when, .. } | Self::Replaced { when, .. } => *when,
        }
    }
}

/// Returns the history, newest first.
pub(crate) fn history<'h>(live: &Value, all: &'h [EventRow]) -> Vec<Moment<'h>> {
    let list = live.pointer("/status/history").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_git = live.pointer("/spec/gitRepository").is_some();
    let applied: Vec<Moment<'h>> = list
        .iter()
        .enumerate()
        .take(REPLACED)
        .map(|(at, one)| applied(one, if is_git { revert(one, list.get(at + 1)) } else { None }))
        .collect();
    let is_repeated = |event: &EventRow| !applied.is_empty() && event.reason == conditions::Reason::Applied.name();
    let commits = all.iter().filter(|event| is_of_commit(&event.reason) && !is_repeated(event)).map(Moment::Commit);
    let replaced = live.pointer("/status/lastReplacements").and_then(Value::as_array).into_iter().flatten();
    let replaced = replaced.take(REPLACED).map(|one| Moment::Replaced {
        when: time_at(one, "/when"),
        object: text_at(one, "/object", SHORT),
        fields: names(one),
    });
    let mut moments: Vec<Moment<'h>> = commits.chain(replaced).collect();
    moments.extend(applied);
    moments.sort_by_key(|moment| std::cmp::Reverse(moment.when()));
    moments.truncate(MOST);
    moments
}

/// Returns an application of a commit with the number of objects that the commit changed.
fn applied<'h>(one: &Value, revert: Option<Command>) -> Moment<'h> {
    let count = |field: &str| one.get(field).and_then(Value::as_i64).unwrap_or_default();
    let counts = ["created", "changed", "unchanged", "pruned"].map(|field| format!("{} {field}", count(field)));
    let objects = changed_objects(one);
    let changed = ["created", "changed", "pruned"].map(count).into_iter().fold(0, i64::saturating_add);
    let named = i64::try_from(objects.len()).unwrap_or(i64::MAX);
    Moment::Applied {
        when: time_at(one, "/when"),
        commit: text_at(one, "/commit", SHORT),
        subject: text_at(one, "/subject", SHORT),
        effect: format!("{}, in {}", counts.join(", "), lasted(count("durationMs"))),
        more: if objects.is_empty() { 0 } else { changed.saturating_sub(named).max(0) },
        objects,
        revert,
    }
}

/// Returns the objects that an entry names. Entries of earlier versions name none.
fn changed_objects(one: &Value) -> Vec<(&'static str, String)> {
    let named = one.get("objects").and_then(Value::as_array).into_iter().flatten().take(NAMED_OBJECTS);
    let object = |named: &Value| {
        let change = ObjectChange::deserialize(named.get("change")?).ok()?;
        Some((change.word(), plain(named.get("object")?.as_str()?, NAMED_BYTES)))
    };
    named.filter_map(object).collect()
}

/// Returns the command that takes back a commit and those between it and the previous one.
fn revert(one: &Value, previous: Option<&Value>) -> Option<Command> {
    let commit = |one: &Value| one.get("commit").and_then(Value::as_str).map(str::to_owned);
    let (this, previous) = (commit(one), previous.and_then(commit));
    Command::revert(previous.as_deref(), this.as_deref())
}

fn names(one: &Value) -> String {
    let fields = one.pointer("/fields").and_then(Value::as_array).into_iter().flatten().take(REPLACED);
    fields.filter_map(Value::as_str).map(|field| plain(field, SHORT)).collect::<Vec<_>>().join(", ")
}

/// Returns whether an Event of a GitSync with this reason is about a commit.
fn is_of_commit(reason: &str) -> bool {
    use events::Reason::{BranchRewritten, CommitHeld, Failed, WindowOverridden};
    let own = [conditions::Reason::Applied, conditions::Reason::NoManifests].iter().any(|one| one.name() == reason);
    own || [BranchRewritten, CommitHeld, Failed, WindowOverridden].iter().any(|one| one.name() == reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::shown::events;

    #[test]
    fn commits_and_replacements_are_in_one_order_without_edits() {
        let at = |minute: u8| format!("2030-01-01T00:{minute:02}:00Z");
        let live = json!({"status": {
            "lastReverts": [{"object": "Service a/b", "fields": ["spec.x"], "who": "me", "when": at(2), "latencyMs": 1}],
            "lastReplacements": [{"object": "Job.batch a/j", "fields": ["spec.template", "spec.y"], "when": at(3)}],
        }});
        let event =
            |reason: &str, minute: u8| json!({"reason": reason, "message": reason, "lastTimestamp": at(minute)});
        let all = events(&[event("Applied", 1), event("Failed", 4), event("Suspended", 5)]);
        let names: Vec<String> = history(&live, &all)
            .iter()
            .map(|moment| match moment {
                Moment::Applied { commit, subject, effect, .. } => format!("{commit} {subject}: {effect}"),
                Moment::Commit(event) => event.reason.clone(),
                Moment::Replaced { object, fields, .. } => format!("{object}: {fields}"),
            })
            .collect();
        assert_eq!(names, ["Failed", "Job.batch a/j: spec.template, spec.y", "Applied"]);
    }

    #[test]
    fn an_overridden_window_is_no_failure_of_the_commit() {
        let event = |reason: &str, kind: &str| json!({"reason": reason, "message": "x", "type": kind});
        let all = [
            event("WindowOverridden", "Warning"),
            event("CommitHeld", "Normal"),
            event("Failed", "Warning"),
            event("Applied", "Normal"),
        ];
        let outcomes: Vec<_> = events(&all).iter().map(|one| (one.reason.clone(), Outcome::of(one))).collect();
        for (reason, outcome) in [
            ("WindowOverridden", Outcome::Neutral),
            ("CommitHeld", Outcome::Neutral),
            ("Failed", Outcome::Failure),
            ("Applied", Outcome::Success),
        ] {
            assert!(outcomes.contains(&(reason.to_owned(), outcome)), "{reason}: {outcomes:?}");
        }
    }

    #[test]
    fn applied_commits_of_the_status_take_the_place_of_their_events() {
        let live = json!({"status": {"history": [{
            "commit": "abc", "subject": "more", "when": "2030-01-01T00:01:00Z", "durationMs": 1500, "created": 1, "changed": 2,
        }]}});
        let all = events(&[json!({"reason": "Applied", "message": "x"}), json!({"reason": "Failed", "message": "y"})]);
        let moments = history(&live, &all);
        let [Moment::Applied { effect, subject, .. }, Moment::Commit(failed)] = &moments[..] else {
            panic!("{moments:?}")
        };
        assert!(effect.starts_with("1 created, 2 changed, 0 unchanged, 0 pruned, in 1"), "{effect}");
        assert_eq!((subject.as_str(), failed.reason.as_str()), ("more", "Failed"));
    }

    #[test]
    fn a_commit_of_git_is_taken_back_with_those_since_the_previous_one() {
        let [new, old] = ["b", "a"].map(|digit| digit.repeat(40));
        let of = |spec: Value, commits: [&str; 2]| {
            let list: Vec<Value> = commits.iter().map(|commit| json!({"commit": commit})).collect();
            let live = json!({"spec": spec, "status": {"history": list}});
            let revert = |moment: &Moment<'_>| match moment {
                Moment::Applied { revert, .. } => {
                    revert.as_ref().map(|one| one.as_str().to_owned()).unwrap_or_default()
                }
                other => panic!("{other:?}"),
            };
            history(&live, &[]).iter().map(revert).collect::<Vec<_>>()
        };
        let git = json!({"gitRepository": "shop"});
        let range = format!("git revert --no-edit {old}..{new}");
        assert_eq!(of(git.clone(), [&new, &old]), [range, format!("git revert --no-edit {old}")]);
        let hostile = "$(id)".repeat(8);
        assert_eq!(of(git, [&hostile, &old]), [String::new(), format!("git revert --no-edit {old}")]);
        let chart = json!({"sourceRef": {"kind": "HelmChart", "name": "shop"}});
        assert_eq!(of(chart, [&new, &old]), ["", ""]);
    }

    #[test]
    fn a_commit_names_its_first_objects_and_counts_the_others() {
        let of = |entry: Value| match &history(&json!({"status": {"history": [entry]}}), &[])[..] {
            [Moment::Applied { objects, more, .. }] => (objects.clone(), *more),
            other => panic!("{other:?}"),
        };
        let web = json!({"object": "Deployment.apps shop/web", "change": "Created"});
        let old = json!({"object": "ConfigMap shop/old", "change": "Pruned"});
        let named = [("created", "Deployment.apps shop/web".to_owned()), ("pruned", "ConfigMap shop/old".to_owned())];
        let entry = json!({"created": 20, "changed": 13, "unchanged": 5, "pruned": 1, "objects": [web, old]});
        assert_eq!(of(entry), (named.to_vec(), 32));
        assert_eq!(of(json!({"created": 20, "changed": 13})), (Vec::new(), 0), "an entry of an earlier version");
        // Others write a status, too.
        let forged =
            json!([web, null, {"object": "a", "change": "Eaten"}, {"object": [], "change": "Pruned"}, {"change": {}}]);
        assert_eq!(
            of(json!({"created": i64::MAX, "pruned": 2, "objects": forged})),
            (named[..1].to_vec(), i64::MAX - 1)
        );
        assert_eq!(of(json!({"created": -3, "objects": [web]})).1, 0);
        let long = json!({"object": "x".repeat(5000), "change": "Changed"});
        let (objects, _) = of(json!({"changed": 100, "objects": vec![long; 100]}));
        assert!(objects.len() == 10 && objects.iter().all(|(_, name)| name.len() < 700));
    }

    #[test]
    fn objects_of_any_form_have_a_history() {
        for live in [
            json!(null),
            json!({"status": {"history": [null, 1, {"commit": []}, {"objects": 1}, {"objects": [null]}]}}),
            json!({"status": {"lastReplacements": [null, 1, {"fields": [1], "when": "x"}]}}),
        ] {
            history(&live, &[]);
        }
    }
}
