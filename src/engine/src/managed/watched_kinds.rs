//! The kinds that are watched by Mainstay's label, the failures of their watches, and the objects that these have not shown.
//!
//! Not here: the watches (`drift`).

use std::collections::HashSet;

use super::desired::Desired;
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

    /// Marks an owner's labelled objects of the `concerned` kinds as unshown. Returns these kinds, which must be listed.
    pub(crate) fn show_again(&mut self, owner: &Owner, concerned: impl Fn(&Kind) -> bool) -> HashSet<KindId> {
        let is_concerned = |desired: &Desired| desired.label().is_some() && concerned(&desired.kind);
        let of_owner = self.kept_for(owner).filter(|(_, managed)| is_concerned(&managed.desired));
        let keys = of_owner.map(|(key, _)| key.clone()).collect::<Vec<_>>();
        let mut kinds = HashSet::new();
        for key in keys {
            if let Some(mut managed) = self.objects.get_mut(&key) {
                managed.is_shown = false;
                kinds.insert(managed.desired.kind.id());
            }
        }
        kinds
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

    /// Returns the labelled objects of a kind that neither a watch nor a list has shown since the agent manages them, or
    /// since they must be [shown again](Self::show_again). Leaves out those of suspended owners: all of them are listed
    /// when the suspension ends. Leaves out those that are watched by name, unless their drift was only reported: the
    /// policy may have changed since.
    pub(crate) fn unshown(&self, kind: &Kind) -> HashSet<Key> {
        let id = kind.id();
        let is_active = |owner: &Owner| self.accounts.get(owner).is_some_and(|account| !account.policy.suspended);
        let unshown = self.objects.iter().filter(|(_, managed)| {
            let is_listed = managed.followed.is_none() || managed.is_reported();
            let is_unshown = !managed.is_shown && managed.is_expected() && is_listed;
            is_unshown && is_watched_as(managed, &id) && is_active(&managed.owner)
        });
        unshown.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the label value of these objects, if they have the same one.
    pub(crate) fn only_label<'k>(&self, keys: impl IntoIterator<Item = &'k Key>) -> Option<String> {
        let mut labels = keys.into_iter().map(|key| self.get(key)?.desired.label());
        let first = labels.next()??;
        labels.all(|other| other == Some(first)).then(|| first.to_owned())
    }

    /// Whether neither a watch nor a list has shown an object since the agent manages it, or since it must be shown
    /// again.
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
    use std::sync::Arc;
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

    #[test]
    fn objects_of_the_concerned_kinds_are_listed_again_until_they_are_shown() {
        let (mut store, object) = applied();
        let owner = Owner::git_sync("shop", "demo");
        assert!(store.show_again(&owner, |_| false).is_empty());
        assert!(store.show_again(&Owner::git_sync("shop", "other"), |_| true).is_empty());
        assert!(store.unshown(&object.kind).is_empty());
        assert_eq!(store.show_again(&owner, |_| true), HashSet::from([object.kind.id()]));
        assert_eq!(store.unshown(&object.kind), HashSet::from([object.key.clone()]));
        assert_eq!(store.only_label(&store.unshown(&object.kind)).as_deref(), Some("shop.demo"));
        store.see(&object.kind, &object.key, live(5, "1"), Instant::now(), Timestamp::UNIX_EPOCH);
        assert!(store.unshown(&object.kind).is_empty());
        store.show_again(&owner, |_| true);
        store.remove_owner(&owner);
        assert!(store.unshown(&object.kind).is_empty(), "its owner is gone");
    }
}
