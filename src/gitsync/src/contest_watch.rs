//! Watches the objects of other GitOps tools that manage objects of a GitSync, and reports when one releases an object.
//!
//! Invariant: without a conflict, nothing is watched. With one, exactly the keepers of the objects are watched: at most
//! [`MOST`] for a GitSync and [`OF_AGENT`] for all, because each watch holds a connection open. Invariant: a task of its own
//! reads the watches. An attempt of the GitSync may wait for requests of a watch, so it must not stop them.
//!
//! Not here: finding the keeper of an object (`former_owners`). An object whose keeper is unknown or not watched is
//! checked again after the backoff.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use serde_json::Value;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::contested::{Keeper, listed_by_application, listed_by_kustomization};
use super::former_owners::records;
use mainstay_cluster::reflector::{Delta, Name, Shown, name_of};
use mainstay_cluster::{Cluster, Error, Selection, WatchEvent};
use mainstay_object::Key;

/// Maximum number of watches of a GitSync.
const MOST: usize = 10;
/// Maximum number of watches of all GitSyncs.
pub(super) const OF_AGENT: usize = 64;

/// The watches of the keepers of a GitSync's objects. Dropping this ends them.
pub(super) struct ContestWatch {
    kept: HashMap<Keeper, HashSet<Key>>,
    /// Whether each keeper is watched whose kind exists.
    is_complete: bool,
    /// Notified when a keeper may have released an object.
    released: Arc<Notify>,
    /// The task that reads the watches.
    reading: JoinSet<()>,
}

impl ContestWatch {
    /// Watches the keepers of these objects. Returns `None` without keepers, and `before` if the keepers are the same.
    pub(super) async fn of(
        cluster: &Cluster,
        permits: &Arc<Semaphore>,
        contested: impl Iterator<Item = (&Key, &Keeper)>,
        before: Option<Box<Self>>,
    ) -> Option<Box<Self>> {
        let mut kept: HashMap<Keeper, HashSet<Key>> = HashMap::new();
        for (key, keeper) in contested.filter(|(_, keeper)| !matches!(keeper, Keeper::Unknown(_))) {
            if kept.len() < MOST || kept.contains_key(keeper) {
                kept.entry(keeper.clone()).or_default().insert(key.clone());
            }
        }
        if kept.is_empty() {
            return None;
        }
        match before {
            Some(before) if before.is_complete && before.kept == kept => return Some(before),
            // Its permits are free once its task has ended.
            Some(mut before) => before.reading.shutdown().await,
            None => {}
        }
        let (mut watches, mut is_complete) = (Watches::default(), true);
        for (keeper, keys) in &kept {
            // Without a permit, or if the kind cannot be read, the object is checked again after the backoff.
            let (permit, events) = (Arc::clone(permits).try_acquire_owned(), events(cluster, keeper).await);
            is_complete &= permit.is_ok() && events.is_ok();
            let (Ok(permit), Ok(Some(events))) = (permit, events) else { continue };
            let of = keeper.clone();
            watches.permits.push(permit);
            watches.events.push(events.map(move |event| (of.clone(), event)).boxed());
            watches.holds.insert(keeper.clone(), (Shown::default(), Hold::of(keeper, keys)));
        }
        let (released, mut reading) = (Arc::<Notify>::default(), JoinSet::new());
        reading.spawn(watches.read(Arc::clone(&released)));
        Some(Box::new(Self { kept, is_complete, released, reading }))
    }
}

#[derive(Default)]
struct Watches {
    events: SelectAll<BoxStream<'static, (Keeper, WatchEvent)>>,
    holds: HashMap<Keeper, (Shown<Name>, Hold)>,
    /// One permit for each watch.
    permits: Vec<OwnedSemaphorePermit>,
}

impl Watches {
    /// Reads the events, and notifies when a keeper may have released an object.
    async fn read(mut self, released: Arc<Notify>) {
        while let Some((keeper, event)) = self.events.next().await {
            let Some((shown, hold)) = self.holds.get_mut(&keeper) else { continue };
            let delta = shown.take(event, name_of);
            if delta.is_some_and(|delta| hold.loosens(delta)) {
                released.notify_one();
            }
        }
    }
}

/// Waits until a keeper may have released an object. Waits forever without watches.
pub(super) async fn released(watch: Option<&ContestWatch>) {
    match watch {
        Some(watch) => watch.released.notified().await,
        None => std::future::pending().await,
    }
}

async fn events(cluster: &Cluster, keeper: &Keeper) -> Result<Option<BoxStream<'static, WatchEvent>>, Error> {
    let (group, kind, name) = match keeper {
        Keeper::Kustomization(name) => ("kustomize.toolkit.fluxcd.io", "Kustomization", name),
        Keeper::Application(name) => ("argoproj.io", "Application", name),
        Keeper::HelmRelease(name) => ("helm.toolkit.fluxcd.io", "HelmRelease", name),
        Keeper::Release(name) => {
            let (kind, selection) = records(name);
            return Ok(Some(cluster.watch(&kind, selection.metadata_only())));
        }
        Keeper::Unknown(_) => return Ok(None),
    };
    let Some(kind) = cluster.preferred_kind(group, kind).await? else { return Ok(None) };
    let selection = Selection::named(Some(name.namespace()), name.name());
    let lists_objects = !matches!(keeper, Keeper::HelmRelease(_));
    let selection = if lists_objects { selection } else { selection.metadata_only() };
    Ok(Some(cluster.watch(&kind, selection)))
}

/// The objects of a GitSync that a keeper still manages.
struct Hold {
    keys: HashSet<Key>,
    /// Returns the objects that an object of the tool lists. `None` for tools that manage an object as long as their
    /// own object exists.
    lists: Option<fn(&Value) -> Vec<Key>>,
    /// The number of managed objects, by the tool's object.
    by_name: HashMap<Name, usize>,
    /// The number of managed objects after the last event.
    last: usize,
}

impl Hold {
    fn of(keeper: &Keeper, keys: &HashSet<Key>) -> Self {
        let lists: Option<fn(&Value) -> Vec<Key>> = match keeper {
            Keeper::Kustomization(_) => Some(listed_by_kustomization),
            Keeper::Application(_) => Some(listed_by_application),
            Keeper::HelmRelease(_) | Keeper::Release(_) | Keeper::Unknown(_) => None,
        };
        Self { keys: keys.clone(), lists, by_name: HashMap::new(), last: keys.len() }
    }

    fn kept_by(&self, object: &Value) -> usize {
        match self.lists {
            None => self.keys.len(),
            Some(lists) => lists(object).iter().filter(|key| self.keys.contains(*key)).count(),
        }
    }

    /// Records an event. Returns whether the keeper manages fewer objects than before.
    fn loosens(&mut self, delta: Delta<Name>) -> bool {
        match delta {
            Delta::Listed(name, object) => {
                let kept = self.kept_by(&object);
                self.by_name.insert(name, kept);
                return false;
            }
            Delta::Changed(name, object) => {
                let kept = self.kept_by(&object);
                self.by_name.insert(name, kept);
            }
            Delta::Gone(name, _) => drop(self.by_name.remove(&name)),
            Delta::Complete(list) => self.by_name.retain(|name, _| !list.lacks(name)),
            Delta::Unreadable(..) | Delta::Failed(_) | Delta::Resumed => return false,
        }
        let now = self.by_name.values().sum::<usize>().min(self.keys.len());
        let before = std::mem::replace(&mut self.last, now);
        now < before
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use mainstay_object::NamespacedName;

    fn keys(names: &[&str]) -> HashSet<Key> {
        names.iter().map(|name| Key::new("", "ConfigMap", Some("shop"), *name)).collect()
    }

    fn kustomization(objects: &[&str]) -> Value {
        let entries: Vec<_> = objects.iter().map(|name| json!({"id": format!("shop_{name}__ConfigMap")})).collect();
        json!({"metadata": {"name": "apps", "namespace": "flux"}, "status": {"inventory": {"entries": entries}}})
    }

    fn name(name: &str) -> Name {
        name_of(&json!({"metadata": {"name": name, "namespace": "flux"}})).unwrap()
    }

    #[test]
    fn a_kustomization_that_lists_fewer_of_the_objects_lets_go() {
        let keeper = Keeper::Kustomization(NamespacedName::new("flux", "apps"));
        let mut hold = Hold::of(&keeper, &keys(&["a", "b"]));
        let mut changed = |objects: &[&str]| hold.loosens(Delta::Changed(name("apps"), kustomization(objects)));
        assert!(!changed(&["a", "b", "c"]));
        assert!(!changed(&["b", "a"]), "others are no business of ours");
        assert!(changed(&["b"]));
        assert!(!changed(&["b"]), "it was told");
        assert!(!changed(&["a", "b"]));
        assert!(changed(&[]));
        let mut hold = Hold::of(&keeper, &keys(&["a"]));
        assert!(hold.loosens(Delta::Changed(name("apps"), kustomization(&[]))), "it let go before the watch began");
    }

    #[test]
    fn a_release_lets_go_with_its_last_record() {
        let keeper = Keeper::Release(NamespacedName::new("flux", "apps"));
        let mut hold = Hold::of(&keeper, &keys(&["a", "b"]));
        let record = json!({});
        assert!(!hold.loosens(Delta::Listed(name("v1"), record.clone())));
        assert!(!hold.loosens(Delta::Changed(name("v2"), record.clone())));
        assert!(!hold.loosens(Delta::Gone(name("v1"), record.clone())));
        assert!(hold.loosens(Delta::Gone(name("v2"), record.clone())));
        assert!(!hold.loosens(Delta::Resumed));
    }
}
