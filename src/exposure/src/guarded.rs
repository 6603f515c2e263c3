//! Limits the number of paths that Oathkeeper guards for a namespace. Oathkeeper compares each request of the cluster
//! with all Rules, one after the other, until one of them matches.
//!
//! An APIRule keeps its paths. The paths of a served APIRule count even if its task has not run since the start of the
//! agent: the existing Rules show their number.
//!
//! Invariant: the APIRules of a namespace have at most `MOST` Rules.

use std::collections::{BTreeSet, HashMap};

use super::index::Index;
use super::resolve::Resolved;
use mainstay_object::Owner;

/// Maximum number of paths with a guard in all APIRules of a namespace. Oathkeeper compares a request with a path of
/// another host in 1 to 10 µs, and compiles a path in 25 to 90 µs after each change of a Rule.
pub(super) const MOST: usize = 1000;

/// The number of paths with a guard, by APIRule.
#[derive(Debug, Default)]
pub(super) struct Guarded {
    held: HashMap<Owner, usize>,
    /// The APIRules that did not fit, and their numbers.
    waiting: HashMap<Owner, usize>,
}

impl Guarded {
    /// Returns the number of paths of the other APIRules of a namespace.
    fn others(&self, owner: &Owner, index: &Index) -> usize {
        let namespace = owner.resource().namespace();
        let is_other = |other: &&Owner| other.resource().namespace() == namespace && *other != owner;
        let all: BTreeSet<&Owner> = self.held.keys().chain(index.guarded().keys()).filter(is_other).collect();
        let count = |of: &HashMap<Owner, usize>, other: &Owner| of.get(other).copied().unwrap_or_default();
        all.into_iter().map(|other| count(&self.held, other).max(count(index.guarded(), other))).sum()
    }

    /// Returns the number of paths of other APIRules if there is no room for this many paths of an APIRule. The APIRule
    /// then waits for room.
    pub(super) fn lacks_room(&mut self, owner: &Owner, paths: usize, index: &Index) -> Option<usize> {
        let others = self.others(owner, index);
        if paths == 0 || others + paths <= MOST {
            self.waiting.remove(owner);
            return None;
        }
        self.waiting.insert(owner.clone(), paths);
        Some(others)
    }

    /// Sets the number of paths of an APIRule. Returns whether it is smaller than before.
    pub(super) fn hold(&mut self, owner: &Owner, paths: usize) -> bool {
        self.held.insert(owner.clone(), paths).is_some_and(|before| paths < before)
    }

    /// Removes the paths of an APIRule. Returns whether it had some.
    pub(super) fn release(&mut self, owner: &Owner) -> bool {
        self.held.remove(owner).is_some()
    }

    /// Removes a deleted APIRule that waits for room.
    pub(super) fn leave(&mut self, owner: &Owner) {
        self.waiting.remove(owner);
    }

    /// Returns the waiting APIRules of a namespace for which there is room now.
    pub(super) fn fitting(&self, namespace: &str, index: &Index) -> Vec<Owner> {
        let of_it = self.waiting.iter().filter(|(owner, _)| owner.resource().namespace() == namespace);
        let fits = |owner: &Owner, paths: usize| self.others(owner, index) + paths <= MOST;
        of_it.filter(|(owner, paths)| fits(owner, **paths)).map(|(owner, _)| owner.clone()).collect()
    }
}

/// Returns the number of paths with a guard.
pub(super) fn count(resolved: &Resolved) -> usize {
    resolved.rules.iter().filter(|rule| !rule.is_open()).count()
}

/// Returns the message for an APIRule without room.
pub(super) fn message(paths: usize, others: usize, namespace: &str) -> String {
    format!(
        "{paths} paths with a guard exceed the limit of {MOST} in a namespace: the other APIRules of {namespace} have \
         {others}. Oathkeeper compares each request of the cluster with all of them. Write one path for several, such as \
         /users/.*, or use the handler allow"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::child::ChildKind;
    use super::super::seen::Seen;
    use super::*;

    fn of(name: &str) -> Owner {
        Owner::api_rule("shop", name)
    }

    /// Inserts Rules of an APIRule.
    fn write(index: &mut Index, name: &str, count: usize) {
        for at in 0..count {
            let owner = json!({
                "apiVersion": "gateway.kyma-project.io/v1alpha1", "kind": "APIRule", "name": name, "uid": name,
                "controller": true,
            });
            let metadata = json!({"namespace": "shop", "uid": at.to_string(), "ownerReferences": [owner]});
            let place = (ChildKind::AccessRule, "shop".to_owned(), format!("{name}-{at}"));
            index.insert(place, Seen::of(ChildKind::AccessRule, &json!({"metadata": metadata})));
        }
    }

    #[test]
    fn the_api_rules_of_a_namespace_share_one_limit() {
        let (mut guarded, index) = (Guarded::default(), Index::default());
        assert_eq!(guarded.lacks_room(&of("a"), 600, &index), None);
        guarded.hold(&of("a"), 600);
        assert_eq!(guarded.lacks_room(&of("b"), MOST - 599, &index), Some(600));
        assert_eq!(guarded.lacks_room(&of("b"), MOST - 600, &index), None);
        assert_eq!(guarded.lacks_room(&Owner::api_rule("other", "b"), MOST, &index), None);
        assert_eq!(guarded.lacks_room(&of("open"), 0, &index), None, "open paths are not limited");
        assert_eq!(guarded.lacks_room(&of("a"), MOST, &index), None, "an APIRule does not count against itself");
    }

    #[test]
    fn existing_rules_count_before_their_api_rule_is_reconciled() {
        let (mut guarded, mut index) = (Guarded::default(), Index::default());
        write(&mut index, "old", 700);
        assert_eq!(guarded.lacks_room(&of("new"), 301, &index), Some(700));
        guarded.hold(&of("old"), 700);
        assert_eq!(guarded.lacks_room(&of("new"), 300, &index), None, "they count once");
        assert!(guarded.hold(&of("old"), 1), "there may be room");
        assert_eq!(guarded.lacks_room(&of("new"), 301, &index), Some(700), "until they are deleted");
    }

    #[test]
    fn api_rules_that_fit_are_notified_once_there_is_room() {
        let (mut guarded, mut index) = (Guarded::default(), Index::default());
        write(&mut index, "old", 2);
        guarded.hold(&of("old"), MOST);
        for (name, paths) in [("small", 1), ("large", MOST)] {
            assert!(guarded.lacks_room(&of(name), paths, &index).is_some());
        }
        assert_eq!(guarded.fitting("shop", &index), []);
        guarded.release(&of("old"));
        assert_eq!(guarded.fitting("shop", &index), [of("small")]);
        assert_eq!(guarded.fitting("other", &index), []);
        guarded.leave(&of("small"));
        assert_eq!(guarded.fitting("shop", &index), []);
    }
}
