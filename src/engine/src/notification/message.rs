//! The messages. Each serializes to one JSON object with its name in the field `event`.
//!
//! Not here: severity, reason and text (`description`).

use serde::Serialize;

use mainstay_api::EventReason;
use mainstay_api::git_sync::AllowedBy;
use mainstay_object::Owner;

/// An event in the life of a GitSync, Function or other resource.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Message {
    /// The reference of a GitSync resolved to a different commit.
    CommitSeen {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// Full commit id.
        commit: String,
    },
    /// A branch moved to a commit that does not descend from the previous one.
    BranchRewritten {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// The branch.
        branch: String,
        /// Full id of the previous commit.
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
        /// Time from the ref lookup to the response to the last write.
        millis: u64,
        /// Whether the commit does not concern the GitSync: its files are those of the last commit, which was applied
        /// without failures.
        #[serde(skip)]
        is_elsewhere: bool,
    },
    /// A commit without manifests under `baseDir` was applied.
    NoManifests {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// Full commit id.
        commit: String,
        /// The directory without manifests.
        why: String,
    },
    /// Objects of the applied commit have failed, or are not healthy in time.
    Unhealthy {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// Full commit id.
        commit: String,
        /// The reason of the condition `Ready`.
        reason: EventReason,
        /// The objects, with their messages.
        why: String,
    },
    /// All objects of the applied commit are healthy, after some of them had failed or were not healthy in time.
    Recovered {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// Full commit id.
        commit: String,
    },
    /// A new commit waits for a window.
    CommitHeld {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// Full commit id.
        commit: String,
        /// The commit, the closed window, and the time when it opens.
        why: String,
    },
    /// A commit was applied although a window was closed.
    WindowOverridden {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// Full commit id.
        commit: String,
        /// The closed window.
        window: String,
        /// The field manager of the request, or `unknown`.
        who: String,
        /// The user who is named in the request. The name is not authenticated.
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
        /// Time from the watch event to the response to the write that reverted it.
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
    /// The API server rejects the dry run of an audit, or gives a different response each time.
    AuditRefused {
        /// The owner of the object.
        #[serde(flatten)]
        subject: Owner,
        /// The first object of its kind with this problem.
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
        /// The field paths that the other client keeps writing.
        fields: Vec<String>,
        /// The other field manager.
        who: String,
    },
    /// A revert of an object failed repeatedly.
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
    /// Fields of former field managers were taken over, and those that are not in the manifest were removed.
    TakenOver {
        /// The owner of the object.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// Field managers of the former appliers.
        from: Vec<String>,
        /// The first removed fields.
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
    /// An object cannot be parsed. Other objects are not affected.
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
    /// The memory limit does not allow the agent to keep a GitSync, GitRepository, Function or Receiver, or its new
    /// state.
    NotKept {
        /// The object.
        #[serde(flatten)]
        subject: Owner,
        /// The cause, and what to do.
        why: String,
    },
    /// An object was deleted, or the server has accepted its deletion.
    Pruned {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// The cause of the deletion.
        why: WhyPruned,
    },
    /// A removed object is kept until a user permits its deletion.
    NotPruned {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// The cause, and what to do.
        why: String,
    },
    /// An object was deleted because an immutable field changed. It is recreated.
    Replaced {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// The immutable fields, if the server reports them.
        fields: Vec<String>,
        /// The setting that allowed the replacement.
        allowed_by: AllowedBy,
    },
    /// An annotation of a GitSync has an invalid value.
    AnnotationInvalid {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// The problem, and a valid value.
        problem: String,
    },
    /// The deletion of a removed object takes longer than the timeout.
    DeletionStuck {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// The finalizers that block the deletion.
        finalizers: Vec<String>,
        /// The time when the deletion should have ended, in RFC 3339.
        since: String,
    },
    /// A GitSync was moved from or deleted in a cluster where its objects could not be released.
    LeftBehind {
        /// The GitSync.
        #[serde(flatten)]
        subject: Owner,
        /// The cluster, by the UID of its namespace `kube-system`.
        cluster: String,
        /// The cause.
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
    /// A condition of a Function, an APIRule, an OCIRepository or a HelmChart changed.
    Stage {
        /// The object.
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
    /// A Function works, but one of its settings has no effect or may be a mistake.
    Noticed {
        /// The Function.
        #[serde(flatten)]
        subject: Owner,
        /// The problem as one CamelCase word.
        reason: EventReason,
        /// The problem, and how it is handled.
        message: String,
    },
    /// A delivery to a Receiver was not authentic.
    DeliveryRefused {
        /// The Receiver.
        #[serde(flatten)]
        subject: Owner,
        /// The problem, without content of the delivery.
        why: String,
    },
    /// A delivery to a Receiver was authentic, but had no effect on some objects.
    DeliveryIncomplete {
        /// The Receiver.
        #[serde(flatten)]
        subject: Owner,
        /// The objects and the problem, without content of the delivery.
        why: String,
    },
    /// Reverts of an object were paused or resumed.
    Paused {
        /// The owner of the object.
        #[serde(flatten)]
        subject: Owner,
        /// The object.
        object: String,
        /// Whether the object is paused now.
        paused: bool,
        /// The problem with the end of the pause.
        #[serde(skip_serializing_if = "Option::is_none")]
        problem: Option<&'static str>,
    },
}

/// Why an object was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum WhyPruned {
    /// The object is not in this commit (full id).
    Left(String),
    /// The object is not in this commit, and `mainstay.dev/allow-prune` lifts the guards.
    LeftAndAllowed(String),
    /// The GitSync of the object is deleted together with its objects.
    WithItsGitSync,
    /// A rerun was requested after the object had ended.
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
    /// Whether this is about a commit that neither concerns its GitSync nor changed an object of it.
    pub fn has_no_effect(&self) -> bool {
        matches!(self, Self::CommitApplied { created: 0, changed: 0, pruned: 0, is_elsewhere: true, .. })
    }

    /// The resource of the message.
    pub fn subject(&self) -> &Owner {
        match self {
            Self::CommitSeen { subject, .. }
            | Self::BranchRewritten { subject, .. }
            | Self::CommitApplied { subject, .. }
            | Self::NoManifests { subject, .. }
            | Self::Unhealthy { subject, .. }
            | Self::Recovered { subject, .. }
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
            | Self::DeliveryIncomplete { subject, .. }
            | Self::Paused { subject, .. } => subject,
        }
    }

    /// The managed object of the message, if there is one.
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
