//! The built kustomizations of a commit. A built kustomization is reused while its inputs do not change.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_git::Entry;
use mainstay_manifest::sops::{KeyId, Sealed};
use mainstay_object::{Digest, Object};

/// The last built kustomizations.
#[derive(Debug, Default)]
pub(super) struct BuiltKustomizations {
    /// The kustomization in each file.
    pub(super) by_file: BTreeMap<String, Built>,
    /// The result of the overlay: all objects with the changes in the GitSync's spec.
    pub(super) overlaid: Option<Built>,
    /// Files outside of `baseDir` that kustomizations and charts read, by path.
    pub(super) outside: BTreeMap<String, Entry>,
}

/// A built kustomization. Encrypted values in it stay encrypted.
#[derive(Debug)]
pub(super) struct Built {
    /// A digest of the inputs.
    pub(super) key: Digest,
    pub(super) objects: Vec<Arc<Object>>,
    /// The encrypted files that the build read.
    pub(super) verified: Verified,
}

/// The encrypted files among the inputs.
#[derive(Debug, Default)]
pub(super) struct Verified {
    /// The keys that verified the files.
    pub(super) keys: Option<KeyId>,
    pub(super) sealed: Vec<Arc<Sealed>>,
}

impl BuiltKustomizations {
    /// Returns the read files outside of `baseDir`.
    pub(super) fn outside(&self) -> Vec<Entry> {
        self.outside.values().cloned().collect()
    }

    /// Records the files that a kustomization read.
    pub(super) fn read(&mut self, base_dir: &str, files: &BTreeMap<String, Entry>) {
        let is_below =
            |path: &str| base_dir.is_empty() || path.strip_prefix(base_dir).is_some_and(|rest| rest.starts_with('/'));
        let outside = files.iter().filter(|(path, _)| !is_below(path));
        self.outside.extend(outside.map(|(path, entry)| (path.clone(), entry.clone())));
    }
}
