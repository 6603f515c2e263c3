//! Errors of the benchmark.

use std::io;

/// A failed step of the benchmark.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant says what it is in its message")]
pub enum Error {
    #[error("could not make a temporary directory")]
    Directory(#[source] io::Error),
    #[error("could not start a process")]
    Start(#[source] io::Error),
    #[error("a process did not start; what it said is above")]
    NotStarted,
    #[error("there are no packages of Functions to compare with: {0}")]
    Packages(String),
    #[error("could not read what Linux says of a process")]
    Measure(#[source] io::Error),
    #[error("could not use nats-server ({0}); `.ci/test --install` installs it")]
    Broker(String),
    #[error("could not publish an event")]
    Publish(#[source] hyper_util::client::legacy::Error),
    #[error("could not create a client")]
    Client(#[source] reqwest::Error),
    #[error("an event was not accepted: {0}")]
    NotAccepted(http::StatusCode),
    #[error("could not build a request")]
    Request(#[source] http::Error),
    #[error("the {what} are not ready after {seconds} s")]
    NotReady { what: &'static str, seconds: u64 },
    #[error("an event did not reach its subscribers in time")]
    NotDelivered,
    #[error("could not write the load")]
    Load(#[source] io::Error),
    #[error("could not commit the load")]
    Commit(#[source] git2::Error),
    #[error("could not read the kubeconfig")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    #[error("the kubeconfig has no current context with a cluster")]
    NoCluster,
    #[error("--shards measures one number of GitSyncs: name one number after --syncs")]
    OneNumber,
    #[error("could not read the audit log")]
    Audit(#[source] io::Error),
    #[error("could not understand a record of the audit log")]
    AuditRecord(#[source] serde_json::Error),
    #[error("could not ask the cluster")]
    Ask(#[source] kube::Error),
    #[error("could not read a page of the console")]
    Page(#[source] reqwest::Error),
    #[error("could not read the counters")]
    Count(#[source] reqwest::Error),
    #[error("could not understand the counters")]
    Counts(#[source] serde_json::Error),
    #[error("{missing} objects were not as the branch says after {seconds} s")]
    NotReached { missing: usize, seconds: u64 },
    #[error("the agent did not act on a request within {seconds} s")]
    NotHandled { seconds: u64 },
    #[error("no Receiver was ready within {seconds} s")]
    NotReceiving { seconds: u64 },
    #[error("the API server did not ask the agent about a write within {seconds} s")]
    NotAsked { seconds: u64 },
    #[error("could not deliver a push")]
    Deliver(#[source] reqwest::Error),
    #[error("could not tell the embedded cluster what to simulate")]
    Simulate(#[source] reqwest::Error),
    #[error("could not ask the registry")]
    Registry(#[source] reqwest::Error),
    #[error("could not understand the address of a function")]
    Address(#[source] http::uri::InvalidUri),
    #[error("could not call a function")]
    Call(#[source] hyper_util::client::legacy::Error),
    #[error("a function answered {0}")]
    Answer(http::StatusCode),
    #[error("could not read the answer of a function")]
    Read(#[source] io::Error),
}
