//! Delivers the events of the journal, with one task for each subscriber.
//!
//! Invariant: an event is ended in the journal when its subscriber has accepted it, or when its dead letter is on disk.
//! Invariant: a task keeps only the numbers of events. An event is read when it is sent, at most as many concurrently
//! as the subscriber allows.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::dead_letters::{DeadLetter, DeadLetters};
use super::journal::{Journal, Kept, OVER, Queued};
use super::retry::{Next, Outcome, next};
use super::send::{Sender, Sent};
use super::subscriber::{Subscriber, SubscriberId};
use super::table::Table;
use mainstay_object::failure::caught;

/// Delay after a dead letter could not be written.
const AGAIN: Duration = Duration::from_secs(60);

/// Called with each event that is given up, and its subscriber.
type Failed = dyn Fn(&Subscriber, &DeadLetter) + Send + Sync;

/// The state that all deliveries share.
pub(super) struct Delivery {
    pub(super) journal: Journal,
    pub(super) sender: Sender,
    pub(super) letters: Arc<DeadLetters>,
    /// All subscribers, once they are known.
    pub(super) table: watch::Receiver<Option<Arc<Table>>>,
    /// Called for each event that is given up.
    pub(super) failed: Box<Failed>,
}

/// The task of a subscriber.
struct Worker {
    queue: mpsc::UnboundedSender<Waiting>,
    /// Events that become dead letters, because too many are waiting.
    over: mpsc::UnboundedSender<u64>,
    subscriber: watch::Sender<Arc<Subscriber>>,
    tasks: [AbortHandle; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    number: u64,
    attempts: u32,
}

/// Delivers until `stop`, or until a task panics.
pub(super) async fn deliver(
    delivery: Arc<Delivery>,
    mut queued: mpsc::UnboundedReceiver<Queued>,
    stop: CancellationToken,
) -> Result<(), JoinError> {
    let mut table = delivery.table.clone();
    let mut workers: BTreeMap<SubscriberId, Worker> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    if !matches!(stop.run_until_cancelled(table.wait_for(Option::is_some)).await, Some(Ok(_))) {
        return Ok(());
    }
    table.mark_changed();
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
            }
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => match ended {
                Err(error) if error.is_panic() => return Err(error),
                _ => {}
            },
            received = queued.recv() => {
                let Some(Queued { number, to, attempts }) = received else { return Ok(()) };
                match workers.get(&to) {
                    // A send fails only during shutdown.
                    Some(worker) if attempts == OVER => drop(worker.over.send(number)),
                    Some(worker) => drop(worker.queue.send(Waiting { number, attempts })),
                    // The subscriber was deleted while the event arrived.
                    None => delivery.journal.ended(vec![number], &to).await,
                }
            }
        }
    }
}

/// Ends all events of a deleted subscriber, and removes its dead letters.
async fn forget(delivery: &Delivery, id: &SubscriberId) {
    delivery.journal.ended(delivery.journal.pending_of(id), id).await;
    let (letters, of) = (Arc::clone(&delivery.letters), id.clone());
    if let Ok(Err(error)) = tokio::task::spawn_blocking(move || letters.remove(&of)).await {
        tracing::warn!(subscriber = %id, %error, "dead letters could not be removed");
    }
}

fn begin(delivery: &Arc<Delivery>, subscriber: &Arc<Subscriber>, tasks: &mut JoinSet<()>) -> Worker {
    let (queue, received) = mpsc::unbounded_channel();
    let (sender, watched) = watch::channel(Arc::clone(subscriber));
    let (over, turned_away) = mpsc::unbounded_channel();
    let turning = tasks.spawn(turn_away(Arc::clone(delivery), watched.clone(), turned_away));
    let task = tasks.spawn(work(Arc::clone(delivery), watched, received));
    Worker { queue, over, subscriber: sender, tasks: [task, turning] }
}

/// Writes dead letters for events that exceed a subscriber's share.
async fn turn_away(
    delivery: Arc<Delivery>,
    subscriber: watch::Receiver<Arc<Subscriber>>,
    mut numbers: mpsc::UnboundedReceiver<u64>,
) {
    while let Some(number) = numbers.recv().await {
        loop {
            let to = Arc::clone(&subscriber.borrow());
            let turning = async {
                let kept = match delivery.journal.read(number).await {
                    Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                        Kept { event: super::cloud_event::CloudEvent::default(), published: Timestamp::now() }
                    }
                    Err(error) => return Err(error),
                    Ok(None) => return Ok(()),
                    Ok(Some(kept)) => kept,
                };
                give_up(
                    &delivery,
                    &to,
                    number,
                    &kept,
                    "too many events wait for the subscriber or for its namespace",
                    0,
                )
                .await
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

async fn work(
    delivery: Arc<Delivery>,
    mut subscriber: watch::Receiver<Arc<Subscriber>>,
    mut queue: mpsc::UnboundedReceiver<Waiting>,
) {
    let mut waiting: VecDeque<Waiting> = VecDeque::new();
    let mut later: BinaryHeap<Reverse<(Instant, Waiting)>> = BinaryHeap::new();
    let mut flights: JoinSet<(Waiting, Next)> = JoinSet::new();
    let (mut resumes, mut pauses) = (Instant::now(), 0);
    loop {
        let now = Instant::now();
        while later.peek().is_some_and(|Reverse((due, _))| *due <= now) {
            waiting.extend(later.pop().map(|Reverse((_, one))| one));
        }
        let to = Arc::clone(&subscriber.borrow_and_update());
        while resumes <= now && to.route.is_some() && flights.len() < to.in_flight {
            let Some(one) = waiting.pop_front() else { break };
            flights.spawn(attempt(Arc::clone(&delivery), Arc::clone(&to), one, pauses));
        }
        let due = later.peek().map(|Reverse((due, _))| *due);
        let resuming = (resumes > now && !waiting.is_empty()).then_some(resumes);
        let wake = due.into_iter().chain(resuming).min();
        tokio::select! {
            changed = subscriber.changed() => if changed.is_err() { return },
            received = queue.recv() => match received {
                Some(one) => waiting.push_back(one),
                None => return,
            },
            Some(flown) = flights.join_next(), if !flights.is_empty() => match flown {
                Ok((_, Next::Done | Next::GiveUp(_))) => pauses = 0,
                Ok((one, Next::Again(wait))) => {
                    pauses = 0;
                    later.push(Reverse((Instant::now() + wait, one)));
                }
                Ok((one, Next::Pause(wait))) => {
                    // Keeps the order of publication.
                    let at = waiting.partition_point(|other| other.number < one.number);
                    waiting.insert(at, one);
                    if resumes <= Instant::now() {
                        resumes = Instant::now() + wait;
                        pauses += 1;
                    }
                }
                // The event stays in the journal.
                Err(error) => tracing::error!(subscriber = %to.id, %error, "a delivery has ended early"),
            },
            () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
        }
    }
}

/// Delivers an event once. Returns the next step.
async fn attempt(delivery: Arc<Delivery>, to: Arc<Subscriber>, one: Waiting, pauses: u32) -> (Waiting, Next) {
    let made = caught(try_once(&delivery, &to, one, pauses)).await;
    made.unwrap_or((Waiting { attempts: one.attempts + 1, ..one }, Next::Again(AGAIN)))
}

async fn try_once(delivery: &Delivery, to: &Subscriber, one: Waiting, pauses: u32) -> (Waiting, Next) {
    let Some((_, target)) = &to.route else { return (one, Next::Pause(AGAIN)) };
    let kept = match delivery.journal.read(one.number).await {
        Ok(Some(kept)) => kept,
        // Another task ended the event.
        Ok(None) => return (one, Next::Done),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            return (one, lose(delivery, to, one.number).await);
        }
        Err(error) => {
            tracing::error!(subscriber = %to.id, %error, "an event could not be read from the journal");
            return (one, Next::Again(AGAIN));
        }
    };
    let Sent { outcome, answer } = delivery.sender.send(to.id.parts().0, target, &kept).await;
    let tried = Waiting { attempts: one.attempts + 1, ..one };
    let age = Timestamp::now().duration_since(kept.published);
    let age = Duration::try_from(age).unwrap_or_default();
    let next = next(&outcome, tried.attempts, age, pauses, fastrand::f64());
    match &next {
        Next::Done => {
            if let Some(answer) = answer {
                publish_answer(delivery, to, answer).await;
            }
            delivery.journal.ended(vec![one.number], &to.id).await;
            (tried, next)
        }
        Next::Again(wait) => {
            tracing::debug!(subscriber = %to.id, ?outcome, ?wait, "an event is delivered again later");
            delivery.journal.tried(one.number, &to.id, tried.attempts).await;
            (tried, next)
        }
        Next::Pause(_) => {
            if pauses == 0
                && let Outcome::Unreachable(why) = &outcome
            {
                tracing::info!(subscriber = %to.id, why, "events wait for their subscriber");
            }
            (one, next)
        }
        Next::GiveUp(why) => {
            if let Err(error) = give_up(delivery, to, one.number, &kept, why, tried.attempts).await {
                tracing::error!(subscriber = %to.id, %error, "a dead letter could not be written");
                return (one, Next::Again(AGAIN));
            }
            (tried, next)
        }
    }
}

/// Writes a dead letter without contents for an event that cannot be read any more.
async fn lose(delivery: &Delivery, to: &Subscriber, number: u64) -> Next {
    let nothing = Kept { event: super::cloud_event::CloudEvent::default(), published: Timestamp::now() };
    match give_up(delivery, to, number, &nothing, "its record in the journal is damaged", 0).await {
        Ok(()) => Next::Done,
        Err(error) => {
            tracing::error!(subscriber = %to.id, %error, "a dead letter could not be written");
            Next::Again(AGAIN)
        }
    }
}

/// Writes a dead letter for an event.
async fn give_up(
    delivery: &Delivery,
    to: &Subscriber,
    number: u64,
    kept: &Kept,
    why: &str,
    attempts: u32,
) -> std::io::Result<()> {
    let letter = DeadLetter::new(&to.id, &kept.event, why, attempts, Timestamp::now());
    let (letters, id, written) = (Arc::clone(&delivery.letters), to.id.clone(), letter.clone());
    let written = tokio::task::spawn_blocking(move || letters.append(&id, &written)).await;
    written.map_err(std::io::Error::other).flatten()?;
    delivery.journal.ended(vec![number], &to.id).await;
    (delivery.failed)(to, &letter);
    Ok(())
}

/// Publishes the response of a Trigger's subscriber to its Broker.
async fn publish_answer(delivery: &Delivery, to: &Subscriber, answer: super::cloud_event::CloudEvent) {
    let table = delivery.table.borrow().clone();
    let (Some(table), Some(broker)) = (table, &to.broker) else { return };
    let routed = table.of_broker(to.id.parts().1, broker, answer);
    if !routed.is_empty()
        && let Err(error) = delivery.journal.publish(routed).await
    {
        let why = mainstay_object::failure::chain(&error);
        tracing::warn!(subscriber = %to.id, why, "an event that was answered with is lost");
    }
}
