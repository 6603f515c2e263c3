//! Deletes the consumers, messages and streams of subscribers that no longer exist.
//!
//! Other processes may know of a subscriber earlier than this one, and publish for it. So the API server is asked about
//! each unknown subscriber, after the last message of its stream is known, and only messages until then are deleted.
//!
//! Invariant: a stream is deleted only after it is marked, which makes it refuse events, and is empty.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer;
use async_nats::jetstream::stream::{Config, Stream};
use futures::TryStreamExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::super::ordering::PARTITIONS;
use super::super::subscriber::SubscriberId;
use super::super::table::Table;
use super::names::{self, Contents};
use super::streams::{JetStream, Unmade, config};

/// Returns whether the cluster has a subscriber.
pub(crate) type Exists = dyn Fn(SubscriberId) -> BoxFuture<'static, Result<bool, Unmade>> + Send + Sync;

/// Maximum time between a mark and the deletion. Publishers wait longer.
const REMOVAL: Duration = Duration::from_secs(20);

impl JetStream {
    /// Deletes consumers, messages and streams of subscribers that are neither in the table nor in the cluster. `exists`
    /// reads the cluster.
    pub(crate) async fn sweep(&self, table: &Table, exists: &Exists) -> Result<(), Unmade> {
        let streams: Vec<String> = self.0.context.stream_names().try_collect().await?;
        for name in &streams {
            let of = |contents: Contents| Some((contents, contents.namespace(name)?));
            let Some((contents, namespace)) = of(Contents::Events).or_else(|| of(Contents::Letters)) else { continue };
            let mut stream = self.0.context.get_stream(name).await?;
            let last = stream.info().await?.state.last_sequence;
            let mut is_used = table.0.keys().any(|to| to.parts().1 == namespace);
            for to in holders(&stream, contents).await? {
                if table.0.contains_key(&to) {
                    continue;
                }
                if exists(to.clone()).await? {
                    is_used = true;
                } else {
                    if contents == Contents::Events {
                        self.remove_attempts(&to).await;
                    }
                    remove(&stream, contents, &to, last).await?;
                }
            }
            if !is_used {
                self.remove_stream(contents, namespace).await?;
            }
        }
        Ok(())
    }

    /// Deletes an empty stream. A publisher that finds it missing creates it again.
    async fn remove_stream(&self, contents: Contents, namespace: &str) -> Result<(), Unmade> {
        // Without limits, no stream is created, so none is removed.
        let Some(limits) = self.0.limits else { return Ok(()) };
        let (name, begin) = (contents.stream(namespace), Instant::now());
        let usual = config(contents, namespace, limits);
        let marked = vec![names::mark(&name, Timestamp::now().as_second())];
        self.forget(namespace);
        self.0.context.update_stream(Config { subjects: marked.clone(), ..usual.clone() }).await?;
        let stream = self.0.context.get_stream(&name).await?;
        let info = stream.cached_info();
        // Events that were published before the mark have a subscriber that the next sweep knows.
        let is_empty = info.state.messages == 0 && info.config.subjects == marked;
        if is_empty && begin.elapsed() < REMOVAL {
            self.0.context.delete_stream(&name).await?;
            tracing::info!(namespace, "the namespace has no subscribers: its stream is removed from NATS");
        } else if !is_empty {
            self.0.context.update_stream(usual).await?;
        }
        Ok(())
    }
}

/// Returns the subscribers with messages or a consumer in a stream.
async fn holders(stream: &Stream, contents: Contents) -> Result<BTreeSet<SubscriberId>, Unmade> {
    let subjects: Vec<(String, usize)> = stream.info_with_subjects(">").await?.try_collect().await?;
    let consumers: Vec<consumer::Info> = stream.consumers().try_collect().await?;
    let consumed = consumers.into_iter().map(|info| info.config.filter_subject);
    let subjects = subjects.into_iter().map(|(subject, _)| subject).chain(consumed);
    Ok(subjects.filter_map(|subject| contents.subscriber(&subject)).collect())
}

/// Removes the messages of a subscriber until `last`, and its consumers.
async fn remove(stream: &Stream, contents: Contents, to: &SubscriberId, last: u64) -> Result<(), Unmade> {
    // If the subscriber exists again, its deliveries create the consumer again.
    let partitions = (0..PARTITIONS).map(|partition| names::partition_consumer(to, partition));
    for name in partitions.chain([names::consumer(to)]).filter(|_| contents == Contents::Events) {
        if stream.consumer_info(&name).await.is_ok() {
            stream.delete_consumer(&name).await?;
        }
    }
    for subjects in [contents.subject(to), contents.partition(to, "*")] {
        stream.purge().sequence(last + 1).filter(subjects).await?;
    }
    tracing::info!(subscriber = %to, "the subscriber is gone: its events are removed from NATS");
    Ok(())
}
