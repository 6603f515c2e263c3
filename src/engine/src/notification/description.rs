//! Severity, reason and text of messages ([`Message::describe`]).

use std::fmt;

use super::message::{Message, WhyPruned};
use mainstay_api::events::Reason;
use mainstay_api::git_sync::{AllowedBy, UNKNOWN, WHOLE_OBJECT};
use mainstay_api::names::{ALLOW_PRUNE, DELETE_OBJECTS, ENABLED, ON_DELETE, REPLACE, RERUN};
use mainstay_api::{EventReason, conditions, function_conditions};

/// How much attention a message needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// For the log only, at level `debug`.
    Debug,
    /// Normal operation.
    Info,
    /// A user may have to act.
    Warning,
}

/// How sinks present a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// How much attention it needs.
    pub severity: Severity,
    /// Why it was sent: the reason of Kubernetes Events.
    pub reason: EventReason,
    /// The agent's action as one CamelCase word, as in Kubernetes Events.
    pub action: &'static str,
    /// The text without subject and object. May have several lines.
    pub text: String,
    /// The key of aggregation: messages with equal subject, object, reason and key become one Kubernetes Event with a
    /// count. Routine messages that differ only in the object are summed up under the newest text, so the key must
    /// contain all else.
    pub aggregation_key: String,
}

impl Message {
    /// Returns severity, reason and text.
    pub fn describe(&self) -> Description {
        use Severity::{Debug, Info, Warning};
        let describe = |severity, reason: EventReason, action, key: String, text| Description {
            severity,
            reason,
            action,
            text,
            aggregation_key: key,
        };
        match self {
            Self::CommitSeen { commit, .. } => describe(
                Debug,
                Reason::CommitSeen.into(),
                "Apply",
                commit.clone(),
                format!("commit {} seen", short(commit)),
            ),
            Self::BranchRewritten { branch, old, new, .. } => {
                let text = format!(
                    "branch {branch} was rewritten: {} → {}, which does not descend from it",
                    short(old),
                    short(new)
                );
                describe(Info, Reason::BranchRewritten.into(), "Apply", new.clone(), text)
            }
            Self::CommitApplied { commit, created, changed, unchanged, pruned, millis, .. } => {
                let text = format!(
                    "commit {} applied: {created} created, {changed} changed, {unchanged} unchanged, {pruned} pruned \
                     ({millis} ms)",
                    short(commit)
                );
                describe(Info, conditions::Reason::Applied.into(), "Apply", commit.clone(), text)
            }
            Self::NoManifests { commit, why, .. } => {
                let text = format!("commit {}: {why}", short(commit));
                describe(Warning, conditions::Reason::NoManifests.into(), "Apply", why.clone(), text)
            }
            Self::CommitHeld { commit, why, .. } => {
                describe(Info, Reason::CommitHeld.into(), "Apply", commit.clone(), why.clone())
            }
            Self::WindowOverridden { commit, window, who, claimed_user, .. } => {
                let claimed = claimed_user.as_deref().map(|user| format!(", as the user {user} by its own account"));
                let claimed = claimed.unwrap_or_default();
                let text =
                    format!("commit {} is applied although {window}: requested by {who}{claimed}", short(commit));
                describe(Warning, Reason::WindowOverridden.into(), "Apply", commit.clone(), text)
            }
            Self::Reverted { fields, who, millis, .. } => {
                let text = if fields == &[WHOLE_OBJECT] {
                    let who = if who == UNKNOWN { "somebody" } else { who };
                    format!("created again (deleted by {who}, {millis:.1} ms)")
                } else {
                    format!("reverted {} (changed by {who}, {millis:.1} ms)", fields.join(", "))
                };
                describe(Info, Reason::Reverted.into(), "Revert", change_key(fields, who), text)
            }
            Self::DriftSeen { fields, who, .. } => {
                let text = format!("differs in {} (changed by {who}), not reverted by policy", fields.join(", "));
                describe(Warning, Reason::DriftSeen.into(), "Revert", change_key(fields, who), text)
            }
            Self::DriftMissed { fields, who, .. } => {
                let text = if fields == &[WHOLE_OBJECT] {
                    "is missing (found by an audit)".to_owned()
                } else {
                    let fields = fields.join(", ");
                    format!("differs in {fields} (changed by {who}; found by an audit)")
                };
                describe(Warning, Reason::DriftMissed.into(), "Audit", change_key(fields, who), text)
            }
            Self::AuditRefused { cause, .. } => {
                let text = format!("it and others of its kind cannot be audited by dry runs: {cause}");
                describe(Warning, Reason::AuditRefused.into(), "Audit", cause.clone(), text)
            }
            Self::Contended { fields, who, .. } => {
                let text = format!("{who} keeps writing to {}: reverts slow down", fields.join(", "));
                describe(Warning, conditions::Reason::Contended.into(), "Revert", change_key(fields, who), text)
            }
            Self::NotPutBack { fields, cause, .. } => {
                let text = format!("cannot revert {}: {cause}", fields.join(", "));
                describe(Warning, conditions::Reason::RevertFailed.into(), "Revert", fields.join(","), text)
            }
            Self::TakenOver { from, fields, .. } => {
                let from = from.join(", ");
                let text = match &**fields {
                    [] => format!("taken over from {from}; removed no field"),
                    fields => format!("taken over from {from}; removed {} (not in the manifest)", fields.join(", ")),
                };
                describe(Info, Reason::TakenOver.into(), "Apply", text.clone(), text)
            }
            Self::NotRemoved { cause, .. } => {
                let text = format!("fields that other tools left in it cannot be removed: {cause}");
                describe(Warning, Reason::NotRemoved.into(), "Apply", text.clone(), text)
            }
            Self::Unreadable { cause, .. } => {
                let text = format!("cannot be decoded; the agent skips it until it changes: {cause}");
                describe(Warning, Reason::Unreadable.into(), "Read", String::new(), text)
            }
            Self::NotKept { why, .. } => describe(
                Warning,
                conditions::Reason::MemoryExhausted.into(),
                "Read",
                String::new(),
                format!("reconciliation is paused: {why}"),
            ),
            Self::Pruned { why, .. } => {
                let text = match why {
                    WhyPruned::Left(commit) => format!("pruned: not in commit {}", short(commit)),
                    WhyPruned::LeftAndAllowed(commit) => {
                        format!("pruned: not in commit {}, and {ALLOW_PRUNE} allows it", short(commit))
                    }
                    WhyPruned::WithItsGitSync => format!("pruned with its GitSync ({ON_DELETE}: {DELETE_OBJECTS})"),
                    WhyPruned::RunsAgain => format!("deleted, to run again ({RERUN})"),
                };
                describe(Info, Reason::Pruned.into(), "Prune", text.clone(), text)
            }
            Self::NotPruned { why, .. } => {
                let text = format!("left the repository and is not deleted: {why}");
                // The key is empty because the text contains the newest commit, and one Event is enough.
                describe(Warning, Reason::NotPruned.into(), "Prune", String::new(), text)
            }
            Self::Replaced { fields, allowed_by, .. } => {
                let fields = if fields.is_empty() { "a field".to_owned() } else { fields.join(", ") };
                let by = match allowed_by {
                    AllowedBy::Annotation => format!("{REPLACE}: {ENABLED}"),
                    AllowedBy::Spec => "spec.replace".to_owned(),
                };
                let text = format!("deleted to be created again: {fields} cannot be changed ({by})");
                describe(Info, Reason::Replaced.into(), "Replace", text.clone(), text)
            }
            Self::AnnotationInvalid { problem, .. } => {
                describe(Warning, Reason::AnnotationInvalid.into(), "Reconcile", problem.clone(), problem.clone())
            }
            Self::DeletionStuck { finalizers, since, .. } => {
                let text = format!("is still being deleted, since {since}: it {}", waits_for(finalizers));
                describe(Warning, Reason::DeletionStuck.into(), "Prune", since.clone(), text)
            }
            Self::LeftBehind { cluster, why, .. } => {
                let text = format!(
                    "the objects in cluster {cluster} are orphaned: labelled by Mainstay, owned by no GitSync: {why}"
                );
                describe(Warning, Reason::LeftBehind.into(), "Reconcile", cluster.clone(), text)
            }
            Self::Failed { commit, problems, .. } => {
                let at = commit.as_deref().map(|commit| format!(" at commit {}", short(commit))).unwrap_or_default();
                let text = match &**problems {
                    [one] => format!("failed{at}: {one}"),
                    several => format!("failed{at}: {} problems:\n{}", several.len(), several.join("\n")),
                };
                describe(Warning, Reason::Failed.into(), "Apply", problems.first().cloned().unwrap_or_default(), text)
            }
            Self::Stage { status, reason, message, .. } => {
                let severity = if status == "False" { Warning } else { Info };
                // The position in the build queue changes too often for an Event each time.
                let queued = *reason == function_conditions::Reason::JobQueued.into();
                let key = if queued { reason.to_string() } else { message.clone() };
                describe(severity, *reason, "Reconcile", key, message.clone())
            }
            Self::Noticed { reason, message, .. } => {
                describe(Warning, *reason, "Reconcile", message.clone(), message.clone())
            }
            Self::DeliveryRefused { why, .. } => describe(
                Warning,
                Reason::DeliveryRefused.into(),
                "Receive",
                why.clone(),
                format!("a delivery was refused: {why}"),
            ),
            Self::Paused { problem: Some(problem), .. } => {
                let text = format!("paused; {problem}");
                describe(Warning, Reason::Paused.into(), "Pause", String::new(), text)
            }
            Self::Paused { paused, .. } => {
                let (reason, text) = if *paused { (Reason::Paused, "paused") } else { (Reason::Resumed, "resumed") };
                describe(Info, reason.into(), "Pause", String::new(), text.to_owned())
            }
        }
    }
}

/// Describes the finalizers that block a deletion.
pub fn waits_for(finalizers: &[String]) -> String {
    match finalizers {
        [] => "waits for its grace period or for its dependents".to_owned(),
        [one] => format!("waits for the finalizer {one}, which only its controller should take off"),
        several => {
            format!("waits for the finalizers {}, which only their controllers should take off", several.join(", "))
        }
    }
}

/// Returns the key of Events about the same fields and the same manager.
fn change_key(fields: &[String], who: &str) -> String {
    format!("{} {who}", fields.join(","))
}

fn short(commit: &str) -> String {
    commit.chars().take(8).collect()
}

impl fmt::Display for Message {
    /// Writes subject, object and text for terminals and logs. Indents all lines but the first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, Description { reason, text, .. }) = (self.subject(), self.describe());
        let text = text.replace('\n', "\n    ");
        match self {
            Self::Stage { condition, .. } => return write!(f, "{subject}  {condition}  {reason}  {text}"),
            Self::Noticed { .. } => return write!(f, "{subject}  {reason}  {text}"),
            _ => {}
        }
        match self.object() {
            Some(object) => write!(f, "{subject}: {object}: {text}")?,
            None => write!(f, "{subject}: {text}")?,
        }
        if let Self::Reverted { changes, .. } = self {
            for change in changes {
                write!(f, "\n    {}: {} → {}", change.field, change.found, change.restored)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mainstay_object::Owner;

    use super::super::message::Change;
    use super::*;

    fn reverted(field: &str, who: &str, changes: Vec<Change>) -> Message {
        let (subject, object) = (Owner::git_sync("a", "b"), "Service shop/api".to_owned());
        let (fields, who) = (vec![field.to_owned()], who.to_owned());
        Message::Reverted { subject, object, fields, who, millis: 2.04, changes }
    }

    #[test]
    fn a_revert_names_the_fields_or_says_that_the_object_was_deleted() {
        let deleted = reverted(WHOLE_OBJECT, UNKNOWN, Vec::new());
        assert_eq!(deleted.to_string(), "a/b: Service shop/api: created again (deleted by somebody, 2.0 ms)");
        let change = Change { field: "spec.type".into(), found: "x".into(), restored: "y".into() };
        let text = "a/b: Service shop/api: reverted spec.type (changed by kubectl, 2.0 ms)\n    spec.type: x → y";
        assert_eq!(reverted("spec.type", "kubectl", vec![change]).to_string(), text);
    }

    #[test]
    fn lines_after_the_first_are_indented() {
        let text = || "x".to_owned();
        let (reason, message) = (function_conditions::Reason::ApplyFailed.into(), "one\ntwo".to_owned());
        let subject = Owner::function("x", "y");
        let stage = Message::Stage { subject, condition: text(), status: text(), reason, message };
        assert_eq!(stage.to_string(), "function x/y  x  ApplyFailed  one\n    two");
        let (problems, commit) = (vec!["a".to_owned(), "b".to_owned()], Some("0123456789".to_owned()));
        let failed = Message::Failed { subject: Owner::git_sync("a", "b"), commit, problems };
        assert_eq!(failed.to_string(), "a/b: failed at commit 01234567: 2 problems:\n    a\n    b");
    }

    #[test]
    fn positions_in_the_build_queue_are_aggregated_and_other_texts_are_not() {
        let key = |reason: function_conditions::Reason, message: &str| {
            let (condition, status) = ("BuildReady".to_owned(), "Unknown".to_owned());
            let (reason, message) = (reason.into(), message.to_owned());
            Message::Stage { subject: Owner::function("a", "b"), condition, status, reason, message }
                .describe()
                .aggregation_key
        };
        assert_eq!(
            key(function_conditions::Reason::JobQueued, "position 1"),
            key(function_conditions::Reason::JobQueued, "position 2")
        );
        assert_ne!(
            key(function_conditions::Reason::JobFailed, "one"),
            key(function_conditions::Reason::JobFailed, "two")
        );
    }

    #[test]
    fn messages_about_several_objects_are_summed_up_only_where_their_texts_are_equal() {
        let subject = || Owner::git_sync("a", "b");
        let object = || "Service a/b".to_owned();
        let taken = |from: &[&str], fields: &[&str]| {
            let all = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            Message::TakenOver { subject: subject(), object: object(), from: all(from), fields: all(fields) }
        };
        let replaced = |field: &str, allowed_by| Message::Replaced {
            subject: subject(),
            object: object(),
            fields: vec![field.to_owned()],
            allowed_by,
        };
        let pruned = |why| Message::Pruned { subject: subject(), object: object(), why };
        let all = [
            taken(&["helm"], &[]),
            taken(&["helm"], &["spec.a"]),
            taken(&["helm"], &["spec.b"]),
            taken(&["helm", "flux"], &["spec.b"]),
            replaced("spec.a", AllowedBy::Spec),
            replaced("spec.b", AllowedBy::Spec),
            replaced("spec.b", AllowedBy::Annotation),
            pruned(WhyPruned::Left("c".to_owned())),
            pruned(WhyPruned::LeftAndAllowed("c".to_owned())),
            pruned(WhyPruned::WithItsGitSync),
            pruned(WhyPruned::RunsAgain),
            reverted("spec.a", "kubectl", Vec::new()),
            reverted("spec.a", "helm", Vec::new()),
            reverted("spec.b", "helm", Vec::new()),
        ];
        let described: Vec<_> = all.iter().map(Message::describe).collect();
        for (at, one) in described.iter().enumerate() {
            for other in &described[..at] {
                let is_summed_up = one.reason == other.reason && one.aggregation_key == other.aggregation_key;
                assert!(!is_summed_up, "{} / {}", one.text, other.text);
            }
        }
    }
}
