//! The status of an OCIRepository.
//!
//! Invariant: equal facts result in equal statuses, which are not written again.

use jiff::Timestamp;

use crate::agent::own_kinds::State;
use mainstay_api::OciRepositoryStatus;
use mainstay_api::oci_repository::OciArtifact;

/// Returns the status that reports a state. `artifact` is the last artifact.
pub(super) fn after(
    old: &OciRepositoryStatus,
    state: &State,
    artifact: Option<OciArtifact>,
    generation: Option<i64>,
    now: Timestamp,
) -> OciRepositoryStatus {
    let mut new = old.clone();
    (new.observed_generation, new.artifact) = (generation, artifact);
    new.conditions = state.conditions(&old.conditions, generation, now);
    new
}
