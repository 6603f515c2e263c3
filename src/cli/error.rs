//! Failures of commands.

use std::io;

use crate::cluster;

/// A failed attempt of a command; the cause is its source.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("could not start the runtime")]
    Start(#[source] io::Error),
    #[error("could not write to standard output")]
    Print(#[source] io::Error),
    #[error("could not write YAML")]
    WriteYaml(#[source] serde_yaml::Error),
    #[error("could not listen for signals")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    #[error("could not understand the answer about {what}")]
    Understand {
        what: String,
        #[source]
        cause: serde_json::Error,
    },
    #[error("the cluster does not know the kind {kind}")]
    NotInstalled { kind: String },
    #[error("the cluster has no kind that is called {0}")]
    UnknownKind(String),
    #[error("{what} does not exist")]
    Missing { what: String },
    #[error("there is no GitSync in the namespace {namespace}")]
    NoSync { namespace: String },
    #[error("these environment variables cannot be used:\n{}", .0.iter().map(|refused| format!("  {refused}")).collect::<Vec<_>>().join("\n"))]
    Settings(Vec<crate::function::InvalidVariable>),
    #[error("the agent ended")]
    Agent(#[from] crate::agent::Error),
    #[cfg(feature = "dev")]
    #[error("a part of the program broke")]
    Part(#[source] tokio::task::JoinError),
    #[cfg(feature = "dev")]
    #[error(transparent)]
    Dev(#[from] super::dev::Error),
    #[cfg(feature = "dev")]
    #[error(transparent)]
    Bench(#[from] mainstay_bench::Error),
    #[error("{}", .0.message)]
    Build(crate::api::build::BuildFailure),
    #[error("no agent has acted on the request within {seconds} s")]
    NotAnswered { seconds: u64 },
}

impl Error {
    /// The hint.
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::NotInstalled { .. } => Some("install the definitions: mainstay crd | kubectl apply -f -".into()),
            Self::UnknownKind(_) => Some("kubectl api-resources lists the kinds".into()),
            Self::Missing { .. } | Self::NoSync { .. } => Some("-n NAMESPACE looks in another namespace".into()),
            Self::NotAnswered { .. } => Some("is an agent running? its Lease: kubectl get lease -A".into()),
            Self::Cluster(error) if matches!(*error.cause, cluster::Cause::Configuration(_)) => {
                Some("--kubeconfig FILE or KUBECONFIG=FILE names the cluster".into())
            }
            #[cfg(feature = "dev")]
            Self::Dev(error) => error.hint(),
            _ => None,
        }
    }
}
