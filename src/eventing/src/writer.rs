//! Performs the writes for Triggers, Subscriptions and Brokers. A status that says that a subscriber is ready waits until
//! publishers know the subscriber.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::jetstream::RollCall;
use super::seen::{Name, Watched, Write};
use super::subscriber::Version;
use mainstay_api::names::{BROKER_LABEL, EVENTING_MANAGER};
use mainstay_cluster::{Apply, Cluster, Error, Part, Persistence};
use mainstay_object::failure::{Class, chain};

/// Number of questions in vain after which a warning is logged. A publisher that starts or has ended takes fewer.
const LATE: u32 = 6;
/// Maximum number of concurrent questions to publishers.
const QUESTIONS: usize = 32;

/// The pending writes. Only the newest write is kept for each object and sort.
pub(super) type Writes = Mutex<BTreeMap<Key, Write>>;

/// Performs the writes of a process that delivers.
pub(super) struct Writer {
    /// Other processes that accept events, if there can be some.
    pub(super) publishers: Option<RollCall>,
}

/// Returns the sort of a write. Writes of different sorts do not replace each other.
pub(super) fn sort(write: &Write) -> u8 {
    match write {
        Write::Broker => 0,
        Write::Label(_) => 1,
        Write::Status(..) => 2,
    }
}

/// The object and the sort of a write.
pub(super) type Key = (Watched, Name, u8);

/// Questions to publishers, each with its result.
type Questions = FuturesUnordered<BoxFuture<'static, (Key, Version, Result<(), String>)>>;

impl Writer {
    /// Performs the writes. A refused write is retried after a backoff and does not delay other writes. A status that says
    /// that a subscriber is ready waits until publishers know the subscriber.
    pub(super) async fn write(&self, cluster: &Cluster, writes: &Writes, notify: &Notify) {
        let mut refused: BTreeMap<Key, Refused> = BTreeMap::new();
        let (mut asked, mut questions) = (BTreeSet::new(), Questions::new());
        loop {
            let next = due(&writes.lock(), &mut refused, &asked);
            // A write that is due waits only for the end of a question.
            let is_idle = next.is_none();
            if let Some((key, version)) = next {
                match (&self.publishers, version) {
                    (Some(publishers), Some(version)) if asked.len() < QUESTIONS => {
                        asked.insert(key.clone());
                        questions.push(question(publishers.clone(), key, version));
                        continue;
                    }
                    (Some(_), Some(_)) => {}
                    _ => {
                        let one = writes.lock().remove(&key);
                        attempt(cluster, writes, &mut refused, key, one).await;
                        continue;
                    }
                }
            }
            let until = refused.iter().filter(|(key, _)| !asked.contains(*key)).map(|(_, refused)| refused.until).min();
            tokio::select! {
                Some((key, version, answer)) = questions.next() => {
                    asked.remove(&key);
                    match answer {
                        Ok(()) => {
                            let one = take_ready(&mut writes.lock(), &key, &version);
                            attempt(cluster, writes, &mut refused, key, one).await;
                        }
                        Err(why) => put_off(&mut refused, key, &why),
                    }
                }
                () = notify.notified() => {}
                () = sleep_until(until.unwrap_or_else(Instant::now)), if is_idle && until.is_some() => {}
            }
        }
    }
}

/// Returns the next write that is due, with the subscriber that publishers have to know. A write that needs no answer
/// comes first, and then the one that was refused first.
fn due(
    writes: &BTreeMap<Key, Write>,
    refused: &mut BTreeMap<Key, Refused>,
    asked: &BTreeSet<Key>,
) -> Option<(Key, Option<Version>)> {
    let now = Instant::now();
    refused.retain(|key, _| writes.contains_key(key));
    let until = |key: &Key| refused.get(key).map(|refused| refused.until);
    let due = writes.iter().filter(|(key, _)| !asked.contains(*key) && until(key).is_none_or(|until| until <= now));
    let all = due.map(|(key, write)| match write {
        Write::Status(_, version) => (key, version.as_ref()),
        Write::Label(_) | Write::Broker => (key, None),
    });
    let (key, version) = all.min_by_key(|(key, version)| (version.is_some(), until(key)))?;
    Some((key.clone(), version.cloned()))
}

fn question(
    publishers: RollCall,
    key: Key,
    version: Version,
) -> BoxFuture<'static, (Key, Version, Result<(), String>)> {
    async move {
        let answer = publishers.knows(&version).await;
        (key, version, answer)
    }
    .boxed()
}

/// Takes a status if it is still about this version of a subscriber.
fn take_ready(writes: &mut BTreeMap<Key, Write>, key: &Key, version: &Version) -> Option<Write> {
    let is_same = matches!(writes.get(key), Some(Write::Status(_, Some(known))) if known == version);
    if is_same { writes.remove(key) } else { None }
}

/// Performs a write that was taken; `None` if there is no such write any more.
async fn attempt(
    cluster: &Cluster,
    writes: &Writes,
    refused: &mut BTreeMap<Key, Refused>,
    key: Key,
    one: Option<Write>,
) {
    let Some(one) = one else { return };
    let Err(error) = perform(cluster, key.0, &key.1, &one).await else {
        refused.remove(&key);
        return;
    };
    let failures = failures(refused, &key, Refuser::Server);
    // Usually, the object was deleted, created or changed, and the watch delivers its state.
    let is_passing = error.is_not_found() || error.is_conflict() || error.is_already_exists();
    if failures == 1 && !is_passing {
        let (why, (namespace, name)) = (chain(&error), &key.1);
        tracing::warn!(namespace, name, why, "could not write the status of subscribers");
    }
    let wait = error.class().status_delay(failures, error.retry_after(), fastrand::f64());
    refused.insert(key.clone(), Refused { by: Refuser::Server, failures, until: Instant::now() + wait });
    // A newer write for the same object takes precedence.
    writes.lock().entry(key).or_insert(one);
}

/// Puts a status off, because a publisher does not know the subscriber yet.
fn put_off(refused: &mut BTreeMap<Key, Refused>, key: Key, why: &str) {
    let failures = failures(refused, &key, Refuser::Publisher);
    let (namespace, name) = &key.1;
    if failures == LATE {
        tracing::warn!(namespace, name, why, "a subscriber is not ready yet");
    } else {
        tracing::debug!(namespace, name, why, "a subscriber is not ready yet");
    }
    let backoff = Class::NotReady.backoff().map(|backoff| backoff.jittered(failures, fastrand::f64()));
    let until = Instant::now() + backoff.unwrap_or_default();
    refused.insert(key, Refused { by: Refuser::Publisher, failures, until });
}

/// Returns the number of consecutive failures of this cause, with the present one.
fn failures(refused: &BTreeMap<Key, Refused>, key: &Key, by: Refuser) -> u32 {
    let earlier = refused.get(key).filter(|known| known.by == by);
    earlier.map_or(1, |known| known.failures.saturating_add(1))
}

/// The cause of a failure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refuser {
    /// A publisher does not know the subscriber, or NATS does not respond.
    Publisher,
    /// The API server refused the write.
    Server,
}

/// A refused write.
struct Refused {
    by: Refuser,
    /// Number of consecutive failures of this cause.
    failures: u32,
    /// When the write is retried.
    until: Instant,
}

async fn perform(cluster: &Cluster, watched: Watched, (namespace, name): &Name, write: &Write) -> Result<Value, Error> {
    let (kind, place) = (watched.kind(), Some(namespace.as_str()));
    let metadata = json!({"namespace": namespace, "name": name});
    let mut body = json!({"apiVersion": kind.api_version(), "kind": &*kind.kind, "metadata": metadata});
    match write {
        Write::Status(status, _) => {
            cluster.patch_merge(&kind, place, name, Part::Status, &json!({"status": status})).await
        }
        Write::Label(broker) => {
            body["metadata"]["labels"] = json!({BROKER_LABEL: broker});
            cluster.apply(&kind, place, name, &body, Apply::forced(EVENTING_MANAGER)).await
        }
        Write::Broker => cluster.create(&kind, place, name, &body, Persistence::Kept).await,
    }
}
