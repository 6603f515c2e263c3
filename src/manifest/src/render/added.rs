//! A commit with additional files that a tool reads.

use std::collections::BTreeMap;

use super::closure::Tree;
use mainstay_git::{BlobId, Entry, EntryKind, Found};
use mainstay_object::Digest;

/// Files that are added to the files of a commit or replace them, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Added(pub(super) BTreeMap<String, Vec<u8>>);

impl Added {
    /// Returns a digest of paths and contents; `None` if there are no files.
    pub(super) fn digest(&self) -> Option<Digest> {
        let lines = self.0.iter().map(|(path, content)| format!("{} {path}\n", Digest::of(content)));
        (!self.0.is_empty()).then(|| Digest::of(lines.collect::<String>().as_bytes()))
    }
}

/// A commit with additional files.
pub(super) struct WithAdded<'a, T> {
    pub(super) tree: T,
    pub(super) added: &'a Added,
}

impl<T: Tree> Tree for WithAdded<'_, T> {
    fn at(&mut self, path: &str) -> Result<Found, mainstay_git::Error> {
        let Some(content) = self.added.0.get(path) else { return self.tree.at(path) };
        Ok(Found::File(Entry {
            path: path.to_owned(),
            // The id is not used, because the content is in memory.
            id: BlobId::NONE,
            size: content.len() as u64,
            kind: EntryKind::File,
            executable: false,
            flaw: None,
        }))
    }

    fn below(&mut self, directory: &str) -> Result<Vec<Entry>, mainstay_git::Error> {
        self.tree.below(directory)
    }

    fn read(&mut self, entry: &Entry) -> Result<Vec<u8>, mainstay_git::Error> {
        self.added.0.get(&entry.path).map_or_else(|| self.tree.read(entry), |content| Ok(content.clone()))
    }
}
