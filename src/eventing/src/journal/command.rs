//! The messages and the state between the journal's users and its writing task.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::super::subscriber::SubscriberId;
use super::super::table::Routed;
use super::index::Index;
use super::store::Files;

/// Why an event is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("the journal is full: subscribers have not received earlier events")]
    Full,
    #[error("the journal is full for the namespaces of the subscribers: they have not received earlier events")]
    Share,
    #[error("the journal cannot be written")]
    Io(#[source] Arc<io::Error>),
    #[error("it is ending")]
    Ending,
}

/// The number of attempts that marks an event as a dead letter, because the share of its subscriber or namespace is
/// used up.
pub(crate) const OVER: u32 = u32::MAX;

/// An event to deliver to a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) number: u64,
    pub(crate) to: SubscriberId,
    /// Number of failed deliveries.
    pub(crate) attempts: u32,
}

/// A request to the writing task.
pub(super) enum Command {
    Publish { routed: Vec<Routed>, is_replay: bool, reply: oneshot::Sender<Result<(), Refused>> },
    Ended { numbers: Vec<u64>, to: SubscriberId, reply: oneshot::Sender<()> },
    Tried { number: u64, to: SubscriberId, attempts: u32 },
}

/// The state that the writing task and its users share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) index: Mutex<Index>,
    pub(super) files: Mutex<Files>,
}
