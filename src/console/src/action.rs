//! Actions of users: the kinds that have them, their labels, and the sentences with which the user confirms them.
//!
//! Not here: the request for an action and its patch (`asked`).

use serde_json::Value;

use crate::row::FleetKind;
use mainstay_object::Key;

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Sync,
    LookUp,
    Rebuild,
    Suspend,
    Resume,
    AllowPrune,
    Pause,
    EndPause,
    /// Runs a Job or Pod of a GitSync again. The key is that of the GitSync.
    RunAgain,
    Delete,
}

/// The actions of a kind.
struct OfKind {
    kind: FleetKind,
    actions: &'static [Action],
    /// The effect of a suspension, and of its end; empty without these actions.
    suspended: &'static str,
    resumed: &'static str,
}

/// The actions of each kind. An object of another kind is paused only.
static TABLE: [OfKind; 12] = [
    OfKind {
        kind: FleetKind::GitSync,
        actions: &[Action::Sync, Action::Suspend, Action::Resume, Action::AllowPrune],
        suspended: "The agent applies, prunes and reverts nothing of this GitSync for the time below, or until it is resumed.",
        resumed: "The GitSync follows its repository again. Hand edits made meanwhile are reverted.",
    },
    OfKind { kind: FleetKind::GitRepository, actions: &[Action::LookUp, Action::Delete], suspended: "", resumed: "" },
    OfKind { kind: FleetKind::Function, actions: &[Action::Rebuild, Action::Delete], suspended: "", resumed: "" },
    OfKind { kind: FleetKind::ApiRule, actions: &[Action::Delete], suspended: "", resumed: "" },
    OfKind {
        kind: FleetKind::Receiver,
        actions: &[Action::Suspend, Action::Resume],
        suspended: "The agent refuses all deliveries with the status 503 until the Receiver is resumed.",
        resumed: "The agent accepts deliveries again. A refused delivery is recovered at the next lookup of the repository.",
    },
    OfKind {
        kind: FleetKind::OciRepository,
        actions: &[Action::LookUp, Action::Suspend, Action::Resume],
        suspended: "The agent looks up nothing until it is resumed. The last artifact stays.",
        resumed: "The agent looks up the artifact immediately, and then at the interval.",
    },
    OfKind {
        kind: FleetKind::HelmChart,
        actions: &[Action::LookUp, Action::Suspend, Action::Resume],
        suspended: "The agent looks up nothing until it is resumed. The last chart stays.",
        resumed: "The agent looks up the chart immediately, and then at the interval.",
    },
    OfKind {
        kind: FleetKind::ImageRepository,
        actions: &[Action::LookUp, Action::Suspend, Action::Resume],
        suspended: "The agent lists no tags until it is resumed. The last tags stay in use.",
        resumed: "The agent lists the tags immediately, and then at the interval.",
    },
    OfKind {
        kind: FleetKind::ImagePolicy,
        actions: &[Action::Suspend, Action::Resume],
        suspended: "The agent chooses no tag until it is resumed. The last choice stays.",
        resumed: "The agent chooses a tag again.",
    },
    OfKind {
        kind: FleetKind::ImageUpdateAutomation,
        actions: &[Action::Suspend, Action::Resume],
        suspended: "The agent pushes no commit until it is resumed.",
        resumed: "The agent pushes the chosen images again.",
    },
    OfKind {
        kind: FleetKind::Provider,
        actions: &[Action::Suspend, Action::Resume],
        suspended: "The agent sends nothing to it until it is resumed. Messages are not kept meanwhile.",
        resumed: "The agent sends messages again.",
    },
    OfKind {
        kind: FleetKind::Alert,
        actions: &[Action::Suspend, Action::Resume],
        suspended: "The agent sends nothing for this Alert until it is resumed. Messages are not kept meanwhile.",
        resumed: "The agent sends messages for this Alert again.",
    },
];

/// Returns the actions of the object's kind.
fn of_kind(key: &Key) -> Option<&'static OfKind> {
    TABLE.iter().find(|of_kind| of_kind.kind.is_of(key))
}

/// Returns the actions that the page of an object offers, except for pauses and deletions.
pub(crate) fn offered(key: &Key, live: &Value, is_suspended: bool) -> Vec<Action> {
    let holds = live.pointer("/status/heldObjects").and_then(Value::as_i64).unwrap_or(0) > 0;
    let is_offered = |action: &Action| match action {
        // A suspended object is neither applied nor looked up.
        Action::Sync | Action::LookUp | Action::Suspend => !is_suspended,
        Action::Resume => is_suspended,
        Action::AllowPrune => holds,
        Action::Rebuild => true,
        Action::Pause | Action::EndPause | Action::RunAgain | Action::Delete => false,
    };
    of_kind(key).map(|of_kind| of_kind.actions.iter().copied().filter(is_offered).collect()).unwrap_or_default()
}

impl Action {
    /// All actions.
    pub(crate) const ALL: [Self; 10] = [
        Self::Sync,
        Self::LookUp,
        Self::Rebuild,
        Self::Suspend,
        Self::Resume,
        Self::AllowPrune,
        Self::Pause,
        Self::EndPause,
        Self::RunAgain,
        Self::Delete,
    ];

    /// Returns the word for the action in a URL.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::LookUp => "look-up",
            Self::Rebuild => "rebuild",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::AllowPrune => "allow-prune",
            Self::Pause => "pause",
            Self::EndPause => "end-pause",
            Self::RunAgain => "run-again",
            Self::Delete => "delete",
        }
    }

    /// Returns the label of the button.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Sync => "Sync",
            Self::LookUp => "Look up now",
            Self::Rebuild => "Rebuild",
            Self::Suspend => "Suspend",
            Self::Resume => "Resume",
            Self::AllowPrune => "Approve the held deletions",
            Self::Pause => "Pause",
            Self::EndPause => "End the pause",
            Self::RunAgain => "Run again",
            Self::Delete => "Delete",
        }
    }

    /// Returns the effect of the action on an object.
    pub(crate) fn effect(self, key: &Key) -> &'static str {
        match self {
            Self::Sync => "The agent looks up the repository immediately and applies what differs.",
            Self::LookUp => {
                "The agent looks it up immediately, without waiting for the interval. The objects that follow it then have the newest version."
            }
            Self::Rebuild => {
                "The agent builds the image of the Function again, from the same source. A failed build does not wait for its next attempt. The pods serve the present image meanwhile."
            }
            Self::Suspend => of_kind(key).map_or("", |of_kind| of_kind.suspended),
            Self::Resume => of_kind(key).map_or("", |of_kind| of_kind.resumed),
            Self::AllowPrune => {
                "The objects below left the repository, and a guard keeps them. They are deleted now, with all objects in a namespace or of a kind that is among them."
            }
            Self::Pause => {
                "The object is neither applied nor reverted nor pruned for the time below, or until the pause is ended."
            }
            Self::EndPause => "The object follows its repository again. Hand edits made meanwhile are reverted.",
            Self::Delete if FleetKind::Function.is_of(key) => {
                "The Function is deleted with the objects that belong to it, and answers no more calls. Its image stays in the registry."
            }
            Self::Delete if FleetKind::GitRepository.is_of(key) => {
                "The GitRepository is deleted. The repository at the Git host and the Secret with the login stay."
            }
            Self::Delete => {
                "The APIRule is deleted. The Service stays, and its clients outside of the cluster lose it."
            }
            Self::RunAgain => {
                "The agent deletes the Job or Pod that has ended, and recreates it from the repository. One that still runs stays as it is."
            }
        }
    }

    /// Returns the sentence about the written action on an object.
    pub(crate) fn result(self, key: &Key) -> String {
        let done = match self {
            Self::Sync => {
                "Requested. The agent looks up the repository and applies what differs; the page of the GitSync shows the result."
            }
            Self::LookUp => "Requested. The agent looks it up, and its status shows a new result.",
            Self::Rebuild => "Requested. The agent builds the image, and the page of the Function shows the result.",
            Self::AllowPrune => {
                "Approved. The agent deletes the objects, and the page of the GitSync shows the result."
            }
            Self::EndPause => "Resumed. The object follows its repository again.",
            Self::RunAgain => {
                "Requested. The agent recreates the object. If it cannot, an Event of the GitSync says why."
            }
            Self::Delete => "Deleted. The object is gone. The cluster deletes the objects that belong to it.",
            Self::Suspend => return format!("Suspended. {}", self.effect(key)),
            Self::Resume => return format!("Resumed. {}", self.effect(key)),
            Self::Pause => return format!("Paused. {}", self.effect(key)),
        };
        done.to_owned()
    }

    /// Returns whether the action on an object may be limited in time.
    pub(crate) fn has_length(self, key: &Key) -> bool {
        self == Self::Pause || (self == Self::Suspend && FleetKind::GitSync.is_of(key))
    }

    /// Returns whether objects of this kind have the action.
    pub(crate) fn is_of(self, key: &Key) -> bool {
        if matches!(self, Self::Pause | Self::EndPause) {
            return !FleetKind::GitSync.is_of(key);
        }
        if self == Self::RunAgain {
            return FleetKind::GitSync.is_of(key);
        }
        of_kind(key).is_some_and(|of_kind| of_kind.actions.contains(&self))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_offers_what_its_state_permits() {
        let labels = |kind: FleetKind, live: Value, is_suspended: bool| {
            let all = offered(&kind.key("apps", "shop"), &live, is_suspended);
            all.into_iter().map(Action::label).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(labels(FleetKind::GitSync, json!({}), false), "Sync, Suspend");
        let held = json!({"status": {"heldObjects": 1}});
        assert_eq!(labels(FleetKind::GitSync, held, true), "Resume, Approve the held deletions");
        assert_eq!(labels(FleetKind::GitRepository, json!({}), false), "Look up now");
        assert_eq!(labels(FleetKind::HelmChart, json!({}), false), "Look up now, Suspend");
        assert_eq!(labels(FleetKind::HelmChart, json!({}), true), "Resume");
        assert_eq!(labels(FleetKind::Receiver, json!({}), false), "Suspend");
        assert_eq!(labels(FleetKind::Function, json!(null), false), "Rebuild");
        assert_eq!(labels(FleetKind::ApiRule, json!({}), false), "", "a deletion has a permission of its own");
    }

    #[test]
    fn each_action_of_a_kind_says_what_it_does() {
        for of_kind in &TABLE {
            let key = of_kind.kind.key("apps", "shop");
            for action in of_kind.actions {
                assert!(!action.effect(&key).is_empty() && action.is_of(&key), "{action:?} {key}");
            }
        }
    }
}
