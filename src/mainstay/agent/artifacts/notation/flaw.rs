//! The reason why a signature does not count.

/// The step of the verification that failed. The later a step, the more the reason tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::agent::artifacts) enum Step {
    /// Reading the signature and its certificates.
    Reading,
    /// Verifying the signature by the certificates that it contains.
    Integrity,
    /// Finding a trusted certificate and an accepted subject.
    Authenticity,
    /// Comparing times.
    Time,
    /// Ruling out that a certificate was revoked.
    Revocation,
    /// Comparing the signed artifact.
    Target,
}

/// Why a signature does not count: a clause whose subject is the signature.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::agent::artifacts) struct Flaw {
    step: Step,
    why: String,
}

impl Flaw {
    pub(in crate::agent::artifacts) fn new(step: Step, why: impl Into<String>) -> Self {
        Self { step, why: why.into() }
    }

    /// Returns the flaw of a signature that cannot be read.
    pub(in crate::agent::artifacts) fn unreadable(why: impl Into<String>) -> Self {
        Self::new(Step::Reading, why)
    }

    /// Returns the clause.
    pub(in crate::agent::artifacts) fn into_text(self) -> String {
        self.why
    }
}
