//! Delivers an event once, and records the result.

use std::sync::Arc;
use std::time::Duration;

use futures::future::FutureExt as _;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::cloud_event::CloudEvent;
use super::dead_letters::DeadLetter;
use super::jetstream::Exists;
use super::journal::Kept;
use super::metrics::Metrics;
use super::ordering::Lane;
use super::retry::{Next, Outcome, next};
use super::send::{Sender, Sent};
use super::store::{Store, Taken};
use super::subscriber::{Subscriber, Target};
use super::table::Table;
use mainstay_object::failure::caught;

/// Delay before a dead letter that could not be written is written again.
pub(super) const AGAIN: Duration = Duration::from_secs(60);

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

/// Delivers an event once. Returns the next step. The caller records the end of an event of the journal. The steps after a failure are on the heap, so that the future of each
/// delivery is small.
pub(super) async fn attempt(
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
    let attempts = one.attempts.unwrap_or(0).saturating_add(1);
    let age = Timestamp::now().duration_since(kept.published);
    let age = Duration::try_from(age).unwrap_or_default();
    let next = next(&outcome, (attempts, one.tries()), age, pauses, fastrand::f64());
    match &next {
        Next::Done => {
            if let Some(answer) = answer {
                publish_answer(delivery, to, answer).boxed().await;
            }
            // The journal's record is written while further events are delivered.
            if one.is_held_by_a_server() {
                delivery.store.ended(one, &to.id).await;
            }
        }
        Next::Again(wait) => {
            tracing::debug!(subscriber = %to.id, ?outcome, ?wait, "an event is delivered again later");
            // A number that is not known stays as it is in the store.
            one.attempts = one.attempts.map(|_| attempts);
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
pub(super) fn nothing() -> Kept {
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
pub(super) async fn give_up(
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
async fn publish_answer(delivery: &Delivery, to: &Subscriber, answer: CloudEvent) {
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
