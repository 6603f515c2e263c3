//! Creates the streams of a namespace, and deletes streams, consumers and messages of subscribers that no longer exist.
//!
//! Invariant: nothing is deleted while an event is being published. Whether a subscriber was deleted is decided only
//! when no event is being published. So a deleted stream contains no event of a known subscriber.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{Context, consumer};
use futures::TryStreamExt as _;
use tokio::sync::{RwLock, watch};

use super::super::subscriber::SubscriberId;
use super::super::table::Table;
use super::connect::{ConnectError, Nats};
use super::names::{self, Contents};

/// How long an event is remembered, so that the same event is not stored twice.
const MEMORY: Duration = Duration::from_secs(5 * 60);
/// Maximum age of an event that no process could deliver, and of a dead letter. Deliveries are given up after 24 hours.
const AGE: Duration = Duration::from_secs(14 * 24 * 3600);
/// Maximum number of waiting events of one subscriber, so that other subscribers of its namespace have space.
const MOST_EVENTS: i64 = 25_000;
/// A namespace's share divided by this number is the limit for its dead letters.
const LETTERS: u64 = 4;

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

/// The JetStream context, the limits, and the streams that exist.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) context: Context,
    /// The limits of new streams. Without limits, no stream is created.
    limits: Option<Limits>,
    /// Namespaces whose streams exist. Publishing holds the lock for reading, and deletion for writing.
    pub(super) existing: RwLock<HashSet<String>>,
}

/// An error of the client, to be used in a message.
pub(super) type Unmade = async_nats::Error;

impl JetStream {
    /// Returns the store. The server need not be available yet.
    pub(crate) async fn new(nats: &Nats, limits: Limits) -> Result<Self, ConnectError> {
        let context = nats.connect(true).await?;
        Ok(Self(Arc::new(Inner { context, limits: Some(limits), existing: RwLock::default() })))
    }

    /// Returns the store with the existing streams of a namespace.
    pub(super) fn with_streams_of(context: Context, namespace: &str) -> Self {
        let existing = RwLock::new(HashSet::from([namespace.to_owned()]));
        Self(Arc::new(Inner { context, limits: None, existing }))
    }

    /// Creates the streams of a namespace, or updates the limits of existing streams.
    pub(super) async fn create(&self, namespace: &str) -> Result<(), Unmade> {
        let mut existing = self.0.existing.write().await;
        if existing.contains(namespace) {
            return Ok(());
        }
        let limits = self.0.limits.ok_or_else(|| format!("the streams of {namespace} are gone"))?;
        for contents in [Contents::Events, Contents::Letters] {
            self.0.context.create_or_update_stream(config(contents, namespace, limits)).await?;
        }
        existing.insert(namespace.to_owned());
        Ok(())
    }

    /// Forgets that the streams of a namespace exist, because the server does not know these streams.
    pub(super) async fn forget(&self, namespace: &str) {
        self.0.existing.write().await.remove(namespace);
    }

    /// Deletes consumers, events and dead letters of subscribers that are not in the table, and streams of namespaces
    /// without subscribers.
    pub(crate) async fn sweep(&self, table: &watch::Receiver<Option<Arc<Table>>>) -> Result<(), Unmade> {
        let streams: Vec<String> = self.0.context.stream_names().try_collect().await?;
        for stream in &streams {
            let of = |contents: Contents| Some((contents, contents.namespace(stream)?));
            let Some((contents, namespace)) = of(Contents::Events).or_else(|| of(Contents::Letters)) else { continue };
            let holders = self.holders(contents, stream).await?;
            // From here on, no event is published, because the lock is held for writing.
            let mut existing = self.0.existing.write().await;
            let Some(known) = table.borrow().clone() else { return Ok(()) };
            if !known.0.keys().any(|to| to.parts().1 == namespace) {
                existing.remove(namespace);
                self.0.context.delete_stream(stream).await?;
                continue;
            }
            let gone = holders.into_iter().filter(|to| !known.0.contains_key(to));
            for to in gone.collect::<Vec<_>>() {
                self.remove(contents, stream, &to).await?;
            }
        }
        Ok(())
    }

    /// Returns the subscribers with messages or a consumer in a stream.
    async fn holders(&self, contents: Contents, stream: &str) -> Result<BTreeSet<SubscriberId>, Unmade> {
        let stream = self.0.context.get_stream(stream).await?;
        let subjects: Vec<(String, usize)> = stream.info_with_subjects(">").await?.try_collect().await?;
        let consumers: Vec<consumer::Info> = stream.consumers().try_collect().await?;
        let consumed = consumers.into_iter().map(|info| info.config.filter_subject);
        let subjects = subjects.into_iter().map(|(subject, _)| subject).chain(consumed);
        Ok(subjects.filter_map(|subject| contents.subscriber(&subject)).collect())
    }

    async fn remove(&self, contents: Contents, stream: &str, to: &SubscriberId) -> Result<(), Unmade> {
        let stream = self.0.context.get_stream(stream).await?;
        if contents == Contents::Events && stream.consumer_info(names::consumer(to)).await.is_ok() {
            stream.delete_consumer(&names::consumer(to)).await?;
        }
        stream.purge().filter(contents.subject(to)).await?;
        tracing::info!(subscriber = %to, "the subscriber is gone: its events are removed from NATS");
        Ok(())
    }
}

/// Returns the configuration of a stream.
fn config(contents: Contents, namespace: &str, Limits { share, replicas }: Limits) -> Config {
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
