//! Why an identity of a cloud gives no login.

use mainstay_object::failure::Class;

/// Why an identity of a cloud gives no login, and what to do. No message contains a token or text of a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloudFault {
    /// A field of the object is invalid.
    #[error("{why}")]
    Field {
        /// The field, the violated rule, and what to do.
        why: String,
    },
    /// This process is not an agent.
    #[error(
        "spec.provider names an identity of a cloud, which only the agent in the cluster can use; see the status of the object"
    )]
    NoAgent,
    /// A namespace may not use the identity of the agent.
    #[error(
        "spec.serviceAccountName is not set, and objects of namespace {namespace} may not use the identity of the \
         agent; name a ServiceAccount of this namespace, or have the operator add the namespace with --allow-namespace"
    )]
    NotTrusted {
        /// The namespace.
        namespace: String,
    },
    /// The ServiceAccount does not exist.
    #[error("the ServiceAccount {account}, which spec.serviceAccountName names, does not exist")]
    NoAccount {
        /// Namespace and name.
        account: String,
    },
    /// The ServiceAccount or the agent is not set up for the provider.
    #[error("{identity} is not set up for provider {provider}: {why}")]
    NotSetUp {
        /// The ServiceAccount or the agent.
        identity: String,
        /// The provider.
        provider: &'static str,
        /// The missing or invalid value, and what to do.
        why: String,
    },
    /// The cluster gives no token.
    #[error("no token of {identity}: {why}")]
    NoToken {
        /// The ServiceAccount.
        identity: String,
        /// The cause.
        why: String,
    },
    /// The provider refuses.
    #[error("{host} refused {identity} {asked} ({status}{}); {hint}", code.as_deref().map(|code| format!(" {code}")).unwrap_or_default())]
    Refused {
        /// The host.
        host: String,
        /// The ServiceAccount or the agent.
        identity: String,
        /// The wanted token.
        asked: &'static str,
        /// HTTP status.
        status: u16,
        /// The provider's code of the error.
        code: Option<String>,
        /// The remedy.
        hint: String,
    },
    /// The provider's response is not usable.
    #[error("{host} answered without {asked}: {why}")]
    Answer {
        /// The host.
        host: String,
        /// The wanted token.
        asked: &'static str,
        /// The violation.
        why: &'static str,
    },
}

impl CloudFault {
    /// Returns the class of the failure.
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Field { .. } | Self::NoAgent | Self::NotTrusted { .. } => Class::Invalid,
            Self::NoAccount { .. } => Class::NotReady,
            Self::Refused { status: 408 | 429 | 500.., .. } | Self::NoToken { .. } | Self::Answer { .. } => {
                Class::Unavailable
            }
            // ServiceAccounts and the provider's settings are not watched, so the attempt is repeated.
            Self::NotSetUp { .. } | Self::Refused { .. } => Class::Denied,
        }
    }
}
