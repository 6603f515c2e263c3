//! Watches Triggers, Subscriptions and Brokers, and performs the needed writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, SelectAll};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::jetstream::RollCall;
use super::seen::{Name, Seen, Watched, Write};
use super::services::{CONTROLLER, WRITTEN_BY};
use super::subscriber::{SubscriberId, SubscriberKind, Version};
use super::table::Table;
use mainstay_api::names::{BROKER_LABEL, EVENTING_MANAGER};
use mainstay_cluster::reflector::{Delta, Shown, name_of};
use mainstay_cluster::{Apply, Cluster, Error, Kind, LabelSelector, Part, Persistence, Scope, Selection};
use mainstay_object::failure::chain;

/// The label of namespaces that request a Broker.
const INJECTION: (&str, &str) = ("knative-eventing-injection", "enabled");
/// Delay before publishers are asked again whether they know a subscriber.
const UNKNOWN: Duration = Duration::from_secs(1);
/// Maximum number of concurrent questions to publishers.
const QUESTIONS: usize = 32;

/// The pending writes. Only the newest write is kept for each object and sort.
type Writes = Mutex<BTreeMap<Key, Write>>;

impl Watched {
    pub(super) fn kind(self) -> Kind {
        const KNATIVE: &str = "eventing.knative.dev";
        match self {
            Self::Triggers => Kind::custom(KNATIVE, "v1alpha1", "Trigger", "triggers", true),
            Self::Brokers => Kind::custom(KNATIVE, "v1alpha1", "Broker", "brokers", true),
            Self::Subscriptions => {
                Kind::custom("eventing.kyma-project.io", "v1alpha1", "Subscription", "subscriptions", true)
            }
            Self::Namespaces => Kind::fixed("v1", "Namespace", "namespaces", Scope::Cluster),
            Self::Services => Kind::fixed("v1", "Service", "services", Scope::Namespaced),
            Self::Written => Kind::fixed("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", Scope::Namespaced),
        }
    }

    fn selection(self) -> Selection {
        match self {
            Self::Namespaces => Selection::labelled(INJECTION.0, INJECTION.1).metadata_only(),
            Self::Written => Selection::by_labels(LabelSelector::differs(WRITTEN_BY, CONTROLLER)).metadata_only(),
            Self::Triggers | Self::Subscriptions | Self::Brokers | Self::Services => Selection::default(),
        }
    }
}

/// Performs the writes of a process that delivers.
pub(super) struct Writer {
    /// Other processes that accept events, if there can be some.
    pub(super) publishers: Option<RollCall>,
}

/// Keeps `table` up to date, until `stop`. With a `writer`, performs the writes, too.
pub(super) async fn follow(
    cluster: Cluster,
    seen: Seen,
    table: watch::Sender<Option<Arc<Table>>>,
    writer: Option<Writer>,
    stop: CancellationToken,
) {
    let (writes, notify) = (Writes::default(), Notify::new());
    let writing = async {
        if let Some(writer) = writer {
            writer.write(&cluster, &writes, &notify).await;
        }
    };
    tokio::join!(
        stop.run_until_cancelled(see(&cluster, seen, &table, &writes, &notify)),
        stop.run_until_cancelled(writing),
    );
}

/// Returns whether the API server has a subscriber.
pub(super) fn exists(cluster: &Cluster, to: &SubscriberId) -> BoxFuture<'static, Result<bool, async_nats::Error>> {
    let (cluster, (kind, namespace, name)) = (cluster.clone(), to.parts());
    let kind = match kind {
        SubscriberKind::Trigger => Watched::Triggers.kind(),
        SubscriberKind::Subscription => Watched::Subscriptions.kind(),
    };
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    async move {
        let found = cluster.get_metadata(&kind, Some(&namespace), &name).await;
        Ok(found.map_err(|error| chain(&error))?.is_some())
    }
    .boxed()
}

async fn see(
    cluster: &Cluster,
    mut seen: Seen,
    table: &watch::Sender<Option<Arc<Table>>>,
    writes: &Writes,
    notify: &Notify,
) {
    let of = |watched: Watched| {
        cluster.watch(&Arc::new(watched.kind()), watched.selection()).map(move |event| (watched, event)).boxed()
    };
    let mut events: SelectAll<_> = Watched::ALL.into_iter().map(of).collect();
    let (mut shown, mut foreign) = (BTreeMap::<Watched, Shown<Name>>::new(), 0);
    while let Some((watched, event)) = events.next().await {
        match shown.entry(watched).or_default().take(event, name_of) {
            Some(Delta::Listed(_, live) | Delta::Changed(_, live) | Delta::Unreadable(_, live, _)) => {
                if !seen.see(watched, &live) {
                    continue;
                }
            }
            Some(Delta::Gone(_, live)) => seen.gone(watched, &live),
            Some(Delta::Complete(list)) => seen.complete(watched, &list),
            Some(Delta::Failed(error)) => {
                tracing::warn!(why = chain(&error), "subscribers of events are not watched");
                continue;
            }
            Some(Delta::Resumed) | None => continue,
        }
        if !seen.is_complete() {
            continue;
        }
        table.send_replace(Some(Arc::new(seen.table())));
        if foreign != seen.foreign() {
            foreign = seen.foreign();
            tracing::info!(objects = foreign, "objects with a status of another controller are left to it");
        }
        *writes.lock() = seen
            .writes(Timestamp::now())
            .into_iter()
            .map(|(watched, name, write)| ((watched, name, sort(&write)), write))
            .collect();
        notify.notify_one();
    }
}

/// Returns the sort of a write. Writes of different sorts do not replace each other.
fn sort(write: &Write) -> u8 {
    match write {
        Write::Broker => 0,
        Write::Label(_) => 1,
        Write::Status(..) => 2,
    }
}

/// The object and the sort of a write.
type Key = (Watched, Name, u8);

/// Questions to publishers, each with its result.
type Questions = FuturesUnordered<BoxFuture<'static, (Key, Version, Result<(), String>)>>;

impl Writer {
    /// Performs the writes. A refused write is retried after a backoff and does not delay other writes. A status that says
    /// that a subscriber is ready waits until publishers know the subscriber.
    async fn write(&self, cluster: &Cluster, writes: &Writes, notify: &Notify) {
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
                        Err(why) => refuse(&mut refused, key, &why, |_| UNKNOWN),
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
    match perform(cluster, key.0, &key.1, &one).await {
        Ok(_) => drop(refused.remove(&key)),
        // The object was deleted, created or changed, and the watch delivers its state.
        Err(error) if error.is_not_found() || error.is_conflict() || error.is_already_exists() => {}
        Err(error) => {
            let wait = |failures| error.class().status_delay(failures, error.retry_after(), fastrand::f64());
            refuse(refused, key.clone(), &chain(&error), wait);
            // A newer write for the same object takes precedence.
            writes.lock().entry(key).or_insert(one);
        }
    }
}

/// Records a failure. `wait` returns the delay after a number of consecutive failures.
fn refuse(refused: &mut BTreeMap<Key, Refused>, key: Key, why: &str, wait: impl Fn(u32) -> Duration) {
    let failures = refused.get(&key).map_or(1, |known| known.failures.saturating_add(1));
    if failures == 1 {
        let (namespace, name) = &key.1;
        tracing::warn!(namespace, name, why, "could not write the status of subscribers");
    }
    refused.insert(key, Refused { failures, until: Instant::now() + wait(failures) });
}

/// A refused write.
struct Refused {
    /// Number of consecutive failures.
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
