//! Decides the next steps for a Function: the table of its stages.
//!
//! A reconcile runs the stages in order: source, build, Deployment, Service, autoscaler, Running. Each stage adds
//! writes and condition updates to the decision, so one reconcile may write several children. With Knative, a single
//! stage replaces Deployment, Service and autoscaler.
//!
//! Invariant: the Deployment is not touched before its image is built.
//! Invariant: only children that the Function controls are deleted, and only by their UID.
//!
//! Not here: reactions to a refused write. `perform` reports the refusal, and the next reconcile decides again.

mod address;
mod build;
mod kaniko;
mod knative;
mod serving;
mod source;
mod suspension;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::build_queue::Admission;
use super::child_kind::ChildKind;
use super::child_set::Children;
use super::child_state::{ChildIdentity, IMAGE_PULL_BACK_OFF, Job, Suspension};
use super::git::{Access, Tree};
use super::knative_presence::Presence;
use super::refusals::{RefusedWrite, Write};
use super::tag::Recipe;
use super::{Flavour, ResolvedFunction, Settings, children};
use crate::registry::{Transport, pull_hint};
use mainstay_api::function::{Built, FunctionStatus};
use mainstay_api::function_conditions::{self, Reason, Status, Type};
use mainstay_api::names::MANAGED_BY;
use mainstay_engine::managed::{AppliedConfiguration, Desired, Mark};
use mainstay_object::{Digest, Key, Object, Place};

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
    fn explain(&self, (reason, text): &(String, String)) -> String {
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

/// A Job that is retried ahead of its backoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryNow {
    /// Name of the Job.
    pub job: String,
    /// The change.
    pub cause: RetryCause,
}

/// The change after which a failed build is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryCause {
    /// Credentials, or the registry: any failure may pass.
    Credentials,
    /// Other fields of the Function, such as its resources. A failure that only other code mends stays.
    Spec,
}

/// State that is kept from one reconcile to the next. A new agent starts without it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReconcileState {
    /// When the position in the queue was last reported.
    pub queue_reported: Option<Timestamp>,
    /// UID of a complete Job whose report is missing, and the time since when it is awaited.
    pub report_awaited: Option<(String, Timestamp)>,
    /// UID of a Job, and the last problem of its pods. The problem is kept because the pods are deleted at the Job's
    /// deadline.
    pub problem: Option<(String, String)>,
    /// The Job whose inputs or credentials have changed since it started. The Job is replaced as soon as it fails or is
    /// held up.
    pub retry_now: Option<RetryNow>,
    /// Tag of an image, and why its last build failed. The next build reports this failure while it runs.
    pub failed: Option<(String, String)>,
    /// The last refused write.
    pub refused: Option<RefusedWrite>,
    /// Secrets that the Function references and that do not exist.
    pub missing_secrets: BTreeSet<String>,
    /// State of the Knative Service at the last cleanup that left no Revision to delete.
    pub cleaned_up: Option<String>,
}

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

/// The record of builds in the status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The image that was built.
    pub built: Option<Built>,
    /// Tag and attempt of the current build.
    pub building: Option<(String, i64)>,
    /// When a failed build is retried.
    pub retry_at: Option<Timestamp>,
    /// When the Function switches to a changed base image.
    pub moves_at: Option<Timestamp>,
    /// Position in the build queue.
    pub queue: Option<usize>,
    /// The image that serves requests.
    pub image: Option<String>,
    /// Whether the serving image was built from the current generation.
    pub serves_current: bool,
    /// Whether a Knative Service may exist.
    pub has_knative_service: bool,
    /// The number of pods, and the labels that select them.
    pub pods: (i64, String),
}

/// The decision of a reconcile.
#[derive(Debug, Default)]
pub struct Decision {
    /// The steps, in order; the first step that fails ends the reconcile.
    pub steps: Vec<Step>,
    /// The build record. The record is written even if a step fails.
    pub record: Record,
    /// The record to write if the Job is not created. A build that could not start does not count as an attempt.
    pub without_job: Option<Box<Record>>,
    /// Whether the Function needs to be in the build queue. `true` queues the Function, `false` removes it from the
    /// queue.
    pub in_queue: bool,
    /// When to reconcile again without an event.
    pub requeue_after: Option<Duration>,
    /// State for the next reconcile.
    pub state: ReconcileState,
    /// A running Job without a pod. Its events are read to find the cause.
    pub without_pod: Option<Job>,
    /// Name of a failed Job that may succeed once the registry accepts uploads again.
    pub waits_for_registry: Option<String>,
    /// The image to run.
    image: Option<Image>,
}

/// An image that was built.
#[derive(Clone, Debug)]
struct Image {
    name: String,
}

type Stage = fn(&Resolved<'_>, &Observed<'_>, Timestamp, &mut Decision);

/// The stages of a Function that runs as a Deployment, in order.
const STAGES: [Stage; 7] = [
    source::source,
    build::image,
    serving::deployment,
    serving::service,
    serving::autoscaler,
    knative::leave,
    serving::running,
];

/// The stages of a Function that runs on Knative, in order.
const KNATIVE_STAGES: [Stage; 6] =
    [source::source, build::image, knative::service, knative::leave_deployment, knative::running, knative::clean_up];

/// Decides the next steps for a Function.
pub fn decide(resolved: &Resolved<'_>, observed: &Observed<'_>, now: Timestamp) -> Decision {
    let old = observed.status;
    let mut decision = Decision {
        record: Record {
            built: old.built.clone(),
            image: old.image.clone(),
            has_knative_service: old.serving.is_some(),
            pods: serving::pods(resolved, observed),
            ..Record::default()
        },
        state: ReconcileState {
            retry_now: observed.state.retry_now.clone(),
            refused: observed.state.refused.clone(),
            cleaned_up: observed.state.cleaned_up.clone(),
            ..ReconcileState::default()
        },
        ..Decision::default()
    };
    let stages = match resolved.function.flavour {
        Flavour::Deployment => STAGES.as_slice(),
        Flavour::Knative => &KNATIVE_STAGES,
    };
    for stage in stages {
        stage(resolved, observed, now, &mut decision);
    }
    decision.wait_for_refused(&resolved.function.namespace, now);
    decision
}

impl Decision {
    fn set_condition(&mut self, condition: Type, status: Status, reason: Reason, message: impl Into<String>) {
        self.steps.push(Step::SetCondition(ConditionUpdate::new(condition, status, reason, message)));
    }

    /// Sets a condition in order to report an action.
    fn report_action(&mut self, condition: Type, status: Status, reason: Reason, message: impl Into<String>) {
        self.steps.push(Step::SetCondition(ConditionUpdate {
            done: true,
            ..ConditionUpdate::new(condition, status, reason, message)
        }));
    }

    /// Replaces all updates of a condition with a problem.
    pub fn attribute(&mut self, mut update: ConditionUpdate) {
        update.outdated |= self.steps.iter().any(|step| match step {
            Step::SetCondition(other) | Step::SetConditionUnlessWritten(other) => {
                other.condition == update.condition && other.outdated
            }
            _ => false,
        });
        self.steps.retain(|step| match step {
            Step::SetCondition(other) | Step::SetConditionUnlessWritten(other) => other.condition != update.condition,
            Step::ConfirmCondition(kind) => *kind != update.condition,
            _ => true,
        });
        self.steps.insert(0, Step::SetCondition(update));
    }

    fn delete(&mut self, child_kind: ChildKind, identity: &ChildIdentity) {
        if !identity.terminating {
            self.steps.push(Step::Delete { child_kind, identity: identity.clone() });
        }
    }

    /// Cuts the decision off before a refused write that must not be retried yet.
    fn wait_for_refused(&mut self, namespace: &str, now: Timestamp) {
        let Some(refused) = &self.state.refused else { return };
        let held = |step: &Step| refused.holds(&Write::of(step, namespace)?, now);
        let Some((at, wait)) = self.steps.iter().enumerate().find_map(|(at, step)| Some((at, held(step)?))) else {
            return;
        };
        let mut update = refused.update().cloned();
        if let Step::Put(put) = &self.steps[at] {
            update = update.map(|update| ConditionUpdate { outdated: put.outdated, ..update });
        }
        self.record = self.record_at(at).clone();
        self.steps.truncate(at);
        // A handover of replicas only prepares the write that follows it.
        self.steps.pop_if(|last| matches!(last, Step::HandOver { .. }));
        self.steps.push(Step::Refused(update));
        self.requeue_within(wait);
    }

    /// The record to write if the reconcile ends before this step.
    pub(super) fn record_at(&self, at: usize) -> &Record {
        let creates_job = |step: &Step| matches!(step, Step::Put(put) if put.child_kind == ChildKind::Job);
        let lacks_job = self.steps.iter().skip(at).any(creates_job);
        self.without_job.as_deref().filter(|_| lacks_job).unwrap_or(&self.record)
    }

    fn requeue_within(&mut self, wait: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(wait, |known| known.min(wait)));
    }

    fn puts(&self, child_kind: ChildKind) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Put(put) if put.child_kind == child_kind))
    }
}

impl ReconcileState {
    /// Returns the change after which this Job is retried, if there was one.
    fn retry_cause(&self, job: &str) -> Option<RetryCause> {
        self.retry_now.as_ref().filter(|retry| retry.job == job).map(|retry| retry.cause)
    }
}

impl Observed<'_> {
    /// Whether the condition has this status and reason.
    fn says(&self, condition: Type, status: Status, reason: Reason) -> bool {
        let update = function_conditions::find(&self.status.conditions, condition);
        update.is_some_and(|update| update.status == status.as_str() && update.reason == reason.as_str())
    }

    /// Whether the condition is True.
    fn holds(&self, condition: Type) -> bool {
        let update = function_conditions::find(&self.status.conditions, condition);
        update.is_some_and(|update| update.status == Status::True.as_str())
    }
}

/// Builds the desired object from a document.
fn desired(child_kind: ChildKind, function: &ResolvedFunction, document: &Value) -> Option<Arc<Desired>> {
    let place = Place::file(format!("Function {}/{}", function.namespace, function.name));
    let object = Object::from_value(document, place).ok()?;
    let kind = child_kind.kind();
    let key = kind.key(Some(&function.namespace), &object.key.name);
    let reserved = children::reserved(child_kind);
    let mark = Mark::Controller { uid: function.uid.as_str().into(), watched_by: MANAGED_BY, reserved };
    Some(Arc::new(Desired { key, kind, object: Arc::new(object), mark, ignored: None }))
}

/// Adds the apply of a document. Returns whether a write is needed.
fn put(
    decision: &mut Decision,
    observed: &Observed<'_>,
    resolved: &Resolved<'_>,
    child_kind: ChildKind,
    document: &Value,
    there: &[&ChildIdentity],
    update: (Type, [Reason; 2]),
) -> bool {
    let Some(desired) = desired(child_kind, resolved.function, document) else { return false };
    let known = there.iter().find(|identity| *identity.name == *desired.key.name);
    if (observed.kept)(&desired.key) == Some(desired.source()) {
        return false;
    }
    let (condition, reasons) = update;
    let version = known.map(|identity| identity.version.clone());
    let last_applied = known.and_then(|identity| Some((identity.uid.clone(), identity.last_applied?)));
    let serves = condition == Type::Running && serving::goes_on(resolved, observed);
    // Without a new image the old image keeps serving requests, so the condition still describes an earlier generation.
    let outdated = condition == Type::Running && (serves || decision.image.is_none());
    let (moves, note) = (observed.status.serving.is_some(), String::new());
    let put = Put { child_kind, desired, version, last_applied, condition, reasons, outdated, serves, moves, note };
    decision.steps.push(Step::Put(Box::new(put)));
    true
}

/// Returns the name of the child to keep: the child with the right name, else the first child. Deletes the other
/// children.
fn one_of(decision: &mut Decision, child_kind: ChildKind, there: &[&ChildIdentity], name: String) -> String {
    let kept = there.iter().find(|identity| identity.name == name).or(there.first());
    let name = kept.map_or(name, |identity| identity.name.clone());
    for other in there.iter().filter(|identity| identity.name != name) {
        decision.delete(child_kind, other);
    }
    name
}
