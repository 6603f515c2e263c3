//! The condition types and reasons of a GitSync, of a Receiver and of an APIRule, as `kubectl wait` and kstatus tools understand them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Condition types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// The commit is applied and, with `wait`, healthy.
    Ready,
    /// A sync is running or being retried.
    Reconciling,
    /// Only the user can fix it.
    Stalled,
    /// Every managed object is healthy.
    Healthy,
    /// Another client keeps writing to fields that the branch owns.
    Contended,
    /// Objects differ from the repository and were not put back.
    Drifted,
    /// A new commit waits for a window.
    Frozen,
    /// Hand edits of managed objects are refused.
    Prevented,
    /// Nothing is applied, pruned or reverted.
    Suspended,
    /// The references of a GitRepository were looked up, and HEAD is known.
    Resolved,
    /// The server of a GitRepository accepts the credentials.
    Authenticated,
    /// The host key of a GitRepository was pinned at first use.
    HostKeyPinned,
    /// What an APIRule exposes can be reached.
    Exposed,
}

impl Type {
    /// The word in `conditions[].type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
            Self::Healthy => "Healthy",
            Self::Contended => "Contended",
            Self::Drifted => "Drifted",
            Self::Frozen => "Frozen",
            Self::Prevented => "Prevented",
            Self::Suspended => "Suspended",
            Self::Resolved => "Resolved",
            Self::Authenticated => "Authenticated",
            Self::HostKeyPinned => "HostKeyPinned",
            Self::Exposed => "Exposed",
        }
    }
}

/// Condition reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Everything of the commit is applied.
    Applied,
    /// The commit is applied, and has no manifest under `baseDir`.
    NoManifests,
    /// Applied, waiting for health.
    Progressing,
    /// Healthy.
    Healthy,
    /// Not healthy within `timeout`.
    HealthTimeout,
    /// An object reports that it failed.
    ObjectFailed,
    /// An object does not exist, and was not put back.
    ObjectMissing,
    /// Both loops are stopped by `suspend`.
    Suspended,
    /// They are not.
    NotSuspended,
    /// A GitSync on which this one depends is not ready.
    DependencyNotReady,
    /// GitSyncs depend on each other in a ring.
    DependencyCycle,
    /// The GitRepository or a field of the spec is wrong, or a ConfigMap or ServiceAccount that it names does not exist.
    SpecInvalid,
    /// A Secret that the GitSync or its GitRepository names does not exist.
    SecretNotFound,
    /// The GitRepository does not exist.
    SourceNotFound,
    /// Git refused the credentials.
    GitAuthorizationFailed,
    /// HEAD of a GitRepository is known.
    Resolved,
    /// The server of a GitRepository has answered.
    Authenticated,
    /// Git could not be reached or read.
    SourceUnavailable,
    /// The reference or `baseDir` does not exist in the repository.
    SourceInvalid,
    /// The commit is not signed by a key that is trusted.
    VerificationFailed,
    /// The repository holds documents that cannot be applied.
    ManifestInvalid,
    /// The agent has no memory left for this namespace to keep it.
    MemoryExhausted,
    /// One or more objects could not be applied.
    ApplyFailed,
    /// One or more changed objects cannot be reverted.
    RevertFailed,
    /// One or more objects differ in a field that cannot be changed.
    Immutable,
    /// One or more objects belong to another GitSync.
    OwnershipConflict,
    /// One or more objects could not be deleted.
    PruneFailed,
    /// A guard keeps objects from being deleted.
    PruneHeld,
    /// The GitSync is being deleted, and its objects with it.
    Deleting,
    /// A kind with managed objects cannot be watched, so drift is not detected.
    WatchFailed,
    /// The API server cannot be reached.
    ClusterUnavailable,
    /// Another client keeps writing to the same fields.
    Contended,
    /// No client does.
    NotContended,
    /// Objects differ from the repository.
    Drifted,
    /// No object does, as far as is known.
    NotDrifted,
    /// `spec.drift` is `Ignore`: nobody looks for drift.
    DriftIgnored,
    /// A window holds a new commit back.
    WindowClosed,
    /// No window does.
    WindowOpen,
    /// The API server refuses hand edits.
    Prevented,
    /// The API server cannot do that.
    NotSupported,
    /// Somebody else has an object of the name that the agent needs.
    NameConflict,
    /// Deliveries to a Receiver are accepted.
    Receiving,
    /// The Secret of a Receiver, or its token, is missing.
    TokenNotFound,
    /// The token of a Receiver protects nothing.
    TokenInvalid,
    /// This agent receives no deliveries.
    NotServed,
    /// Nobody has compared the host key with what its operator publishes.
    PinnedAtFirstUse,
    /// The routes of an APIRule are there, and accepted.
    Served,
    /// An APIRule is not valid.
    Invalid,
    /// The host of an APIRule is served for another one.
    HostOccupied,
    /// A Service of an APIRule does not exist.
    ServiceNotFound,
    /// A Service of an APIRule has a type that may lead out of its namespace.
    ServiceNotAllowed,
    /// The cluster has nothing that routes.
    NoRouteApi,
    /// A check of an APIRule cannot be made in this cluster, so what it guards is not routed.
    AuthNotSupported,
    /// What routes has not accepted a route.
    NotAccepted,
    /// Another controller serves an APIRule.
    ManagedElsewhere,
    /// An invariant of Mainstay is broken.
    InternalError,
}

impl Reason {
    /// The word in `conditions[].reason`.
    pub fn as_str(self) -> String {
        format!("{self:?}")
    }
}

/// Sets a condition; its `lastTransitionTime` changes only with the status. `message` is cut at 32 KiB, the API's
/// limit.
pub fn set(
    conditions: &mut Vec<Condition>,
    kind: Type,
    status: &str,
    reason: Reason,
    message: &str,
    generation: Option<i64>,
    now: jiff::Timestamp,
) {
    let old = conditions.iter().position(|c| c.type_ == kind.as_str());
    let new = Condition {
        type_: kind.as_str().to_owned(),
        status: status.to_owned(),
        reason: reason.as_str(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: Time(now),
    };
    let condition = following(old.map(|at| &conditions[at]), new);
    match old {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}

/// `new` as the successor of `old`: its `lastTransitionTime` changes only with the status, and its message is cut at 32
/// KiB, the API's limit.
pub(super) fn following(old: Option<&Condition>, new: Condition) -> Condition {
    let same = old.filter(|old| old.status == new.status);
    Condition {
        message: cut(&new.message, 32 * 1024 - 1).to_owned(),
        last_transition_time: same.map_or(new.last_transition_time, |old| old.last_transition_time.clone()),
        ..new
    }
}

/// The longest prefix of `text` that has at most `most` bytes and ends between characters.
pub fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The status of a condition, if it is there.
pub fn status(conditions: &[Condition], kind: Type) -> Option<&Condition> {
    conditions.iter().find(|c| c.type_ == kind.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_the_transition_time_only_with_the_status() {
        let mut all = vec![];
        let at = |s: i64| jiff::Timestamp::from_second(s).unwrap();
        set(&mut all, Type::Ready, "True", Reason::Applied, "a", Some(1), at(1));
        set(&mut all, Type::Ready, "True", Reason::Applied, "b", Some(2), at(2));
        assert_eq!((all[0].last_transition_time.0, all[0].message.as_str()), (at(1), "b"));
        set(&mut all, Type::Ready, "False", Reason::ApplyFailed, "c", Some(2), at(3));
        assert_eq!((all.len(), all[0].last_transition_time.0), (1, at(3)));
    }
}
