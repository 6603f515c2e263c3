//! The condition types and reasons of a Function, and functions to set conditions.
//!
//! Invariant: the most recently set condition is first, and each type occurs once.

use super::reasons::reasons;
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
    /// All types.
    pub const ALL: [Self; 3] = [Self::ConfigurationReady, Self::BuildReady, Self::Running];

    /// Returns the value of `conditions[].type`.
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
    /// Returns the value of `conditions[].status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

reasons! {
    /// Condition reasons.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Reason {
        ConfigMapCreated: "The ConfigMap with the source is created.", "";
        ConfigMapUpdated: "The ConfigMap with the source is updated.", "";
        SourceUpdated: "The agent found a new source in Git.", "";
        SourceUpdateFailed: "The source in Git cannot be read.", "Check the GitRepository, `reference` and `baseDir`: `mainstay check --repository NAME`.";
        GitAuthorizationFailed: "The Git server refuses the credentials.", "Check the keys of the Secret and the permissions of the account: `mainstay check --repository NAME`.";
        SpecInvalid: "A field of the spec is missing or invalid.", "Correct the field in the message.";
        SourceTooLarge: "The agent has no memory left for the source.", "Make the source smaller, or raise the memory limit of the agent.";
        RuntimeNotSupported: "The runtime does not exist.", "Use a runtime that the message lists.";
        RegistryNotConfigured: "No Secret names the registry for the image, or its keys are incomplete.", "Install a registry with `mainstay install`, or create the Secret `serverless-registry-config`.";
        JobQueued: "The build waits until other builds end.", "Wait, or raise `APP_FUNCTION_BUILD_MAX_SIMULTANEOUS_JOBS`.";
        JobCreated: "The build Job is created.", "";
        JobUpdated: "The metadata of the build Job is updated.", "";
        JobRunning: "The build runs.", "Wait. If the pod cannot start, the message names the cause.";
        JobsDeleted: "Build Jobs of earlier versions of the source are deleted.", "";
        JobFinished: "The image is in the registry.", "";
        JobFailed: "The build failed.", "Correct the error in the message. `kubectl annotate function NAME mainstay.dev/rebuild=$(date +%s)` starts a new build.";
        DeploymentCreated: "The Deployment is created.", "";
        DeploymentUpdated: "The Deployment is updated.", "";
        DeploymentWaiting: "The newest version is not ready yet; an earlier one may serve.", "Correct the error in the message, if it names one. Otherwise wait: `mainstay trace function/NAME` shows what the pods wait for.";
        DeploymentReady: "The Deployment is ready.", "";
        DeploymentFailed: "Pods crash or cannot start. An earlier version keeps serving.", "Correct the error in the message. `kubectl logs -l serverless.kyma-project.io/function-name=NAME,serverless.kyma-project.io/resource=deployment --tail=-1` shows more.";
        MinReplicasNotAvailable: "Pods serve, but fewer than wanted.", "Check quotas, limits and the capacity of the nodes.";
        ServiceCreated: "The Service is created.", "";
        ServiceUpdated: "The Service is updated.", "";
        ServiceFailed: "The API server refuses the Service, or the Knative Service failed.", "Correct the error in the message.";
        ServiceWaiting: "The Knative Service is not ready yet.", "Wait. `kubectl describe ksvc NAME` shows what it waits for.";
        ServiceReady: "The Knative Service is ready.", "";
        KnativeNotInstalled: "The Function asks for Knative, which the cluster does not have.", "Install Knative Serving, or remove the label `mainstay.dev/serving`.";
        HorizontalPodAutoscalerCreated: "The autoscaler is created.", "";
        HorizontalPodAutoscalerUpdated: "The autoscaler is updated.", "";
        Pending: "The agent has not evaluated this condition for the new spec yet.", "Wait, or correct what an earlier condition reports.";
        ApplyFailed: "The API server refuses an object of the Function, or cannot be reached.", "Correct the error in the message.";
        InternalError: "The agent met a defect of its own, and tries again.", "Report it with the line of code in the log: `mainstay logs`.";
    }
}

/// Sets a condition and moves it to the front. Its `lastTransitionTime` changes only with the status. `message` is
/// cut at 32 KiB, the API's limit. Returns whether more than the order changed.
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

/// Returns the condition of a type, if it exists.
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
