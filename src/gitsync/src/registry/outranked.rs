//! Objects that a confined GitSync lost to an unconfined one.
//!
//! Invariant: a confined GitSync that lists an object as applied learns that an unconfined one has it. After a restart
//! of the agent, it learns that from the inventories, once the unconfined one has read its commit: both list the object
//! as applied. The next plan of the confined GitSync reports the conflict and clears the applied state in its entry.
//! The entry itself stays until its commit lacks the object. A suspended GitSync makes that plan when it is resumed.
//!
//! Not here: the claim with which the plan of the confined GitSync then refuses the object (`registry`).

use super::View;
use super::row::Row;
use mainstay_object::{Key, Owner};

impl View<'_> {
    /// Returns the confined GitSyncs that manage an object, if the GitSync of this view outranks them.
    fn losers(&self, key: &Key) -> Vec<Owner> {
        if self.own_row().is_some_and(|own| own.confined_to.is_some()) {
            return Vec::new();
        }
        let manages = |row: &Row| row.managed.as_ref().is_some_and(|managed| managed.contains(key));
        let loses = |row: &Row| row.confined_to.is_some() && row.covers(key) && manages(row);
        let others = self.rows.naming(key).filter(|owner| *owner != self.own);
        others.filter(|owner| self.rows.owners.get(*owner).is_some_and(loses)).cloned().collect()
    }

    /// Records that the GitSync of this view has or applies these objects. Returns whether a confined GitSync manages one
    /// of them and does not know yet that it has lost it. So a GitSync whose apply is refused again and again does not wake
    /// the others each time.
    pub(crate) fn keep_outranked<'k>(&mut self, keys: impl Iterator<Item = &'k Key>) -> bool {
        let mut is_new = false;
        for key in keys {
            for owner in self.losers(key) {
                let Some(row) = self.rows.owners.get_mut(&owner) else { continue };
                if row.outranked.insert(key.clone()) {
                    row.has_lost = true;
                    is_new = true;
                }
            }
        }
        is_new
    }

    /// Whether a GitSync that outranks this view's GitSync took an object that the latter manages. After a restart, the
    /// inventories of both list the object as applied, and no plan has recorded the loss yet.
    pub(crate) fn is_outranked(&self, key: &Key) -> bool {
        let Some(own) = self.own_row() else { return false };
        let has_taken = |row: &Row| row.taken.as_ref().is_some_and(|taken| taken.contains(key));
        let wants = |row: &Row| row.desired.as_ref().is_some_and(|desired| desired.contains(key));
        let is_ours = |row: &Row| !row.is_of_other_agent && row.confined_to.is_none();
        let has_lost = |row: &Row| is_ours(row) && has_taken(row) && wants(row);
        let is_shared = || own.confined_to.is_some() && has_taken(own);
        own.outranked.contains(key) || (is_shared() && self.others(key).any(|(_, row)| has_lost(row)))
    }

    /// Records that lost objects were planned again. The objects in `keys` were given up by the GitSync that took them.
    pub(crate) fn regain(&mut self, keys: &[Key]) {
        let row = self.own();
        row.has_lost = false;
        for key in keys {
            row.outranked.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::*;
    use crate::registry::{Claim, Registry};

    fn key(name: &str) -> Key {
        Key::new("", "ConfigMap", Some("a"), name)
    }

    fn row(confined_to: Option<&str>, names: &[&str]) -> Row {
        let keys = Arc::new(names.iter().map(|name| key(name)).collect::<HashSet<_>>());
        Row {
            branch: Some("main".into()),
            managed: Some(Arc::clone(&keys)),
            taken: Some(Arc::clone(&keys)),
            desired: Some(keys),
            planned: Some("c2".into()),
            confined_to: confined_to.map(Into::into),
            tried: true,
            ..Row::default()
        }
    }

    /// Returns the rows of a tenant that lists two objects, and of a platform that lists one of them.
    fn rows() -> (Registry, Owner, Owner) {
        let registry = Registry::default();
        let (platform, tenant) = (Owner::git_sync("x", "platform"), Owner::git_sync("a", "tenant"));
        registry.update(&tenant, |own| *own = row(Some("a"), &["a", "b"]));
        registry.update(&platform, |own| *own = row(None, &["a"]));
        (registry, platform, tenant)
    }

    #[test]
    fn a_tenant_learns_once_that_the_platform_keeps_an_object() {
        let (registry, platform, tenant) = rows();
        let keys = [key("a"), key("c")];
        registry.with(&tenant, |view| assert!(!view.keep_outranked(keys.iter()), "it outranks no other GitSync"));
        registry.with(&platform, |view| assert!(view.keep_outranked(keys.iter()) && !view.keep_outranked(keys.iter())));
        registry.with(&tenant, |view| {
            assert!(view.own().has_lost && view.own().outranked.contains(&key("a")));
            assert_eq!(view.claim(&key("a"), None, "main", "c2"), Claim::Held("x/platform".into()));
        });
    }

    #[test]
    fn an_object_that_two_inventories_list_is_lost_unless_the_platform_gives_it_up() {
        let (registry, platform, tenant) = rows();
        let is_lost = |name: &str| registry.with(&tenant, |view| view.is_outranked(&key(name)));
        assert!(is_lost("a") && !is_lost("b"));
        registry.update(&platform, |own| own.desired = None);
        assert!(!is_lost("a"), "the platform may have given it up before");
        registry.update(&platform, |own| own.desired = Some(Arc::default()));
        assert!(!is_lost("a"));
        registry.update(&platform, |own| *own = row(Some("a"), &["a"]));
        assert!(!is_lost("a"), "it is a tenant, too");
        registry.update(&platform, |own| *own = row(None, &["a"]));
        registry.update(&tenant, |own| own.taken = Some(Arc::default()));
        assert!(!is_lost("a"), "the tenant has given its entry up");
        assert!(!registry.with(&platform, |view| view.is_outranked(&key("a"))));
    }
}
