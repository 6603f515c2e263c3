//! The decision of a reconcile, to which each stage adds its steps.

use std::time::Duration;

use jiff::Timestamp;

use super::state::ReconcileState;
use super::step::{ConditionUpdate, Step};
use crate::child_kind::ChildKind;
use crate::child_state::{ChildIdentity, Job};
use crate::refusals::Write;
use mainstay_api::function::Built;
use mainstay_api::function_conditions::{Reason, Status, Type};

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
    /// Name and UID of the build Job whose pod has reported the image, although the Job is not complete yet.
    pub reported: Option<[String; 2]>,
    /// Name of a failed Job that may succeed once the registry accepts uploads again.
    pub waits_for_registry: Option<String>,
    /// The image to run.
    pub(super) image: Option<Image>,
}

/// An image that was built.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) name: String,
}

impl Decision {
    pub(super) fn set_condition(
        &mut self,
        condition: Type,
        status: Status,
        reason: Reason,
        message: impl Into<String>,
    ) {
        self.steps.push(Step::SetCondition(ConditionUpdate::new(condition, status, reason, message)));
    }

    /// Sets a condition in order to report an action.
    pub(super) fn report_action(
        &mut self,
        condition: Type,
        status: Status,
        reason: Reason,
        message: impl Into<String>,
    ) {
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

    pub(super) fn delete(&mut self, child_kind: ChildKind, identity: &ChildIdentity) {
        if !identity.terminating {
            self.steps.push(Step::Delete { child_kind, identity: identity.clone() });
        }
    }

    /// Cuts the decision off before a refused write that must not be retried yet.
    pub(super) fn wait_for_refused(&mut self, namespace: &str, now: Timestamp) {
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
    pub(crate) fn record_at(&self, at: usize) -> &Record {
        let creates_job = |step: &Step| matches!(step, Step::Put(put) if put.child_kind == ChildKind::Job);
        let lacks_job = self.steps.iter().skip(at).any(creates_job);
        self.without_job.as_deref().filter(|_| lacks_job).unwrap_or(&self.record)
    }

    pub(super) fn requeue_within(&mut self, wait: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(wait, |known| known.min(wait)));
    }

    pub(super) fn puts(&self, child_kind: ChildKind) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Put(put) if put.child_kind == child_kind))
    }
}

/// Returns the name of the child to keep: the child with the right name, else the first child. Deletes the other
/// children.
pub(super) fn one_of(decision: &mut Decision, child_kind: ChildKind, there: &[&ChildIdentity], name: String) -> String {
    let kept = there.iter().find(|identity| identity.name == name).or(there.first());
    let name = kept.map_or(name, |identity| identity.name.clone());
    for other in there.iter().filter(|identity| identity.name != name) {
        decision.delete(child_kind, other);
    }
    name
}
