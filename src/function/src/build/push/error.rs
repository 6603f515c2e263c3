//! Errors of pushing an image, and their reports.

use std::io;
use std::path::PathBuf;

use super::super::image::{base, layer};
use crate::registry::{self, Fault, Problem};
use mainstay_api::build::{BuildFailure, FailureReason, MAX_MESSAGE};
use mainstay_api::names::INTERNAL_REGISTRY;
use mainstay_object::failure::{Class, chain};
use mainstay_object::is_unprintable;

/// The kind of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The bytecode of the standard library.
    Bytecode,
    /// The runtime server.
    Server,
    /// The dependencies.
    Dependencies,
    /// The source.
    Source,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bytecode => "the bytecode of the standard library",
            Self::Server => "the runtime server",
            Self::Dependencies => "the dependencies",
            Self::Source => "the source",
        })
    }
}

/// A failed attempt.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The registry Secret is unreadable.
    #[error("could not read the registry Secret at {path}", path = .path.display())]
    ReadSecret {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The registry Secret is invalid.
    #[error("{0}")]
    Secret(Problem),
    /// The registry failed.
    #[error(transparent)]
    Registry(registry::Error),
    /// The base image cannot be used.
    #[error("could not use the base image")]
    Base(#[source] BaseError),
    /// The certificate of the base image's registry is not trusted.
    #[error("could not use the base image")]
    UntrustedBase {
        /// How to fix the error.
        way_out: &'static str,
        /// The cause.
        #[source]
        cause: BaseError,
    },
    /// The CA bundle contains no certificates.
    #[error("the CA bundle of MAINSTAY_BASE_CA holds no certificates in PEM")]
    NoCertificates,
    /// A file of the base's layout does not match its name.
    #[error("the base image is broken: the digest or size of {path} does not match its name", path = .path.display())]
    BrokenLayout {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: registry::Error,
    },
    /// A layer could not be built.
    #[error("could not put {part} into the image")]
    Layer {
        /// The layer.
        part: Part,
        /// The cause.
        #[source]
        cause: LayerError,
    },
    /// The packages of the runtime server are missing.
    #[error(transparent)]
    Libraries(crate::runtimes::libraries::Error),
    /// The workspace of `fetch` is missing.
    #[error("there is no source in the workspace")]
    NoSource,
    /// The dependencies of the previous image cannot be reused.
    #[error("the previous image cannot be used again: {why}")]
    PreviousGone {
        /// The cause.
        why: &'static str,
    },
    /// A task panicked.
    #[error("internal error: a task panicked")]
    Broke(#[source] tokio::task::JoinError),
}

/// Why a base image cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct BaseError(#[from] base::Error);

/// Why a layer could not be built.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct LayerError(#[from] layer::Error);

impl Error {
    pub(super) fn of(part: Part) -> impl FnOnce(layer::Error) -> Self {
        move |cause| Self::Layer { part, cause: LayerError(cause) }
    }

    /// Converts the failure of a base image. `way_out` is the hint for an untrusted certificate.
    pub(super) fn base(cause: base::Error, way_out: &'static str) -> Self {
        match &cause {
            base::Error::Registry(registry::Error { fault: Fault::Untrusted { .. }, .. }) => {
                Self::UntrustedBase { way_out, cause: cause.into() }
            }
            _ => Self::Base(cause.into()),
        }
    }

    /// Returns the report of the container.
    pub fn failure(&self) -> BuildFailure {
        let (reason, retry) = self.meaning();
        let waits_for_registry = matches!(self, Self::Registry(error) if error.fault.lasts_at_registry());
        BuildFailure { reason, message: message(self), retry, waits_for_registry }
    }

    /// Returns a hint, if the error message contains none.
    fn way_out(&self) -> String {
        match self {
            Self::Registry(registry::Error { fault: Fault::Full { .. }, registry, .. }) => room(registry),
            Self::UntrustedBase { way_out, .. } => format!("; {way_out}"),
            _ => String::new(),
        }
    }

    fn meaning(&self) -> (FailureReason, bool) {
        let passes = |error: &registry::Error| error.fault.class() == Class::Unavailable;
        match self {
            Self::Registry(error) => match &error.fault {
                Fault::Other(other) => (FailureReason::BaseImage, passes(other)),
                Fault::Denied { .. } => (FailureReason::RegistryAuthorization, false),
                _ => (FailureReason::Registry, passes(error)),
            },
            Self::Base(BaseError(base::Error::Registry(error))) => (FailureReason::BaseImage, passes(error)),
            // The operator fixes the error, without a change to the Function.
            Self::UntrustedBase { .. } | Self::NoCertificates => (FailureReason::BaseImage, true),
            Self::Base(_) | Self::BrokenLayout { .. } => (FailureReason::BaseImage, false),
            Self::ReadSecret { .. } => (FailureReason::Registry, true),
            Self::Secret(_) => (FailureReason::Registry, false),
            Self::Layer { part, cause: LayerError(cause) } => match (cause, part) {
                (layer::Error::TooLarge { .. }, _) => (FailureReason::TooLarge, false),
                (layer::Error::Unfit(_), Part::Bytecode | Part::Dependencies) => {
                    (FailureReason::DependencyInvalid, false)
                }
                (layer::Error::Unfit(_), Part::Source) => (FailureReason::SourceInvalid, false),
                _ => (FailureReason::Internal, true),
            },
            Self::PreviousGone { .. } => (FailureReason::PreviousGone, true),
            Self::NoSource | Self::Libraries(_) | Self::Broke(_) => (FailureReason::Internal, false),
        }
    }
}

/// Returns a hint for a full registry. The registry of `mainstay install` has a Service and a PVC of the same name.
fn room(registry: &str) -> String {
    let host = registry.split(':').next().unwrap_or_default();
    let mut labels = host.split('.');
    match (labels.next(), labels.next(), labels.next()) {
        (Some(name @ INTERNAL_REGISTRY), Some(namespace), Some("svc")) => {
            format!("; enlarge it with `kubectl edit pvc -n {namespace} {name}`")
        }
        _ => "; free space there".to_owned(),
    }
}

/// Returns the chain of causes and the hint on one line that fits into the termination message.
fn message(error: &Error) -> String {
    let text = chain(error) + &error.way_out();
    let mut text: String = text.chars().map(|c| if is_unprintable(c) { '?' } else { c }).collect();
    let end = (0..=MAX_MESSAGE.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or_default());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_awaited_that_is_full_or_refuses_the_login() {
        let awaits = |fault: Fault| {
            let error = registry::Error { attempt: "could not push to", registry: "r".to_owned(), fault };
            Error::Registry(error).failure().waits_for_registry
        };
        let denied = |status| Fault::Denied { by: "the registry", status, anonymous: false };
        assert!(awaits(Fault::Full { status: 507 }) && awaits(denied(401)) && awaits(denied(403)));
        let other = registry::Error { attempt: "could not read", registry: "r".to_owned(), fault: denied(401) };
        assert!(!awaits(Fault::Other(Box::new(other))), "that is the registry of the base image");
        assert!(!awaits(Fault::Status { status: 503, code: None, retry_after: None }));
    }

    #[test]
    fn a_full_registry_is_reported_with_the_way_out() {
        let full = |registry: &str| {
            let (registry, attempt) = (registry.to_owned(), "could not push a layer to");
            Error::Registry(registry::Error { attempt, registry, fault: Fault::Full { status: 500 } }).failure()
        };
        let ours = full("serverless-docker-registry.mainstay-system.svc.cluster.local:5000");
        assert_eq!((ours.reason, ours.retry), (FailureReason::Registry, true));
        assert_eq!(
            ours.message,
            "could not push a layer to serverless-docker-registry.mainstay-system.svc.cluster.local:5000: its volume is full \
             (it answered 500); enlarge it with `kubectl edit pvc -n mainstay-system serverless-docker-registry`"
        );
        for other in
            ["registry.example.com", "other.mainstay-system.svc:5000", "serverless-docker-registry.example.com"]
        {
            assert!(full(other).message.ends_with("its volume is full (it answered 500); free space there"));
        }
    }
}
