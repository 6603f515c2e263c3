//! The children of managed objects. Each child is kept once, however many owners it has.
//!
//! Invariant: the memory of children and of the branches that they form is taken from a budget, because owner references
//! are hostile: a few objects that own each other form very many branches.

use std::collections::HashMap;

use super::node::{Node, Seen};
use mainstay_cluster::MemoryBudget;
use mainstay_object::Key;

/// Maximum depth, because owner references may form a cycle.
const DEEPEST: usize = 8;

/// The children that were read.
#[derive(Default)]
pub(super) struct Children {
    all: Vec<(Key, Seen)>,
    /// Positions in `all`, by the UID of the owner.
    by_owner: HashMap<String, Vec<usize>>,
}

impl Children {
    /// Keeps the objects of a list that have owners.
    pub(super) fn add(&mut self, found: Vec<(Key, Seen)>) {
        for (key, mut seen) in found {
            for uid in std::mem::take(&mut seen.owners) {
                self.by_owner.entry(uid).or_default().push(self.all.len());
            }
            self.all.push((key, seen));
        }
    }

    /// Returns the children of the object with this UID.
    pub(super) fn below(&self, uid: &str, budget: &MemoryBudget) -> Vec<Node> {
        self.branches(uid, 0, budget)
    }

    fn branches(&self, uid: &str, depth: usize, budget: &MemoryBudget) -> Vec<Node> {
        let found = self.by_owner.get(uid).filter(|_| depth < DEEPEST && !uid.is_empty());
        let mut nodes = Vec::new();
        for (key, seen) in found.into_iter().flatten().filter_map(|at| self.all.get(*at)) {
            if !budget.take(seen.bytes(key)) {
                break;
            }
            nodes.push(Node {
                key: key.clone(),
                state: seen.state.clone(),
                created: seen.created,
                facts: seen.facts.clone(),
                children: self.branches(&seen.uid, depth + 1, budget),
            });
        }
        nodes.sort_by(|a, b| a.key.cmp(&b.key));
        nodes
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use mainstay_engine::managed::health_rules::HealthRules;

    /// A ConfigMap with these owners. Its UID is its name.
    fn child(name: &str, owners: &[String]) -> (Key, Seen) {
        let owners: Vec<Value> = owners.iter().map(|uid| json!({ "uid": uid })).collect();
        let key = Key::new("", "ConfigMap", Some("shop"), name);
        let live = json!({"metadata": {"uid": name, "ownerReferences": owners}});
        let seen = Seen::of(&key, &live, &HealthRules::default());
        (key, seen)
    }

    fn count(nodes: &[Node]) -> usize {
        nodes.iter().map(|node| 1 + count(&node.children)).sum()
    }

    #[test]
    fn a_child_of_several_owners_is_kept_once_and_shown_below_each() {
        let mut children = Children::default();
        let owners = ["a", "b", "a"].map(str::to_owned);
        children.add(vec![child("one", &owners), child("two", &["one".to_owned()])]);
        assert_eq!((children.all.len(), children.by_owner["a"].len()), (2, 1));
        let budget = MemoryBudget::new(1 << 20);
        for uid in ["a", "b"] {
            let below = children.below(uid, &budget);
            assert_eq!((below.len(), below[0].children.len()), (1, 1));
        }
        assert!(children.below("", &budget).is_empty() && budget.note("cut").is_none());
    }

    #[test]
    fn objects_that_own_each_other_form_branches_within_the_budget() {
        let names: Vec<String> = (0..10).map(|number| format!("c{number}")).collect();
        let mut children = Children::default();
        children.add(names.iter().map(|name| child(name, &names)).collect());
        let budget = MemoryBudget::new(1 << 20);
        let below = children.below("c0", &budget);
        assert!(count(&below) > 100 && count(&below) < 10_000, "{}", count(&below));
        assert!(budget.note("cut").is_some_and(|note| note.contains("1 MiB")));
    }
}
