//! The ConfigMaps of an inventory as they were last written, so that an unchanged one is not written again.
//!
//! Invariant: source files are known only of a ConfigMap whose content is known.
//!
//! Not here: the inventory (`inventory`).

use std::collections::BTreeMap;

use mainstay_object::Digest;

/// The written inventory of a GitSync; empty before the first read or write.
#[derive(Debug, Default)]
pub(super) struct WrittenInventory {
    shards: BTreeMap<usize, WrittenShard>,
    /// Whether the inventory was rebuilt from labels, so that this round does not prune.
    is_rebuilt: bool,
}

/// A ConfigMap as last written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WrittenShard {
    content: Digest,
    /// A digest of the source files of the objects; `None` if it is unknown, as in a large inventory of an earlier agent.
    files: Option<Digest>,
}

impl WrittenInventory {
    /// Records the ConfigMaps that were read: their contents, and the source files of their objects if they are known.
    pub(super) fn read(&mut self, read: BTreeMap<usize, (Digest, Option<Digest>)>) {
        let shards = read.into_iter().map(|(index, (content, files))| (index, WrittenShard { content, files }));
        self.shards = shards.collect();
    }

    /// Whether there is no ConfigMap.
    pub(super) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Returns the greatest index of a ConfigMap, or 0.
    pub(super) fn last(&self) -> usize {
        self.shards.keys().last().copied().unwrap_or(0)
    }

    /// Whether a ConfigMap has this content.
    pub(super) fn has(&self, index: usize, content: Digest) -> bool {
        self.shards.get(&index).is_some_and(|shard| shard.content == content)
    }

    /// Returns the digest of the source files of the objects in a ConfigMap, if this agent has written it, found it
    /// unchanged, or read it.
    pub(super) fn files(&self, index: usize) -> Option<Digest> {
        self.shards.get(&index)?.files
    }

    /// Records a ConfigMap that has this content already. Unknown source files (`None`) leave the known ones.
    pub(super) fn find(&mut self, index: usize, content: Digest, files: Option<Digest>) {
        let files = files.or_else(|| self.files(index));
        self.write(index, content, files);
    }

    /// Records a ConfigMap that was written with this content. Without source files, it has no locations.
    pub(super) fn write(&mut self, index: usize, content: Digest, files: Option<Digest>) {
        self.shards.insert(index, WrittenShard { content, files });
    }

    /// Records that the inventory is rebuilt from labels.
    pub(super) fn rebuild(&mut self) {
        self.is_rebuilt = true;
    }

    /// Whether the inventory was rebuilt from labels and no round without failures has ended since.
    pub(super) fn is_rebuilt(&self) -> bool {
        self.is_rebuilt
    }

    /// Ends the time without prunes, after a round without failures. Returns whether the inventory was rebuilt.
    pub(super) fn take_rebuilt(&mut self) -> bool {
        std::mem::take(&mut self.is_rebuilt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_files_are_known_after_a_write_and_stay_until_the_inventory_is_read() {
        let [first, second, files] = ["1", "2", "a.yaml"].map(|text| Digest::of(text.as_bytes()));
        let mut written = WrittenInventory::default();
        assert!(written.is_empty() && written.last() == 0);
        written.read(BTreeMap::from([(0, (first, None)), (2, (first, Some(files)))]));
        assert!(!written.is_empty() && written.last() == 2);
        assert!(written.has(0, first) && !written.has(0, second) && !written.has(1, first));
        assert_eq!((written.files(0), written.files(2)), (None, Some(files)));
        written.write(0, second, Some(files));
        written.find(0, first, None);
        assert!(written.has(0, first));
        assert_eq!(written.files(0), Some(files));
        written.write(0, first, None);
        assert_eq!(written.files(0), None, "it was written without locations");
        written.read(BTreeMap::from([(0, (first, None))]));
        assert_eq!(written.files(0), None);
    }

    #[test]
    fn the_first_round_after_a_rebuild_does_not_prune() {
        let mut written = WrittenInventory::default();
        written.rebuild();
        assert!(written.is_rebuilt());
        assert!(written.take_rebuilt());
        assert!(!written.is_rebuilt() && !written.take_rebuilt());
    }
}
