//! Detects Knative Serving in the cluster, and watches its Services.
//!
//! Invariant: there is no watch until a Function needs Knative. Then the definition of Knative's Services is watched,
//! and the Services while the definition exists.

use std::future::pending;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::child_kind::ChildKind;
use super::knative_presence::Presence;
use super::observe::{self, Cache, SeeChild};
use mainstay_cluster::{Kind, Scope, Selection, WatchEvent};
use mainstay_engine::apply::Writer;
use mainstay_object::failure::chain;
use mainstay_object::is_established;

/// The definition of Knative's Services.
const DEFINITION: &str = "services.serving.knative.dev";

/// Watches Knative from the first Function that needs it, until `stop`.
pub(super) async fn follow(cache: Arc<Cache>, writer: Writer, see_child: Arc<SeeChild>, stop: CancellationToken) {
    let mut is_used = cache.knative().is_used();
    let Some(Ok(_)) = stop.run_until_cancelled(is_used.wait_for(|is_used| *is_used)).await else { return };
    let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let definitions = Arc::new(Kind::fixed(version, kind, "customresourcedefinitions", Scope::Cluster));
    let mut definitions = writer.cluster().watch(&definitions, Selection::named(None, DEFINITION));
    let services = || {
        let (cache, writer, see_child) = (Arc::clone(&cache), writer.clone(), Arc::clone(&see_child));
        observe::follow(cache, writer, see_child, ChildKind::KnativeService, stop.clone()).boxed()
    };
    let mut watching: Option<BoxFuture<'static, ()>> = None;
    let mut is_listed = false;
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            () = async { match &mut watching { Some(watching) => watching.await, None => pending().await } } => return,
            event = definitions.next() => event,
        };
        let is_served = match event {
            None => return,
            Some(WatchEvent::Begin) => {
                is_listed = false;
                continue;
            }
            Some(WatchEvent::Initial(live) | WatchEvent::Applied(live)) => {
                is_listed = true;
                is_served(&live)
            }
            Some(WatchEvent::Deleted(_)) => false,
            Some(WatchEvent::Synced(_)) if !is_listed => false,
            Some(WatchEvent::Failed(error)) => {
                tracing::debug!(why = chain(&error), "the definition of Knative's Services is not watched");
                cache.knative().failed(&error);
                continue;
            }
            Some(_) => continue,
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

/// Whether `serving.knative.dev/v1` is served.
fn is_served(definition: &Value) -> bool {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    is_established(definition)
        && versions.into_iter().flatten().any(|version| version["name"] == "v1" && version["served"] == true)
}
