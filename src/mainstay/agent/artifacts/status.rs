//! The status of an OCIRepository.
//!
//! Invariant: equal facts result in equal statuses, which are not written again.

use jiff::Timestamp;

use crate::agent::own_kinds::State;
use mainstay_api::OciRepositoryStatus;
use mainstay_api::conditions::{self, Reason, Type};
use mainstay_api::oci_repository::OciArtifact;

/// Maximum length of a message, in bytes.
const MESSAGE: usize = 1 << 10;

/// The result of the last verification of a signature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Verification {
    /// No signature by a trusted signer is required.
    NotRequired,
    /// No artifact was verified since the start. The condition of an earlier agent stays.
    #[default]
    Pending,
    /// A trusted key has signed the last artifact. Contains the message.
    Passed(String),
    /// The newest artifact was refused. Contains the reason.
    Failed(String),
}

/// Returns the status that reports a state. `artifact` is the last artifact.
pub(super) fn after(
    old: &OciRepositoryStatus,
    state: &State,
    verification: &Verification,
    artifact: Option<OciArtifact>,
    generation: Option<i64>,
    now: Timestamp,
) -> OciRepositoryStatus {
    let mut new = old.clone();
    (new.observed_generation, new.artifact) = (generation, artifact);
    new.conditions = state.conditions(&old.conditions, generation, now);
    let (status, reason, message) = match verification {
        Verification::Pending => return new,
        Verification::NotRequired => {
            new.conditions.retain(|condition| condition.type_ != Type::SourceVerified.as_str());
            return new;
        }
        Verification::Passed(message) => ("True", Reason::Verified, message),
        Verification::Failed(message) => ("False", Reason::VerificationFailed, message),
    };
    let message = conditions::cut(message, MESSAGE);
    conditions::set(&mut new.conditions, Type::SourceVerified, status, reason, message, generation, now);
    new
}
