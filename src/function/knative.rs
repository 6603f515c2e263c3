//! Whether the cluster has Knative Serving, and the watch of its Services.
//!
//! Invariant: nothing of this costs anything until a Function is to run on Knative: then the definition of Knative's Services is
//! watched, and its Services while it is there.

use std::future::pending;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::child_set::ChildKind;
use super::observe::{self, Cache, SeeChild};
use crate::apply::Writer;
use crate::cluster::{Denial, Error, Kind, Scope, Selection, WatchEvent};
use crate::failure::{Class, chain};
use crate::object::is_established;

/// The definition of Knative's Services.
const DEFINITION: &str = "services.serving.knative.dev";

/// What is known of Knative Serving in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// Nothing yet.
    #[default]
    Unknown,
    /// It is not installed.
    Absent,
    /// It cannot be known, or its Services cannot be read, and why.
    Unreadable(Arc<str>),
    /// It is installed, and its Services are known.
    Present,
}

/// What is known of Knative, and whether a Function needs to know.
#[derive(Debug, Default)]
pub(super) struct Knative {
    is_used: watch::Sender<bool>,
    presence: watch::Sender<Presence>,
}

impl Knative {
    /// A Function is to run on Knative, or does.
    pub(super) fn set_used(&self) {
        self.is_used.send_if_modified(|is_used| !std::mem::replace(is_used, true));
    }

    /// What is known; changes are notified.
    pub(super) fn presence(&self) -> watch::Receiver<Presence> {
        self.presence.subscribe()
    }

    fn set(&self, presence: Presence) {
        self.presence.send_if_modified(|known| std::mem::replace(known, presence.clone()) != presence);
    }

    /// Its Services are known.
    pub(super) fn synced(&self) {
        self.set(Presence::Present);
    }

    /// A watch failed. Everything but a missing right passes by itself.
    pub(super) fn failed(&self, error: &Error) {
        if error.class() == Class::Denied {
            let is_unpermitted = error.refusal().is_some_and(|refusal| refusal.denial == Some(Denial::Permission));
            let hint = if is_unpermitted { "; manifests/knative has the rights that it takes" } else { "" };
            self.set(Presence::Unreadable(format!("{}{hint}", chain(error)).into()));
        }
    }
}

/// Watches Knative from the first Function on that needs it, until `stop`.
pub(super) async fn follow(cache: Arc<Cache>, writer: Writer, see_child: Arc<SeeChild>, stop: CancellationToken) {
    let mut is_used = cache.knative().is_used.subscribe();
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
