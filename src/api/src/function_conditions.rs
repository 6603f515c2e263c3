//! The condition types and reasons of a Function, and how a condition is set.
//!
//! Invariant: the condition that was set last is first, and there is one of each type.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::conditions::following;

/// Condition types, in the order in which a Function passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Type {
    /// The specification is valid and its source is recorded.
    ConfigurationReady,
    /// The image for the recorded source exists.
    BuildReady,
    /// The Function answers requests.
    Running,
}

impl Type {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ConfigurationReady, Self::BuildReady, Self::Running];

    /// The word in `conditions[].type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ConfigurationReady => "ConfigurationReady",
            Self::BuildReady => "BuildReady",
            Self::Running => "Running",
        }
    }
}

/// Condition statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// True.
    True,
    /// False.
    False,
    /// Unknown.
    Unknown,
}

impl Status {
    /// The word in `conditions[].status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Condition reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The ConfigMap with the source was created.
    ConfigMapCreated,
    /// The ConfigMap with the source was changed.
    ConfigMapUpdated,
    /// A new source was found in Git.
    SourceUpdated,
    /// The source in Git cannot be read.
    SourceUpdateFailed,
    /// Git refused the credentials.
    GitAuthorizationFailed,
    /// A field of the specification is missing or wrong.
    SpecInvalid,
    /// The agent has no memory for it.
    SourceTooLarge,
    /// There is no such runtime.
    RuntimeNotSupported,
    /// No Secret says which registry keeps the image, or the one that does is not complete.
    RegistryNotConfigured,
    /// The build waits for another one to end.
    JobQueued,
    /// The build was created.
    JobCreated,
    /// The build's metadata was changed.
    JobUpdated,
    /// The build is under way.
    JobRunning,
    /// Builds for earlier inputs were deleted.
    JobsDeleted,
    /// The image is in the registry.
    JobFinished,
    /// The build failed.
    JobFailed,
    /// The Deployment was created.
    DeploymentCreated,
    /// The Deployment was changed.
    DeploymentUpdated,
    /// The Deployment is not ready yet.
    DeploymentWaiting,
    /// The Deployment is ready.
    DeploymentReady,
    /// Pods crash or cannot start.
    DeploymentFailed,
    /// Pods serve, but fewer than wanted.
    MinReplicasNotAvailable,
    /// The Service was created.
    ServiceCreated,
    /// The Service was changed.
    ServiceUpdated,
    /// The Service cannot be written, or the Knative Service has failed.
    ServiceFailed,
    /// The Knative Service is not ready yet.
    ServiceWaiting,
    /// The Knative Service is ready.
    ServiceReady,
    /// The Function is to run on Knative, which is not installed.
    KnativeNotInstalled,
    /// The autoscaler was created.
    HorizontalPodAutoscalerCreated,
    /// The autoscaler was changed.
    HorizontalPodAutoscalerUpdated,
    /// The spec was changed and this condition was not evaluated for it yet.
    Pending,
    /// The API server refuses a child, or cannot be reached.
    ApplyFailed,
    /// An invariant of Mainstay is broken.
    InternalError,
}

impl Reason {
    /// The word in `conditions[].reason`.
    pub fn as_str(self) -> String {
        format!("{self:?}")
    }
}

/// Sets a condition and puts it first; its `lastTransitionTime` changes only with the status. `message` is cut at 32
/// KiB, the API's limit. Returns whether anything but the order changed.
pub fn set(
    conditions: &mut Vec<Condition>,
    kind: Type,
    status: Status,
    reason: Reason,
    message: &str,
    generation: Option<i64>,
    now: jiff::Timestamp,
) -> bool {
    let old = conditions.iter().find(|c| c.type_ == kind.as_str()).cloned();
    let new = Condition {
        type_: kind.as_str().to_owned(),
        status: status.as_str().to_owned(),
        reason: reason.as_str(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: Time(now),
    };
    let condition = following(old.as_ref(), new);
    let changed = old.as_ref() != Some(&condition);
    conditions.retain(|c| c.type_ != kind.as_str());
    conditions.insert(0, condition);
    changed
}

/// The condition of a type, if it is there.
pub fn find(conditions: &[Condition], kind: Type) -> Option<&Condition> {
    conditions.iter().find(|c| c.type_ == kind.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(seconds).unwrap()
    }

    fn order(all: &[Condition]) -> Vec<&str> {
        all.iter().map(|c| c.type_.as_str()).collect()
    }

    #[test]
    fn puts_what_was_written_last_first() {
        let mut all = vec![];
        set(&mut all, Type::ConfigurationReady, Status::True, Reason::ConfigMapCreated, "", Some(1), at(1));
        set(&mut all, Type::BuildReady, Status::Unknown, Reason::JobCreated, "", Some(1), at(2));
        assert_eq!(order(&all), ["BuildReady", "ConfigurationReady"]);
        set(&mut all, Type::ConfigurationReady, Status::True, Reason::ConfigMapUpdated, "", Some(1), at(3));
        assert_eq!(order(&all), ["ConfigurationReady", "BuildReady"]);
    }

    #[test]
    fn moves_the_transition_time_only_with_the_status() {
        let mut all = vec![];
        assert!(set(&mut all, Type::Running, Status::Unknown, Reason::DeploymentCreated, "a", Some(1), at(1)));
        assert!(set(&mut all, Type::Running, Status::Unknown, Reason::DeploymentWaiting, "b", Some(1), at(2)));
        assert_eq!(all[0].last_transition_time.0, at(1));
        assert!(!set(&mut all, Type::Running, Status::Unknown, Reason::DeploymentWaiting, "b", Some(1), at(3)));
        assert!(set(&mut all, Type::Running, Status::True, Reason::DeploymentReady, "c", Some(1), at(4)));
        assert_eq!((all.len(), all[0].last_transition_time.0), (1, at(4)));
    }
}
