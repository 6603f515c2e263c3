//! The messages: what happened, to which resource. Each serialises to one JSON object, with its name in the field `event`.
//!
//! Not here: severity, reason and text, which are in `description`.

use serde::Serialize;

use mainstay_api::EventReason;
use mainstay_api::git_sync::AllowedBy;
use mainstay_object::Owner;

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
    /// An object that left the repository is kept until somebody releases it.
    NotPruned {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// Why, and what to do.
        why: String,
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
    /// A GitSync has left a cluster in which its objects could not be released of.
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
        reason: EventReason,
        /// Message of the condition.
        message: String,
    },
    /// A Function works, but a setting of it has no effect or may be a mistake.
    Noticed {
        /// The Function.
        #[serde(flatten)]
        subject: Owner,
        /// CamelCase word for the problem.
        reason: EventReason,
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
            | Self::NotPruned { subject, .. }
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
            | Self::NotPruned { object, .. }
            | Self::Replaced { object, .. }
            | Self::DeletionStuck { object, .. }
            | Self::Paused { object, .. } => Some(object),
            Self::Unreadable { object, .. } => object.as_deref(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
