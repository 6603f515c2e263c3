//! Predicts the agent's next action on an object and the reason of the action, as far as objects of the cluster show
//! them.

use jiff::Timestamp;
use serde_json::Value;

use super::origin::{Manager, Trace};
use crate::cli::{drift, ids::short};
use mainstay_api::{
    DriftPolicy, GitSyncStatus, conditions,
    function_conditions::Reason,
    git_sync::{DriftReason, UNKNOWN},
    names,
};
use mainstay_engine::managed::PauseEnd;
use mainstay_object::Key;

/// The agent's next action, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// The action in one word, for programs.
    pub(super) action: &'static str,
    /// The action in one sentence.
    pub(super) text: String,
}

impl Next {
    fn new(action: &'static str, text: impl Into<String>) -> Self {
        Self { action, text: text.into() }
    }
}

/// Returns the agent's next action. The first reason that applies determines the action, as in the agent.
pub(super) fn next(trace: &Trace, now: Timestamp) -> Next {
    let Some(manager) = &trace.manager else {
        let is_from_git = trace.live.as_ref().is_some_and(|live| {
            trace.asked.is("serverless.kyma-project.io", "Function")
                && (live["spec"]["type"] == "git" || live["spec"]["source"]["gitRepository"].is_object())
        });
        return if is_from_git && cannot_be_read(trace.live.as_ref()) {
            Next::new("LookUp", "looks up its repository again, because that failed; no GitSync manages its manifest")
        } else if is_from_git {
            Next::new("Build", "builds it when a commit changes its code; no GitSync manages its manifest")
        } else {
            Next::new("Nothing", "nothing: no GitSync manages it")
        };
    };
    let (key, live) = (trace.object(), trace.live.as_ref());
    let status = manager.sync.status.clone().unwrap_or_default();
    by_the_git_sync(manager, now)
        .or_else(|| live.and_then(|live| paused(key, live, now)))
        .or_else(|| leaving(key, &status))
        .or_else(|| deleted(live))
        .or_else(|| failing(key, &status))
        .or_else(|| fought_over(key, &status))
        .or_else(|| absent(manager, live))
        .unwrap_or_else(|| kept(key, manager, &status))
}

/// Returns whether the last lookup of a Function's repository failed.
fn cannot_be_read(live: Option<&Value>) -> bool {
    let conditions = live.and_then(|live| live.pointer("/status/conditions")).and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["status"] == "False" && condition["reason"] == Reason::SourceUpdateFailed.as_str())
}

fn by_the_git_sync(manager: &Manager, now: Timestamp) -> Option<Next> {
    if manager.sync.metadata.deletion_timestamp.is_some() {
        let deletes = manager.sync.metadata.finalizers.iter().flatten().any(|name| name == names::FINALIZER);
        return Some(if deletes {
            let text = format!("deletes it with its GitSync: {}: {}", names::ON_DELETE, names::DELETE_OBJECTS);
            Next::new("Delete", text)
        } else {
            Next::new("LetGo", "releases it: its GitSync is being deleted")
        });
    }
    let until = manager.sync.spec.suspended(now)?;
    let until = until.map_or_else(|| "for as long as spec.suspend is true".to_owned(), |time| format!("until {time}"));
    Some(Next::new("Nothing", format!("nothing {until}: its GitSync is suspended")))
}

fn paused(key: &Key, live: &Value, now: Timestamp) -> Option<Next> {
    let annotation = |name: &str| live.pointer("/metadata/annotations")?.get(name)?.as_str();
    let end = PauseEnd::read(annotation(names::UNTIL));
    let is_over = end.time().is_some_and(|time| time <= now);
    if annotation(names::RECONCILE) != Some(names::DISABLED) || is_over {
        return None;
    }
    let group = if key.group.is_empty() { String::new() } else { format!(".{}", key.group) };
    let namespace = key.namespace.as_ref().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    let resume = format!("mainstay resume {}{group}/{}{namespace}", key.kind, key.name);
    let until = match (end.time(), end.problem()) {
        (Some(time), _) => format!("until {time} or `{resume}`"),
        (None, Some(problem)) => format!("until `{resume}` ({problem})"),
        (None, None) => format!("until `{resume}`"),
    };
    Some(Next::new("Nothing", format!("nothing {until}: it is paused")))
}

/// Returns the action for an object that was removed from the repository, or that the agent must not change.
fn leaving(key: &Key, status: &GitSyncStatus) -> Option<Next> {
    let name = key.to_string();
    if let Some(one) = status.terminating.iter().find(|one| one.object == name) {
        let waits = mainstay_engine::notification::waits_for(&one.finalizers);
        return Some(Next::new(
            "Wait",
            format!("waits until it is deleted: it was removed from the repository and {waits}"),
        ));
    }
    if let Some(text) =
        status.held.iter().find(|text| text.strip_prefix(&name).is_some_and(|rest| rest.starts_with(':')))
    {
        return Some(Next::new("Keep", format!("keeps it although it was removed from the repository: {text}")));
    }
    status.unread.iter().find(|one| one.object == name).map(|one| {
        Next::new(
            "Keep",
            format!(
                "does not revert its changes until the repository can be read again; that failed since {}",
                one.since.0
            ),
        )
    })
}

fn deleted(live: Option<&Value>) -> Option<Next> {
    let is_terminating = live?.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    is_terminating.then(|| Next::new("Wait", "waits until it is gone, and recreates it"))
}

fn failing(key: &Key, status: &GitSyncStatus) -> Option<Next> {
    let name = key.to_string();
    let is_health = |reason: &str| matches!(reason, "Unhealthy" | "Progressing");
    let failure = status.failures.iter().find(|failure| failure.object == name && !is_health(&failure.reason))?;
    Some(Next::new(
        "Retry",
        format!(
            "tries again, first after 1 s and then at most every 2 min, and immediately with a new commit: {}: {}",
            failure.reason, failure.message
        ),
    ))
}

/// Returns the action for an object whose revert is delayed because another client keeps changing it.
fn fought_over(key: &Key, status: &GitSyncStatus) -> Option<Next> {
    let name = key.to_string();
    let drifted = status.drifted.iter().find(|one| one.object == name && one.reason == DriftReason::Backoff)?;
    let when = drifted.next_attempt.as_ref().map_or_else(|| "soon".to_owned(), |time| format!("at {}", time.0));
    let who = if drifted.who == UNKNOWN { "somebody" } else { &drifted.who };
    let fields = drift::fields(&drifted.fields);
    Some(Next::new("Revert", format!("reverts it {when}, after a delay: {who} keeps changing {fields}")))
}

fn absent(manager: &Manager, live: Option<&Value>) -> Option<Next> {
    if live.is_some() {
        return None;
    }
    if manager.entry.ended.is_some() {
        let text = "does not recreate it, because it has finished; to run it again, change its manifest, or set a new value of \
                    mainstay.dev/rerun in it";
        return Some(Next::new("Nothing", text));
    }
    Some(match manager.sync.spec.drift {
        DriftPolicy::Revert => Next::new("Create", "creates it: it is in the repository and not in the cluster"),
        DriftPolicy::Report => {
            Next::new("Report", "reports that it is missing, and does not create it: drift is Report")
        }
        DriftPolicy::Ignore => Next::new("Nothing", "nothing before its manifest changes: drift is Ignore"),
    })
}

fn kept(key: &Key, manager: &Manager, status: &GitSyncStatus) -> Next {
    let commit =
        status.applied_commit.as_deref().map_or_else(|| "no commit yet".to_owned(), |c| format!("commit {}", short(c)));
    let later = match (&status.frozen, conditions::status(&status.conditions, conditions::Type::Ready)) {
        (Some(frozen), _) => format!("; commit {} waits for a window: {}", short(&frozen.commit), frozen.by),
        (None, Some(ready)) if ready.status == "False" && status.attempted_commit != status.applied_commit => {
            let attempted = status.attempted_commit.as_deref().map(short).unwrap_or_default();
            format!("; commit {attempted} is not applied in full: {}", ready.reason)
        }
        _ => String::new(),
    };
    let contended = conditions::status(&status.conditions, conditions::Type::Contended)
        .filter(|condition| condition.status == "True" && condition.message.contains(&key.to_string()));
    match manager.sync.spec.drift {
        DriftPolicy::Ignore => Next::new(
            "Apply",
            format!("applies changes of its manifest, and leaves other changes: drift is Ignore{later}"),
        ),
        DriftPolicy::Report => {
            Next::new("Report", format!("reports changes of its fields and leaves them: drift is Report{later}"))
        }
        DriftPolicy::Revert => match contended {
            Some(contended) => Next::new(
                "Revert",
                format!(
                    "keeps it at {commit}, but waits longer before each revert, because another client keeps changing \
                     it: {}{later}",
                    contended.message
                ),
            ),
            None => Next::new(
                "Revert",
                format!("keeps it at {commit}: changes of its fields are reverted immediately{later}"),
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(sync: Value, live: Value, expected: &str) {
        let mut whole = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
            "metadata": { "name": "demo", "namespace": "apps" }, "spec": { "gitRepository": "shop" },
            "status": { "appliedCommit": "11111111aa", "attemptedCommit": "11111111aa" },
        });
        json_patch::merge(&mut whole, &sync);
        let manager = Manager {
            sync: serde_json::from_value(whole).unwrap(),
            repository: None,
            entry: mainstay_engine::managed::inventory::Entry::default(),
            place: None,
        };
        let trace = Trace {
            asked: Key::new("apps", "Deployment", Some("shop"), "web"),
            owners: vec![],
            live: Some(live).filter(|live| !live.is_null()),
            manager: Some(manager),
            notes: vec![],
        };
        let next = next(&trace, "2030-01-01T00:00:00Z".parse().unwrap());
        assert!(next.text.starts_with(expected), "{}\n{expected}", next.text);
    }

    #[test]
    fn a_function_from_git_is_built_without_a_git_sync() {
        let with = |spec: Value, reason: &str, expected: &str| {
            let asked = Key::new("serverless.kyma-project.io", "Function", Some("shop"), "hook");
            let conditions = json!([{"type": "ConfigurationReady", "status": "False", "reason": reason}]);
            let live = Some(json!({"metadata": {"name": "hook"}, "spec": spec, "status": {"conditions": conditions}}));
            let trace = Trace { asked, owners: vec![], live, manager: None, notes: vec![] };
            assert_eq!(next(&trace, Timestamp::UNIX_EPOCH).text, expected);
        };
        let check = |spec: Value, expected: &str| with(spec, "ConfigMapCreated", expected);
        let builds = "builds it when a commit changes its code; no GitSync manages its manifest";
        check(json!({"type": "git", "source": "code"}), builds);
        check(json!({"source": {"gitRepository": {"url": "https://git.example.com/code"}}}), builds);
        let again = "looks up its repository again, because that failed; no GitSync manages its manifest";
        with(json!({"type": "git", "source": "code"}), "SourceUpdateFailed", again);
        check(json!({"source": "module.exports = {}"}), "nothing: no GitSync manages it");
    }

    #[test]
    fn the_first_reason_decides() {
        let live = json!({ "metadata": { "name": "web" } });
        check(json!({}), live.clone(), "keeps it at commit 11111111aa: changes of its fields are reverted immediately");
        check(json!({}), Value::Null, "creates it");
        check(json!({ "spec": { "drift": "Report" } }), Value::Null, "reports that it is missing");
        check(json!({ "spec": { "drift": "Ignore" } }), live.clone(), "applies changes of its manifest");
        check(json!({ "spec": { "suspend": true } }), live.clone(), "nothing for as long as spec.suspend is true");
        let glass = |until: Value| json!({ "metadata": { "annotations": { "mainstay.dev/reconcile": "disabled", "mainstay.dev/until": until } } });
        let resume = "nothing until `mainstay resume Deployment.apps/web -n shop`";
        check(json!({}), glass(Value::Null), resume);
        check(json!({}), glass(json!("2030-01-01T01:00:00Z")), "nothing until 2030-01-01T01:00:00Z or");
        check(json!({}), glass(json!("2029-01-01T01:00:00Z")), "keeps it at commit");
        check(
            json!({}),
            json!({ "metadata": { "deletionTimestamp": "2030-01-01T00:00:00Z" } }),
            "waits until it is gone, and",
        );
        let mut ending = json!({ "metadata": { "deletionTimestamp": "2030-01-01T00:00:00Z" } });
        check(ending.clone(), live.clone(), "releases it: its GitSync is being deleted");
        ending["metadata"]["finalizers"] = json!([names::FINALIZER]);
        check(ending, live.clone(), "deletes it with its GitSync: mainstay.dev/on-delete: prune");
        let held = json!({ "status": { "held": ["Deployment.apps shop/web: held by a guard"] } });
        check(
            held,
            live.clone(),
            "keeps it although it was removed from the repository: Deployment.apps shop/web: held by a guard",
        );
        let fight = json!([{
            "object": "Deployment.apps shop/web", "fields": ["spec.replicas"], "who": "kubectl", "reason": "Backoff",
            "since": "2030-01-01T00:00:00Z", "nextAttempt": "2030-01-01T00:01:00Z",
        }]);
        let expected = "reverts it at 2030-01-01T00:01:00Z, after a delay: kubectl keeps changing spec.replicas";
        check(json!({ "status": { "driftedObjects": 1, "drifted": fight } }), live.clone(), expected);
        let failure = |reason: &str| {
            let failure = json!({ "object": "Deployment.apps shop/web", "reason": reason, "message": "no" });
            json!({ "status": { "failures": [failure] } })
        };
        check(failure("Invalid"), live.clone(), "tries again");
        check(failure("Progressing"), live, "keeps it at commit");
    }
}
