//! The steps of a decision: writes of children, and updates of conditions.

use std::sync::Arc;

use serde_json::Value;

use crate::child_kind::ChildKind;
use crate::child_state::{ChildIdentity, Suspension};
use mainstay_api::function_conditions::{Reason, Status, Type};
use mainstay_engine::managed::{AppliedConfiguration, Desired};

/// A new state of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate {
    /// The condition.
    pub condition: Type,
    /// The condition's status.
    pub status: Status,
    /// The condition's reason.
    pub reason: Reason,
    /// The condition's message.
    pub message: String,
    /// Whether the condition describes an earlier generation.
    pub outdated: bool,
    /// Whether the update reports an action. An action is emitted as an Event even if the condition is unchanged.
    pub done: bool,
}

impl ConditionUpdate {
    /// Returns an update that reports no action.
    pub fn new(condition: Type, status: Status, reason: Reason, message: impl Into<String>) -> Self {
        Self { condition, status, reason, message: message.into(), outdated: false, done: false }
    }
}

/// One step of a decision.
#[derive(Clone, Debug)]
pub enum Step {
    /// Set a condition.
    SetCondition(ConditionUpdate),
    /// Confirm an unchanged condition for this generation.
    ConfirmCondition(Type),
    /// Set a condition unless a write of this reconcile has set it.
    SetConditionUnlessWritten(ConditionUpdate),
    /// Apply an object.
    Put(Box<Put>),
    /// Delete an object.
    Delete {
        /// The object's kind.
        child_kind: ChildKind,
        /// The object.
        identity: ChildIdentity,
    },
    /// Suspend a build Job, or resume it.
    Suspend {
        /// The Job.
        identity: ChildIdentity,
        /// How often the Job was suspended, until when, and why; `None` to resume it.
        suspension: Option<(u32, Suspension)>,
    },
    /// A refused write is not retried yet: the reconcile ends here.
    Refused(Option<ConditionUpdate>),
    /// Hand `spec.replicas` over to an autoscaler.
    HandOver {
        /// Name of the Deployment.
        deployment: String,
        /// Current number of pods.
        replicas: i64,
    },
    /// Transfer the Service with the Function's name to Knative.
    GiveAddress {
        /// The Knative Service.
        knative: ChildIdentity,
        /// Whether the Function serves requests during the transfer.
        serves: bool,
    },
    /// Take the Service with the Function's name back from Knative. If that fails, delete the Knative Services.
    TakeAddress {
        /// Name of the Service.
        name: String,
        /// The desired Service.
        document: Box<Value>,
        /// The Knative Services.
        knative: Vec<ChildIdentity>,
        /// Whether the Function serves requests during the transfer.
        serves: bool,
    },
    /// Delete the unused Revisions.
    CleanUp {
        /// The Knative Service.
        knative: ChildIdentity,
    },
}

/// An apply of a child.
#[derive(Clone, Debug)]
pub struct Put {
    /// The child's kind.
    pub child_kind: ChildKind,
    /// The desired object.
    pub desired: Arc<Desired>,
    /// The child's resource version, if it exists and belongs to the Function.
    pub version: Option<String>,
    /// The child's UID and the configuration that an earlier agent applied, if known.
    pub last_applied: Option<(String, AppliedConfiguration)>,
    /// The condition that reports the apply.
    pub condition: Type,
    /// The condition's reasons after the child was created and after it was changed.
    pub reasons: [Reason; 2],
    /// Whether the condition still describes an earlier generation.
    pub outdated: bool,
    /// Whether the previous version keeps serving requests during the rollout.
    pub serves: bool,
    /// Whether the Function is moved from Knative to a Deployment. Knative's Service of the same name may still exist.
    pub moves: bool,
    /// A note that is appended to the condition's message.
    pub note: String,
}
