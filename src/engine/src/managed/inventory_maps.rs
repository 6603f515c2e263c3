//! The ConfigMaps that hold inventories, as the watch of them shows: which there are, by the label of their GitSync.
//!
//! Invariant: while this is known, no inventory is missing from it that was written before the watch was opened, or that this
//! agent has written. It may name one that is gone by now.
//!
//! Deliberately absent: whose a ConfigMap is, and what it holds (`gitsync`).

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use mainstay_api::names::INVENTORY_LABEL;

/// How many ConfigMaps are remembered. Anybody may put the label on one; beyond this number nothing is known.
const MOST: usize = 100_000;

/// Namespace and value of the label.
type Of = (String, String);

/// The names of all of them.
#[derive(Debug, Default)]
struct Names {
    of: HashMap<Of, BTreeSet<String>>,
    count: usize,
}

/// How far they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Known {
    /// No list is complete yet.
    #[default]
    Not,
    /// All of them, except for changes since the watch was interrupted.
    Broken,
    /// All of them.
    All,
    /// There are more than are remembered.
    TooMany,
}

/// What is known of the ConfigMaps that hold inventories.
#[derive(Debug, Default)]
pub(crate) struct InventoryMaps {
    names: Names,
    known: Known,
}

impl Names {
    fn insert(&mut self, of: Of, name: &str) {
        self.count += usize::from(self.of.entry(of).or_default().insert(name.to_owned()));
    }

    fn remove(&mut self, of: &Of, name: &str) {
        let Some(names) = self.of.get_mut(of) else { return };
        self.count -= usize::from(names.remove(name));
        if names.is_empty() {
            self.of.remove(of);
        }
    }
}

impl InventoryMaps {
    /// A list is complete. Names that this agent has written stay: the list may be older.
    pub(crate) fn complete(&mut self) {
        if self.known != Known::TooMany {
            self.known = Known::All;
        }
    }

    /// The watch is interrupted, or a new list has begun.
    pub(crate) fn interrupted(&mut self) {
        if self.known == Known::All {
            self.known = Known::Broken;
        }
    }

    /// The watch works again, and nothing was missed.
    pub(crate) fn resumed(&mut self) {
        if self.known == Known::Broken {
            self.known = Known::All;
        }
    }

    /// A ConfigMap is there.
    pub(crate) fn insert(&mut self, live: &Value) {
        if let Some(((namespace, label), name)) = named(live) {
            self.note(&namespace, &label, name);
        }
    }

    /// A ConfigMap is gone, or has lost its label.
    pub(crate) fn remove(&mut self, live: &Value) {
        if let Some((of, name)) = named(live) {
            self.names.remove(&of, name);
        }
    }

    /// A ConfigMap is about to be written.
    pub(crate) fn note(&mut self, namespace: &str, label: &str, name: &str) {
        if self.names.count < MOST {
            self.names.insert((namespace.to_owned(), label.to_owned()), name);
        } else {
            *self = Self { names: Names::default(), known: Known::TooMany };
        }
    }

    /// The names of those with this label in this namespace; `None` while that is not known.
    pub(crate) fn names(&self, namespace: &str, label: &str) -> Option<Vec<String>> {
        let names = self.names.of.get(&(namespace.to_owned(), label.to_owned()));
        (self.known == Known::All).then(|| names.into_iter().flatten().cloned().collect())
    }
}

fn named(live: &Value) -> Option<(Of, &str)> {
    let text = |path: &str| live.pointer(path)?.as_str();
    let label = live.pointer("/metadata/labels")?.get(INVENTORY_LABEL)?.as_str()?;
    Some(((text("/metadata/namespace")?.to_owned(), label.to_owned()), text("/metadata/name")?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(name: &str) -> Value {
        json!({"metadata": {"namespace": "shop", "name": name, "labels": {INVENTORY_LABEL: "shop.web"}}})
    }

    fn names(maps: &InventoryMaps) -> Option<Vec<String>> {
        maps.names("shop", "shop.web")
    }

    #[test]
    fn the_names_are_known_while_a_list_is_complete_and_its_watch_works() {
        let mut maps = InventoryMaps::default();
        maps.interrupted();
        maps.insert(&live("a"));
        maps.resumed();
        assert_eq!(names(&maps), None, "the list continues");
        maps.complete();
        assert_eq!(names(&maps), Some(vec!["a".to_owned()]));
        assert_eq!(maps.names("shop", "shop.api"), Some(Vec::new()));
        maps.interrupted();
        assert_eq!(names(&maps), None, "the watch is broken");
        maps.resumed();
        maps.remove(&live("a"));
        assert_eq!(names(&maps), Some(Vec::new()));
        maps.note("shop", "shop.web", "b");
        maps.interrupted();
        assert_eq!(names(&maps), None, "the new list is not complete");
        maps.complete();
        assert_eq!(names(&maps), Some(vec!["b".to_owned()]), "a name that was written during the list stays");
    }

    #[test]
    fn more_names_than_are_remembered_are_as_none() {
        let mut maps = InventoryMaps::default();
        (0..=MOST).for_each(|number| maps.note("shop", "shop.web", &number.to_string()));
        maps.complete();
        maps.resumed();
        assert_eq!(names(&maps), None);
    }
}
