//! Why a commit or tag is not trusted.
//!
//! Invariant: public keys are shown by fingerprint only. No value of a Secret is quoted.

use jiff::Timestamp;

/// Why an object's signature is missing or invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureFault {
    /// The Secret holds no key.
    #[error(
        "Secret {secret} holds no public key; put OpenPGP keys, SSH keys or an allowed_signers file into it, under any name"
    )]
    NoKeys {
        /// Name of the Secret.
        secret: String,
    },
    /// A value of the Secret cannot be read.
    #[error("value {name} of Secret {secret}: {why}")]
    UnusableKey {
        /// Name of the Secret.
        secret: String,
        /// Name of the value.
        name: String,
        /// The violated rule, and its location.
        why: String,
    },
    /// The object is not signed.
    #[error("it is not signed; sign it with a key that is in Secret {secret}")]
    Unsigned {
        /// Name of the Secret.
        secret: String,
    },
    /// The key is not in the Secret.
    #[error("it is signed with {key}, which is not in Secret {secret}; add that key if you trust it")]
    UnknownKey {
        /// The key.
        key: String,
        /// Name of the Secret.
        secret: String,
    },
    /// The signature was made for different content.
    #[error("its signature by {key} was made for something else, or was altered")]
    Wrong {
        /// The key.
        key: String,
    },
    /// The key or the signature has expired.
    #[error("it is signed with {key}, which expired at {at}")]
    Expired {
        /// The key.
        key: String,
        /// When the key or the signature expired.
        at: Timestamp,
    },
    /// The key is not valid yet, or was not valid when it signed.
    #[error("it is signed with {key}, which is valid from {from} only")]
    NotYetValid {
        /// The key.
        key: String,
        /// When its validity begins.
        from: Timestamp,
    },
    /// The key is revoked.
    #[error("it is signed with {key}, which was revoked")]
    Revoked {
        /// The key.
        key: String,
    },
    /// The signature uses a broken algorithm.
    #[error("its signature by {key} uses {what}, which is too weak; use SHA-256 or SHA-512")]
    Weak {
        /// The key.
        key: String,
        /// The algorithm.
        what: String,
    },
    /// The key may not sign commits.
    #[error("it is signed with {key}, which may not sign: {why}")]
    MayNotSign {
        /// The key.
        key: String,
        /// The reason.
        why: &'static str,
    },
    /// The signature cannot be read.
    #[error("its signature is not usable: {why}")]
    Unreadable {
        /// The violated rule.
        why: &'static str,
    },
    /// The tag object cannot be read.
    #[error("the tag object is malformed")]
    UnreadableTag,
    /// A tag is required, but the reference is not a tag.
    #[error("`verify.mode` {mode} needs a signed tag, and {reference} is not a tag; follow a tag, or use mode HEAD")]
    NoTag {
        /// The mode.
        mode: &'static str,
        /// Name of the reference.
        reference: String,
    },
    /// The tag is lightweight: it has no tag object and thus no signature.
    #[error("the tag is a name only and has no signature; make it with `git tag --sign`")]
    LightweightTag,
    /// The tag object was made for a different name.
    #[error("the tag object that it points to was made for the tag {name}")]
    OtherTag {
        /// The name in the tag object.
        name: String,
    },
    /// The tag points to a tag, not to a commit.
    #[error("the tag points to a different tag and not to the commit; tag the commit itself")]
    TagOfTag,
}

impl SignatureFault {
    /// Sets the name of the Secret, if it is not set.
    pub(super) fn of_secret(self, name: &str) -> Self {
        match self {
            Self::UnknownKey { key, .. } => Self::UnknownKey { key, secret: name.to_owned() },
            other => other,
        }
    }

    pub(super) fn unknown(key: String) -> Self {
        Self::UnknownKey { key, secret: String::new() }
    }
}
