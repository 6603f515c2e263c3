//! Detects Knative Serving in the cluster, and watches its Services.
//!
//! Invariant: there is no watch until a Function needs Knative. From then on, the CRD of Knative's Services is watched.
//! While the CRD exists, the Services are watched as well.

use std::future::pending;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::child_kind::ChildKind;
use super::knative_presence::Presence;
use super::observe::{self, Cache};
use mainstay_cluster::reflector::Change;
use mainstay_cluster::{Kind, Scope, Selection};
use mainstay_engine::apply::Writer;
use mainstay_engine::drift::Drift;
use mainstay_object::failure::chain;
use mainstay_object::is_established;

/// The CRD of Knative's Services.
const DEFINITION: &str = "services.serving.knative.dev";

/// Watches Knative once a Function needs it, until `stop`.
pub(super) async fn follow(cache: Arc<Cache>, writer: Writer, drift: Drift, stop: CancellationToken) {
    let mut is_used = cache.knative().is_used();
    let Some(Ok(_)) = stop.run_until_cancelled(is_used.wait_for(|is_used| *is_used)).await else { return };
    let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let definitions = Arc::new(Kind::fixed(version, kind, "customresourcedefinitions", Scope::Cluster));
    let selection = Selection::named(None, DEFINITION);
    let mut definitions = writer.cluster().reflect(&definitions, selection, |live| Ok(Some(is_served(live))));
    let services = || {
        let (cache, writer, drift) = (Arc::clone(&cache), writer.clone(), drift.clone());
        observe::follow(cache, writer, drift, ChildKind::KnativeService, stop.clone()).boxed()
    };
    let mut watching: Option<BoxFuture<'static, ()>> = None;
    loop {
        let change = tokio::select! {
            () = stop.cancelled() => return,
            () = async { match &mut watching { Some(watching) => watching.await, None => pending().await } } => return,
            change = definitions.next() => change,
        };
        let is_served = match change {
            Change::Changed { .. } | Change::Gone { .. } | Change::Complete { .. } => {
                definitions.cache().get("", DEFINITION).is_some_and(|is_served| *is_served)
            }
            Change::Failed(error) => {
                tracing::debug!(why = chain(&error), "the definition of Knative's Services is not watched");
                cache.knative().failed(&error);
                continue;
            }
            Change::Unreadable { .. } | Change::Resumed => continue,
        };
        if !is_served {
            watching = None;
            cache.knative().set(Presence::Absent);
            cache.forget_all(ChildKind::KnativeService);
        } else if watching.is_none() {
            watching = Some(services());
        }
    }
}

/// Whether the CRD serves the version `v1`.
fn is_served(definition: &Value) -> bool {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    is_established(definition)
        && versions.into_iter().flatten().any(|version| version["name"] == "v1" && version["served"] == true)
}
