//! Whether Knative has the address of a Function, for either flavour.

use super::observed::Observed;
use crate::knative_presence::Presence;
use crate::knative_state::KnativeService;

/// Whether a Knative Service serves requests, of any generation.
pub(super) fn knative_serves(observed: &Observed<'_>) -> bool {
    observed.children.knative_services.iter().any(KnativeService::serves)
}

/// Whether a Knative Service that has the Function's address may exist.
pub(super) fn may_have_address(observed: &Observed<'_>) -> bool {
    match observed.knative {
        Presence::Present => !observed.children.knative_services.is_empty(),
        Presence::Absent => false,
        Presence::Unknown | Presence::Unreadable(_) => observed.status.serving.is_some(),
    }
}
