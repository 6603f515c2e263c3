//! Watches usages and bindings while their CRDs exist.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::context::Bindings;
use super::listed::{Defined, Watched};
use mainstay_cluster::reflector::{Delta, Name, Shown, name_of};
use mainstay_cluster::{Cluster, Error, Kind, Scope, Selection, WatchEvent};
use mainstay_object::failure::{Class, chain};
use mainstay_object::is_established;

type Watches = SelectAll<BoxStream<'static, (Watched, WatchEvent)>>;

/// Watches until `stop`.
pub async fn watch(bindings: Arc<Bindings>, cluster: Cluster, stop: CancellationToken) {
    let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let definitions = Arc::new(Kind::fixed(version, kind, "customresourcedefinitions", Scope::Cluster));
    let mut watching = Watching {
        bindings,
        cluster,
        definitions,
        watches: SelectAll::new(),
        of_kinds: HashMap::new(),
        shown: HashMap::new(),
        follows_others: false,
    };
    watching.define(Defined::Usages);
    stop.run_until_cancelled(watching.run()).await;
}

struct Watching {
    bindings: Arc<Bindings>,
    cluster: Cluster,
    definitions: Arc<Kind>,
    watches: Watches,
    /// Stops the watches of a defined kind.
    of_kinds: HashMap<Defined, CancellationToken>,
    /// The lists that are being read.
    shown: HashMap<Watched, Shown<Name>>,
    /// Whether the other CRDs are watched. They are watched only once the CRD of usages exists.
    follows_others: bool,
}

impl Watching {
    fn define(&mut self, defined: Defined) {
        let selection = Selection::named(None, defined.definition());
        let events = self.cluster.watch(&self.definitions, selection);
        self.watches.push(events.map(move |event| (Watched::Definition(defined), event)).boxed());
    }

    async fn run(&mut self) {
        while let Some((watched, event)) = self.watches.next().await {
            match self.shown.entry(watched).or_default().take(event, name_of) {
                Some(Delta::Listed(_, live) | Delta::Changed(_, live)) => self.observe(watched, &live, true),
                Some(Delta::Gone(_, live)) => self.observe(watched, &live, false),
                Some(Delta::Complete(list)) => {
                    if let Watched::Definition(defined) = watched
                        && list.shown().is_empty()
                    {
                        self.set_defined(defined, None);
                    }
                    self.bindings.complete(watched, &list);
                }
                Some(Delta::Failed(error)) => self.fail(watched, &error),
                // The object cannot be parsed, so its last known state stays.
                Some(Delta::Unreadable(..) | Delta::Resumed) | None => {}
            }
        }
    }

    fn observe(&mut self, watched: Watched, live: &Value, is_there: bool) {
        let Watched::Definition(defined) = watched else { return self.bindings.see(watched, live, is_there) };
        self.set_defined(defined, Some(live).filter(|live| is_there && is_established(live)));
    }

    fn fail(&self, watched: Watched, error: &Error) {
        // Other failures are temporary: a kind is not served immediately after its CRD is created.
        if error.class() == Class::Denied {
            let why = chain(error);
            tracing::warn!(why, "service bindings are not followed; apply manifests/bindings for them");
            self.bindings.denied(watched);
        }
    }

    /// Watches the objects of a new CRD, or stops their watch after the CRD is deleted.
    fn set_defined(&mut self, defined: Defined, definition: Option<&Value>) {
        let watched = match defined {
            Defined::Usages => {
                Some((Watched::Usages, "servicecatalog.kyma-project.io/v1alpha1", "ServiceBindingUsage"))
            }
            Defined::Bindings => Some((Watched::Bindings, "servicecatalog.k8s.io/v1beta1", "ServiceBinding")),
            Defined::PodPresets => None,
        };
        let kind =
            watched.zip(definition).and_then(|((_, version, kind), definition)| served(version, kind, definition));
        let is_there = if defined == Defined::PodPresets { definition.is_some() } else { kind.is_some() };
        let usages = kind.clone().filter(|_| defined == Defined::Usages);
        self.bindings.set_defined(defined, is_there, usages);
        if defined == Defined::Usages && is_there && !std::mem::replace(&mut self.follows_others, true) {
            self.define(Defined::Bindings);
            self.define(Defined::PodPresets);
        }
        let Some((kind, (watched, ..))) = kind.zip(watched) else {
            if let Some(stop) = self.of_kinds.remove(&defined) {
                stop.cancel();
            }
            return;
        };
        if self.of_kinds.contains_key(&defined) {
            return;
        }
        let stop = CancellationToken::new();
        let events = self.cluster.watch(&kind, Selection::default()).map(move |event| (watched, event));
        self.watches.push(events.take_until(stop.clone().cancelled_owned()).boxed());
        self.of_kinds.insert(defined, stop);
    }
}

/// Returns the kind that a CRD serves in this version; `None` if the CRD does not serve it.
fn served(api_version: &str, kind: &str, definition: &Value) -> Option<Arc<Kind>> {
    let (group, name) = api_version.split_once('/')?;
    let versions = definition["spec"]["versions"].as_array()?;
    let version = versions.iter().find(|version| version["name"] == name && version["served"] == true)?;
    let has_status = version["subresources"]["status"].is_object();
    let plural = definition["spec"]["names"]["plural"].as_str()?;
    Some(Arc::new(Kind::custom(group, name, kind, plural, has_status)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_is_served_in_its_own_version_only() {
        let of = |versions: Value| {
            let definition = json!({"spec": {"names": {"plural": "things"}, "versions": versions}});
            served("g/v1", "Thing", &definition).map(|kind| (kind.plural.to_string(), kind.has_status))
        };
        let subresources = json!({"status": {}});
        assert_eq!(of(json!([{"name": "v1", "served": true}])), Some(("things".to_owned(), false)));
        assert_eq!(
            of(json!([{"name": "v1", "served": true, "subresources": subresources}])),
            Some(("things".to_owned(), true))
        );
        assert_eq!(of(json!([{"name": "v1", "served": false}, {"name": "v2", "served": true}])), None);
        assert_eq!(of(json!({})), None);
    }
}
