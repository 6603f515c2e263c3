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
mod apply;
mod build;
mod decision;
mod kaniko;
mod knative;
mod observed;
mod rollout;
mod serving;
mod source;
mod state;
mod step;
mod suspension;

#[cfg(test)]
mod tests;

use jiff::Timestamp;

pub use decision::{Decision, Record};
pub use observed::{Observed, Repository, Resolved};
pub use state::{ReconcileState, RetryCause, RetryNow};
pub use step::{ConditionUpdate, Put, Step};

use super::Flavour;

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
