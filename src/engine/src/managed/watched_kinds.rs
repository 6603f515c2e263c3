//! The kinds that are watched by Mainstay's label, and the failures of their watches.
//!
//! Not here: the watches (`drift`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::desired::{Desired, Mark};
use super::object::Managed;
use super::store::Store;
use mainstay_cluster::{Kind, KindId};
use mainstay_object::Owner;

impl Store {
    /// Records that the kind of an object is watched, if a label marks the object. Returns whether the kind is new.
    pub(crate) fn begin_watch(&mut self, desired: &Desired) -> bool {
        let is_new = desired.label().is_some() && !self.watched.contains_key(&desired.kind.id());
        if is_new {
            self.watched.insert(desired.kind.id(), None);
        }
        is_new
    }

    /// Returns the watched kinds of an owner's objects, each with the label of these objects.
    pub(crate) fn kinds_of(&self, owner: &Owner) -> Vec<(Arc<Kind>, Arc<str>)> {
        let mut kinds: HashMap<KindId, (Arc<Kind>, Arc<str>)> = HashMap::new();
        for desired in self.kept_for(owner).map(|(_, managed)| &managed.desired) {
            let id = desired.kind.id();
            if let (Mark::Label(label), true) = (&desired.mark, self.watched.contains_key(&id)) {
                kinds.entry(id).or_insert_with(|| (Arc::clone(&desired.kind), Arc::clone(label)));
            }
        }
        kinds.into_values().collect()
    }

    /// Removes watched kinds without objects, and returns them.
    pub(crate) fn end_idle_watches(&mut self) -> Vec<KindId> {
        let objects = &self.objects;
        let idle = |id: &KindId| !objects.iter().any(|(_, managed)| is_watched_as(managed, id));
        let idle = self.watched.keys().filter(|id| idle(id)).cloned().collect::<Vec<_>>();
        for kind in &idle {
            self.watched.remove(kind);
        }
        idle
    }

    /// Sets or clears the failure of a kind's watch. Returns the owners to which this change is new.
    pub(crate) fn set_watch_failure(&mut self, kind: &Kind, why: Option<String>) -> HashSet<Owner> {
        let id = kind.id();
        let Some(known) = self.watched.get_mut(&id) else { return HashSet::new() };
        let is_changed = known.is_some() != why.is_some();
        *known = why;
        if !is_changed {
            return HashSet::new();
        }
        let of_kind = self.objects.iter().filter(|(_, managed)| is_watched_as(managed, &id));
        of_kind.map(|(_, managed)| managed.owner.clone()).collect()
    }

    /// Returns the kinds of an owner's objects that cannot be watched, with the cause.
    pub(crate) fn unwatched(&self, owner: &Owner) -> Vec<(String, String)> {
        let mut unwatched = Vec::new();
        for (id, why) in self.watched.iter().filter_map(|(id, why)| Some((id, why.as_ref()?))) {
            let first = self.kept_for(owner).map(|(_, managed)| managed).find(|managed| is_watched_as(managed, id));
            unwatched.extend(first.map(|managed| (managed.desired.kind.resource.to_string(), why.clone())));
        }
        unwatched.sort();
        unwatched
    }
}

fn is_watched_as(managed: &Managed, (group, version, kind): &KindId) -> bool {
    managed.desired.label().is_some() && managed.desired.kind.is(group, version, kind)
}
