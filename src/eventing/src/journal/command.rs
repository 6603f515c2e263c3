//! The messages and the state between the journal's users and its writing task.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{oneshot, watch};

use super::super::subscriber::SubscriberId;
use super::super::table::Routed;
use super::fresh::Fresh;
use super::index::Index;
use super::tables::Tables;

/// Why an event is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("the journal is full: subscribers have not received earlier events")]
    Full,
    #[error("the store is full for {}: subscribers have not received earlier events", named(namespaces))]
    Share { namespaces: BTreeSet<String> },
    #[error("the journal cannot be written")]
    Io(#[source] Arc<io::Error>),
    #[error("it is shutting down")]
    Ending,
    #[error("NATS did not store the event: {0}")]
    Broker(String),
}

impl Refused {
    /// Returns the refusal of events if the shares of all their subscribers are used up.
    pub(crate) fn share<'a>(to: impl Iterator<Item = &'a SubscriberId>) -> Self {
        Self::Share { namespaces: to.map(|to| to.parts().1.to_owned()).collect() }
    }
}

/// Returns the namespaces for a message, at most five of them.
fn named(namespaces: &BTreeSet<String>) -> String {
    let first: Vec<&str> = namespaces.iter().take(5).map(String::as_str).collect();
    let more = namespaces.len().saturating_sub(first.len());
    let noun = if namespaces.len() == 1 { "namespace" } else { "namespaces" };
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{noun} {}{rest}", first.join(", "))
}

/// A request to the writing task.
pub(super) enum Command {
    Publish { routed: Vec<Routed>, is_replay: bool, reply: oneshot::Sender<Result<(), Refused>> },
    Ended { numbers: Vec<u64>, to: SubscriberId, until: Until, reply: oneshot::Sender<()> },
    Tried { number: u64, to: SubscriberId, attempts: u32 },
}

/// The time of the reply to an end of deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The command is handled. If the disk fails, it is written later.
    Handled,
    /// The record is on disk.
    Written,
}

/// The state that the writing task and its users share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) index: Mutex<Index>,
    pub(super) fresh: Mutex<Fresh>,
    /// The opened database; `None` while it cannot be opened again after a failure.
    pub(super) tables: RwLock<Option<Tables>>,
    /// Changes after each batch of stored events.
    pub(super) stored: watch::Sender<()>,
}
