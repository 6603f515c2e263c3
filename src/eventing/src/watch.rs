//! Watches Triggers, Subscriptions and Brokers, and decides the needed writes, which `writer` performs.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::SelectAll;
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::seen::{Name, Seen, Watched};
use super::services::{CONTROLLER, WRITTEN_BY};
use super::subscriber::{SubscriberId, SubscriberKind};
use super::table::Table;
use super::writer::{Writer, Writes, sort};
use mainstay_cluster::reflector::{Delta, Shown, name_of};
use mainstay_cluster::{Cluster, Kind, LabelSelector, Scope, Selection};
use mainstay_object::failure::chain;

/// The label of namespaces that request a Broker.
const INJECTION: (&str, &str) = ("knative-eventing-injection", "enabled");

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
