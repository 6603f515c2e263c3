//! Creates the streams of a namespace.
//!
//! A stream that `sweep` is about to delete has a mark instead of its subjects, with the time of the mark.
//!
//! Invariant: a marked stream stores no event, and is not restored before `sweep` has deleted it or has run out of time.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::connect::{ConnectError, Connection, Nats};
use super::counting::Counting;
use super::election::{ATTEMPT, NoResponse, Patience, is_passing};
use super::in_progress::InProgress;
use super::memory::{BUDGET, Memory};
use super::names::{self, Contents};

/// How long an event is remembered, so that the same event is not stored twice.
const MEMORY: Duration = Duration::from_secs(5 * 60);
/// Maximum age of an event that no process could deliver, and of a dead letter. Deliveries are given up after 24 hours.
const AGE: Duration = Duration::from_secs(14 * 24 * 3600);
/// Maximum number of waiting events of one subscriber, so that other subscribers of its namespace have space.
const MOST_EVENTS: i64 = 25_000;
/// A namespace's share divided by this number is the limit for its dead letters.
const LETTERS: u64 = 4;
/// Age of a mark after which the stream is restored, because the process that should delete it has ended. It is longer
/// than that process takes.
const MARKED: i64 = 60;

/// The store on JetStream. Clones share the same store.
#[derive(Clone, Debug)]
pub(crate) struct JetStream(pub(super) Arc<Inner>);

/// The limits of the streams.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum size in bytes of the waiting events of one namespace.
    pub share: u64,
    /// Number of copies of each stream on the servers of a NATS cluster.
    pub replicas: usize,
}

/// The JetStream context, the losses of its connection, the limits, and the streams that exist.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) context: Context,
    losses: watch::Receiver<u64>,
    /// The messages that were taken for delivery.
    pub(super) in_progress: Arc<InProgress>,
    /// The memory for these messages.
    pub(super) memory: Memory,
    /// The limits of new streams. Without limits, no stream is created.
    pub(super) limits: Option<Limits>,
    /// Namespaces whose streams exist.
    pub(super) existing: RwLock<HashSet<String>>,
    /// Held while streams are created. Publishers for other namespaces do not wait for it.
    pub(super) creating: Mutex<()>,
    /// The state of the stream with the numbers of failed deliveries.
    pub(super) counting: Counting,
}

/// An error of the client, to be used in a message.
pub(super) type Unmade = async_nats::Error;

impl JetStream {
    /// Returns the store. The server need not be available yet.
    pub(crate) async fn new(nats: &Nats, limits: Limits) -> Result<Self, ConnectError> {
        let connection = nats.connect(true).await?;
        Ok(Self::on(connection, Some(limits), HashSet::new(), BUDGET))
    }

    /// Returns the store with the existing streams of a namespace.
    pub(super) fn with_streams_of(connection: Connection, namespace: &str) -> Self {
        Self::on(connection, None, HashSet::from([namespace.to_owned()]), BUDGET)
    }

    /// Returns the store. `budget` is the memory in bytes for taken messages.
    pub(super) fn on(
        Connection { context, losses }: Connection,
        limits: Option<Limits>,
        existing: HashSet<String>,
        budget: usize,
    ) -> Self {
        let (in_progress, memory) = (InProgress::start(context.client()), Memory::new(budget));
        let (existing, creating, counting) = (RwLock::new(existing), Mutex::default(), Counting::default());
        Self(Arc::new(Inner { context, losses, in_progress, memory, limits, existing, creating, counting }))
    }

    pub(super) fn client(&self) -> async_nats::Client {
        self.0.context.client()
    }

    /// Waits until the messages of this process are sent.
    pub(crate) async fn flush(&self) -> Result<(), Unmade> {
        Ok(self.client().flush().await?)
    }

    /// Returns a receiver that changes when the connection is lost from now on.
    pub(crate) fn losses(&self) -> watch::Receiver<u64> {
        let mut losses = self.0.losses.clone();
        losses.mark_unchanged();
        losses
    }

    /// Returns the response to a request; `None` if it does not arrive within `limit`, or if the connection is lost.
    pub(super) async fn response<R>(&self, limit: Duration, request: impl Future<Output = R>) -> Option<R> {
        let mut losses = self.losses();
        tokio::select! {
            biased;
            response = timeout(limit, request) => response.ok(),
            Ok(()) = losses.changed() => None,
        }
    }

    /// Sends an idempotent request, and sends it again if there is no response or no leader. Without a connection, the
    /// client holds the request until the server is back. Fails with the last error.
    pub(super) async fn repeat<R, F: Future<Output = Result<R, Unmade>>>(
        &self,
        mut patience: Patience,
        request: impl Fn() -> F,
    ) -> Result<R, Unmade> {
        loop {
            let error = match self.response(ATTEMPT.min(patience.left()), request()).await {
                Some(Err(error)) if is_passing(&*error) => error,
                Some(response) => return response,
                None => NoResponse.into(),
            };
            if !patience.further().await {
                return Err(error);
            }
        }
    }

    /// Creates the streams of a namespace, or updates the limits of existing streams. Each event calls this, so the
    /// future of the creation is on the heap, and only if it is needed.
    pub(super) async fn create(&self, namespace: &str, patience: Patience) -> Result<(), Unmade> {
        if self.exists(namespace) { Ok(()) } else { Box::pin(self.create_missing(namespace, patience)).await }
    }

    fn exists(&self, namespace: &str) -> bool {
        self.0.existing.read().contains(namespace)
    }

    async fn create_missing(&self, namespace: &str, patience: Patience) -> Result<(), Unmade> {
        let creating = timeout(patience.left(), self.0.creating.lock()).await;
        let _creating = creating.map_err(|_| "other streams are still being created")?;
        if self.exists(namespace) {
            return Ok(());
        }
        let limits = self.0.limits.ok_or_else(|| format!("the streams of {namespace} are gone"))?;
        for contents in [Contents::Events, Contents::Letters] {
            let wanted = config(contents, namespace, limits);
            self.repeat(patience, || self.ensure(wanted.clone())).await?;
        }
        self.0.existing.write().insert(namespace.to_owned());
        Ok(())
    }

    /// Creates a stream, or updates its limits.
    async fn ensure(&self, wanted: Config) -> Result<(), Unmade> {
        // An update of an unmarked stream could undo a mark.
        if !self.is_present(&wanted).await? {
            self.0.context.create_or_update_stream(wanted).await?;
        }
        Ok(())
    }

    /// Returns whether a stream exists as wanted. Fails while another process removes it.
    async fn is_present(&self, wanted: &Config) -> Result<bool, Unmade> {
        let stream = match self.0.context.get_stream(&wanted.name).await {
            Ok(stream) => stream,
            Err(error) if is_missing(&error) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let found = &stream.cached_info().config;
        let marked = found.subjects.iter().find_map(|subject| names::marked_at(subject));
        if marked.is_some_and(|at| Timestamp::now().as_second() - at < MARKED) {
            return Err(format!("the stream {} is being removed; publish again", wanted.name).into());
        }
        let limits = |config: &Config| (config.max_bytes, config.num_replicas, config.max_messages_per_subject);
        Ok(found.subjects == wanted.subjects && limits(found) == limits(wanted))
    }

    /// Forgets that the streams of a namespace exist, because the server does not know these streams.
    pub(super) fn forget(&self, namespace: &str) {
        self.0.existing.write().remove(namespace);
    }
}

/// Returns whether a stream does not exist.
pub(super) fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.code() == 404)
}

/// Returns the configuration of a stream.
pub(super) fn config(contents: Contents, namespace: &str, Limits { share, replicas }: Limits) -> Config {
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let common = Config {
        name: contents.stream(namespace),
        subjects: vec![contents.all_subjects(namespace)],
        max_age: AGE,
        storage: StorageType::File,
        num_replicas: replicas,
        max_messages: -1,
        max_consumers: -1,
        ..Config::default()
    };
    match contents {
        Contents::Events => Config {
            description: Some(format!("Mainstay: events that subscribers in {namespace} have not accepted yet")),
            retention: RetentionPolicy::WorkQueue,
            discard: DiscardPolicy::New,
            discard_new_per_subject: true,
            max_bytes: bytes(share),
            max_messages_per_subject: MOST_EVENTS,
            duplicate_window: MEMORY,
            ..common
        },
        Contents::Letters => Config {
            description: Some(format!("Mainstay: events that could not be delivered to subscribers in {namespace}")),
            retention: RetentionPolicy::Limits,
            discard: DiscardPolicy::Old,
            max_bytes: bytes(share / LETTERS),
            max_messages_per_subject: -1,
            ..common
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { share: 64 << 20, replicas: 3 };

    #[test]
    fn streams_of_events_refuse_and_those_of_dead_letters_forget() {
        let events = config(Contents::Events, "team", LIMITS);
        assert_eq!((events.discard, events.max_bytes, events.num_replicas), (DiscardPolicy::New, 64 << 20, 3));
        assert_eq!(events.subjects, ["mainstay.events.team.>"]);
        let letters = config(Contents::Letters, "team", LIMITS);
        assert_eq!((letters.discard, letters.max_bytes), (DiscardPolicy::Old, 16 << 20));
    }
}
