//! Watches the CRDs of routing kinds, their objects while they are served, Services, and the EndpointSlices that users
//! wrote.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::child::ChildKind;
use super::context::Context;
use super::listed::{Name, Watched};
use super::no_target::{CONTROLLER, WRITTEN_BY};
use super::refusals::explain;
use super::served::{Served, served};
use mainstay_api::names::API_RULE_LABEL;
use mainstay_cluster::reflector::{Delta, Shown, name_of};
use mainstay_cluster::{Kind, LabelSelector, Scope, Selection, WatchEvent};
use mainstay_object::failure::Class;

type Watches = SelectAll<BoxStream<'static, (Watched, WatchEvent)>>;

/// Watches once the first APIRule exists, until `stop`.
pub async fn watch(context: Arc<Context>, stop: CancellationToken) {
    let mut is_used = context.is_used();
    let Some(Ok(_)) = stop.run_until_cancelled(is_used.wait_for(|is_used| *is_used)).await else { return };
    let mut watching = Watching { context, watches: SelectAll::new(), of_kinds: HashMap::new(), shown: HashMap::new() };
    watching.begin();
    stop.run_until_cancelled(watching.run()).await;
}

struct Watching {
    context: Arc<Context>,
    watches: Watches,
    /// Stops the watches of a served kind.
    of_kinds: HashMap<ChildKind, CancellationToken>,
    /// The lists that are being read.
    shown: HashMap<Watched, Shown<Name>>,
}

impl Watching {
    fn begin(&mut self) {
        let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let definitions = Arc::new(Kind::fixed(version, kind, "customresourcedefinitions", Scope::Cluster));
        for kind in ChildKind::ALL {
            self.watch(Watched::Definition(kind), &definitions, Selection::named(None, &kind.definition()), None);
        }
        let services = Arc::new(Kind::fixed("v1", "Service", "services", Scope::Namespaced));
        self.watch(Watched::Services, &services, Selection::default(), None);
        let (version, plural) = ("discovery.k8s.io/v1", "endpointslices");
        let slices = Arc::new(Kind::fixed(version, "EndpointSlice", plural, Scope::Namespaced));
        let written = Selection::by_labels(LabelSelector::differs(WRITTEN_BY, CONTROLLER)).metadata_only();
        self.watch(Watched::Written, &slices, written, None);
    }

    fn watch(&mut self, watched: Watched, kind: &Arc<Kind>, selection: Selection, until: Option<CancellationToken>) {
        let events = self.context.writer.cluster().watch(kind, selection).map(move |event| (watched, event));
        self.watches.push(match until {
            Some(until) => events.take_until(until.cancelled_owned()).boxed(),
            None => events.boxed(),
        });
    }

    async fn run(&mut self) {
        while let Some((watched, event)) = self.watches.next().await {
            match self.shown.entry(watched).or_default().take(event, name_of) {
                Some(Delta::Listed(_, live) | Delta::Changed(_, live) | Delta::Unreadable(_, live, _)) => {
                    self.observe(watched, &live, true);
                }
                Some(Delta::Gone(_, live)) => self.observe(watched, &live, false),
                Some(Delta::Complete(list)) => {
                    if let Watched::Definition(kind) = watched
                        && list.shown().is_empty()
                    {
                        self.set_served(kind, None);
                    }
                    self.context.complete(watched, &list);
                    if let Watched::Children(kind) = watched
                        && list.went_back()
                    {
                        self.list_again(kind);
                    }
                }
                Some(Delta::Failed(error)) => {
                    let why = explain(&error);
                    tracing::warn!(why, "objects that APIRules need are not watched");
                    // Other failures are temporary: a kind is not served immediately after its CRD is created.
                    if error.class() == Class::Denied {
                        self.context.failed(watched, why);
                    }
                }
                Some(Delta::Resumed) | None => {}
            }
        }
    }

    fn observe(&mut self, watched: Watched, live: &Value, is_there: bool) {
        match watched {
            Watched::Definition(kind) => self.set_served(kind, if is_there { served(kind, live) } else { None }),
            Watched::Children(kind) if is_there => self.context.see(kind, live),
            Watched::Children(kind) => self.context.gone(kind, live),
            Watched::Services => self.context.set_service(live, is_there),
            Watched::Written => self.context.set_written(live, is_there),
            Watched::Namespaces => self.context.set_namespace(live, is_there),
        }
    }

    /// Watches the objects of a kind in its served version.
    fn set_served(&mut self, kind: ChildKind, served: Option<Served>) {
        let watched = served.as_ref().map(|served| Arc::clone(&served.kind));
        if self.context.set_served(kind, served) {
            self.watch_objects(kind, watched);
        }
    }

    /// Lists the objects of a kind once more after the server was restored from a backup. Their states in the first
    /// list were ignored as older than those from before.
    fn list_again(&mut self, kind: ChildKind) {
        tracing::warn!(
            ?kind,
            "the API server's resource versions went back, as after a restore from a backup; the objects of this kind \
             are listed again"
        );
        let watched = self.context.served(kind).map(|served| served.kind);
        self.watch_objects(kind, watched);
    }

    /// Watches the objects of a kind in this version in place of the earlier watch.
    fn watch_objects(&mut self, kind: ChildKind, watched: Option<Arc<Kind>>) {
        if let Some(stop) = self.of_kinds.remove(&kind) {
            stop.cancel();
        }
        let Some(watched) = watched else { return };
        // Any VirtualService may use the host of an APIRule. For all other kinds, only objects of APIRules matter.
        let selection = match kind {
            ChildKind::VirtualService => Selection::default(),
            _ => Selection::with_label(API_RULE_LABEL),
        };
        let stop = CancellationToken::new();
        if kind == ChildKind::AuthorizationPolicy {
            // Policies work only where pods have a proxy.
            let namespaces = Arc::new(Kind::fixed("v1", "Namespace", "namespaces", Scope::Cluster));
            self.watch(Watched::Namespaces, &namespaces, Selection::default().metadata_only(), Some(stop.clone()));
        }
        self.watch(Watched::Children(kind), &watched, selection, Some(stop.clone()));
        self.of_kinds.insert(kind, stop);
    }
}
