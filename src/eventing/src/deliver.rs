//! Delivers the events of a store, with one task for each subscriber.
//!
//! Invariant: an event is removed from the store when its subscriber has accepted it, or when its dead letter is
//! stored. Invariant: a task takes only as many events as the subscriber allows concurrently, a few more from a server,
//! and one event of each partition. The task also stores the numbers of the events that wait for a retry or for an
//! earlier event of their source; the journal and the NATS server limit the number of these events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::FutureExt as _;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::dead_letters::DeadLetter;
use super::jetstream::{Exists, JetStream};
use super::journal::{Journal, Kept};
use super::metrics::Metrics;
use super::ordering::{Lane, Lanes, Ordering, SourceDigest};
use super::retry::{Next, Outcome, next};
use super::send::{Sender, Sent};
use super::store::{OVER, Source, Store, Taken};
use super::subscriber::{Subscriber, SubscriberId, Target};
use super::table::Table;
use mainstay_object::failure::caught;

/// Delay before a dead letter that could not be written is written again.
const AGAIN: Duration = Duration::from_secs(60);

/// Delay before an event is read again to find its source.
const READ: Duration = Duration::from_secs(1);

/// Delay before a failed sweep of NATS is repeated, and interval at which a draining journal is checked.
const SWEEP: Duration = Duration::from_secs(5);

/// Called with each event that is given up, and its subscriber.
pub(super) type Failed = dyn Fn(&Subscriber, &DeadLetter) + Send + Sync;

/// The state that all deliveries share.
pub(super) struct Delivery {
    /// The store of the events.
    pub(super) store: Store,
    /// The store for events in the responses of subscribers.
    pub(super) answers: Store,
    pub(super) sender: Arc<Sender>,
    /// All subscribers, once they are known.
    pub(super) table: watch::Receiver<Option<Arc<Table>>>,
    /// Called for each event that is given up.
    pub(super) failed: Arc<Failed>,
    /// Whether the cluster has a subscriber, for removals that other processes notice.
    pub(super) exists: Arc<Exists>,
    pub(super) metrics: Metrics,
}

/// The task of a subscriber.
struct Worker {
    subscriber: watch::Sender<Arc<Subscriber>>,
    tasks: Vec<AbortHandle>,
}

/// Delivers until `stop`, or until a task panics.
pub(super) async fn deliver(delivery: Arc<Delivery>, stop: CancellationToken) -> Result<(), JoinError> {
    let mut table = delivery.table.clone();
    let mut workers: BTreeMap<SubscriberId, Worker> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    if !matches!(stop.run_until_cancelled(table.wait_for(Option::is_some)).await, Some(Ok(_))) {
        return Ok(());
    }
    table.mark_changed();
    // Without a journal, this receiver never changes.
    let mut stored = match &delivery.store {
        Store::Log { journal, .. } => journal.stored(),
        Store::JetStream(store) => {
            tasks.spawn(sweep(store.clone(), table.clone(), Arc::clone(&delivery.exists)));
            watch::Sender::new(()).subscribe()
        }
    };
    loop {
        tokio::select! {
            // Subscribers are updated before their events are handled.
            biased;
            () = stop.cancelled() => return Ok(()),
            Ok(()) = table.changed() => {
                let Some(all) = table.borrow_and_update().clone() else { continue };
                for id in workers.keys().filter(|id| !all.0.contains_key(*id)).cloned().collect::<Vec<_>>() {
                    if let Some(worker) = workers.remove(&id) {
                        worker.tasks.iter().for_each(AbortHandle::abort);
                    }
                    forget(&delivery, &id).await;
                }
                for (id, subscriber) in &all.0 {
                    let Some(worker) = workers.get(id) else {
                        workers.insert(id.clone(), begin(&delivery, subscriber, &mut tasks));
                        continue;
                    };
                    worker.subscriber.send_if_modified(|known| {
                        let is_other = *known != *subscriber;
                        known.clone_from(subscriber);
                        is_other
                    });
                }
                stored.mark_changed();
            }
            // The subscriber of an event may have been deleted before the event arrives.
            Ok(()) = stored.changed() => end_strangers(&delivery).await,
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => match ended {
                Err(error) if error.is_panic() => return Err(error),
                _ => {}
            },
        }
    }
}

/// Removes the events of the journal whose subscriber does not exist.
///
/// Invariant: the table is read after the list, so the table contains the subscriber of each listed event unless that
/// subscriber was deleted.
async fn end_strangers(delivery: &Delivery) {
    let Store::Log { journal, .. } = &delivery.store else { return };
    let waiting = journal.subscribers();
    let Some(table) = delivery.table.borrow().clone() else { return };
    for id in waiting.iter().filter(|id| !table.0.contains_key(*id)) {
        journal.ended(journal.pending_of(id), id).await;
    }
}

/// Deletes consumers, events and streams of deleted subscribers from NATS, at the start and when subscribers change.
async fn sweep(store: JetStream, mut table: watch::Receiver<Option<Arc<Table>>>, exists: Arc<Exists>) {
    let mut swept: Option<BTreeSet<SubscriberId>> = None;
    loop {
        let Some(known) = table.borrow_and_update().clone() else { return };
        let present: BTreeSet<SubscriberId> = known.0.keys().cloned().collect();
        if swept.as_ref() != Some(&present) {
            match store.sweep(&known, &*exists).await {
                Ok(()) => swept = Some(present),
                Err(error) => {
                    tracing::warn!(%error, "events of former subscribers could not be removed from NATS");
                    tokio::time::sleep(SWEEP).await;
                    continue;
                }
            }
        }
        if table.changed().await.is_err() {
            return;
        }
    }
}

/// Logs when the journal is empty. The journal receives no new events.
pub(super) async fn drained(journal: Journal) {
    while journal.size().0 > 0 {
        tokio::time::sleep(SWEEP).await;
    }
    tracing::info!("the journal is empty: all of its events are delivered, or are dead letters");
}

/// Removes all events of a deleted subscriber from the journal, and removes the subscriber's dead letters.
async fn forget(delivery: &Delivery, id: &SubscriberId) {
    let Store::Log { journal, letters } = &delivery.store else { return };
    journal.ended(journal.pending_of(id), id).await;
    let (letters, of) = (Arc::clone(letters), id.clone());
    if let Ok(Err(error)) = tokio::task::spawn_blocking(move || letters.remove(&of)).await {
        tracing::warn!(subscriber = %id, %error, "dead letters could not be removed");
    }
}

fn begin(delivery: &Arc<Delivery>, subscriber: &Arc<Subscriber>, tasks: &mut JoinSet<()>) -> Worker {
    let (sender, watched) = watch::channel(Arc::clone(subscriber));
    let over = delivery.store.over(&subscriber.id);
    let turning = over.map(|over| tasks.spawn(turn_away(Arc::clone(delivery), watched.clone(), over)));
    let source = delivery.store.deliverable(&subscriber.id);
    let working = tasks.spawn(work(Arc::clone(delivery), watched, source));
    Worker { subscriber: sender, tasks: turning.into_iter().chain([working]).collect() }
}

/// Writes dead letters for events that exceed a subscriber's share.
async fn turn_away(delivery: Arc<Delivery>, subscriber: watch::Receiver<Arc<Subscriber>>, mut source: Source) {
    loop {
        let taken = source.next(1).await;
        loop {
            let to = Arc::clone(&subscriber.borrow());
            let turning = async {
                let kept = match delivery.store.read(&taken).await {
                    Err(error) if error.kind() == std::io::ErrorKind::InvalidData => nothing(),
                    Err(error) => return Err(error),
                    Ok(None) => return Ok(()),
                    Ok(Some(kept)) => kept,
                };
                give_up(&delivery, &to, &taken, &kept, OVER, 0).await
            };
            match turning.await {
                Ok(()) => break,
                Err(error) => {
                    tracing::error!(subscriber = %to.id, %error, "a dead letter could not be written");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }
}

async fn work(delivery: Arc<Delivery>, mut subscriber: watch::Receiver<Arc<Subscriber>>, mut source: Source) {
    let mut waiting: Lanes<Taken> = Lanes::default();
    let mut later: BTreeMap<(Instant, u64), (Lane, Taken)> = BTreeMap::new();
    let mut flights: JoinSet<(Lane, Taken, Next)> = JoinSet::new();
    let (mut resumes, mut pauses) = (Instant::now(), 0);
    if source.was_partitioned().await {
        source.with_partitions();
    }
    loop {
        let now = Instant::now();
        while let Some(entry) = later.first_entry().filter(|entry| entry.key().0 <= now) {
            let (lane, one) = entry.remove();
            waiting.put_back(lane, one.number, one);
        }
        let to = Arc::clone(&subscriber.borrow_and_update());
        if to.ordering == Ordering::Source {
            source.with_partitions();
        }
        while resumes <= now && to.route.is_some() && flights.len() < to.in_flight {
            let Some((lane, one)) = waiting.take() else { break };
            flights.spawn(attempt(Arc::clone(&delivery), Arc::clone(&to), (lane, one), pauses).boxed());
        }
        let due = later.keys().next().map(|(due, _)| *due);
        let resuming = (resumes > now && waiting.ready() > 0).then_some(resumes);
        let wake = due.into_iter().chain(resuming).min();
        let free = source.room(to.in_flight, waiting.ready() + flights.len());
        tokio::select! {
            changed = subscriber.changed() => if changed.is_err() { return },
            taken = source.next(free), if free > 0 || source.is_of_a_server() => {
                let lane = lane(&delivery, &to, &taken).await;
                waiting.push(lane, taken.number, taken);
            }
            Some(flown) = flights.join_next(), if !flights.is_empty() => match flown {
                Ok((lane, _, Next::Done | Next::GiveUp(_))) => {
                    waiting.end(lane);
                    pauses = 0;
                }
                Ok((lane, one, Next::Again(wait))) => {
                    pauses = 0;
                    if one.is_held_by_a_server() {
                        waiting.end(lane);
                    } else {
                        later.insert((Instant::now() + wait, one.number), (lane, one));
                    }
                }
                Ok((lane, one, Next::Pause(wait))) => {
                    waiting.put_back(lane, one.number, one);
                    if resumes <= Instant::now() {
                        resumes = Instant::now() + wait;
                        pauses += 1;
                    }
                }
                // The event stays in the store.
                Err(error) => tracing::error!(subscriber = %to.id, %error, "a delivery has ended early"),
            },
            () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
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

/// Delivers an event once. Returns the next step. The steps after a failure are on the heap, so that the future of each
/// delivery is small.
async fn attempt(
    delivery: Arc<Delivery>,
    to: Arc<Subscriber>,
    (lane, mut one): (Lane, Taken),
    pauses: u32,
) -> (Lane, Taken, Next) {
    let next = caught(try_once(&delivery, &to, &mut one, pauses)).await;
    (lane, one, next.unwrap_or(Next::Again(AGAIN)))
}

async fn try_once(delivery: &Delivery, to: &Subscriber, one: &mut Taken, pauses: u32) -> Next {
    let Some((_, target)) = &to.route else { return Next::Pause(AGAIN) };
    let kept = match delivery.store.read(one).await {
        Ok(Some(kept)) => kept,
        // Another task has removed the event.
        Ok(None) => return Next::Done,
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => return lose(delivery, to, one).boxed().await,
        Err(error) => {
            tracing::error!(subscriber = %to.id, %error, "an event could not be read from the store");
            return Next::Again(AGAIN);
        }
    };
    let Sent { outcome, answer } = send(delivery, to, target, &kept).await;
    let attempts = one.attempts + 1;
    let age = Timestamp::now().duration_since(kept.published);
    let age = Duration::try_from(age).unwrap_or_default();
    let next = next(&outcome, attempts, age, pauses, fastrand::f64());
    match &next {
        Next::Done => {
            if let Some(answer) = answer {
                publish_answer(delivery, to, answer).boxed().await;
            }
            delivery.store.ended(one, &to.id).await;
        }
        Next::Again(wait) => {
            tracing::debug!(subscriber = %to.id, ?outcome, ?wait, "an event is delivered again later");
            one.attempts = attempts;
            delivery.store.tried(one, &to.id, *wait).await;
        }
        Next::Pause(_) => {
            if pauses == 0
                && let Outcome::Unreachable(why) = &outcome
            {
                tracing::info!(subscriber = %to.id, why, "events wait for their subscriber");
            }
        }
        Next::GiveUp(why) => {
            if let Err(error) = give_up(delivery, to, one, &kept, why, attempts).boxed().await {
                tracing::error!(subscriber = %to.id, %error, "a dead letter could not be written");
                return later(delivery, to, one).await;
            }
        }
    }
    next
}

/// Sends an event, and counts the delivery.
async fn send(delivery: &Delivery, to: &Subscriber, target: &Target, kept: &Kept) -> Sent {
    let (began, _flight) = (Instant::now(), delivery.metrics.in_flight(&to.id));
    let sent = delivery.sender.send(to.id.parts().0, target, kept).await;
    let code = if let Outcome::Answered(code) = sent.outcome { code } else { 0 };
    delivery.metrics.delivered(&to.id, kept.event.event_type(), target.url(), code, began.elapsed());
    sent
}

/// Schedules a further attempt for an event whose dead letter could not be written.
async fn later(delivery: &Delivery, to: &Subscriber, one: &Taken) -> Next {
    delivery.store.tried(one, &to.id, AGAIN).await;
    Next::Again(AGAIN)
}

/// Returns an event without contents, as a substitute for an event that cannot be read.
fn nothing() -> Kept {
    Kept { event: Arc::default(), published: Timestamp::now() }
}

/// Writes a dead letter without contents for an event that can no longer be read.
async fn lose(delivery: &Delivery, to: &Subscriber, one: &Taken) -> Next {
    let why = if one.is_held_by_a_server() {
        "the message on NATS is not an event"
    } else {
        "its record in the journal is damaged"
    };
    match give_up(delivery, to, one, &nothing(), why, 0).await {
        Ok(()) => Next::Done,
        Err(error) => {
            tracing::error!(subscriber = %to.id, %error, "a dead letter could not be written");
            later(delivery, to, one).await
        }
    }
}

/// Writes a dead letter for an event.
async fn give_up(
    delivery: &Delivery,
    to: &Subscriber,
    one: &Taken,
    kept: &Kept,
    why: &str,
    attempts: u32,
) -> std::io::Result<()> {
    let letter = DeadLetter::new(&to.id, &kept.event, why, attempts, Timestamp::now());
    delivery.store.bury(&to.id, &letter).await?;
    delivery.store.ended(one, &to.id).await;
    delivery.metrics.given_up(&to.id);
    (delivery.failed)(to, &letter);
    Ok(())
}

/// Publishes the response of a Trigger's subscriber to its Broker.
async fn publish_answer(delivery: &Delivery, to: &Subscriber, answer: super::cloud_event::CloudEvent) {
    let table = delivery.table.borrow().clone();
    let (Some(table), Some(broker)) = (table, &to.broker) else { return };
    let routed = table.of_broker(to.id.parts().1, broker, answer);
    if !routed.is_empty()
        && let Err(error) = delivery.answers.publish(routed, false).await
    {
        let why = mainstay_object::failure::chain(&error);
        tracing::warn!(subscriber = %to.id, why, "the event in a response is lost");
    }
}
