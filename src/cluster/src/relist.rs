//! Lists that come again: what was known before, and is not in them.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// Namespace and name.
type Name = (String, String);

/// The lists that have begun and not ended, by what is watched.
#[derive(Debug)]
pub struct Relists<W> {
    /// What was known before, and has not come yet.
    stale: HashMap<W, HashSet<Name>>,
}

impl<W> Default for Relists<W> {
    fn default() -> Self {
        Self { stale: HashMap::new() }
    }
}

impl<W: Eq + Hash> Relists<W> {
    /// A list begins. `known`: what is known so far.
    pub fn begin(&mut self, watched: W, known: HashSet<Name>) {
        self.stale.insert(watched, known);
    }

    /// A list has this, or a watch.
    pub fn came(&mut self, watched: &W, key: &Name) {
        if let Some(stale) = self.stale.get_mut(watched) {
            stale.remove(key);
        }
    }

    /// A list ends. What it lacks.
    pub fn end(&mut self, watched: &W) -> HashSet<Name> {
        self.stale.remove(watched).unwrap_or_default()
    }
}
