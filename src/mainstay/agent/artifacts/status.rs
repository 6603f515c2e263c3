//! The status of an OCIRepository.
//!
//! Invariant: equal facts give equal statuses, which are not written again.

use jiff::Timestamp;

use mainstay_api::OciRepositoryStatus;
use mainstay_api::conditions::{self, Reason, Type};
use mainstay_api::oci_repository::OciArtifact;

/// Maximum size of a message, in bytes.
const MESSAGE: usize = 1 << 10;

/// The state that the conditions show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) reason: Reason,
    pub(super) message: String,
    /// Whether only a change of the spec helps.
    pub(super) is_stalled: bool,
}

impl State {
    pub(super) fn not_ready(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), is_stalled: false }
    }

    pub(super) fn invalid(problems: &[String]) -> Self {
        Self { reason: Reason::SpecInvalid, message: problems.join("; "), is_stalled: true }
    }

    /// Returns the state of an OCIRepository with this revision.
    pub(super) fn stored(revision: &str) -> Self {
        Self::not_ready(Reason::ArtifactStored, format!("stored artifact {revision}"))
    }
}

/// Returns the status after a state. `artifact`: the last artifact.
pub(super) fn after(
    old: &OciRepositoryStatus,
    state: &State,
    artifact: Option<OciArtifact>,
    generation: Option<i64>,
    now: Timestamp,
) -> OciRepositoryStatus {
    let mut new = old.clone();
    (new.observed_generation, new.artifact) = (generation, artifact);
    let ready = if state.reason == Reason::ArtifactStored { "True" } else { "False" };
    let message = conditions::cut(&state.message, MESSAGE);
    conditions::set(&mut new.conditions, Type::Ready, ready, state.reason, message, generation, now);
    new.conditions.retain(|condition| state.is_stalled || condition.type_ != Type::Stalled.as_str());
    if state.is_stalled {
        conditions::set(&mut new.conditions, Type::Stalled, "True", state.reason, message, generation, now);
    }
    new
}
