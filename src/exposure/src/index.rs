//! An index of existing objects by APIRule and by host.

use std::collections::{BTreeSet, HashMap};

use super::child::{ChildKind, Place};
use super::seen::Seen;
use mainstay_object::Owner;

/// The existing objects.
#[derive(Debug, Default)]
pub(super) struct Index {
    seen: HashMap<Place, Seen>,
    /// The objects of each APIRule, by its UID.
    of_rules: HashMap<Box<str>, BTreeSet<Place>>,
    /// The objects that use each host.
    of_hosts: HashMap<Box<str>, BTreeSet<Place>>,
    /// The number of Oathkeeper's Rules of each APIRule.
    guarded: HashMap<Owner, usize>,
    /// The newest version of a deleted object, per kind.
    gone: HashMap<ChildKind, u64>,
}

/// The owners and hosts that a change affects.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Affected {
    pub(super) owners: Vec<Owner>,
    pub(super) hosts: Vec<Box<str>>,
}

impl Affected {
    fn add(&mut self, seen: &Seen) {
        self.owners.extend(seen.rule.iter().map(|(owner, _)| owner.clone()));
        self.hosts.extend(seen.hosts.iter().cloned());
    }
}

impl Index {
    /// Returns an existing object.
    pub(super) fn get(&self, place: &Place) -> Option<&Seen> {
        self.seen.get(place)
    }

    /// Returns the objects of an APIRule.
    pub(super) fn of_rule(&self, owner: &Owner, uid: &str) -> Vec<(Place, Seen)> {
        let places = self.of_rules.get(uid).into_iter().flatten();
        let seen = places.filter_map(|place| Some((place.clone(), self.seen.get(place)?.clone())));
        seen.filter(|(_, seen)| seen.is_of(owner, uid)).collect()
    }

    /// Returns the number of Oathkeeper's Rules of each APIRule.
    pub(super) fn guarded(&self) -> &HashMap<Owner, usize> {
        &self.guarded
    }

    /// Returns kind, namespace and name of all objects of a kind.
    pub(super) fn of_kind(&self, kind: ChildKind) -> impl Iterator<Item = &Place> {
        self.seen.keys().filter(move |place| place.0 == kind)
    }

    /// Whether an object that does not belong to this APIRule uses a host. `host` is in lower case.
    pub(super) fn is_served_for_others(&self, owner: &Owner, uid: &str, host: &str) -> bool {
        let places = self.of_hosts.get(host).into_iter().flatten();
        let mut seen = places.filter_map(|place| Some((place.0, self.seen.get(place)?)));
        // Several HTTPRoutes of one APIRule may use the same host.
        seen.any(|(kind, seen)| !seen.is_of(owner, uid) && (kind == ChildKind::VirtualService || seen.rule.is_some()))
    }

    /// Whether a written object may have been deleted before the response to the write arrived.
    pub(super) fn may_be_gone(&self, place: &Place, written: &Seen) -> bool {
        let is_past = written.version().zip(self.gone.get(&place.0)).is_some_and(|(this, gone)| this <= *gone);
        is_past && !self.seen.contains_key(place)
    }

    /// Inserts an object, unless the known state is newer. Returns the affected owners and hosts.
    pub(super) fn insert(&mut self, place: Place, new: Seen) -> Affected {
        let mut affected = match self.seen.get(&place) {
            Some(known) if new.is_older_than(known) => return Affected::default(),
            Some(known) if !new.differs(known) => {
                self.seen.insert(place, new);
                return Affected::default();
            }
            _ => self.remove(&place),
        };
        affected.add(&new);
        if let Some((owner, uid)) = &new.rule {
            self.of_rules.entry(uid.clone()).or_default().insert(place.clone());
            if place.0 == ChildKind::AccessRule {
                *self.guarded.entry(owner.clone()).or_default() += 1;
            }
        }
        for host in &new.hosts {
            self.of_hosts.entry(host.clone()).or_default().insert(place.clone());
        }
        self.seen.insert(place, new);
        affected
    }

    /// Removes a deleted object, whose last state is `last`. Returns the affected owners and hosts.
    pub(super) fn gone(&mut self, place: &Place, last: &Seen) -> Affected {
        if let Some(version) = last.version() {
            let newest = self.gone.entry(place.0).or_default();
            *newest = version.max(*newest);
        }
        self.remove(place)
    }

    /// Removes an object. Returns the affected owners and hosts.
    pub(super) fn remove(&mut self, place: &Place) -> Affected {
        let mut affected = Affected::default();
        let Some(old) = self.seen.remove(place) else { return affected };
        affected.add(&old);
        if let Some((owner, uid)) = &old.rule {
            remove_from(&mut self.of_rules, uid, place);
            if place.0 == ChildKind::AccessRule {
                self.remove_guarded(owner);
            }
        }
        for host in &old.hosts {
            remove_from(&mut self.of_hosts, host, place);
        }
        affected
    }

    /// Forgets the resource versions of a kind's objects, because those of a restored server are lower.
    pub(super) fn forget_versions(&mut self, kind: ChildKind) {
        self.gone.remove(&kind);
        self.seen.iter_mut().filter(|(place, _)| place.0 == kind).for_each(|(_, seen)| seen.forget_version());
    }

    fn remove_guarded(&mut self, owner: &Owner) {
        let left = self.guarded.get(owner).map_or(0, |count| count - 1);
        if left == 0 {
            self.guarded.remove(owner);
        } else {
            self.guarded.insert(owner.clone(), left);
        }
    }
}

fn remove_from(index: &mut HashMap<Box<str>, BTreeSet<Place>>, of: &str, place: &Place) {
    if let Some(places) = index.get_mut(of) {
        places.remove(place);
        if places.is_empty() {
            index.remove(of);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const KIND: ChildKind = ChildKind::VirtualService;

    fn place() -> Place {
        (KIND, "shop".to_owned(), "web".to_owned())
    }

    fn seen(version: &str, host: &str, rule: &str) -> Seen {
        let owner = json!({
            "apiVersion": "gateway.kyma-project.io/v1alpha1", "kind": "APIRule", "name": rule, "uid": rule, "controller": true,
        });
        let metadata: Value = json!({
            "name": "web", "namespace": "shop", "uid": "v", "resourceVersion": version, "ownerReferences": [owner],
        });
        Seen::of(KIND, &json!({"metadata": metadata, "spec": {"hosts": [host]}}))
    }

    #[test]
    fn another_host_or_owner_affects_the_old_and_the_new_one_and_an_older_state_none() {
        let (mut index, of) = (Index::default(), |name: &str| Owner::api_rule("shop", name));
        index.insert(place(), seen("5", "a.b", "web"));
        assert_eq!(index.insert(place(), seen("6", "a.b", "web")), Affected::default());
        let affected = index.insert(place(), seen("8", "c.d", "api"));
        assert_eq!((affected.owners, affected.hosts), (vec![of("web"), of("api")], vec!["a.b".into(), "c.d".into()]));
        assert_eq!(index.insert(place(), seen("7", "a.b", "web")), Affected::default());
        let is_occupied = |host: &str| index.is_served_for_others(&of("web"), "web", host);
        assert!(is_occupied("c.d") && !is_occupied("a.b"));
        assert!(index.of_rule(&of("web"), "web").is_empty() && index.of_rule(&of("api"), "api").len() == 1);
        index.remove(&place());
        assert!(index.of_rules.is_empty() && index.of_hosts.is_empty(), "nothing is kept of what is gone");
    }

    #[test]
    fn an_answer_that_comes_after_the_deletion_of_what_was_written_is_not_believed() {
        let mut index = Index::default();
        index.gone(&place(), &seen("9", "a.b", "web"));
        assert!(index.may_be_gone(&place(), &seen("8", "a.b", "web")));
        assert!(!index.may_be_gone(&place(), &seen("10", "a.b", "web")));
        index.insert(place(), seen("11", "a.b", "web"));
        assert!(!index.may_be_gone(&place(), &seen("8", "a.b", "web")), "it is there again");
    }

    #[test]
    fn the_lower_versions_of_a_restored_server_are_not_older() {
        let mut index = Index::default();
        index.insert(place(), seen("900", "a.b", "web"));
        index.gone(&(KIND, "shop".to_owned(), "other".to_owned()), &seen("901", "a.b", "web"));
        assert_eq!(index.insert(place(), seen("100", "c.d", "web")), Affected::default());
        index.forget_versions(ChildKind::AccessRule);
        assert_eq!(index.insert(place(), seen("100", "c.d", "web")), Affected::default());
        index.forget_versions(KIND);
        let affected = index.insert(place(), seen("100", "c.d", "web"));
        assert_eq!(affected.hosts.iter().map(|host| &**host).collect::<Vec<_>>(), ["a.b", "c.d"]);
        index.remove(&place());
        assert!(!index.may_be_gone(&place(), &seen("101", "a.b", "web")));
    }
}
