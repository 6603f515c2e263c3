//! Why an attempt came to nothing: what the status says, and when it is tried again.

use std::time::Duration;

use super::status::Outcome;
use crate::api::conditions::Reason;
use crate::failure::{Class, chain};
use crate::{cluster, source};

/// Why an attempt did not come to applying anything.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) class: Class,
    pub(super) reason: Reason,
    pub(super) message: String,
    /// The server's `Retry-After`.
    pub(super) retry_after: Option<Duration>,
}

impl Refused {
    pub(super) fn invalid(reason: Reason, message: impl Into<String>) -> Self {
        Self { class: Class::Invalid, reason, message: message.into(), retry_after: None }
    }

    pub(super) fn outcome(&self) -> Outcome {
        Outcome::Refused { class: self.class, reason: self.reason, message: self.message.clone() }
    }
}

impl From<cluster::Error> for Refused {
    fn from(error: cluster::Error) -> Self {
        let class = error.class();
        let reason = if class == Class::Bug { Reason::InternalError } else { Reason::ClusterUnavailable };
        Self { class, reason, message: chain(&error), retry_after: error.retry_after() }
    }
}

impl From<source::Error> for Refused {
    fn from(error: source::Error) -> Self {
        let class = error.class();
        let reason = match class {
            _ if matches!(error.fault(), source::Fault::Signature(_)) => Reason::VerificationFailed,
            Class::Denied => Reason::GitAuthorizationFailed,
            Class::Invalid => Reason::SourceInvalid,
            _ => Reason::SourceUnavailable,
        };
        Self { class, reason, message: chain(&error), retry_after: error.retry_after() }
    }
}
