//! The messages: what happened, to which resource, and how sinks present it.
//!
//! Each message states its severity, reason and text in one place, [`Message::describe`]. Each serialises to one JSON
//! object, with its name in the field `event`.

use std::fmt;

use serde::Serialize;

use mainstay_api::git_sync::{AllowedBy, UNKNOWN, WHOLE_OBJECT};
use mainstay_api::names::{ALLOW_PRUNE, DELETE_OBJECTS, ENABLED, ON_DELETE, REPLACE, RERUN};
use mainstay_object::Owner;

/// How much attention a message needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// For the log only, at level `debug`.
    Debug,
    /// Normal operation.
    Info,
    /// Somebody may have to act.
    Warning,
}

/// How sinks present a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// How much attention it needs.
    pub severity: Severity,
    /// Why it was sent, as one CamelCase word: the reason of Kubernetes Events.
    pub reason: String,
    /// What the agent was doing, as one CamelCase word: the action of Kubernetes Events.
    pub action: &'static str,
    /// What happened, without the subject and the object. May have several lines.
    pub text: String,
    /// Messages with the same subject, object, reason and key are aggregated to one Kubernetes Event with a count.
    pub aggregation_key: String,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Message {
    /// The reference of a GitSync leads to another commit.
    CommitSeen {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// Full commit id.
        commit: String,
    },
    /// A branch was moved to a commit that does not descend from the one before.
    BranchRewritten {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// The branch.
        branch: String,
        /// Full id of the commit before.
        old: String,
        /// Full commit id.
        new: String,
    },
    /// A commit was applied in full.
    CommitApplied {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// Full commit id.
        commit: String,
        /// Objects that were created.
        created: usize,
        /// Objects that were changed.
        changed: usize,
        /// Objects that already had the desired state.
        unchanged: usize,
        /// Objects that were deleted.
        pruned: usize,
        /// Time from the ref lookup to the answer of the last write.
        millis: u64,
    },
    /// A commit was applied that has no manifest under `baseDir`.
    NoManifests {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// Full commit id.
        commit: String,
        /// Where there is none.
        why: String,
    },
    /// A new commit waits for a window.
    CommitHeld {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// Full commit id.
        commit: String,
        /// The commit, what holds it back, and until when.
        why: String,
    },
    /// A commit is applied although a window holds it back.
    WindowOverridden {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// Full commit id.
        commit: String,
        /// What holds it back.
        window: String,
        /// Field manager that asked for it, or `unknown`.
        who: String,
        /// The user who asked for it by their own account, which nothing proves.
        #[serde(skip_serializing_if = "Option::is_none")]
        claimed_user: Option<String>,
    },
    /// An object was reverted to its desired state.
    Reverted {
        /// The owner of the object.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// The field paths that were reverted; `(object)` if it had been deleted.
        fields: Vec<String>,
        /// The values before and after; empty for Secrets.
        changes: Vec<Change>,
        /// Field manager that made the change, or `unknown`.
        who: String,
        /// Time from the watch event to the answer of the write that reverted it.
        millis: f64,
    },
    /// Drift was detected and, by policy, not reverted.
    DriftSeen {
        /// The owner of the object.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// The field paths that differ.
        fields: Vec<String>,
        /// Field manager that made the change, or `unknown`.
        who: String,
    },
    /// An audit found drift that no watch had shown.
    DriftMissed {
        /// The owner of the object.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// The field paths that differ; `(object)` if it does not exist.
        fields: Vec<String>,
        /// Field manager that made the change, or `unknown`.
        who: String,
    },
    /// The API server refuses the dry run by which an object is audited, or answers it otherwise each time.
    AuditRefused {
        /// The owner of the object.
        #[serde(flatten)]
        subject: Owner,
        /// The object, the first of its kind of which that is so.
        object: String,
        /// The error, without values.
        cause: String,
    },
    /// Another client keeps writing to the same fields, so reverts of this object are slowed down.
    Contended {
        /// The owner of the object.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// The contended field paths.
        fields: Vec<String>,
        /// The other field manager.
        who: String,
    },
    /// An object could not be reverted repeatedly.
    NotPutBack {
        /// The owner of the object.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// The field paths that remain changed.
        fields: Vec<String>,
        /// The error, without values.
        cause: String,
    },
    /// Fields that former appliers left in an object became ours, and what its manifest does not say is gone.
    TakenOver {
        /// The owner of the object.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// Field managers of the former appliers.
        from: Vec<String>,
        /// The fields that are gone, the first of them.
        fields: Vec<String>,
    },
    /// Fields that other tools left in an object could not be removed at adoption.
    NotRemoved {
        /// The owner of the object.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// The error, without values.
        cause: String,
    },
    /// An object cannot be read; all others are.
    Unreadable {
        /// The owner of the object.
        #[serde(flatten)]
        subject: Owner,
        /// The object, if it is not the owner itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        object: Option<String>,
        /// The error, without values.
        cause: String,
    },
    /// There is no memory to keep a GitSync, GitRepository, Function or Receiver, or what it has become.
    NotKept {
        /// The object.
        #[serde(flatten)]
        subject: Owner,
        /// Why, and what to do.
        why: String,
    },
    /// An object was deleted: it is gone, or the server has accepted that.
    Pruned {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// Why.
        why: WhyPruned,
    },
    /// An object was deleted, to be created anew with a field that cannot be changed.
    Replaced {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// The field paths that cannot be changed, as far as the server names them.
        fields: Vec<String>,
        /// Who allowed it.
        allowed_by: AllowedBy,
    },
    /// An annotation of a GitSync asks for something that cannot be understood or done.
    AnnotationInvalid {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// An object that left the repository is still being deleted after the timeout.
    DeletionStuck {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// The finalizers that it waits for.
        finalizers: Vec<String>,
        /// When it was to be gone, as RFC 3339 has it.
        since: String,
    },
    /// A GitSync has left a cluster in which its objects could not be let go of.
    LeftBehind {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// The cluster, by the uid of its namespace `kube-system`.
        cluster: String,
        /// Why.
        why: String,
    },
    /// An attempt failed, in whole or in part.
    Failed {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// The commit, if it was known.
        commit: Option<String>,
        /// One line per problem.
        problems: Vec<String>,
    },
    /// A condition of a Function or an APIRule changed.
    Stage {
        /// Whose it is.
        #[serde(flatten)]
        subject: Owner,
        /// Type of the condition.
        condition: String,
        /// `True`, `False` or `Unknown`.
        status: String,
        /// Reason of the condition.
        reason: String,
        /// Message of the condition.
        message: String,
    },
    /// A Function works, but a setting of it has no effect or may be a mistake.
    Noticed {
        /// The Function.
        #[serde(flatten)]
        subject: Owner,
        /// CamelCase word for the problem.
        reason: String,
        /// The problem, and how it is handled.
        message: String,
    },
    /// A delivery to a Receiver was not authentic.
    DeliveryRefused {
        /// The Receiver.
        #[serde(flatten)]
        subject: Owner,
        /// What is wrong with it, without anything of it.
        why: String,
    },
    /// Reverts of an object were paused or resumed (break glass).
    Paused {
        /// The owner of the object.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// Whether it is paused now.
        paused: bool,
        /// What is wrong with how long it shall be paused.
        #[serde(skip_serializing_if = "Option::is_none")]
        problem: Option<&'static str>,
    },
}

/// Why an object was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum WhyPruned {
    /// It is not in this commit (full id).
    Left(String),
    /// It is not in this commit, and `mainstay.dev/allow-prune` lifts the guards.
    LeftAndAllowed(String),
    /// Its GitSync is being deleted with everything that it has applied.
    WithItsGitSync,
    /// It finished and was asked for once more.
    RunsAgain,
}

/// One field of a revert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Path of the field.
    pub field: String,
    /// The live value as compact JSON, or `absent`.
    pub found: String,
    /// The desired value as compact JSON, or `absent`.
    pub restored: String,
}

impl Message {
    /// Severity, reason and text: the one place that decides how a message is presented.
    pub fn describe(&self) -> Description {
        use Severity::{Debug, Info, Warning};
        let describe = |severity, reason: &str, action, key: String, text| Description {
            severity,
            reason: reason.to_owned(),
            action,
            text,
            aggregation_key: key,
        };
        match self {
            Self::CommitSeen { commit, .. } => {
                describe(Debug, "CommitSeen", "Apply", commit.clone(), format!("commit {} seen", short(commit)))
            }
            Self::BranchRewritten { branch, old, new, .. } => {
                let text = format!(
                    "branch {branch} was rewritten: {} → {}, which does not descend from it",
                    short(old),
                    short(new)
                );
                describe(Info, "BranchRewritten", "Apply", new.clone(), text)
            }
            Self::CommitApplied { commit, created, changed, unchanged, pruned, millis, .. } => {
                let text = format!(
                    "commit {} applied: {created} created, {changed} changed, {unchanged} unchanged, {pruned} pruned \
                     ({millis} ms)",
                    short(commit)
                );
                describe(Info, "Applied", "Apply", commit.clone(), text)
            }
            Self::NoManifests { commit, why, .. } => {
                let text = format!("commit {}: {why}", short(commit));
                describe(Warning, "NoManifests", "Apply", why.clone(), text)
            }
            Self::CommitHeld { commit, why, .. } => describe(Info, "CommitHeld", "Apply", commit.clone(), why.clone()),
            Self::WindowOverridden { commit, window, who, claimed_user, .. } => {
                let claimed = claimed_user.as_deref().map(|user| format!(", as the user {user} by its own account"));
                let claimed = claimed.unwrap_or_default();
                let text =
                    format!("commit {} is applied although {window}: {who} asked for it{claimed}", short(commit));
                describe(Warning, "WindowOverridden", "Apply", commit.clone(), text)
            }
            Self::Reverted { fields, who, millis, .. } => {
                let text = if fields == &[WHOLE_OBJECT] {
                    let who = if who == UNKNOWN { "somebody" } else { who };
                    format!("created again (deleted by {who}, {millis:.1} ms)")
                } else {
                    format!("reverted {} (changed by {who}, {millis:.1} ms)", fields.join(", "))
                };
                describe(Info, "Reverted", "Revert", change_key(fields, who), text)
            }
            Self::DriftSeen { fields, who, .. } => {
                let text = format!("differs in {} (changed by {who}), left as it is by policy", fields.join(", "));
                describe(Warning, "DriftSeen", "Revert", change_key(fields, who), text)
            }
            Self::DriftMissed { fields, who, .. } => {
                let text = if fields == &[WHOLE_OBJECT] {
                    "is missing (found by an audit)".to_owned()
                } else {
                    let fields = fields.join(", ");
                    format!("differs in {fields} (changed by {who}; found by an audit)")
                };
                describe(Warning, "DriftMissed", "Audit", change_key(fields, who), text)
            }
            Self::AuditRefused { cause, .. } => {
                let text = format!("it and others of its kind cannot be audited by dry runs: {cause}");
                describe(Warning, "AuditRefused", "Audit", cause.clone(), text)
            }
            Self::Contended { fields, who, .. } => {
                let text = format!("{who} keeps writing to {}: reverts slow down", fields.join(", "));
                describe(Warning, "Contended", "Revert", change_key(fields, who), text)
            }
            Self::NotPutBack { fields, cause, .. } => {
                let text = format!("cannot revert {}: {cause}", fields.join(", "));
                describe(Warning, "RevertFailed", "Revert", fields.join(","), text)
            }
            Self::TakenOver { from, fields, .. } => {
                let from = from.join(", ");
                let text = match &**fields {
                    [] => format!("took over fields of {from}, and removed none"),
                    fields => {
                        format!("took over from {from}, and removed what is not in the manifest: {}", fields.join(", "))
                    }
                };
                describe(Info, "TakenOver", "Apply", from, text)
            }
            Self::NotRemoved { cause, .. } => {
                let text = format!("fields that other tools left in it cannot be removed: {cause}");
                describe(Warning, "NotRemoved", "Apply", text.clone(), text)
            }
            Self::Unreadable { cause, .. } => {
                let text = format!("cannot be read, so nothing is done about it until it is changed: {cause}");
                describe(Warning, "Unreadable", "Read", String::new(), text)
            }
            Self::NotKept { why, .. } => {
                describe(Warning, "MemoryExhausted", "Read", String::new(), format!("reconciliation is paused: {why}"))
            }
            Self::Pruned { why, .. } => {
                let text = match why {
                    WhyPruned::Left(commit) => format!("pruned: not in commit {}", short(commit)),
                    WhyPruned::LeftAndAllowed(commit) => {
                        format!("pruned: not in commit {}, and {ALLOW_PRUNE} allows it", short(commit))
                    }
                    WhyPruned::WithItsGitSync => format!("pruned with its GitSync ({ON_DELETE}: {DELETE_OBJECTS})"),
                    WhyPruned::RunsAgain => format!("deleted, to run again ({RERUN})"),
                };
                describe(Info, "Pruned", "Prune", text.clone(), text)
            }
            Self::Replaced { fields, allowed_by, .. } => {
                let fields = if fields.is_empty() { "a field".to_owned() } else { fields.join(", ") };
                let by = match allowed_by {
                    AllowedBy::Annotation => format!("{REPLACE}: {ENABLED}"),
                    AllowedBy::Spec => "spec.replace".to_owned(),
                };
                let text = format!("deleted, to be created anew: {fields} cannot be changed ({by})");
                describe(Info, "Replaced", "Replace", text.clone(), text)
            }
            Self::AnnotationInvalid { problem, .. } => {
                describe(Warning, "AnnotationInvalid", "Reconcile", problem.clone(), problem.clone())
            }
            Self::DeletionStuck { finalizers, since, .. } => {
                let text = format!("is still being deleted, since {since}: it {}", waits_for(finalizers));
                describe(Warning, "DeletionStuck", "Prune", since.clone(), text)
            }
            Self::LeftBehind { cluster, why, .. } => {
                let text = format!(
                    "the objects in cluster {cluster} are orphaned: labelled by Mainstay, owned by no GitSync: {why}"
                );
                describe(Warning, "LeftBehind", "Reconcile", cluster.clone(), text)
            }
            Self::Failed { commit, problems, .. } => {
                let at = commit.as_deref().map(|commit| format!(" at commit {}", short(commit))).unwrap_or_default();
                let text = match &**problems {
                    [one] => format!("failed{at}: {one}"),
                    several => format!("failed{at}: {} problems:\n{}", several.len(), several.join("\n")),
                };
                describe(Warning, "Failed", "Apply", problems.first().cloned().unwrap_or_default(), text)
            }
            Self::Stage { status, reason, message, .. } => {
                let severity = if status == "False" { Warning } else { Info };
                // The position in the build queue changes too often for an Event each time.
                let queued = *reason == mainstay_api::function_conditions::Reason::JobQueued.as_str();
                let key = if queued { reason.clone() } else { message.clone() };
                describe(severity, reason, "Reconcile", key, message.clone())
            }
            Self::Noticed { reason, message, .. } => {
                describe(Warning, reason, "Reconcile", message.clone(), message.clone())
            }
            Self::DeliveryRefused { why, .. } => {
                describe(Warning, "DeliveryRefused", "Receive", why.clone(), format!("a delivery was refused: {why}"))
            }
            Self::Paused { problem: Some(problem), .. } => {
                let text = format!("paused (break glass); {problem}");
                describe(Warning, "Paused", "Pause", String::new(), text)
            }
            Self::Paused { paused, .. } => {
                let (reason, text) = if *paused {
                    ("Paused", "paused (break glass)")
                } else {
                    ("Resumed", "resumed (break glass ended)")
                };
                describe(Info, reason, "Pause", String::new(), text.to_owned())
            }
        }
    }

    /// The resource that it is about.
    pub fn subject(&self) -> &Owner {
        match self {
            Self::CommitSeen { subject, .. }
            | Self::BranchRewritten { subject, .. }
            | Self::CommitApplied { subject, .. }
            | Self::NoManifests { subject, .. }
            | Self::CommitHeld { subject, .. }
            | Self::WindowOverridden { subject, .. }
            | Self::Reverted { subject, .. }
            | Self::DriftSeen { subject, .. }
            | Self::DriftMissed { subject, .. }
            | Self::AuditRefused { subject, .. }
            | Self::Contended { subject, .. }
            | Self::NotPutBack { subject, .. }
            | Self::TakenOver { subject, .. }
            | Self::NotRemoved { subject, .. }
            | Self::Unreadable { subject, .. }
            | Self::NotKept { subject, .. }
            | Self::Pruned { subject, .. }
            | Self::Replaced { subject, .. }
            | Self::AnnotationInvalid { subject, .. }
            | Self::DeletionStuck { subject, .. }
            | Self::LeftBehind { subject, .. }
            | Self::Failed { subject, .. }
            | Self::Stage { subject, .. }
            | Self::Noticed { subject, .. }
            | Self::DeliveryRefused { subject, .. }
            | Self::Paused { subject, .. } => subject,
        }
    }

    /// The managed object that it is about, if it is about one.
    pub fn object(&self) -> Option<&str> {
        match self {
            Self::Reverted { object, .. }
            | Self::DriftSeen { object, .. }
            | Self::DriftMissed { object, .. }
            | Self::AuditRefused { object, .. }
            | Self::Contended { object, .. }
            | Self::NotPutBack { object, .. }
            | Self::TakenOver { object, .. }
            | Self::NotRemoved { object, .. }
            | Self::Pruned { object, .. }
            | Self::Replaced { object, .. }
            | Self::DeletionStuck { object, .. }
            | Self::Paused { object, .. } => Some(object),
            Self::Unreadable { object, .. } => object.as_deref(),
            _ => None,
        }
    }
}

/// What an object that is being deleted waits for, and who can help.
pub fn waits_for(finalizers: &[String]) -> String {
    match finalizers {
        [] => "waits for its grace period or for what it holds".to_owned(),
        [one] => format!("waits for the finalizer {one}, which only its controller should take off"),
        several => {
            format!("waits for the finalizers {}, which only their controllers should take off", several.join(", "))
        }
    }
}

/// Aggregates the Events about the same fields and the same writer.
fn change_key(fields: &[String], who: &str) -> String {
    format!("{} {who}", fields.join(","))
}

fn short(commit: &str) -> String {
    commit.chars().take(8).collect()
}

impl fmt::Display for Message {
    /// Subject, object and text for terminals and logs; lines after the first are indented.
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
        let (reason, message) = ("ApplyFailed".to_owned(), "one\ntwo".to_owned());
        let subject = Owner::function("x", "y");
        let stage = Message::Stage { subject, condition: text(), status: text(), reason, message };
        assert_eq!(stage.to_string(), "function x/y  x  ApplyFailed  one\n    two");
        let (problems, commit) = (vec!["a".to_owned(), "b".to_owned()], Some("0123456789".to_owned()));
        let failed = Message::Failed { subject: Owner::git_sync("a", "b"), commit, problems };
        assert_eq!(failed.to_string(), "a/b: failed at commit 01234567: 2 problems:\n    a\n    b");
    }

    #[test]
    fn json_names_the_event_and_the_kind_of_its_subject() {
        let paused = |subject: Owner| {
            let message = Message::Paused { subject, object: "Service a/b".into(), paused: true, problem: None };
            serde_json::to_string(&message).unwrap()
        };
        assert_eq!(
            paused(Owner::git_sync("a", "b")),
            r#"{"event":"paused","sync":"a/b","object":"Service a/b","paused":true}"#
        );
        assert_eq!(
            paused(Owner::function("a", "b")),
            r#"{"event":"paused","function":"a/b","object":"Service a/b","paused":true}"#
        );
    }

    #[test]
    fn positions_in_the_build_queue_are_aggregated_and_other_texts_are_not() {
        let key = |reason: &str, message: &str| {
            let (condition, status) = ("BuildReady".to_owned(), "Unknown".to_owned());
            let (reason, message) = (reason.to_owned(), message.to_owned());
            Message::Stage { subject: Owner::function("a", "b"), condition, status, reason, message }
                .describe()
                .aggregation_key
        };
        assert_eq!(key("JobQueued", "position 1"), key("JobQueued", "position 2"));
        assert_ne!(key("JobFailed", "one"), key("JobFailed", "two"));
    }
}
