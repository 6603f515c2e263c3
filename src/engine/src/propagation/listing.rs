//! What a watch shows: a value by key, and whether all of them are known.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// The objects of a watch.
#[derive(Debug)]
pub(super) struct Listing<K, V> {
    all: HashMap<K, V>,
    /// Those that the list has shown that is under way.
    fresh: HashSet<K>,
    is_complete: bool,
}

impl<K, V> Default for Listing<K, V> {
    fn default() -> Self {
        Self { all: HashMap::new(), fresh: HashSet::new(), is_complete: false }
    }
}

impl<K: Clone + Eq + Hash, V> Listing<K, V> {
    /// A list begins.
    pub(super) fn begin(&mut self) {
        self.fresh.clear();
    }

    /// An object is there, and nothing new may be known of it.
    pub(super) fn keep(&mut self, key: K) {
        self.fresh.insert(key);
    }

    /// An object is there.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.fresh.insert(key.clone());
        self.all.insert(key, value);
    }

    /// An object is gone.
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.fresh.remove(key);
        self.all.remove(key)
    }

    /// A list is complete; those that were not in it are gone.
    pub(super) fn complete(&mut self) -> Vec<(K, V)> {
        self.is_complete = true;
        let fresh = std::mem::take(&mut self.fresh);
        self.all.extract_if(|key, _| !fresh.contains(key)).collect()
    }

    /// Whether what is not in it is not there.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.all.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.all.iter()
    }
}
