//! The task of a subscriber: takes its events from the store and delivers them.
//!
//! Invariant: the task takes only as many events as the subscriber allows concurrently, a few more from a server if the
//! subscriber is prompt, and one event of each partition. The task also stores the numbers of the events that wait for a
//! retry or for an earlier event of their source; the journal and the NATS server limit the number of these events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::FutureExt as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::attempt::{Delivery, attempt};
use super::ordering::{Lane, Lanes, Ordering, SourceDigest};
use super::retry::Next;
use super::store::{Source, Taken};
use super::subscriber::{Subscriber, SubscriberId};
use mainstay_object::failure::caught;

/// Delay before an event is read again to find its source.
const READ: Duration = Duration::from_secs(1);

/// Maximum size in bytes of the events of a subscriber that wait for a delivery while others are taken in advance, and
/// the time for which they may wait.
const AHEAD: usize = 64 << 10;
const PROMPT: Duration = Duration::from_secs(1);

/// Maximum number of events of a subscriber that are in flight or whose record in the journal is not written yet, in
/// addition to those that the subscriber allows concurrently. A killed process repeats all of them.
const UNRECORDED: usize = 32;

/// The events that were taken for a subscriber.
pub(super) struct Work {
    delivery: Arc<Delivery>,
    source: Source,
    waiting: Lanes<Taken>,
    later: BTreeMap<(Instant, u64), (Lane, Taken)>,
    flights: JoinSet<(Lane, Taken, Next)>,
    /// The records of accepted events that the journal writes.
    records: JoinSet<Lane>,
    /// The end of a pause, and the number of pauses.
    resumes: Instant,
    pauses: u32,
    /// Changes when a server may deliver the events to another process.
    losses: watch::Receiver<u64>,
    /// The time of the last loss.
    lost: Option<Instant>,
}

impl Work {
    pub(super) fn new(delivery: Arc<Delivery>, source: Source) -> Self {
        Self {
            delivery,
            losses: source.losses(),
            source,
            waiting: Lanes::default(),
            later: BTreeMap::new(),
            flights: JoinSet::new(),
            records: JoinSet::new(),
            resumes: Instant::now(),
            pauses: 0,
            lost: None,
        }
    }

    /// Begins the deliveries that are due. Returns how many events the store is asked for, and when deliveries are due
    /// again.
    fn begin(&mut self, to: &Arc<Subscriber>) -> (usize, Option<Instant>) {
        let now = Instant::now();
        if self.losses.has_changed().unwrap_or(false) {
            self.lose();
        }
        while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= now) {
            let (lane, one) = entry.remove();
            self.waiting.put_back(lane, one.number, one);
        }
        if to.ordering == Ordering::Source {
            self.source.with_partitions();
        }
        let is_free = |work: &Self| {
            work.flights.len() < to.in_flight && work.flights.len() + work.records.len() < to.in_flight + UNRECORDED
        };
        while self.resumes <= now && to.route.is_some() && is_free(self) {
            let Some((lane, one)) = self.waiting.take() else { break };
            let attempt = attempt(Arc::clone(&self.delivery), Arc::clone(to), (lane, one), self.pauses);
            self.flights.spawn(attempt.boxed());
        }
        let due = self.later.keys().next().map(|(due, _)| *due);
        let resuming = (self.resumes > now && self.waiting.ready() > 0).then_some(self.resumes);
        let held = self.waiting.ready() + self.flights.len();
        (self.source.room(to.in_flight, held, self.is_prompt(now)), due.into_iter().chain(resuming).min())
    }

    /// Whether events may be taken in advance: the subscriber does not pause, and those that wait are few and recent.
    fn is_prompt(&self, now: Instant) -> bool {
        if self.resumes > now || !self.source.is_of_a_server() {
            return false;
        }
        let bytes: usize = self.waiting.all().map(|one| one.size).sum();
        bytes < AHEAD && self.waiting.all().all(|one| now.saturating_duration_since(one.since) < PROMPT)
    }

    /// Drops the events that are not in flight. Other processes may deliver them, and later ones.
    fn lose(&mut self) {
        self.losses.mark_unchanged();
        self.lost = Some(Instant::now());
        self.waiting.clear();
    }

    /// Records the end of a delivery.
    fn end(&mut self, to: &SubscriberId, (lane, one, next): (Lane, Taken, Next)) {
        let is_held = one.is_held_by_a_server();
        match next {
            Next::Done if !is_held => {
                self.pauses = 0;
                self.record(to, lane, one);
            }
            Next::Again(wait) if !is_held => {
                self.pauses = 0;
                self.later.insert((Instant::now() + wait, one.number), (lane, one));
            }
            Next::Done | Next::GiveUp(_) | Next::Again(_) => {
                self.pauses = 0;
                self.leave(lane, is_held);
            }
            Next::Pause(wait) => {
                if is_held && self.lost.is_some_and(|lost| one.since < lost) {
                    // A copy that the server has sent after the loss is delivered instead.
                    self.waiting.end(lane);
                } else {
                    self.waiting.put_back(lane, one.number, one);
                }
                if self.resumes <= Instant::now() {
                    self.resumes = Instant::now() + wait;
                    self.pauses += 1;
                }
            }
        }
    }

    /// Records that the subscriber has accepted an event. The next event of the lane waits for it.
    fn record(&mut self, to: &SubscriberId, lane: Lane, one: Taken) {
        let (delivery, to) = (Arc::clone(&self.delivery), to.clone());
        self.records.spawn(async move {
            // After a panic, the event stays in the journal.
            let _ = caught(delivery.store.ended(&one, &to)).await;
            lane
        });
    }

    /// Ends the taken event of a lane. A server may have sent copies of it.
    fn leave(&mut self, lane: Lane, is_held: bool) {
        if is_held {
            self.waiting.forget(lane);
        }
        self.waiting.end(lane);
    }

    /// Returns the events that are not in flight to the server, and waits until the ends of deliveries are recorded. The
    /// others end with this task.
    async fn release(mut self, to: &SubscriberId) {
        loop {
            while let Some(flown) = self.flights.try_join_next() {
                if let Ok(flown) = flown {
                    self.end(to, flown);
                }
            }
            if self.records.join_next().await.is_none() {
                break;
            }
        }
        // Without open requests, the server returns none of them to this process.
        self.source.release().await;
        while let Some((_, one)) = self.waiting.take() {
            self.delivery.store.release(&one).await;
        }
    }
}

/// Delivers until `stop`, or until the subscriber is deleted.
pub(super) async fn work(mut work: Work, mut subscriber: watch::Receiver<Arc<Subscriber>>, stop: CancellationToken) {
    let was_partitioned = stop.run_until_cancelled(Box::pin(work.source.was_partitioned())).await;
    match was_partitioned {
        Some(true) => work.source.with_partitions(),
        Some(false) => {}
        None => return,
    }
    loop {
        let to = Arc::clone(&subscriber.borrow_and_update());
        let (free, wake) = work.begin(&to);
        tokio::select! {
            () = stop.cancelled() => return work.release(&to.id).await,
            changed = subscriber.changed() => if changed.is_err() { return },
            Ok(()) = work.losses.changed() => work.lose(),
            taken = work.source.next(free), if free > 0 || work.source.is_of_a_server() => {
                let Some(lane) = stop.run_until_cancelled(lane(&work.delivery, &to, &taken)).await else {
                    work.delivery.store.release(&taken).await;
                    return work.release(&to.id).await;
                };
                work.waiting.push(lane, taken.number, taken);
            }
            Some(flown) = work.flights.join_next(), if !work.flights.is_empty() => match flown {
                Ok(flown) => work.end(&to.id, flown),
                // The event stays in the store.
                Err(error) => tracing::error!(subscriber = %to.id, %error, "a delivery has ended early"),
            },
            Some(recorded) = work.records.join_next(), if !work.records.is_empty() => match recorded {
                Ok(lane) => work.waiting.end(lane),
                Err(error) => tracing::error!(subscriber = %to.id, %error, "a record of the journal has ended early"),
            },
            () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
        }
    }
}

/// Returns the lane of an event: that of its source, if this process keeps the order.
async fn lane(delivery: &Delivery, to: &Subscriber, one: &Taken) -> Lane {
    while to.ordering == Ordering::Source && !one.is_held_by_a_server() {
        match delivery.store.read(one).await {
            Ok(Some(kept)) => {
                return Lane::Source(SourceDigest::of(kept.event.attribute("source").unwrap_or_default()));
            }
            Ok(None) => break,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => break,
            Err(error) => {
                tracing::error!(subscriber = %to.id, %error, "an event could not be read from the store");
                tokio::time::sleep(READ).await;
            }
        }
    }
    Lane::Own(one.number)
}
