//! Severity and reason of messages ([`Message::describe`]); `text` has their texts.

use std::fmt;

use super::message::Message;
use mainstay_api::events::Reason;
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
    /// count. Routine messages that differ only in the object are summed up under the newest text. The key must
    /// therefore contain everything else that distinguishes messages.
    pub aggregation_key: String,
}

impl Message {
    /// Returns severity, reason and text.
    pub fn describe(&self) -> Description {
        let (severity, reason, action) = self.class();
        let text = self.text();
        Description { severity, reason, action, aggregation_key: self.aggregation_key(&text), text }
    }

    /// Returns severity, reason and action.
    fn class(&self) -> (Severity, EventReason, &'static str) {
        use Severity::{Debug, Info, Warning};
        match self {
            Self::CommitSeen { .. } => (Debug, Reason::CommitSeen.into(), "Apply"),
            Self::BranchRewritten { .. } => (Info, Reason::BranchRewritten.into(), "Apply"),
            Self::CommitApplied { .. } | Self::Recovered { .. } => (Info, conditions::Reason::Applied.into(), "Apply"),
            Self::Unhealthy { reason, .. } => (Warning, *reason, "Apply"),
            Self::NoManifests { .. } => (Warning, conditions::Reason::NoManifests.into(), "Apply"),
            Self::CommitHeld { .. } => (Info, Reason::CommitHeld.into(), "Apply"),
            Self::WindowOverridden { .. } => (Warning, Reason::WindowOverridden.into(), "Apply"),
            Self::Reverted { .. } => (Info, Reason::Reverted.into(), "Revert"),
            Self::DriftSeen { .. } => (Warning, Reason::DriftSeen.into(), "Revert"),
            Self::DriftMissed { .. } => (Warning, Reason::DriftMissed.into(), "Audit"),
            Self::AuditRefused { .. } => (Warning, Reason::AuditRefused.into(), "Audit"),
            Self::Contended { .. } => (Warning, conditions::Reason::Contended.into(), "Revert"),
            Self::NotPutBack { .. } => (Warning, conditions::Reason::RevertFailed.into(), "Revert"),
            Self::TakenOver { .. } => (Info, Reason::TakenOver.into(), "Apply"),
            Self::NotRemoved { .. } => (Warning, Reason::NotRemoved.into(), "Apply"),
            Self::Unreadable { .. } => (Warning, Reason::Unreadable.into(), "Read"),
            Self::NotKept { .. } => (Warning, conditions::Reason::MemoryExhausted.into(), "Read"),
            Self::Pruned { .. } => (Info, Reason::Pruned.into(), "Prune"),
            Self::NotPruned { .. } => (Warning, Reason::NotPruned.into(), "Prune"),
            Self::Replaced { .. } => (Info, Reason::Replaced.into(), "Replace"),
            Self::AnnotationInvalid { .. } => (Warning, Reason::AnnotationInvalid.into(), "Reconcile"),
            Self::DeletionStuck { .. } => (Warning, Reason::DeletionStuck.into(), "Prune"),
            Self::LeftBehind { .. } => (Warning, Reason::LeftBehind.into(), "Reconcile"),
            Self::Failed { .. } => (Warning, Reason::Failed.into(), "Apply"),
            Self::Stage { status, reason, .. } if status == "False" => (Warning, *reason, "Reconcile"),
            Self::Stage { reason, .. } => (Info, *reason, "Reconcile"),
            Self::Noticed { reason, .. } => (Warning, *reason, "Reconcile"),
            Self::DeliveryRefused { .. } => (Warning, Reason::DeliveryRefused.into(), "Receive"),
            Self::DeliveryIncomplete { .. } => (Warning, Reason::DeliveryIncomplete.into(), "Receive"),
            Self::Paused { problem: Some(_), .. } => (Warning, Reason::Paused.into(), "Pause"),
            Self::Paused { paused: true, .. } => (Info, Reason::Paused.into(), "Pause"),
            Self::Paused { .. } => (Info, Reason::Resumed.into(), "Pause"),
        }
    }

    fn aggregation_key(&self, text: &str) -> String {
        match self {
            Self::CommitSeen { commit, .. }
            | Self::CommitApplied { commit, .. }
            | Self::CommitHeld { commit, .. }
            | Self::WindowOverridden { commit, .. } => commit.clone(),
            Self::BranchRewritten { new, .. } => new.clone(),
            // The application of the commit is another Event.
            Self::Recovered { commit, .. } => format!("healthy {commit}"),
            Self::Unhealthy { why, .. }
            | Self::NoManifests { why, .. }
            | Self::DeliveryRefused { why, .. }
            | Self::DeliveryIncomplete { why, .. } => why.clone(),
            Self::Reverted { fields, who, .. }
            | Self::DriftSeen { fields, who, .. }
            | Self::DriftMissed { fields, who, .. }
            | Self::Contended { fields, who, .. } => change_key(fields, who),
            Self::AuditRefused { cause, .. } => cause.clone(),
            Self::NotPutBack { fields, .. } => fields.join(","),
            Self::TakenOver { .. } | Self::NotRemoved { .. } | Self::Pruned { .. } | Self::Replaced { .. } => {
                text.to_owned()
            }
            // The text of NotPruned contains the newest commit, but one Event for all commits is enough.
            Self::Unreadable { .. } | Self::NotKept { .. } | Self::NotPruned { .. } | Self::Paused { .. } => {
                String::new()
            }
            Self::AnnotationInvalid { problem, .. } => problem.clone(),
            Self::DeletionStuck { since, .. } => since.clone(),
            Self::LeftBehind { cluster, .. } => cluster.clone(),
            Self::Failed { problems, .. } => problems.first().cloned().unwrap_or_default(),
            // The position in the build queue changes too often for an Event each time.
            Self::Stage { reason, .. } if *reason == function_conditions::Reason::JobQueued.into() => {
                reason.to_string()
            }
            Self::Stage { message, .. } | Self::Noticed { message, .. } => message.clone(),
        }
    }
}

/// Returns the key of Events about the same fields and the same manager.
fn change_key(fields: &[String], who: &str) -> String {
    format!("{} {who}", fields.join(","))
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
    use mainstay_api::git_sync::{AllowedBy, UNKNOWN, WHOLE_OBJECT};
    use mainstay_object::Owner;

    use super::super::message::{Change, WhyPruned};
    use super::*;

    fn reverted(field: &str, who: &str, changes: Vec<Change>) -> Message {
        let (subject, object) = (Owner::git_sync("a", "b"), "Service shop/api".to_owned());
        let (fields, who) = (vec![field.to_owned()], who.to_owned());
        Message::Reverted { subject, object, fields, who, millis: 2.04, changes }
    }

    #[test]
    fn a_revert_names_the_fields_or_says_that_the_object_was_deleted() {
        let deleted = reverted(WHOLE_OBJECT, UNKNOWN, Vec::new());
        assert_eq!(deleted.to_string(), "a/b: Service shop/api: recreated (deleted by somebody, 2.0 ms)");
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
        let (problems, commit) = (vec!["a".to_owned(), "b".to_owned()], Some("0123456789abcdef".to_owned()));
        let failed = Message::Failed { subject: Owner::git_sync("a", "b"), commit, problems };
        assert_eq!(failed.to_string(), "a/b: failed at commit 0123456789ab: 2 problems:\n    a\n    b");
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
    fn messages_about_several_objects_are_summed_up_only_if_their_texts_are_equal() {
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
