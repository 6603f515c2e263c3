//! Takes the events of a subscriber from its durable consumer.
//!
//! Invariant: a taken message is confirmed as in progress until it is acknowledged or dropped. After a crash, the
//! server delivers it again.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{AckKind, Message};
use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use tokio::sync::{OnceCell, watch};
use tokio_util::task::AbortOnDropHandle;

use super::super::cloud_event::CloudEvent;
use super::super::subscriber::SubscriberId;
use super::election::Patience;
use super::message;
use super::names::{Contents, consumer, partition_consumer};
use super::streams::{JetStream, Unmade, is_missing};

/// Delay after which the server delivers an unconfirmed message again.
const CONFIRM: Duration = Duration::from_secs(10);
/// Interval of confirmations.
const BEAT: Duration = Duration::from_secs(3);
/// Time for which a request for messages waits.
const REQUEST: Duration = Duration::from_secs(5);
/// Delay after an error of the server.
const AGAIN: Duration = Duration::from_secs(1);
/// Maximum number of messages of a subscriber that are in progress or wait for a retry. Beyond this number, new
/// messages wait.
const UNACKNOWLEDGED: i64 = 1000;

/// Takes the events of a subscriber.
pub(crate) struct Puller {
    store: JetStream,
    of: SubscriberId,
    /// The partition; `None` for events without an order.
    partition: Option<u8>,
    /// The consumer, once it exists.
    consumer: Arc<OnceCell<PullConsumer>>,
    /// The messages of the current request.
    current: Option<BoxStream<'static, Result<Message, Unmade>>>,
    /// Whether the last request failed.
    has_failed: bool,
    /// Changes when the server has lost the current request.
    losses: watch::Receiver<u64>,
}

/// A message that was taken for delivery.
pub(crate) struct Held {
    acker: Arc<Acker>,
    /// The event, or the reason why the message contains no event.
    pub(crate) event: Result<CloudEvent, String>,
    pub(crate) published: Timestamp,
    _beat: AbortOnDropHandle<()>,
}

impl Puller {
    pub(crate) fn new(store: JetStream, of: SubscriberId, partition: Option<u8>) -> Self {
        let losses = store.losses();
        Self { store, of, partition, consumer: Arc::default(), current: None, has_failed: false, losses }
    }

    /// Waits for a message. Returns the sequence number of the message, the number of earlier deliveries, and the
    /// message. At most `most` messages are requested. Cancel-safe: no message is lost if the future is dropped.
    pub(crate) async fn next(&mut self, most: usize) -> (u64, u32, Held) {
        loop {
            if self.current.is_none() {
                self.losses.mark_unchanged();
                self.current = Some(self.request(most));
            }
            let Some(current) = &mut self.current else { continue };
            let taken = tokio::select! {
                // Messages that have arrived are delivered.
                biased;
                taken = current.next() => taken,
                Ok(()) = self.losses.changed() => None,
            };
            match taken {
                Some(Ok(message)) => {
                    self.has_failed = false;
                    if let Some(held) = held(message) {
                        return held;
                    }
                }
                None => self.current = None,
                Some(Err(error)) => {
                    if !std::mem::replace(&mut self.has_failed, true) {
                        tracing::warn!(subscriber = %self.of, %error, "events are not taken from NATS for now");
                    }
                    // The consumer may have been deleted.
                    self.consumer = Arc::default();
                    self.current = None;
                }
            }
        }
    }

    fn request(&self, most: usize) -> BoxStream<'static, Result<Message, Unmade>> {
        let (store, of, cell, waits) =
            (self.store.clone(), self.of.clone(), Arc::clone(&self.consumer), self.has_failed);
        let partition = self.partition;
        let begun = async move {
            if waits {
                tokio::time::sleep(AGAIN).await;
            }
            let consumer = cell.get_or_try_init(|| create(&store, &of, partition)).await?;
            Ok::<_, Unmade>(consumer.batch().max_messages(most.max(1)).expires(REQUEST).messages().await?)
        };
        stream::once(begun).try_flatten().boxed()
    }
}

/// Returns a taken message, with its sequence number and the number of earlier deliveries.
fn held(message: Message) -> Option<(u64, u32, Held)> {
    let (number, attempts, published) = {
        let info = message.info().ok()?;
        let published = Timestamp::from_nanosecond(info.published.unix_timestamp_nanos()).unwrap_or_default();
        (info.stream_sequence, u32::try_from(info.delivered - 1).unwrap_or_default(), published)
    };
    let (message, acker) = message.split();
    let acker = Arc::new(acker);
    let beating = Arc::clone(&acker);
    let beat = tokio::spawn(async move {
        loop {
            tokio::time::sleep(BEAT).await;
            // A lost confirmation only causes a further delivery.
            let _ = beating.ack_with(AckKind::Progress).await;
        }
    });
    let event = message::event(message.headers.as_ref(), message.payload);
    Some((number, attempts, Held { acker, event, published, _beat: AbortOnDropHandle::new(beat) }))
}

impl JetStream {
    /// Returns whether a subscriber has partitions: their consumers, or events in them.
    pub(crate) async fn is_partitioned(&self, of: &SubscriberId) -> Result<bool, Unmade> {
        let (name, pattern) = (Contents::Events.stream(of.parts().1), Contents::Events.partition(of, "*"));
        let request = || async {
            let stream = match self.0.context.get_stream(&name).await {
                Ok(stream) => stream,
                Err(error) if is_missing(&error) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            let waiting: Vec<(String, usize)> = stream.info_with_subjects(&pattern).await?.try_collect().await?;
            if !waiting.is_empty() {
                return Ok(true);
            }
            match stream.consumer_info(partition_consumer(of, 0)).await {
                Ok(_) => Ok(true),
                Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => Ok(false),
                Err(error) => Err(error.into()),
            }
        };
        self.repeat(Patience::default(), request).await
    }
}

async fn create(store: &JetStream, of: &SubscriberId, partition: Option<u8>) -> Result<PullConsumer, Unmade> {
    let namespace = of.parts().1;
    let patience = Patience::default();
    store.create(namespace, patience).await?;
    let (name, subject, unacknowledged) = match partition {
        None => (consumer(of), Contents::Events.subject(of), UNACKNOWLEDGED),
        // The next message is taken only after the earlier one has ended. A message that waits for a retry has not.
        Some(partition) => (partition_consumer(of, partition), Contents::Events.partition(of, partition), 1),
    };
    let config = Config {
        durable_name: Some(name),
        description: Some(of.to_string()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: CONFIRM,
        max_ack_pending: unacknowledged,
        filter_subject: subject,
        ..Config::default()
    };
    let stream = Contents::Events.stream(namespace);
    let request = || async { Ok(store.0.context.create_consumer_on_stream(config.clone(), stream.clone()).await?) };
    let created = store.repeat(patience, request).await;
    if created.is_err() {
        // A different program may have deleted the stream.
        store.forget(namespace);
    }
    created
}

impl Held {
    /// Removes the message from the server. A lost acknowledgement only repeats the delivery.
    pub(crate) async fn ended(&self) {
        if let Err(error) = self.acker.ack().await {
            tracing::warn!(%error, "an event could not be acknowledged to NATS: it is delivered again");
        }
    }

    /// Asks the server to deliver the message again after a delay.
    pub(crate) async fn again(&self, wait: Duration) {
        // If this request is lost, the server delivers the message again earlier.
        let _ = self.acker.ack_with(AckKind::Nak(Some(wait))).await;
    }
}
