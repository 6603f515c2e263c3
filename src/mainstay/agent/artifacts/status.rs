//! The status of an OCIRepository.
//!
//! Invariant: equal facts result in equal statuses, which are not written again. Invariant: the condition `SourceVerified`
//! is `True` only for the URL and the signers of its generation.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::agent::own_kinds::State;
use mainstay_api::OciRepositoryStatus;
use mainstay_api::conditions::{self, Reason, Type};
use mainstay_api::oci_repository::OciArtifact;
use mainstay_function::registry::Digest;
use mainstay_git::RemoteUrl;

/// Maximum length of a message, in bytes.
const MESSAGE: usize = 1 << 10;
const UNVERIFIED: &str = "no artifact was verified yet by this spec and its Secret; the condition Ready shows why";

/// The facts on which a verification is based.
#[derive(Clone, Debug)]
pub(super) struct Basis {
    /// The URL of the artifact.
    pub(super) url: RemoteUrl,
    /// Digest of the trusted signers.
    pub(super) signers: Digest,
    /// The generation of the spec for which the signers were read last.
    pub(super) generation: Option<i64>,
}

impl Basis {
    /// Returns whether it belongs to this URL and generation. If so, it stays while the Secret with the signers cannot be
    /// read for the moment. A changed spec may name other signers.
    pub(super) fn is_of(&self, url: &RemoteUrl, generation: Option<i64>) -> bool {
        self.url == *url && self.generation == generation
    }

    /// Whether the URL and the signers are the same. The generation also changes with other fields.
    fn is_same(&self, other: &Self) -> bool {
        self.url == other.url && self.signers == other.signers
    }
}

/// The result of the last verification of a signature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Verification {
    /// No signature by a trusted signer is required.
    NotRequired,
    /// No artifact was verified since the start, and no turn has failed. The condition of an earlier agent stays for the
    /// same generation.
    #[default]
    Pending,
    /// No artifact was verified by the present signers.
    Unverified,
    /// The trust policy accepts the last artifact without a trusted signer.
    Tolerated,
    /// A trusted signer has signed the last artifact. Contains the message.
    Passed(String),
    /// The newest artifact was refused. Contains the reason.
    Failed(String),
}

impl Verification {
    /// Ends [`Self::Pending`] after a failure: the signers may have changed while no agent was running.
    pub(super) fn end_pending(&mut self) {
        if *self == Self::Pending {
            *self = Self::Unverified;
        }
    }

    /// Whether the result does not count any more after a change of its basis. `None` stands for signers that cannot be
    /// read.
    pub(super) fn is_outdated(&self, old: Option<&Basis>, new: Option<&Basis>) -> bool {
        let Some(new) = new else { return *self != Self::NotRequired };
        match self {
            Self::NotRequired => false,
            // An earlier agent may have verified the artifact with the signers that are read first.
            Self::Pending => old.is_some_and(|old| !old.is_same(new)),
            Self::Unverified | Self::Tolerated | Self::Passed(_) | Self::Failed(_) => {
                old.is_none_or(|old| !old.is_same(new))
            }
        }
    }
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
    let is_other = |condition: &Condition| condition.type_ != Type::SourceVerified.as_str();
    let (status, reason, message) = match verification {
        Verification::Pending => {
            new.conditions.retain(|condition| is_other(condition) || condition.observed_generation == generation);
            return new;
        }
        Verification::NotRequired | Verification::Tolerated => {
            new.conditions.retain(is_other);
            return new;
        }
        Verification::Unverified => ("Unknown", Reason::NotVerified, UNVERIFIED),
        Verification::Passed(message) => ("True", Reason::Verified, &**message),
        Verification::Failed(message) => ("False", Reason::VerificationFailed, &**message),
    };
    let message = conditions::cut(message, MESSAGE);
    conditions::set(&mut new.conditions, Type::SourceVerified, status, reason, message, generation, now);
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basis(signers: &[u8]) -> Basis {
        let url = RemoteUrl::of_artifact("oci://registry.example.org/shop/web", "shop/web/uid".to_owned());
        Basis { url, signers: Digest::of(signers), generation: Some(1) }
    }

    fn status_after(old: &OciRepositoryStatus, verification: &Verification, generation: i64) -> OciRepositoryStatus {
        let state = State::not_ready(Reason::ArtifactFailed, "the registry is away");
        after(old, &state, verification, None, Some(generation), Timestamp::UNIX_EPOCH)
    }

    /// Returns the condition with its generation; empty if there is none.
    fn verified(status: &OciRepositoryStatus) -> String {
        let found = conditions::status(&status.conditions, Type::SourceVerified);
        let shown = |one: &Condition| format!("{} {} {:?}", one.status, one.message, one.observed_generation);
        found.map(shown).unwrap_or_default()
    }

    fn passed() -> Verification {
        Verification::Passed("signed".to_owned())
    }

    #[test]
    fn a_result_does_not_outlive_its_basis() {
        let (one, other) = (basis(b"one"), basis(b"other"));
        for result in [passed(), Verification::Failed("no".to_owned()), Verification::Tolerated] {
            assert!(!result.is_outdated(Some(&one), Some(&one)), "{result:?}");
            assert!(result.is_outdated(Some(&one), Some(&other)), "{result:?}");
            assert!(result.is_outdated(Some(&one), None), "{result:?}: the signers cannot be read");
        }
        let moved = Basis { url: RemoteUrl::of_artifact("oci://other.example.org/web", "a".to_owned()), ..one.clone() };
        assert!(passed().is_outdated(Some(&one), Some(&moved)));
        let pending = Verification::Pending;
        assert!(!pending.is_outdated(None, Some(&one)) && !pending.is_outdated(Some(&one), Some(&one)));
        assert!(pending.is_outdated(Some(&one), Some(&other)) && pending.is_outdated(None, None));
        assert!(!Verification::NotRequired.is_outdated(Some(&one), None));
    }

    #[test]
    fn the_generation_alone_changes_no_result() {
        let (one, next) = (basis(b"one"), Basis { generation: Some(2), ..basis(b"one") });
        assert!(!passed().is_outdated(Some(&one), Some(&next)));
    }

    #[test]
    fn a_secret_that_cannot_be_read_for_the_moment_leaves_the_basis_of_the_same_spec() {
        let one = basis(b"one");
        assert!(one.is_of(&one.url, Some(1)));
        assert!(!one.is_of(&one.url, Some(2)), "another spec may name another Secret");
        let other = RemoteUrl::of_artifact("oci://other.example.org/web", "a".to_owned());
        assert!(!one.is_of(&other, Some(1)));
    }

    #[test]
    fn shows_that_no_artifact_was_verified_by_the_present_signers() {
        let old = status_after(&OciRepositoryStatus::default(), &passed(), 1);
        assert_eq!(verified(&old), "True signed Some(1)");
        let new = status_after(&old, &Verification::Unverified, 2);
        assert_eq!(verified(&new), format!("Unknown {UNVERIFIED} Some(2)"));
    }

    #[test]
    fn the_condition_of_an_earlier_agent_stays_for_the_same_generation_only() {
        let old = status_after(&OciRepositoryStatus::default(), &passed(), 1);
        let new = |generation| verified(&status_after(&old, &Verification::Pending, generation));
        assert_eq!((new(1), new(2)), ("True signed Some(1)".to_owned(), String::new()));
    }

    #[test]
    fn the_condition_of_an_earlier_agent_does_not_outlive_a_failure() {
        let old = status_after(&OciRepositoryStatus::default(), &passed(), 1);
        let mut verification = Verification::Pending;
        verification.end_pending();
        assert_eq!(verified(&status_after(&old, &verification, 1)), format!("Unknown {UNVERIFIED} Some(1)"));
        for result in [Verification::NotRequired, Verification::Tolerated, passed()] {
            let mut kept = result.clone();
            kept.end_pending();
            assert_eq!(kept, result, "a failure does not undo a result");
        }
    }

    #[test]
    fn an_artifact_that_the_policy_tolerates_does_not_count_as_signed() {
        let old = status_after(&OciRepositoryStatus::default(), &passed(), 1);
        assert_eq!(verified(&status_after(&old, &Verification::Tolerated, 2)), "");
    }
}
