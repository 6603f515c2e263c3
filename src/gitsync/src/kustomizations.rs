//! The kustomizations of a commit that were built, for as long as what they read stays as it was.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_git::Entry;
use mainstay_manifest::sops::{KeyId, Sealed};
use mainstay_object::{Digest, Object};

/// What was built last.
#[derive(Debug, Default)]
pub(super) struct BuiltKustomizations {
    /// The kustomization in each file.
    pub(super) by_file: BTreeMap<String, Built>,
    /// All objects as the GitSync changes them.
    pub(super) overlaid: Option<Built>,
    /// The files that they read which do not lie in `baseDir`, by their paths.
    pub(super) outside: BTreeMap<String, Entry>,
}

/// A kustomization that was built. What is encrypted in it stays so.
#[derive(Debug)]
pub(super) struct Built {
    /// A digest of what it was made of.
    pub(super) key: Digest,
    pub(super) objects: Vec<Arc<Object>>,
    /// The encrypted files that it read.
    pub(super) verified: Verified,
}

/// The encrypted files among those that something was made of.
#[derive(Debug, Default)]
pub(super) struct Verified {
    /// The keys that they were verified with.
    pub(super) keys: Option<KeyId>,
    pub(super) sealed: Vec<Arc<Sealed>>,
}

impl BuiltKustomizations {
    /// The files outside of `baseDir` that were read, as they were.
    pub(super) fn outside(&self) -> Vec<Entry> {
        self.outside.values().cloned().collect()
    }

    /// Notes what one of them read.
    pub(super) fn read(&mut self, base_dir: &str, files: &BTreeMap<String, Entry>) {
        let is_below =
            |path: &str| base_dir.is_empty() || path.strip_prefix(base_dir).is_some_and(|rest| rest.starts_with('/'));
        let outside = files.iter().filter(|(path, _)| !is_below(path));
        self.outside.extend(outside.map(|(path, entry)| (path.clone(), entry.clone())));
    }
}
