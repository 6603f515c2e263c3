//! Forgets resource versions after the API server was restored from a backup.
//!
//! The versions of a restored server begin at that of the backup. A remembered version, compared with them as a number,
//! would make later events look old: a deletion or an edit would be ignored until the server has reached that version.
//!
//! Invariant: no version of a kind's objects that was remembered before a complete list outlasts it if the list
//! [went back](mainstay_cluster::reflector::List::went_back). This concerns the last apply, the deletion (`gone_at`),
//! the state that waits for a write, the remaining drift, and the last unreadable state.
//!
//! Not here: the proof, which is a list of the watch that is older than a change before it (`mainstay_cluster`).

use std::time::Instant;

use super::object::{Managed, Watched};
use super::store::Store;
use mainstay_cluster::Kind;
use mainstay_object::Key;

impl Store {
    /// Forgets the resource versions of a kind's objects. All of them are compared at their next state, whatever its
    /// version, and count as unshown. Returns these objects.
    pub(crate) fn forget_versions(&mut self, kind: &Kind, watched: Watched, at: Instant) -> Vec<Key> {
        let is_shown_by = |m: &Managed| m.is_of(kind) && Watched::by(&m.desired.mark) == watched;
        let of_kind = self.objects.iter().filter(|(_, managed)| is_shown_by(managed));
        let keys = of_kind.map(|(key, _)| key.clone()).collect::<Vec<_>>();
        for key in &keys {
            if let Some(mut managed) = self.objects.get_mut(key) {
                managed.forget_versions(at);
            }
        }
        keys
    }
}

impl Managed {
    fn forget_versions(&mut self, at: Instant) {
        if let Some(last) = self.applied.last_mut() {
            last.resource_version = "".into();
        }
        if let Some(drift) = &mut self.drift {
            drift.version = "".into();
        }
        (self.gone_at, self.unreadable, self.is_shown) = (None, None, false);
        self.write.forget_versions(at);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use jiff::Timestamp;
    use serde_json::Value;

    use super::*;
    use crate::managed::account::Policy;
    use crate::managed::fixtures::{POLICY, applied, live, verify};
    use crate::managed::pending::Next;
    use crate::managed::{Desired, History};
    use mainstay_api::DriftPolicy;
    use mainstay_object::Owner;

    /// Returns a store with an object that was applied at version 900.
    fn applied_late() -> (Store, Arc<Desired>) {
        let (mut store, desired) = applied();
        verify(&mut store, &desired, &live(900, "1"), &desired.body());
        (store, desired)
    }

    fn see(store: &mut Store, desired: &Desired, live: Value) -> Next {
        store.see(&desired.kind, &desired.key, live, Instant::now(), Timestamp::UNIX_EPOCH)
    }

    /// Returns the waiting state: its content, and whether it is read in any case.
    fn waiting(store: &Store, key: &Key) -> Option<(bool, bool)> {
        let seen = store.get(key)?.write.pending()?;
        Some((seen.live.is_some(), seen.live.is_none() && seen.gone_at.is_none()))
    }

    #[test]
    fn an_object_that_was_gone_is_seen_at_the_lower_versions_of_a_restored_server() {
        let (mut store, desired) = applied();
        let policy = Policy { drift: DriftPolicy::Ignore, ..POLICY };
        store.set_policy(&Owner::git_sync("shop", "demo"), policy, History::default());
        let (kind, key, now) = (&desired.kind, &desired.key, Instant::now());
        assert_eq!(store.miss(kind, key, Some("900"), now), Next::Nothing);
        assert_eq!(store.get(key).unwrap().gone_at, Some(900));
        store.set_policy(&Owner::git_sync("shop", "demo"), POLICY, History::default());
        assert_eq!(see(&mut store, &desired, live(100, "2")), Next::Nothing, "it may be older than the deletion");
        assert_eq!(store.forget_versions(kind, Watched::ByUs, now), std::slice::from_ref(key));
        assert_eq!(store.unshown(kind), HashSet::from([key.clone()]), "it is listed");
        assert_eq!(see(&mut store, &desired, live(100, "2")), Next::Queue);
        assert!(!store.is_unshown(key));
    }

    #[test]
    fn an_edit_is_seen_at_the_lower_versions_of_a_restored_server() {
        let (mut store, desired) = applied_late();
        assert_eq!(see(&mut store, &desired, live(100, "2")), Next::Nothing);
        store.forget_versions(&desired.kind, Watched::ByUs, Instant::now());
        assert_eq!(see(&mut store, &desired, live(101, "1")), Next::Nothing, "it is in sync");
        assert_eq!(&*store.get(&desired.key).unwrap().applied.last().unwrap().resource_version, "101");
        assert_eq!(see(&mut store, &desired, live(102, "2")), Next::Queue);
    }

    #[test]
    fn an_object_that_a_restored_server_lacks_is_missing() {
        let (mut store, desired) = applied_late();
        let (kind, key, none) = (&desired.kind, &desired.key, HashSet::new());
        assert!(store.missing(kind, Watched::ByUs, &none, "100").is_empty());
        store.forget_versions(kind, Watched::ByUs, Instant::now());
        assert_eq!(store.missing(kind, Watched::ByUs, &none, "100"), std::slice::from_ref(key));
        assert_eq!(store.miss(kind, key, Some("100"), Instant::now()), Next::Queue);
    }

    #[test]
    fn a_state_that_waits_from_before_the_restore_is_read_instead() {
        let (mut store, desired) = applied();
        let (kind, key, now) = (&desired.kind, &desired.key, Instant::now());
        assert_eq!(see(&mut store, &desired, live(900, "2")), Next::Queue);
        store.forget_versions(kind, Watched::ByUs, now);
        assert_eq!(waiting(&store, key), Some((false, true)));
        assert!(!store.get(key).unwrap().write.needs_newer_than("1"));
        let generation = store.get(key).unwrap().write.generation();
        assert!(store.begin_revert(key, generation).is_some());
        assert_eq!(store.miss(kind, key, Some("900"), now), Next::Nothing, "it waits for the revert");
        store.forget_versions(kind, Watched::ByUs, now);
        assert_eq!(store.end(key, Timestamp::UNIX_EPOCH), Next::Queue);
        assert_eq!((waiting(&store, key), store.get(key).unwrap().gone_at), (Some((false, true)), None));
    }

    #[test]
    fn an_object_with_a_successor_is_not_recreated_before_it_is_gone() {
        let (mut store, desired) = applied();
        let (kind, key, now) = (&desired.kind, &desired.key, Instant::now());
        store.set_successor(&desired);
        assert_eq!(see(&mut store, &desired, live(900, "2")), Next::Queue);
        store.forget_versions(kind, Watched::ByUs, now);
        assert_eq!(waiting(&store, key), Some((false, true)));
        assert!(!store.get(key).unwrap().is_to_succeed(), "it is only read");
        store.miss(kind, key, Some("100"), now);
        assert!(store.get(key).unwrap().is_to_succeed());
    }

    #[test]
    fn objects_of_other_kinds_and_watches_keep_their_versions() {
        let (mut store, desired) = applied_late();
        let other = Kind::fixed("v1", "Secret", "secrets", mainstay_cluster::Scope::Namespaced);
        assert!(store.forget_versions(&other, Watched::ByUs, Instant::now()).is_empty());
        assert!(store.forget_versions(&desired.kind, Watched::ByOwner, Instant::now()).is_empty());
        assert_eq!(see(&mut store, &desired, live(100, "2")), Next::Nothing);
    }
}
