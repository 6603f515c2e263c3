//! The GitSyncs whose spec a commit changes. They may want objects that leave the commit, so these are not deleted before each
//! such GitSync has made an attempt with its new spec (`registry`).
//!
//! Not here: GitSyncs in other clusters than that of the agent, and those whose objects are in other clusters. They want no
//! object of this cluster.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use serde_json::Value;

use super::attempt::Attempt;
use super::plan::{DesiredState, is_unchanged};
use super::registry::{ChangedSync, Spec};
use mainstay_api::GitSync;
use mainstay_engine::managed::Desired;
use mainstay_object::{Key, Owner};

/// The GitSyncs of a commit that apply objects to this cluster.
pub(super) struct ChangedSyncs {
    /// Those that are applied with another document than before.
    changed: HashSet<Owner>,
    /// The others.
    unchanged: HashSet<Owner>,
}

impl ChangedSyncs {
    /// Returns the GitSyncs that must make an attempt with a new spec, after those of an earlier plan.
    pub(super) fn update(self, before: HashMap<Owner, ChangedSync>) -> HashMap<Owner, ChangedSync> {
        let is_applied = |(owner, state): &(Owner, ChangedSync)| {
            matches!(state, ChangedSync::Applied(_)) && self.unchanged.contains(owner)
        };
        let state = |owner: &Owner| match before.get(owner) {
            Some(ChangedSync::Left) => ChangedSync::Left,
            _ => ChangedSync::Unapplied,
        };
        let changed: Vec<_> = self.changed.iter().map(|owner| (owner.clone(), state(owner))).collect();
        before.into_iter().filter(is_applied).chain(changed).collect()
    }
}

impl Attempt<'_> {
    /// Returns the GitSyncs of a commit, by whether the commit changes their documents.
    pub(super) fn changed_syncs(&self, desired: &DesiredState, now: Timestamp) -> ChangedSyncs {
        let mut syncs = ChangedSyncs { changed: HashSet::new(), unchanged: HashSet::new() };
        let mut children =
            desired.objects.iter().filter_map(|desired| Some((sync_of(&desired.key)?, desired))).peekable();
        if self.context.is_elsewhere() || children.peek().is_none() {
            return syncs;
        }
        let inventory = self.inventory().unwrap_or_default();
        for (owner, desired) in children.filter(|(owner, _)| owner != self.owner) {
            if is_unchanged(desired, inventory.0.get(&desired.key)) {
                syncs.unchanged.insert(owner);
            } else if may_want_objects(desired, now) {
                syncs.changed.insert(owner);
            }
        }
        syncs
    }

    /// Records the spec of a GitSync as the API server returned it.
    pub(super) fn note_applied_sync(&self, desired: &Desired, answer: &Value) {
        let Some(owner) = sync_of(&desired.key) else { return };
        let metadata = &answer["metadata"];
        let (Some(uid), Some(generation)) = (metadata["uid"].as_str(), metadata["generation"].as_i64()) else { return };
        let spec = Spec { uid: uid.to_owned(), generation };
        self.set_changed_sync(&owner, ChangedSync::Applied(spec));
    }

    /// Records that a GitSync is paused, and keeps its former spec.
    pub(super) fn note_paused_sync(&self, key: &Key) {
        if let Some(owner) = sync_of(key) {
            self.set_changed_sync(&owner, ChangedSync::Left);
        }
    }

    fn set_changed_sync(&self, owner: &Owner, state: ChangedSync) {
        self.context.registry.update(self.owner, |row| {
            if let Some(known) = row.changed_syncs.get_mut(owner) {
                *known = state;
            }
        });
    }
}

/// Returns the GitSync of a key; `None` for another kind.
fn sync_of(key: &Key) -> Option<Owner> {
    key.is("mainstay.dev", "GitSync").then(|| Owner::git_sync(key.namespace.as_deref().unwrap_or_default(), &key.name))
}

/// Whether a GitSync with this document may want objects of this cluster. A document that is not valid has no effect.
fn may_want_objects(desired: &Desired, now: Timestamp) -> bool {
    let sync = serde_json::from_slice::<GitSync>(desired.object.json());
    sync.is_ok_and(|sync| sync.spec.kube_config.is_none() && sync.spec.suspended(now).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_git_sync_is_awaited_and_an_applied_one_stays_awaited_until_the_commit_lacks_it() {
        let owner = |name: &str| Owner::git_sync("shop", name);
        let applied = ChangedSync::Applied(Spec { uid: "u".to_owned(), generation: 2 });
        let before = HashMap::from([
            (owner("again"), applied.clone()),
            (owner("applied"), applied.clone()),
            (owner("gone"), applied.clone()),
            (owner("paused"), ChangedSync::Left),
            (owner("refused"), ChangedSync::Unapplied),
        ]);
        let changed = HashSet::from([owner("again"), owner("new"), owner("paused"), owner("refused")]);
        let after = ChangedSyncs { changed, unchanged: HashSet::from([owner("applied")]) }.update(before);
        let expected = HashMap::from([
            (owner("again"), ChangedSync::Unapplied),
            (owner("applied"), applied),
            (owner("new"), ChangedSync::Unapplied),
            (owner("paused"), ChangedSync::Left),
            (owner("refused"), ChangedSync::Unapplied),
        ]);
        assert_eq!(after, expected);
    }
}
