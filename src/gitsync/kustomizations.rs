//! The kustomizations of a commit that were built, for as long as what they read stays as it was.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::object::{Digest, Object};
use crate::source::Entry;

/// What was built last.
#[derive(Debug, Default)]
pub(super) struct BuiltKustomizations {
    /// Of the kustomization in each file: a digest of what it read, and its objects.
    pub(super) by_file: BTreeMap<String, (Digest, Vec<Arc<Object>>)>,
    /// Of all objects as the GitSync changes them: a digest of what they were made of, and they.
    pub(super) overlaid: Option<(Digest, Vec<Arc<Object>>)>,
    /// The files that they read which do not lie in `baseDir`, by their paths.
    pub(super) outside: BTreeMap<String, Entry>,
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
