//! What others and the task that writes say to each other.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::super::subscriber::SubscriberId;
use super::super::table::Routed;
use super::index::Index;
use super::store::Files;

/// Why an event is not kept.
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

/// Instead of attempts: so many events wait for the subscriber or its namespace that this one is not delivered, but a dead letter.
pub(crate) const OVER: u32 = u32::MAX;

/// An event that a subscriber has to get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) number: u64,
    pub(crate) to: SubscriberId,
    /// How often it was delivered in vain.
    pub(crate) attempts: u32,
}

/// What the task is asked for.
pub(super) enum Command {
    Publish { routed: Vec<Routed>, is_replay: bool, reply: oneshot::Sender<Result<(), Refused>> },
    Ended { numbers: Vec<u64>, to: SubscriberId, reply: oneshot::Sender<()> },
    Tried { number: u64, to: SubscriberId, attempts: u32 },
}

/// What both know.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) index: Mutex<Index>,
    pub(super) files: Mutex<Files>,
}
