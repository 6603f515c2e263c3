//! The store of accepted events: the journal of this process, or NATS JetStream.
//!
//! Events are accepted with [`Store::publish`] and taken for delivery from a [`Source`]; each subscriber has its own. A
//! taken event stays in the store until [`Store::ended`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{FutureExt as _, select_all};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::dead_letters::{DeadLetter, DeadLetters};
use super::jetstream::{Held, JetStream, Puller};
use super::journal::{Journal, Kept, Refused, Which};
use super::ordering::PARTITIONS;
use super::subscriber::SubscriberId;
use super::table::Routed;

/// The reason of a dead letter for a subscriber whose share is used up.
pub(super) const OVER: &str = "too many events wait for the subscriber or for its namespace";

/// Delay before a server is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// Maximum number of events of a subscriber that are taken from a server in advance, and for each concurrent delivery beyond
/// the first. Each request to a server costs about as much as two events.
const AHEAD: usize = 32;
const AHEAD_OF_EACH: usize = 3;

/// A store. Clones share the same store.
#[derive(Clone, Debug)]
pub(super) enum Store {
    Log { journal: Journal, letters: Arc<DeadLetters> },
    JetStream(JetStream),
}

/// An event that was taken for delivery and that its subscriber has not accepted yet.
pub(super) struct Taken {
    /// Number of the event. Events with smaller numbers were published earlier.
    pub(super) number: u64,
    /// Number of failed deliveries; `None` if it could not be read.
    pub(super) attempts: Option<u32>,
    /// Size in bytes of an event that is in memory.
    pub(super) size: usize,
    /// The time at which the event was taken.
    pub(super) since: Instant,
    place: Place,
}

enum Place {
    Log,
    JetStream(Box<Held>),
}

impl Taken {
    fn new(number: u64, attempts: Option<u32>, size: usize, place: Place) -> Self {
        Self { number, attempts, size, since: Instant::now(), place }
    }

    /// Returns the number of this delivery for the time until the next one. It also grows if failed deliveries cannot be
    /// counted.
    pub(super) fn tries(&self) -> u32 {
        let before = match &self.place {
            Place::Log => 0,
            Place::JetStream(held) => held.before,
        };
        self.attempts.unwrap_or(0).max(before).saturating_add(1)
    }

    /// Whether the store itself returns the event again after [`Store::tried`].
    pub(super) fn is_held_by_a_server(&self) -> bool {
        matches!(self.place, Place::JetStream(_))
    }
}

/// The events of a subscriber, in the order of publication.
pub(super) enum Source {
    Log {
        journal: Journal,
        stored: watch::Receiver<()>,
        of: SubscriberId,
        which: Which,
        last: u64,
    },
    /// The consumer of events without an order, and those of partitions.
    JetStream {
        plain: Puller,
        partitions: Vec<Puller>,
        store: JetStream,
        of: SubscriberId,
    },
}

impl Source {
    fn of_log(journal: &Journal, of: &SubscriberId, which: Which) -> Self {
        Self::Log { stored: journal.stored(), journal: journal.clone(), of: of.clone(), which, last: 0 }
    }

    /// Whether the subscriber has had an order: the events that wait in partitions are still delivered.
    pub(super) async fn was_partitioned(&mut self) -> bool {
        let (store, of) = match self {
            Self::Log { .. } => return false,
            Self::JetStream { store, of, .. } => (store.clone(), of.clone()),
        };
        loop {
            match store.is_partitioned(&of).await {
                Ok(is_partitioned) => return is_partitioned,
                // The error is logged when no events can be taken.
                Err(error) => tracing::debug!(subscriber = %of, %error, "the partitions are not known"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Takes the events of partitions from now on, too.
    pub(super) fn with_partitions(&mut self) {
        if let Self::JetStream { plain, partitions, .. } = self
            && partitions.is_empty()
        {
            partitions.extend((0..PARTITIONS).map(|number| plain.of_partition(number)));
        }
    }

    /// Whether the events come from a server, which sends those that it was asked for.
    pub(super) fn is_of_a_server(&self) -> bool {
        matches!(self, Self::JetStream { .. })
    }

    /// Returns a receiver that changes when a server may deliver taken events to another process.
    pub(super) fn losses(&self) -> watch::Receiver<u64> {
        match self {
            Self::Log { .. } => watch::Sender::new(0).subscribe(),
            Self::JetStream { store, .. } => store.losses(),
        }
    }

    /// Returns how many events may be taken for a subscriber with `in_flight` concurrent deliveries, if `held` events are
    /// taken already. A server is asked for several events at a time, and in advance if the subscriber `is_prompt`, so
    /// that no delivery waits for it.
    pub(super) fn room(&self, in_flight: usize, held: usize, is_prompt: bool) -> usize {
        let is_ahead = is_prompt && self.is_of_a_server();
        room(in_flight, held, if is_ahead { (in_flight.saturating_sub(1) * AHEAD_OF_EACH).min(AHEAD) } else { 0 })
    }

    /// Returns the events that have arrived to a server, which delivers them again. Ends the requests.
    pub(super) async fn release(&mut self) {
        if let Self::JetStream { plain, partitions, .. } = self {
            for puller in std::iter::once(plain).chain(partitions) {
                puller.release().await;
            }
        }
    }

    /// Waits for the next event. A server is asked for at most `most` events, and for one of each partition, unless
    /// events that it was asked for are missing. It is asked for an event without an order if none is held.
    /// Cancel-safe: no event is lost if the future is dropped.
    pub(super) async fn next(&mut self, most: usize) -> Taken {
        match self {
            Self::Log { journal, stored, of, which, last } => loop {
                stored.mark_unchanged();
                if let Some(next) = journal.after(of, *which, *last, 1).first() {
                    *last = next.number;
                    return Taken::new(next.number, Some(next.attempts), 0, Place::Log);
                }
                if stored.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            },
            Self::JetStream { plain, partitions, .. } => {
                let (number, attempts, held) = if partitions.is_empty() {
                    plain.next(most).await
                } else {
                    let own = std::iter::once(plain.next(most).boxed());
                    let mut all: Vec<_> = partitions.iter_mut().map(|one| one.next(1).boxed()).chain(own).collect();
                    // Each partition is the first one in turn.
                    let begin = fastrand::usize(..all.len());
                    all.rotate_left(begin);
                    select_all(all).await.0
                };
                Taken::new(number, attempts, held.size, Place::JetStream(Box::new(held)))
            }
        }
    }
}

impl Store {
    /// Returns the name of the store, for metrics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Log { .. } => "journal",
            Self::JetStream(_) => "nats",
        }
    }

    /// Returns the events to deliver to a subscriber.
    pub(super) fn deliverable(&self, to: &SubscriberId) -> Source {
        match self {
            Self::Log { journal, .. } => Source::of_log(journal, to, Which::Deliverable),
            Self::JetStream(store) => Source::JetStream {
                plain: Puller::new(store.clone(), to.clone()),
                partitions: Vec::new(),
                store: store.clone(),
                of: to.clone(),
            },
        }
    }

    /// Returns the events of a subscriber that exceed a share, if the store contains such events.
    pub(super) fn over(&self, to: &SubscriberId) -> Option<Source> {
        match self {
            Self::Log { journal, .. } => Some(Source::of_log(journal, to, Which::Over)),
            Self::JetStream(_) => None,
        }
    }

    /// Stores events for their subscribers. With `is_replay`, events are stored even if they were published recently.
    pub(super) async fn publish(&self, routed: Vec<Routed>, is_replay: bool) -> Result<(), Refused> {
        let store = match self {
            Self::Log { journal, .. } if is_replay => return journal.publish_again(routed).await,
            Self::Log { journal, .. } => return journal.publish(routed).await,
            Self::JetStream(store) => store,
        };
        for (to, event) in store.publish(&routed, is_replay).await? {
            tracing::warn!(subscriber = %to, reason = OVER, "an event could not be delivered");
            let letter = DeadLetter::new(&to, &event, OVER, 0, Timestamp::now());
            let buried = Box::pin(store.bury(&to, &letter)).await;
            buried.map_err(|error| Refused::Broker(error.to_string()))?;
        }
        Ok(())
    }

    /// Reads an event; `None` if it was removed in the meantime. The error is `InvalidData` if the event can never be
    /// read.
    pub(super) async fn read(&self, taken: &Taken) -> io::Result<Option<Kept>> {
        match (self, &taken.place) {
            (_, Place::JetStream(held)) => match &held.event {
                Ok(event) => Ok(Some(Kept { event: Arc::clone(event), published: held.published })),
                Err(why) => Err(io::Error::new(io::ErrorKind::InvalidData, why.clone())),
            },
            (Self::Log { journal, .. }, Place::Log) => journal.read(taken.number).await,
            (Self::JetStream(_), Place::Log) => Ok(None),
        }
    }

    /// Records that a subscriber has accepted an event, or will never receive it.
    pub(super) async fn ended(&self, taken: &Taken, to: &SubscriberId) {
        match (self, &taken.place) {
            (_, Place::JetStream(held)) => held.ended().await,
            (Self::Log { journal, .. }, Place::Log) => journal.ended(taken.number, to).await,
            (Self::JetStream(_), Place::Log) => {}
        }
    }

    /// Records the number of failed deliveries of an event, if it is known. The event is delivered again after a delay.
    pub(super) async fn tried(&self, taken: &Taken, to: &SubscriberId, wait: Duration) {
        match (self, &taken.place) {
            (Self::JetStream(store), Place::JetStream(held)) => {
                if let Some(attempts @ 1..) = taken.attempts {
                    let event = (taken.number, held.published);
                    Box::pin(store.record_attempts(to, event, attempts)).await;
                }
                held.again(Some(wait)).await;
            }
            (Self::Log { journal, .. }, Place::Log) => {
                if let Some(attempts) = taken.attempts {
                    journal.tried(taken.number, to, attempts).await;
                }
            }
            (Self::Log { .. }, Place::JetStream(_)) | (Self::JetStream(_), Place::Log) => {}
        }
    }

    /// Returns an event that is not in flight to a server, which delivers it again.
    pub(super) async fn release(&self, taken: &Taken) {
        if let Place::JetStream(held) = &taken.place {
            held.again(None).await;
        }
    }

    /// Stores a dead letter.
    pub(super) async fn bury(&self, to: &SubscriberId, letter: &DeadLetter) -> io::Result<()> {
        match self {
            Self::Log { letters, .. } => {
                let (letters, to, letter) = (Arc::clone(letters), to.clone(), letter.clone());
                let written = tokio::task::spawn_blocking(move || letters.append(&to, &letter)).await;
                written.map_err(io::Error::other).flatten()
            }
            Self::JetStream(store) => store.bury(to, letter).await,
        }
    }
}

/// Returns how many events the store is asked for, with `ahead` events in advance. It is asked again when half of these
/// are used up.
fn room(in_flight: usize, held: usize, ahead: usize) -> usize {
    let room = (in_flight + ahead).saturating_sub(held);
    if room > ahead / 2 { room } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_asked_for_several_events_and_before_deliveries_wait_for_it() {
        assert_eq!([0, 3, 12, 13, 15, 30].map(|held| room(10, held, 5)), [15, 12, 3, 0, 0, 0]);
        assert_eq!([0, 103, 104].map(|held| room(100, held, 8)), [108, 5, 0]);
    }

    #[test]
    fn a_slow_subscriber_has_no_events_in_advance() {
        assert_eq!([0, 1, 2].map(|held| room(1, held, 0)), [1, 0, 0]);
        assert_eq!([0, 9, 10, 11].map(|held| room(10, held, 0)), [10, 1, 0, 0]);
    }
}
