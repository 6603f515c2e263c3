//! The Deployment of a Function, and whether the previous version serves requests while the next one is rolled out.

use super::address;
use super::decision::{Decision, one_of};
use super::observed::{Observed, Resolved};
use crate::child_kind::ChildKind;
use crate::child_state::ChildIdentity;
use crate::children;
use mainstay_api::function_conditions::Type;

/// Returns the Deployments of a Function.
pub(super) fn deployments<'a>(observed: &Observed<'a>) -> Vec<&'a ChildIdentity> {
    observed.children.deployments.iter().map(|deployment| &deployment.identity).collect()
}

/// Returns the name of the Deployment that is kept or created.
pub(super) fn name_of_deployment(resolved: &Resolved<'_>, observed: &Observed<'_>) -> String {
    one_of(&mut Decision::default(), ChildKind::Deployment, &deployments(observed), children::name(resolved.function))
}

/// Whether the previous version keeps serving requests during a rollout.
pub(super) fn goes_on(resolved: &Resolved<'_>, observed: &Observed<'_>) -> bool {
    let name = name_of_deployment(resolved, observed);
    let mut there = observed.children.deployments.iter().filter(|live| !live.identity.terminating);
    let is_available = there.any(|live| live.identity.name == name && live.is_available());
    observed.holds(Type::Running) && (is_available || address::knative_serves(observed))
}
