//! Reasons of Events.
//!
//! Invariant: an Event has a reason with a meaning and a remedy: one of this file, or one of a condition.

use std::fmt;

use serde::{Serialize, Serializer};

use super::reasons::reasons;
use super::{conditions, function_conditions};

reasons! {
    /// Reasons of Events that no condition has.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Reason {
        CommitSeen: "The reference points to a new commit. Only the log has this reason.", "";
        BranchRewritten: "The branch was force-pushed: the new commit does not descend from the previous one.", "Look at the history of the branch. A branch protection of the Git host prevents force pushes.";
        CommitHeld: "A window delays a new commit.", "Wait for the time in the message, or run `mainstay sync NAME --override-window`.";
        WindowOverridden: "A user forced a commit through a closed window.", "";
        Reverted: "A managed object was changed or deleted, and the agent restored it.", "Make the change in the repository. `mainstay ignore-for KIND NAME` prints a rule that exempts a field.";
        DriftSeen: "A managed object differs from the repository and stays so by policy.", "Make the change in the repository, or set `spec.drift: Revert`. `mainstay diff` shows the fields.";
        DriftMissed: "An audit found drift that the watch had missed.", "If it recurs, look for an admission webhook that changes the field in the message.";
        AuditRefused: "The API server refuses the dry runs that audit the objects of a kind.", "Look at the cause in the message. An admission webhook must declare `sideEffects: None` or `NoneOnDryRun`.";
        TakenOver: "The agent took over fields of another applier.", "";
        NotRemoved: "Fields that another tool left in an object cannot be removed.", "Look at the error in the message, and remove the fields by hand.";
        Unreadable: "An object cannot be decoded. The agent skips it until it changes.", "Correct the field in the message.";
        Pruned: "An object left the repository and was deleted.", "";
        NotPruned: "An object was removed from the repository and is kept until a user allows its deletion.", "Run the command in the message to delete the object.";
        Replaced: "An object was replaced (deleted and recreated), because a changed field is immutable.", "";
        AnnotationInvalid: "An annotation of the GitSync has an invalid value and no effect.", "Correct the annotation in the message.";
        DeletionStuck: "An object is still being deleted.", "Check the controller of the finalizer in the message.";
        LeftBehind: "Objects in a remote cluster stay there without an owner.", "Delete the objects by hand, or let a GitSync adopt them.";
        Failed: "An attempt failed, in whole or in part.", "Correct the problems in the message. `mainstay status NAME` shows them, too.";
        DeliveryRefused: "A delivery to a Receiver was refused.", "Compare the type and the token of the Receiver with those of the webhook at the Git host.";
        DeliveryIncomplete: "A delivery to a Receiver had no effect on the objects for which `spec.resourceFilter` has no result.", "Correct the expression: test that a field exists before you use it.";
        Paused: "An object is paused: it is neither applied nor reverted.", "Run `mainstay resume KIND NAME` to end the pause.";
        Resumed: "The pause of an object ended.", "";
        SettingsApplied: "The ConfigMap `mainstay-settings` is valid and applies.", "";
        SettingsInvalid: "The ConfigMap `mainstay-settings` is invalid. The last valid settings stay.", "Correct the keys in the message. `mainstay check` shows all of them.";
        ImagesRemoved: "Unused images were removed from the internal registry.", "";
        ImagesNotRemoved: "Unused images cannot be removed from the internal registry.", "Look at the error in the message.";
        NotPropagated: "A Secret or a ServiceAccount cannot be copied to a namespace.", "Look at the error in the message.";
        DeliveryFailed: "An event could not be delivered and is a dead letter.", "Correct the subscriber, then run the command in the message.";
        PresetUnknown: "A label of the Function names a preset that does not exist. The default preset is used.", "Correct the label, or define the preset in `mainstay-settings`.";
        RuntimeDeprecated: "The runtime of the Function has ended. The Function runs on the runtime in the message.", "Set `spec.runtime` to a maintained runtime.";
        RuntimeVersionDiffers: "The embedded cluster runs the Function with a different version of its runtime.", "Install the version in the message on this machine.";
        RuntimeMissing: "The embedded cluster has no program to run the Function.", "Install the language in the message on this machine.";
        RuntimeImageNotUsed: "The embedded cluster ignores `spec.runtimeImageOverride`, because it runs no images.", "";
        EnvIgnored: "A variable of the Function is defined twice, or Mainstay sets it.", "Remove the variable in the message.";
        MemoryLow: "The memory limit of the Function is below the need of its runtime.", "Raise the limit to the amount in the message.";
        ScalingOff: "`spec.replicas` is set, so the Function has no autoscaler of its own.", "Remove `spec.replicas` to have the Function scaled by `spec.scaleConfig`.";
        DepsIgnored: "`spec.deps` has no effect for code from Git.", "Remove the field. The dependency file of the repository is used.";
        LabelIgnored: "A label for the Pods of the Function belongs to Mainstay.", "Remove the label in the message.";
        AnnotationIgnored: "An annotation for the Pods of the Function belongs to Mainstay.", "Remove the annotation in the message.";
    }
}

/// The reason of an Event, as one CamelCase word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventReason(&'static str);

impl EventReason {
    /// Returns the word.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl From<Reason> for EventReason {
    fn from(reason: Reason) -> Self {
        Self(reason.name())
    }
}

impl From<conditions::Reason> for EventReason {
    fn from(reason: conditions::Reason) -> Self {
        Self(reason.name())
    }
}

impl From<function_conditions::Reason> for EventReason {
    fn from(reason: function_conditions::Reason) -> Self {
        Self(reason.name())
    }
}

impl fmt::Display for EventReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Serialize for EventReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}
