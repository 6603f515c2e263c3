//! Errors of a registry.

use std::time::Duration;

use crate::failure::Class;

/// A failed attempt; the cause is its source.
#[derive(Debug, thiserror::Error)]
#[error("{attempt} {registry}")]
pub struct Error {
    /// The attempt, up to the name of the registry.
    pub attempt: &'static str,
    /// Host and port of the registry.
    pub registry: String,
    /// The cause.
    #[source]
    pub fault: Fault,
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The connection failed or broke.
    #[error("{what}")]
    Network {
        /// The innermost cause.
        what: String,
    },
    /// A deadline passed.
    #[error("it took longer than {} s: {what}", after.as_secs())]
    Timeout {
        /// The deadline.
        after: Duration,
        /// The operation that timed out.
        what: &'static str,
    },
    /// 401 or 403.
    #[error("{by} answered {status} {}", refusal(*status, *anonymous))]
    Denied {
        /// The registry, or its token server.
        by: &'static str,
        /// Status.
        status: u16,
        /// Whether no login was sent.
        anonymous: bool,
    },
    /// Another error status.
    #[error("it answered {status}{}{}", code.as_ref().map(|code| format!(" {code}")).unwrap_or_default(), meaning(*status))]
    Status {
        /// Status.
        status: u16,
        /// Code of the distribution specification.
        code: Option<String>,
    },
    /// A redirect that is not followed.
    #[error("it leads to {to}, which is not followed: {why}")]
    Redirect {
        /// Host.
        to: String,
        /// Why it is not followed.
        why: &'static str,
    },
    /// The bytes do not match their digest.
    #[error("{what} has not the digest that was asked for")]
    Digest {
        /// The blob or manifest that was read or stored.
        what: &'static str,
    },
    /// An answer is too large.
    #[error("{what} is longer than {limit} bytes")]
    TooLarge {
        /// The blob or manifest that was read.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// An answer violates the protocol.
    #[error("it does not speak the distribution protocol: {why}")]
    Protocol {
        /// How.
        why: &'static str,
    },
    /// `ca.crt` is invalid.
    #[error("ca.crt of the registry Secret holds no certificates in PEM")]
    Authorities,
    /// The content to push could not be read.
    #[error("could not read what is to be pushed")]
    Content(#[source] std::io::Error),
    /// The content to push comes from another registry, which failed.
    #[error("the other registry failed")]
    Other(#[source] Box<Error>),
}

fn refusal(status: u16, anonymous: bool) -> &'static str {
    match (status, anonymous) {
        (_, true) => "to a request without credentials",
        // Registries answer like this to accounts without permission, and to those over their quota.
        (403, false) => "to these credentials (they lack the right, or a quota is used up)",
        (_, false) => "to these credentials",
    }
}

fn meaning(status: u16) -> &'static str {
    match status {
        404 => " (there is no such repository or image, or this account does not see it)",
        413 => " (it or a proxy before it takes no uploads of this size)",
        429 => " (too many requests)",
        507 => " (its disk is full)",
        _ => "",
    }
}

impl Fault {
    /// The class of the failure.
    pub fn class(&self) -> Class {
        match self {
            Self::Denied { .. } => Class::Denied,
            Self::Network { .. } | Self::Timeout { .. } | Self::Digest { .. } | Self::Content(_) => Class::Unavailable,
            Self::Status { status, code } => match status {
                429 | 500.. => Class::Unavailable,
                _ if code.as_deref().is_some_and(forgotten) => Class::Unavailable,
                _ => Class::Invalid,
            },
            Self::Redirect { .. } | Self::TooLarge { .. } | Self::Protocol { .. } | Self::Authorities => Class::Invalid,
            Self::Other(error) => error.fault.class(),
        }
    }

    /// Whether the same request may succeed soon: a full disk stays full, and a forgotten blob has to be pushed again.
    pub fn may_pass(&self) -> bool {
        !matches!(self, Self::Status { status: 507, .. } | Self::Content(_)) && !self.lacks_parts()
    }

    /// Whether the registry says that the bytes do not match the digest.
    pub fn is_about_content(&self) -> bool {
        match self {
            Self::Status { code: Some(code), .. } => matches!(code.as_str(), "DIGEST_INVALID" | "SIZE_INVALID"),
            Self::Content(_) => true,
            _ => false,
        }
    }

    /// Whether the registry lacks a blob of the manifest.
    pub fn lacks_parts(&self) -> bool {
        matches!(self, Self::Status { code: Some(code), .. } if forgotten(code))
    }
}

fn forgotten(code: &str) -> bool {
    matches!(code, "MANIFEST_BLOB_UNKNOWN" | "BLOB_UNKNOWN")
}
