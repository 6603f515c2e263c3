//! The last decisions of the agent about an object, from the status of its GitSync.
//!
//! Invariant: no value of the object is printed, because the object may be a Secret.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::{drift, ids::short, syncs::ago};
use mainstay_api::GitSyncStatus;
use mainstay_api::git_sync::{AppliedCommit, Decided, ObjectChange, Replacement, Revert, UNKNOWN, WHOLE_OBJECT};
use mainstay_object::Key;

/// Maximum number of decisions to show.
const MOST: usize = 10;

/// A decision with its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) when: Timestamp,
    /// The decision in one word, for programs.
    pub(super) name: &'static str,
    /// The decision and its cause, without the time.
    pub(super) text: String,
}

impl Decision {
    fn new(when: Timestamp, name: &'static str, text: impl Into<String>) -> Self {
        Self { when, name, text: text.into() }
    }

    /// Returns the decision with the time since then.
    pub(super) fn row(&self, now: Timestamp) -> String {
        format!("{} ago: {}", ago(now.duration_since(self.when).as_secs()), self.text)
    }

    /// Returns the decision for programs.
    pub(super) fn facts(&self) -> Value {
        json!({"when": self.when, "decision": self.name, "text": self.text})
    }
}

/// Returns the last decisions about an object, newest first.
pub(super) fn decisions(object: &Key, status: &GitSyncStatus) -> Vec<Decision> {
    let name = object.to_string();
    let own = status.last_decisions.iter().filter(|one| one.object == name).map(other);
    let reverts = status.last_reverts.iter().filter(|one| one.object == name).map(reverted);
    let replacements = status.last_replacements.iter().filter(|one| one.object == name).map(replaced);
    let commits = status.history.iter().filter_map(|entry| committed(&name, entry));
    // Times in a status have a precision of one second. Decisions of the same second keep the usual order: an apply, an
    // edit with its revert, then everything else.
    let mut all: Vec<Decision> = own.chain(reverts).chain(replacements).chain(commits).collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.when));
    all.truncate(MOST);
    all
}

fn reverted(revert: &Revert) -> Decision {
    let who = Some(&*revert.who).filter(|who| *who != UNKNOWN);
    let (decision, text) = if revert.fields == [WHOLE_OBJECT] {
        let by = who.map(|who| format!(" by {who}")).unwrap_or_default();
        ("Recreated", format!("recreated, after it was deleted{by}"))
    } else {
        let (who, fields) = (who.unwrap_or("somebody"), drift::fields(&revert.fields));
        ("Reverted", format!("reverted, after {who} changed {fields}"))
    };
    Decision::new(revert.when.0, decision, text)
}

fn replaced(replacement: &Replacement) -> Decision {
    let fields = drift::fields(&replacement.fields);
    let fields = if fields.is_empty() { "an immutable field" } else { &*fields };
    Decision::new(replacement.when.0, "Replaced", format!("replaced, because {fields} cannot be changed"))
}

/// Returns the change of the object by a commit, if the history names the object.
fn committed(name: &str, entry: &AppliedCommit) -> Option<Decision> {
    let changed = entry.objects.iter().find(|changed| changed.object == name)?;
    let decision = match changed.change {
        ObjectChange::Created => "Created",
        ObjectChange::Changed => "Changed",
        ObjectChange::Pruned => "Pruned",
    };
    let text = format!("{} for commit {}", changed.change.word(), short(&entry.commit));
    Some(Decision::new(entry.when.0, decision, text))
}

fn other(one: &mainstay_api::git_sync::Decision) -> Decision {
    let who = one.who.as_deref();
    let by = who.map(|who| format!(" by {who}")).unwrap_or_default();
    let (decision, mut text) = match one.decided {
        Decided::Paused => {
            let end = one.until.as_ref().map_or_else(|| "it is resumed".to_owned(), |until| until.0.to_string());
            ("Paused", format!("paused until {end}"))
        }
        Decided::Resumed => ("Resumed", "resumed, because its pause had ended".to_owned()),
        Decided::SlowedDown => {
            let who = who.unwrap_or("another client");
            ("SlowedDown", format!("delayed its reverts, because {who} kept changing it"))
        }
        Decided::Reported => ("Reported", format!("reported a change{by} and left it: drift is Report")),
        Decided::Missed => ("Missed", format!("found a change{by} in an audit; no watch had shown it")),
    };
    if one.times > 1 {
        text.push_str(&format!(" ({} times)", one.times));
    }
    Decision::new(one.when.0, decision, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_of_all_lists_are_in_the_order_of_their_times() {
        let (object, at) = ("Deployment.apps shop/web", |minute: u32| format!("2030-01-01T00:{minute:02}:00Z"));
        let commit = json!({
            "commit": "1a2b3c4d5e6f7a8b", "when": at(1), "durationMs": 5, "created": 1, "changed": 0, "unchanged": 0,
            "pruned": 0, "objects": [{"object": object, "change": "Created"}, {"object": "Service shop/web", "change": "Created"}],
        });
        let revert = |fields: Value, who: &str, minute: u32| json!({"object": object, "fields": fields, "who": who, "when": at(minute), "latencyMs": 4});
        let decided = |object: &str, decided: &str, times: u32, minute: u32| json!({"object": object, "decided": decided, "times": times, "when": at(minute)});
        let mut paused = decided(object, "Paused", 1, 5);
        paused["until"] = json!(at(30));
        let missed = decided(object, "Missed", 3, 8);
        let mut slowed = decided(object, "SlowedDown", 1, 4);
        slowed["who"] = json!("kubectl-edit");
        let other = decided("Service shop/web", "Reported", 1, 9);
        let status: GitSyncStatus = serde_json::from_value(json!({
            "history": [commit], "lastDecisions": [missed, other, paused, slowed],
            "lastReverts": [revert(json!(["(object)"]), UNKNOWN, 3), revert(json!(["spec.replicas"]), "kubectl-edit", 2)],
            "lastReplacements": [{"object": object, "fields": ["spec.selector"], "uid": "u", "allowedBy": "Spec", "when": at(7)}],
        }))
        .unwrap();
        let key = Key::new("apps", "Deployment", Some("shop"), "web");
        let rows: Vec<String> = decisions(&key, &status).iter().map(|one| one.row(at(10).parse().unwrap())).collect();
        let expected = [
            "2 min ago: found a change in an audit; no watch had shown it (3 times)",
            "3 min ago: replaced, because spec.selector cannot be changed",
            "5 min ago: paused until 2030-01-01T00:30:00Z",
            "6 min ago: delayed its reverts, because kubectl-edit kept changing it",
            "7 min ago: recreated, after it was deleted",
            "8 min ago: reverted, after kubectl-edit changed spec.replicas",
            "9 min ago: created for commit 1a2b3c4d5e6f",
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn ten_decisions_are_shown_and_equal_times_keep_their_order() {
        let at = "2030-01-01T00:00:00Z";
        let object = "ConfigMap shop/a";
        let decided = |decided: &str| json!({"object": object, "decided": decided, "times": 1, "when": at});
        let all: Vec<Value> = (0..20).map(|at| decided(if at % 2 == 0 { "Resumed" } else { "Paused" })).collect();
        let revert = json!({"object": object, "fields": ["data.a"], "who": "x", "when": at, "latencyMs": 1});
        let of = |all: &[Value]| -> Vec<&'static str> {
            let status = json!({"lastDecisions": all, "lastReverts": [revert]});
            let status: GitSyncStatus = serde_json::from_value(status).unwrap();
            let all = decisions(&Key::new("", "ConfigMap", Some("shop"), "a"), &status);
            all.iter().map(|one| one.name).collect()
        };
        assert_eq!(of(&all).len(), MOST);
        assert_eq!(of(&all[..2]), ["Resumed", "Paused", "Reverted"]);
    }
}
