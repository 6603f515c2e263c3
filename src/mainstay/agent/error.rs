//! The reasons why the agent ended.

use std::io;
use std::net::SocketAddr;

use tokio::task::JoinError;

use mainstay_engine::drift;

/// The reason why the agent ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The listener for health and metrics could not be opened, or failed.
    #[error("could not serve health and metrics on {address}")]
    Serve {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The listener for webhooks could not be opened.
    #[error("could not receive webhooks on {address}")]
    Receive {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The listener for admission webhooks could not be opened.
    #[error("could not serve admission webhooks on {address}")]
    Admit {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The drift loop ended.
    #[error("the drift loop ended")]
    Drift(#[source] drift::Error),
    /// A task panicked.
    #[error("a task of the agent broke")]
    Task(#[source] JoinError),
}

impl Error {
    /// Returns whether a panic is the cause.
    pub(super) fn is_panic(&self) -> bool {
        match self {
            Self::Task(ended) | Self::Drift(drift::Error::Task(ended)) => ended.is_panic(),
            Self::Serve { .. } | Self::Receive { .. } | Self::Admit { .. } => false,
        }
    }
}
