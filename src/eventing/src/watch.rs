//! Watches Triggers, Subscriptions and Brokers, and performs the needed writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::SelectAll;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::jetstream::RollCall;
use super::seen::{Name, Seen, Watched, Write};
use super::services::{CONTROLLER, WRITTEN_BY};
use super::subscriber::{SubscriberId, SubscriberKind};
use super::table::Table;
use mainstay_api::names::{BROKER_LABEL, EVENTING_MANAGER};
use mainstay_cluster::reflector::{Delta, Shown, name_of};
use mainstay_cluster::{Apply, Cluster, Error, Kind, LabelSelector, Part, Persistence, Scope, Selection};
use mainstay_object::failure::chain;

/// The label of namespaces that request a Broker.
const INJECTION: (&str, &str) = ("knative-eventing-injection", "enabled");
/// Delay before publishers are asked again whether they know a subscriber.
const UNKNOWN: Duration = Duration::from_secs(1);

/// The pending writes. Only the newest write is kept for each object and sort.
type Writes = Mutex<BTreeMap<(Watched, Name, u8), Write>>;

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

impl Writer {
    /// Performs the writes. A refused write is retried after a backoff and does not delay other writes.
    async fn write(&self, cluster: &Cluster, writes: &Writes, notify: &Notify) {
        let mut refused: BTreeMap<(Watched, Name, u8), Refused> = BTreeMap::new();
        loop {
            let now = Instant::now();
            let next = {
                let mut writes = writes.lock();
                refused.retain(|key, _| writes.contains_key(key));
                let is_due = |key: &&(Watched, Name, u8)| refused.get(*key).is_none_or(|refused| refused.until <= now);
                let due = writes.keys().find(is_due).cloned();
                due.and_then(|key| writes.remove_entry(&key))
            };
            let Some((key, one)) = next else {
                // All remaining writes have to wait for their backoff.
                match refused.values().map(|refused| refused.until).min() {
                    Some(until) => drop(tokio::time::timeout_at(until, notify.notified()).await),
                    None => notify.notified().await,
                }
                continue;
            };
            let failures = refused.get(&key).map_or(1, |known| known.failures.saturating_add(1));
            let Err((why, wait)) = self.perform(cluster, &key, &one, failures).await else {
                refused.remove(&key);
                continue;
            };
            if failures == 1 {
                let (namespace, name) = &key.1;
                tracing::warn!(namespace, name, why, "could not write the status of subscribers");
            }
            refused.insert(key.clone(), Refused { failures, until: Instant::now() + wait });
            // A newer write for the same object takes precedence.
            writes.lock().entry(key).or_insert(one);
        }
    }

    /// Performs a write. If it has to be repeated, fails with the reason and the delay.
    async fn perform(
        &self,
        cluster: &Cluster,
        (watched, name, _): &(Watched, Name, u8),
        write: &Write,
        failures: u32,
    ) -> Result<(), (String, Duration)> {
        if let (Write::Status(_, Some(version)), Some(publishers)) = (write, &self.publishers) {
            publishers.knows(version).await.map_err(|why| (why, UNKNOWN))?;
        }
        match perform(cluster, *watched, name, write).await {
            Ok(_) => Ok(()),
            // The object was deleted, created or changed, and the watch delivers its state.
            Err(error) if error.is_not_found() || error.is_conflict() || error.is_already_exists() => Ok(()),
            Err(error) => {
                let wait = error.class().status_delay(failures, error.retry_after(), fastrand::f64());
                Err((chain(&error), wait))
            }
        }
    }
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
