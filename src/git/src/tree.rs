//! A directory in its stored form: a tree object.

use std::ops::RangeInclusive;

use super::entry::EntryKind;
use super::error::Fault;
use super::id::Id;

/// The kind of a [`TreeItem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    File,
    Directory,
    Symlink,
    Submodule,
}

impl ItemKind {
    /// Returns the kind of the item in a listing; `None` for a directory.
    pub(super) fn entry(self) -> Option<EntryKind> {
        match self {
            Self::Directory => None,
            Self::File => Some(EntryKind::File),
            Self::Symlink => Some(EntryKind::Symlink),
            Self::Submodule => Some(EntryKind::Submodule),
        }
    }
}

/// A file, directory, link or submodule in a directory.
pub(super) struct TreeItem<'a> {
    pub(super) kind: ItemKind,
    /// The mode in octal digits, as it is stored.
    pub(super) mode: &'a [u8],
    pub(super) executable: bool,
    pub(super) name: &'a [u8],
    pub(super) id: Id,
}

impl<'a> TreeItem<'a> {
    /// Returns the items of a directory in its stored form.
    pub(super) fn all(bytes: &'a [u8]) -> impl Iterator<Item = Result<Self, Fault>> {
        TreeItems(bytes)
    }
}

/// Sizes in bytes of the directories whose items are sorted. The cost of sorting a larger one, which may be malicious, has
/// no bound.
pub(super) const SORTED: RangeInclusive<usize> = (4 << 10)..=(512 << 10);

/// A directory in which items are looked up by name.
#[derive(Debug)]
pub(super) struct Tree {
    bytes: Vec<u8>,
    /// The offsets of the items.
    items: Vec<u32>,
    /// Whether the offsets are sorted by name. Git sorts the items differently, and a malicious tree is not sorted at all.
    is_sorted: bool,
}

impl Tree {
    /// Parses a directory in its stored form.
    ///
    /// # Errors
    /// An item is malformed.
    pub(super) fn parse(bytes: Vec<u8>) -> Result<Self, Fault> {
        let mut items = Vec::new();
        let mut rest = TreeItems(&bytes);
        let mut at = 0;
        while let Some(item) = rest.next() {
            item?;
            items.push(u32::try_from(at).map_err(|_| broken("a directory that is too large"))?);
            at = bytes.len() - rest.0.len();
        }
        let mut tree = Self { is_sorted: SORTED.contains(&bytes.len()), bytes, items: Vec::new() };
        if tree.is_sorted {
            items.sort_by(|one, other| tree.name(*one).cmp(tree.name(*other)));
        }
        tree.items = items;
        Ok(tree)
    }

    /// Returns the memory of the directory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.items)
    }

    fn item(&self, at: u32) -> Option<TreeItem<'_>> {
        tree_item(self.bytes.get(at as usize..)?).map(|(item, _)| item)
    }

    fn name(&self, at: u32) -> &[u8] {
        // Each item was parsed before.
        self.item(at).map_or(&[], |item| item.name)
    }

    /// Returns the items with this name, in their stored order. A valid directory has at most one.
    pub(super) fn named<'t>(&'t self, name: &'t [u8]) -> impl Iterator<Item = TreeItem<'t>> {
        let all = &self.items;
        let searched = if self.is_sorted {
            all.partition_point(|at| self.name(*at) < name)..all.partition_point(|at| self.name(*at) <= name)
        } else {
            0..all.len()
        };
        all[searched].iter().filter_map(|at| self.item(*at)).filter(move |item| item.name == name)
    }
}

/// Iterates over the items of a tree object: `<octal mode> <name>\0<20 bytes>` each.
struct TreeItems<'a>(&'a [u8]);

impl<'a> Iterator for TreeItems<'a> {
    type Item = Result<TreeItem<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let item = tree_item(self.0);
        self.0 = item.as_ref().map_or(&[][..], |(_, rest)| rest);
        Some(item.map(|(item, _)| item).ok_or_else(|| broken("an invalid directory")))
    }
}

fn tree_item(bytes: &[u8]) -> Option<(TreeItem<'_>, &[u8])> {
    let space = bytes.iter().take(8).position(|byte| *byte == b' ')?;
    let mode = u32::from_str_radix(std::str::from_utf8(&bytes[..space]).ok()?, 8).ok()?;
    let kind = match mode & 0o170_000 {
        0o040_000 => ItemKind::Directory,
        0o120_000 => ItemKind::Symlink,
        0o160_000 => ItemKind::Submodule,
        0o100_000 => ItemKind::File,
        _ => return None,
    };
    let rest = &bytes[space + 1..];
    let end = rest.iter().position(|byte| *byte == 0)?;
    let id = Id::from_bytes(rest.get(end + 1..end + 21)?)?;
    let executable = kind == ItemKind::File && mode & 0o100 != 0;
    Some((TreeItem { kind, mode: &bytes[..space], executable, name: &rest[..end], id }, &rest[end + 21..]))
}

/// Returns the error for a directory that matches its id but is malformed, so it is malformed at the remote, too.
fn broken(what: &str) -> Fault {
    Fault::Broken { what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_items_of_a_tree() {
        let mut bytes = Vec::new();
        let items = [("100644", "a.yaml"), ("100755", "run"), ("40000", "dir"), ("120000", "link"), ("160000", "sub")];
        for (mode, name) in items {
            bytes.extend(format!("{mode} {name}\0").bytes());
            bytes.extend([7; 20]);
        }
        let read: Vec<_> =
            TreeItems(&bytes).map(|item| item.unwrap()).map(|item| (item.kind, item.executable)).collect();
        let expected = [
            (ItemKind::File, false),
            (ItemKind::File, true),
            (ItemKind::Directory, false),
            (ItemKind::Symlink, false),
            (ItemKind::Submodule, false),
        ];
        assert_eq!(read, expected);
        assert!(TreeItems(&bytes[..bytes.len() - 1]).any(|item| item.is_err()));
    }

    /// Returns a directory with these items. Their ids are numbered.
    fn stored(items: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, (mode, name)) in items.iter().enumerate() {
            bytes.extend(format!("{mode} {name}\0").bytes());
            bytes.extend([u8::try_from(number).unwrap(); 20]);
        }
        bytes
    }

    #[test]
    fn finds_the_items_of_a_name_in_any_order() {
        // Git sorts directories as if their names ended with a slash.
        let items = [("100644", "a.b"), ("40000", "a"), ("100644", "z"), ("100644", "a"), ("40000", "")];
        let others: Vec<_> = (0..200).map(|number| format!("other-{:03}", 199 - number)).collect();
        let long: Vec<_> = items.into_iter().chain(others.iter().map(|name| ("40000", &**name))).collect();
        let id = |number: u8| Id::from_bytes(&[number; 20]).unwrap();
        for items in [&items[..], &long] {
            let tree = Tree::parse(stored(items)).unwrap();
            assert_eq!(tree.is_sorted, items.len() > 5);
            let found = |name: &str| tree.named(name.as_bytes()).map(|item| item.id).collect::<Vec<_>>();
            assert_eq!(found("a"), [id(1), id(3)], "in their stored order");
            assert_eq!((found("a.b"), found("z"), found("")), (vec![id(0)], vec![id(2)], vec![id(4)]));
            assert!(found("a.").is_empty() && found("zz").is_empty());
        }
        assert_eq!(Tree::parse(stored(&long)).unwrap().named(b"other-198").map(|item| item.id).last(), Some(id(6)));
        assert!(Tree::parse(stored(&items)[..30].to_vec()).is_err());
        assert!(Tree::parse(Vec::new()).unwrap().named(b"a").next().is_none());
    }

    proptest! {
        #[test]
        fn reads_any_tree_to_an_end(bytes: Vec<u8>) {
            let _ = TreeItems(&bytes).count();
            let _ = Tree::parse(bytes).map(|tree| tree.named(b"a").count());
        }
    }
}
