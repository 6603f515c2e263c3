//! The kinds that are watched by Mainstay's label, the failures of their watches, and the objects that these have not shown.
//!
//! Not here: the watches (`drift`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::desired::{Desired, Mark};
use super::object::Managed;
use super::store::Store;
use mainstay_cluster::{Kind, KindId};
use mainstay_object::{Key, Owner};

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

    /// Returns the labelled objects of a kind that neither a watch nor a list has shown since the agent manages them.
    /// Leaves out those of suspended owners: all of them are listed when the suspension ends.
    pub(crate) fn unshown(&self, kind: &Kind) -> HashSet<Key> {
        let id = kind.id();
        let is_active = |owner: &Owner| self.accounts.get(owner).is_some_and(|account| !account.policy.suspended);
        let unshown = self.objects.iter().filter(|(_, managed)| {
            !managed.is_shown && managed.is_expected() && is_watched_as(managed, &id) && is_active(&managed.owner)
        });
        unshown.map(|(key, _)| key.clone()).collect()
    }

    /// Whether neither a watch nor a list has shown an object since the agent manages it.
    pub(crate) fn is_unshown(&self, key: &Key) -> bool {
        self.get(key).is_some_and(|managed| !managed.is_shown)
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use jiff::Timestamp;

    use super::*;
    use crate::managed::History;
    use crate::managed::account::Policy;
    use crate::managed::fixtures::{POLICY, applied, desired, live};
    use crate::managed::pending::Next;
    use crate::managed::verdict::LastApplied;
    use mainstay_api::DriftPolicy;
    use mainstay_object::Digest;

    /// Returns a store with an object of an earlier agent.
    fn of_earlier_agent() -> (Store, Owner, Arc<Desired>) {
        let (mut store, owner, object) = (Store::default(), Owner::git_sync("shop", "demo"), desired());
        store.set_policy(&owner, POLICY, History::default());
        let last_applied = LastApplied { digest: Some(Digest::of(b"x")), ..LastApplied::default() };
        store.hold(&owner, Arc::clone(&object), last_applied);
        (store, owner, object)
    }

    #[test]
    fn an_object_of_an_earlier_agent_is_listed_until_a_watch_shows_it() {
        let (mut store, _, object) = of_earlier_agent();
        assert_eq!(store.unshown(&object.kind), HashSet::from([object.key.clone()]));
        store.see(&object.kind, &object.key, live(6, "2"), Instant::now(), Timestamp::UNIX_EPOCH);
        assert!(!store.is_unshown(&object.key) && store.unshown(&object.kind).is_empty());
        let (store, object) = applied();
        assert!(store.unshown(&object.kind).is_empty(), "the response to the apply has shown it");
    }

    #[test]
    fn an_object_whose_health_stays_unknown_is_not_listed_again() {
        let (mut store, _, object) = of_earlier_agent();
        assert!(store.note_unreadable(&object.kind, &object.key, "7"));
        assert!(store.unshown(&object.kind).is_empty());
        let (mut store, owner, object) = of_earlier_agent();
        store.set_policy(&owner, Policy { drift: DriftPolicy::Ignore, ..POLICY }, History::default());
        assert_eq!(store.miss(&object.kind, &object.key, Some("7"), Instant::now()), Next::Nothing);
        assert!(store.unshown(&object.kind).is_empty(), "its deletion was shown");
    }

    #[test]
    fn objects_of_a_suspended_owner_are_not_listed() {
        let (mut store, owner, object) = of_earlier_agent();
        store.set_policy(&owner, Policy { suspended: true, ..POLICY }, History::default());
        assert!(store.unshown(&object.kind).is_empty());
        store.set_policy(&owner, POLICY, History::default());
        assert_eq!(store.unshown(&object.kind).len(), 1);
    }
}
