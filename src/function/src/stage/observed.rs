//! The inputs of the stages: a resolved Function, and the observed state of its children.

use super::state::ReconcileState;
use crate::build_queue::Admission;
use crate::child_set::Children;
use crate::child_state::{IMAGE_PULL_BACK_OFF, Job};
use crate::git::{Access, Tree};
use crate::knative_presence::Presence;
use crate::registry::{Transport, pull_hint};
use crate::tag::Recipe;
use crate::{ResolvedFunction, Settings};
use mainstay_api::function::FunctionStatus;
use mainstay_api::function_conditions::{self, Reason, Status, Type};
use mainstay_object::{Digest, Key};

/// Words in the error messages of container runtimes if a registry requires different credentials.
const REFUSED_PULLS: [&str; 5] = ["unauthorized", "denied", "forbidden", "authentication", "no basic auth credentials"];

/// The image repository of a Function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// The address for builds, without tag.
    pub push: String,
    /// The address for nodes, without tag.
    pub pull: String,
    /// The Secret with the credentials of the repository.
    pub secret: String,
    /// How builds connect to the registry.
    pub transport: Transport,
    /// Why nodes do not use that Secret, and how to change that; `None` if nodes use the Secret.
    pub no_pull: Option<String>,
    /// Whether the login is limited to the repositories of the Function's namespace.
    pub is_limited: bool,
}

impl Repository {
    /// Formats a pod's problem. If a registry refused a pull, the message also says why the node has no credentials.
    pub(super) fn explain(&self, (reason, text): &(String, String)) -> String {
        let is_refused = || {
            let text = text.to_ascii_lowercase();
            REFUSED_PULLS.iter().any(|words| text.contains(words))
        };
        match &self.no_pull {
            Some(why) if reason == IMAGE_PULL_BACK_OFF && is_refused() => format!("{reason}: {text}; {why}"),
            _ if reason == IMAGE_PULL_BACK_OFF => {
                let hint = pull_hint::of(&self.pull, text).map(|hint| format!("; {hint}")).unwrap_or_default();
                format!("{reason}: {text}{hint}")
            }
            _ => format!("{reason}: {text}"),
        }
    }
}

/// A resolved Function with its recipe, its repository and its source.
#[derive(Clone, Copy, Debug)]
pub struct Resolved<'a> {
    /// The Function.
    pub function: &'a ResolvedFunction,
    /// The inputs of the Function's image.
    pub recipe: &'a Recipe,
    /// The Function's image repository.
    pub repository: &'a Repository,
    /// The Function's source in Git, and how to access it; `None` for inline code.
    pub git: Option<(&'a Tree, &'a Access)>,
    /// The operator's settings.
    pub settings: &'a Settings,
}

/// The observed state of a Function and its children.
pub struct Observed<'a> {
    /// The existing children.
    pub children: &'a Children,
    /// The current status.
    pub status: &'a FunctionStatus,
    /// Returns the digest of the desired document of a managed object.
    pub kept: &'a dyn Fn(&Key) -> Option<Digest>,
    /// Returns whether an autoscaler may scale the Deployment with this name to zero.
    pub may_rest: &'a dyn Fn(&str) -> bool,
    /// The known state of Knative.
    pub knative: &'a Presence,
    /// Whether the Function may build now, and otherwise its position in the build queue.
    pub admission: Admission,
    /// Returns whether a held-up Job has to be suspended.
    pub must_yield: &'a dyn Fn(&Job) -> bool,
    /// State from the last reconcile.
    pub state: &'a ReconcileState,
}

impl Observed<'_> {
    /// Whether the condition has this status and reason.
    pub(super) fn says(&self, condition: Type, status: Status, reason: Reason) -> bool {
        let update = function_conditions::find(&self.status.conditions, condition);
        update.is_some_and(|update| update.status == status.as_str() && update.reason == reason.as_str())
    }

    /// Whether the condition is True.
    pub(super) fn holds(&self, condition: Type) -> bool {
        let update = function_conditions::find(&self.status.conditions, condition);
        update.is_some_and(|update| update.status == Status::True.as_str())
    }
}
