//! The names of the ConfigMaps that hold inventories, from their watch, by the label of their GitSync.
//!
//! Invariant: known names include every inventory from before the watch, and every one that this agent wrote. A
//! ConfigMap in the list may be gone.
//!
//! Not here: the owner and the content of a ConfigMap (`gitsync`).

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use mainstay_api::names::INVENTORY_LABEL;
use mainstay_cluster::reflector::Delta;
use mainstay_object::Key;

/// Maximum number of stored names. Any user may set the label; beyond this number, all names count as unknown.
const MOST: usize = 100_000;

/// Namespace, and value of the label.
type Of = (String, String);

/// The names of all ConfigMaps.
#[derive(Debug, Default)]
struct Names {
    of: HashMap<Of, BTreeSet<String>>,
    count: usize,
}

/// The names that are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Known {
    /// No list is complete yet.
    #[default]
    Not,
    /// All names, except for changes since the watch was interrupted.
    Broken,
    /// All names.
    All,
    /// None, because the server refuses the watch.
    Refused,
    /// None, because there are more than the maximum.
    TooMany,
}

/// The known ConfigMaps with inventories.
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
    /// Records that a list is complete. Names that this agent wrote stay, because the list may be older.
    fn complete(&mut self) {
        if self.known != Known::TooMany {
            self.known = Known::All;
        }
    }

    /// Records an event of the watch.
    pub(crate) fn see(&mut self, delta: &Delta<Key>) {
        match delta {
            Delta::Listed(_, live) => {
                self.interrupted();
                self.insert(live);
            }
            Delta::Unreadable(_, live, _) => self.insert(live),
            Delta::Changed(_, live) => {
                self.resumed();
                self.insert(live);
            }
            Delta::Gone(_, live) => {
                self.resumed();
                self.remove(live);
            }
            Delta::Resumed => self.resumed(),
            Delta::Complete(_) => self.complete(),
            Delta::Failed(error) if error.is_forbidden() => self.refused(),
            Delta::Failed(_) => self.interrupted(),
        }
    }

    /// Whether the wait for the names is over: they are known, or the watch will not show them.
    pub(crate) fn are_settled(&self) -> bool {
        matches!(self.known, Known::All | Known::Refused | Known::TooMany)
    }

    /// Records that the watch is interrupted or a new list began.
    fn interrupted(&mut self) {
        match self.known {
            Known::All => self.known = Known::Broken,
            Known::Refused => self.known = Known::Not,
            Known::Not | Known::Broken | Known::TooMany => {}
        }
    }

    /// Records that the server refuses the watch. Only a complete list makes the names known again.
    fn refused(&mut self) {
        if self.known != Known::TooMany {
            self.known = Known::Refused;
        }
    }

    /// Records that the watch works again and missed no event.
    fn resumed(&mut self) {
        if self.known == Known::Broken {
            self.known = Known::All;
        }
    }

    /// Adds a ConfigMap.
    fn insert(&mut self, live: &Value) {
        if let Some(((namespace, label), name)) = named(live) {
            self.note(&namespace, &label, name);
        }
    }

    /// Removes a ConfigMap that is gone or lost its label.
    fn remove(&mut self, live: &Value) {
        if let Some((of, name)) = named(live) {
            self.names.remove(&of, name);
        }
    }

    /// Adds a ConfigMap that is about to be written.
    pub(crate) fn note(&mut self, namespace: &str, label: &str, name: &str) {
        if self.names.count < MOST {
            self.names.insert((namespace.to_owned(), label.to_owned()), name);
        } else {
            *self = Self { names: Names::default(), known: Known::TooMany };
        }
    }

    /// Returns the names with this label in this namespace; `None` while they are unknown.
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
    fn a_refused_watch_ends_the_wait_for_names() {
        let mut maps = InventoryMaps::default();
        assert!(!maps.are_settled(), "the first list comes");
        maps.refused();
        assert!(maps.are_settled() && names(&maps).is_none());
        maps.interrupted();
        assert!(!maps.are_settled(), "another list comes");
        maps.complete();
        assert!(maps.are_settled() && names(&maps).is_some());
        maps.interrupted();
        assert!(!maps.are_settled(), "the watch is broken");
    }

    #[test]
    fn too_many_names_count_as_unknown() {
        let mut maps = InventoryMaps::default();
        (0..=MOST).for_each(|number| maps.note("shop", "shop.web", &number.to_string()));
        maps.complete();
        maps.resumed();
        assert!(maps.are_settled() && names(&maps).is_none());
    }
}
