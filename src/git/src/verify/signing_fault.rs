//! Why a commit cannot be signed.
//!
//! Invariant: no message contains a value of the Secret.

/// Why the key of a Secret cannot sign a commit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {key} of Secret {secret}: {why}")]
pub struct SigningFault {
    /// Name of the Secret.
    pub(super) secret: String,
    /// Key in the Secret.
    pub(super) key: &'static str,
    /// The violated rule, and what to do.
    pub(super) why: String,
}
