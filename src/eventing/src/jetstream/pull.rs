//! Takes the events of a subscriber from its durable consumer.
//!
//! A puller keeps one subscription, and one request for messages (`requests`). It sends the next request when the
//! messages of the former one have arrived.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::{Message, PublishError, Subject};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::TryStreamExt as _;
use jiff::Timestamp;
use tokio::sync::{OnceCell, watch};
use tokio::task::coop::unconstrained;
use tokio::time::sleep;

use super::super::cloud_event::CloudEvent;
use super::super::subscriber::SubscriberId;
use super::election::Patience;
use super::in_progress::Unacknowledged;
use super::memory::{Part, Share};
use super::message::{self, Delivered};
use super::names::{Contents, consumer, partition_consumer};
use super::requests::{AGAIN, Arrived, Requests};
use super::streams::{JetStream, Unmade, is_missing};

/// Delay after which the server delivers an unconfirmed message again.
const CONFIRM: Duration = Duration::from_secs(10);
/// Maximum number of messages of a subscriber that are in progress or wait for a retry. Beyond this number, new
/// messages wait.
const UNACKNOWLEDGED: i64 = 1000;

/// Takes the events of a subscriber.
pub(crate) struct Puller {
    store: JetStream,
    of: SubscriberId,
    /// The partition; `None` for events without an order.
    partition: Option<u8>,
    /// The memory for its messages.
    share: Share,
    /// The consumer, once it exists.
    consumer: Arc<OnceCell<PullConsumer>>,
    /// The time at which the consumer was created.
    created: Option<String>,
    /// Number of consumers that this puller has had.
    generation: Arc<AtomicU64>,
    connection: Connection,
    /// Messages that have arrived, and the request for the number of failed deliveries of the first one.
    arrived: VecDeque<Arriving>,
    counting: Option<BoxFuture<'static, Option<u32>>>,
    /// Each held message has a clone.
    held: Arc<()>,
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

/// A message that has arrived.
struct Arriving {
    /// Its sequence number.
    number: u64,
    held: Held,
}

/// A message that was taken for delivery.
pub(crate) struct Held {
    message: Unacknowledged,
    /// The event, or the reason why the message contains no event.
    pub(crate) event: Result<Arc<CloudEvent>, String>,
    pub(crate) published: Timestamp,
    /// Number of times that the server has sent the message before. The subscriber may not have been asked.
    pub(crate) before: u32,
    /// Size of the message in bytes.
    pub(crate) size: usize,
    /// The generation of the message's consumer, and the current one.
    generation: (u64, Arc<AtomicU64>),
    _counted: Arc<()>,
    _memory: Option<Part>,
}

impl Puller {
    pub(crate) fn new(store: JetStream, of: SubscriberId) -> Self {
        Self::with(store, of, None)
    }

    /// Returns the puller of a partition.
    pub(crate) fn of_partition(&self, partition: u8) -> Self {
        Self::with(self.store.clone(), self.of.clone(), Some(partition))
    }

    fn with(store: JetStream, of: SubscriberId, partition: Option<u8>) -> Self {
        Self {
            share: store.0.memory.share(),
            losses: store.losses(),
            store,
            of,
            partition,
            consumer: Arc::default(),
            created: None,
            generation: Arc::default(),
            connection: Connection::None,
            arrived: VecDeque::new(),
            counting: None,
            held: Arc::default(),
            has_failed: false,
        }
    }

    /// Waits for a message. Returns the sequence number of the message, the number of failed deliveries if it is known,
    /// and the message. If no requested message is missing, `most` messages are requested, and at least one if none is held.
    /// Cancel-safe: no message is lost if the future is dropped.
    pub(crate) async fn next(&mut self, most: usize) -> (u64, Option<u32>, Held) {
        loop {
            self.collect();
            if self.arrived.is_empty() {
                self.wait(most).await;
            } else if let Some(attempts) = self.attempts().await
                && let Some(Arriving { number, held, .. }) = self.arrived.pop_front()
            {
                return (number, attempts, held);
            }
        }
    }

    /// Records the responses that have arrived, without waiting. From now on, their messages are confirmed as in progress.
    fn collect(&mut self) {
        if self.losses.has_changed().unwrap_or(false) {
            self.lose();
        }
        while let Connection::Open(requests) = &mut self.connection
            && let Some(arrived) = unconstrained(requests.further()).now_or_never()
        {
            self.receive(arrived);
        }
    }

    /// Opens the connection to the consumer, or waits for a response. Cancel-safe.
    async fn wait(&mut self, most: usize) {
        let holds = Arc::strong_count(&self.held) > 1;
        let most = if holds { most } else { most.max(1) };
        let arrived = match &mut self.connection {
            Connection::None => {
                self.losses.mark_unchanged();
                self.connection = Connection::Opening(self.open());
                return;
            }
            Connection::Opening(opening) => tokio::select! {
                biased;
                opened = opening => match opened {
                    Ok(requests) => return self.opened(requests),
                    Err(error) => Arrived::Failed(error),
                },
                Ok(()) = self.losses.changed() => return self.lose(),
            },
            Connection::Open(requests) => tokio::select! {
                biased;
                Ok(()) = self.losses.changed() => return self.lose(),
                arrived = requests.arrived(most) => arrived,
            },
        };
        self.receive(arrived);
    }

    /// Returns the number of failed deliveries of the first message that has arrived, if it is known. Returns `None` if
    /// there was a further response or a loss first. Cancel-safe.
    async fn attempts(&mut self) -> Option<Option<u32>> {
        let first = self.arrived.front()?;
        let (number, before, published) = (first.number, first.held.before, first.held.published);
        if before == 0 {
            return Some(Some(0));
        }
        let counting = self.counting.get_or_insert_with(|| {
            let (store, of) = (self.store.clone(), self.of.clone());
            async move { store.attempts(&of, number, published).await }.boxed()
        });
        let arrived = tokio::select! {
            biased;
            Ok(()) = self.losses.changed() => {
                self.lose();
                return None;
            }
            attempts = counting => {
                self.counting = None;
                return Some(attempts);
            }
            // Invariant: a message is confirmed as in progress as soon as it arrives, also while a number is read.
            arrived = further(&mut self.connection) => arrived,
        };
        self.receive(arrived);
        None
    }

    /// Records a response.
    fn receive(&mut self, arrived: Arrived) {
        match arrived {
            Arrived::Message(message, memory) => {
                self.has_failed = false;
                self.arrive(message, memory);
            }
            Arrived::Idle => self.has_failed = false,
            Arrived::Refused(why) => self.fail(&why),
            Arrived::Failed(error) => {
                self.fail(&error.to_string());
                // The consumer may have been deleted.
                self.consumer = Arc::default();
                self.connection = Connection::None;
            }
            Arrived::Lost(why) => {
                tracing::debug!(subscriber = %self.of, why, "events are requested again");
                self.connection = Connection::None;
            }
        }
    }

    /// Records a loss of the connection. Drops the messages that have arrived: the server may deliver them, and later
    /// ones, to another process.
    fn lose(&mut self) {
        self.losses.mark_unchanged();
        self.counting = None;
        self.arrived.clear();
        self.receive(Arrived::Lost("the connection is lost"));
    }

    fn fail(&mut self, why: &str) {
        if !std::mem::replace(&mut self.has_failed, true) {
            tracing::warn!(subscriber = %self.of, error = why, "events are not taken from NATS for now");
        }
    }

    fn opened(&mut self, requests: Box<Requests>) {
        let created = Some(requests.consumer().cached_info().created.to_string());
        if self.created != created {
            self.created = created;
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        self.connection = Connection::Open(requests);
    }

    /// Creates the consumer if it is missing, and subscribes to its messages.
    fn open(&self) -> BoxFuture<'static, Result<Box<Requests>, Unmade>> {
        let (store, of, cell, waits) =
            (self.store.clone(), self.of.clone(), Arc::clone(&self.consumer), self.has_failed);
        let (partition, share) = (self.partition, self.share.clone());
        let opening = async move {
            if waits {
                sleep(AGAIN).await;
            }
            let consumer = cell.get_or_try_init(|| create(&store, &of, partition)).await?.clone();
            let client = store.client();
            let inbox = Subject::from(client.new_inbox());
            let messages = client.subscribe(inbox.clone()).await?;
            Ok::<_, Unmade>(Box::new(Requests::new(consumer, inbox, messages, share)))
        };
        opening.boxed()
    }

    /// Adds a message that has arrived.
    fn arrive(&mut self, message: Message, memory: Option<Part>) {
        let (Some(subject), size) = (message.reply, message.length) else { return };
        let Some(Delivered { number, before, published }) = message::delivered(&subject) else {
            let why = "its reply subject has an unknown form; check the version of the server";
            tracing::warn!(subscriber = %self.of, why, "a message from NATS cannot be delivered");
            return;
        };
        // The payload is a part of a larger buffer, which would stay in memory.
        let payload = Bytes::copy_from_slice(&message.payload);
        let event = message::event(message.headers.as_ref(), payload).map(Arc::new);
        let held = Held {
            message: self.store.0.in_progress.add(subject),
            event,
            published,
            before,
            size,
            generation: (self.generation.load(Ordering::Relaxed), Arc::clone(&self.generation)),
            _counted: Arc::clone(&self.held),
            _memory: memory,
        };
        self.arrived.push_back(Arriving { number, held });
    }

    /// Returns the messages that have arrived to the server, which delivers them again. Requests no further ones.
    pub(crate) async fn release(&mut self) {
        self.counting = None;
        for one in std::mem::take(&mut self.arrived) {
            one.held.again(None).await;
        }
        let Connection::Open(requests) = std::mem::replace(&mut self.connection, Connection::None) else { return };
        for subject in requests.end().await {
            // If this request is lost, the server delivers the message again later.
            let _ = self.store.client().publish(subject, AckKind::Nak(None).into()).await;
        }
    }
}

/// Waits for a response, if there is a connection.
async fn further(connection: &mut Connection) -> Arrived {
    match connection {
        Connection::Open(requests) => requests.further().await,
        Connection::None | Connection::Opening(_) => std::future::pending().await,
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
        if let Err(error) = self.acknowledge(AckKind::Ack).await {
            tracing::warn!(%error, "an event could not be acknowledged to NATS: it is delivered again");
        }
    }

    /// Asks the server to deliver the message again after a delay.
    pub(crate) async fn again(&self, wait: Option<Duration>) {
        // If this request is lost, the server delivers the message again at another time.
        let _ = self.acknowledge(AckKind::Nak(wait)).await;
    }

    /// Sends an acknowledgement, unless the consumer was created again. Its messages have the same numbers as those of
    /// the former one.
    async fn acknowledge(&self, kind: AckKind) -> Result<(), PublishError> {
        let (own, current) = &self.generation;
        if *own == current.load(Ordering::Relaxed) { self.message.acknowledge(kind).await } else { Ok(()) }
    }
}
