//! Takes the events of a subscriber from its durable consumer.
//!
//! A puller keeps one subscription, and one request for messages. It sends the next request when the messages of the
//! former one have arrived. So a request costs one message for many events.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::pull::{BatchConfig, Config};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::{Message, StatusCode, Subject, Subscriber};
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use tokio::sync::{OnceCell, watch};
use tokio::time::{Instant, Sleep, sleep};

use super::super::cloud_event::CloudEvent;
use super::super::subscriber::SubscriberId;
use super::election::Patience;
use super::in_progress::Unacknowledged;
use super::message::{self, Delivered};
use super::names::{Contents, consumer, partition_consumer};
use super::streams::{JetStream, Unmade, is_missing};

/// Delay after which the server delivers an unconfirmed message again.
const CONFIRM: Duration = Duration::from_secs(10);
/// Time for which a request for messages waits.
const REQUEST: Duration = Duration::from_secs(5);
/// Time after which a request without a response is lost.
const LOST: Duration = Duration::from_secs(10);
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
    connection: Connection,
    /// Whether the last request failed.
    has_failed: bool,
    /// Changes when the server has lost the requests.
    losses: watch::Receiver<u64>,
}

/// The connection to a consumer.
enum Connection {
    None,
    Opening(BoxFuture<'static, Result<Box<Requests>, Unmade>>),
    Open(Box<Requests>),
}

/// The requests to a consumer.
struct Requests {
    consumer: PullConsumer,
    inbox: Subject,
    messages: Subscriber,
    /// Number of requested messages that have not arrived.
    expected: usize,
    /// The time at which the request is lost.
    lost: Pin<Box<Sleep>>,
}

/// A message that was taken for delivery.
pub(crate) struct Held {
    message: Unacknowledged,
    /// The event, or the reason why the message contains no event.
    pub(crate) event: Result<Arc<CloudEvent>, String>,
    pub(crate) published: Timestamp,
}

impl Puller {
    pub(crate) fn new(store: JetStream, of: SubscriberId, partition: Option<u8>) -> Self {
        let losses = store.losses();
        let (consumer, connection) = (Arc::default(), Connection::None);
        Self { store, of, partition, consumer, connection, has_failed: false, losses }
    }

    /// Waits for a message. Returns the sequence number of the message, the number of earlier deliveries, and the
    /// message. If no requested message is missing, `most` messages are requested. Cancel-safe: no message is lost if
    /// the future is dropped.
    pub(crate) async fn next(&mut self, most: usize) -> (u64, u32, Held) {
        loop {
            let taken = match &mut self.connection {
                Connection::None => {
                    self.losses.mark_unchanged();
                    self.connection = Connection::Opening(self.open());
                    continue;
                }
                Connection::Opening(opening) => tokio::select! {
                    biased;
                    opened = opening => match opened {
                        Ok(requests) => {
                            self.connection = Connection::Open(requests);
                            continue;
                        }
                        Err(error) => Some(Err(error)),
                    },
                    Ok(()) = self.losses.changed() => None,
                },
                Connection::Open(requests) => tokio::select! {
                    // Messages that have arrived are delivered.
                    biased;
                    taken = requests.arrived(most) => taken,
                    Ok(()) = self.losses.changed() => None,
                },
            };
            match taken {
                Some(Ok(message)) => {
                    self.has_failed = false;
                    if let Some(held) = self.held(message) {
                        return held;
                    }
                }
                None => self.connection = Connection::None,
                Some(Err(error)) => {
                    if !std::mem::replace(&mut self.has_failed, true) {
                        tracing::warn!(subscriber = %self.of, %error, "events are not taken from NATS for now");
                    }
                    // The consumer may have been deleted.
                    self.consumer = Arc::default();
                    self.connection = Connection::None;
                }
            }
        }
    }

    /// Creates the consumer if it is missing, and subscribes to its messages.
    fn open(&self) -> BoxFuture<'static, Result<Box<Requests>, Unmade>> {
        let (store, of, cell, waits) =
            (self.store.clone(), self.of.clone(), Arc::clone(&self.consumer), self.has_failed);
        let partition = self.partition;
        let opening = async move {
            if waits {
                sleep(AGAIN).await;
            }
            let consumer = cell.get_or_try_init(|| create(&store, &of, partition)).await?.clone();
            let client = store.client();
            let inbox = Subject::from(client.new_inbox());
            let messages = client.subscribe(inbox.clone()).await?;
            let lost = Box::pin(sleep(LOST));
            Ok::<_, Unmade>(Box::new(Requests { consumer, inbox, messages, expected: 0, lost }))
        };
        opening.boxed()
    }

    /// Returns a taken message, with its sequence number and the number of earlier deliveries.
    fn held(&self, message: Message) -> Option<(u64, u32, Held)> {
        let subject = message.reply?;
        let Delivered { number, attempts, published } = message::delivered(&subject)?;
        let event = message::event(message.headers.as_ref(), message.payload).map(Arc::new);
        let message = self.store.0.in_progress.add(subject);
        Some((number, attempts, Held { message, event, published }))
    }
}

impl Requests {
    /// Waits for a message. Returns `None` if the request is lost. Cancel-safe.
    async fn arrived(&mut self, most: usize) -> Option<Result<Message, Unmade>> {
        loop {
            if self.expected == 0 && most > 0 {
                let batch = BatchConfig { batch: most, expires: Some(REQUEST), ..BatchConfig::default() };
                if let Err(error) = self.consumer.request_batch(batch, self.inbox.clone()).await {
                    return Some(Err(error.into()));
                }
                self.expected = most;
                self.lost.as_mut().reset(Instant::now() + LOST);
            }
            let message = tokio::select! {
                biased;
                message = self.messages.next() => message?,
                () = &mut self.lost, if self.expected > 0 => return None,
            };
            match message.status {
                None | Some(StatusCode::OK) => {
                    self.expected = self.expected.saturating_sub(1);
                    return Some(Ok(message));
                }
                // The time of the request is over.
                Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => self.expected = 0,
                Some(StatusCode::IDLE_HEARTBEAT) => {}
                Some(status) => {
                    let why = message.description.unwrap_or_default();
                    return Some(Err(format!("the server answers a request for messages with {status}: {why}").into()));
                }
            }
        }
    }
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
        if let Err(error) = self.message.acknowledge(AckKind::Ack).await {
            tracing::warn!(%error, "an event could not be acknowledged to NATS: it is delivered again");
        }
    }

    /// Asks the server to deliver the message again after a delay.
    pub(crate) async fn again(&self, wait: Duration) {
        // If this request is lost, the server delivers the message again earlier.
        let _ = self.message.acknowledge(AckKind::Nak(Some(wait))).await;
    }
}
