//! Errors in the Secrets that a repository references.
//!
//! Invariant: no message contains a value of a Secret.

/// Why a Secret cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessFault {
    /// The Secret lacks a key.
    #[error("missing field {key}: the Secret needs it (it may be empty)")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// The Secret has a password but no user name. A default name would be wrong at some hosts.
    #[error(
        "missing field username: the Secret needs it beside password; beside a token most hosts take any name, such as git \
         (Bitbucket: x-token-auth)"
    )]
    MissingUsername,
    /// The Secret has a GitHub App but no API address, and the repository is not on github.com.
    #[error(
        "missing field {field}: a GitHub App for a repository that is not at https://github.com/ needs the address of the API in \
         the Secret, such as https://HOST/api/v3"
    )]
    MissingApi {
        /// Key of the Secret.
        field: &'static str,
    },
    /// The API in the Secret has a host or port other than the repository's, or the repository's URL has no TLS.
    #[error(
        "{field} of the Secret is not the API of the repository's host: the repository needs the address https://HOST/…, and the \
         Secret https://HOST/api/v3 or https://api.HOST with the same host and port"
    )]
    ForeignApi {
        /// Key of the Secret.
        field: &'static str,
    },
    /// A value of the Secret cannot be used.
    #[error("{field} of the Secret cannot be used: {why}")]
    UnusableField {
        /// Key of the Secret.
        field: &'static str,
        /// The violated rule, or what to do.
        why: &'static str,
    },
    /// The Secret has only one of two keys that belong together.
    #[error("the Secret has {beside} without {field}: it needs both")]
    MissingHalf {
        /// The missing key.
        field: &'static str,
        /// The existing key.
        beside: &'static str,
    },
}
