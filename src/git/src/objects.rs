//! Reads commits, trees and blobs from an object database. Everything here blocks.
//!
//! libgit2 finds and unpacks objects and verifies their ids. Commits and trees are parsed here, because this needs no
//! repository and bounds the cost of a malicious tree.
//!
//! Invariant: the size of an object is checked against a limit before the object is read.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use git2::{ErrorCode, ObjectType, Odb};
use jiff::Timestamp;

use super::abbreviation::Abbreviation;
use super::entry::EntryKind;
use super::error::Fault;
use super::id::{BlobId, Commit, Id};
use super::path_flaw;
use super::reference::BaseDir;
use mainstay_object::is_unprintable;

const COMMIT_BYTES: u64 = 4 << 20;
const TREE_BYTES: u64 = 16 << 20;
/// Maximum total bytes of the directories in which submodules are searched.
const SEARCHED_BYTES: u64 = 64 << 20;

/// An object database.
pub(super) struct Objects {
    odb: Odb<'static>,
}

/// The first lines of a commit: who made it, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitHeader {
    /// First line of the message, at most 200 characters.
    pub subject: String,
    /// Name of the author without the address, at most 72 characters. The author writes it; it proves nothing.
    pub author: String,
    /// Time at which the author made the commit, by the author's clock; `None` if the commit has no readable time.
    pub authored: Option<Timestamp>,
}

/// Tree and header of a commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommitInfo {
    pub(super) tree: Id,
    pub(super) header: CommitHeader,
}

impl Objects {
    /// Opens the database in the directory `path`.
    pub(super) fn open(path: &Path) -> Result<Self, Fault> {
        let text = path.to_str().ok_or(Fault::Malformed { why: "the path of the repository must be UTF-8" })?;
        let odb = Odb::new().map_err(Fault::git)?;
        odb.add_disk_alternate(text).map_err(Fault::git)?;
        Ok(Self { odb })
    }

    pub(super) fn odb(&self) -> &Odb<'static> {
        &self.odb
    }

    /// Returns the commit's tree and header; `None` if the object does not exist.
    pub(super) fn commit(&self, commit: Commit) -> Result<Option<CommitInfo>, Fault> {
        let Some((_, kind)) = self.header(commit.0)? else { return Ok(None) };
        if kind != ObjectType::Commit {
            return Err(Fault::NotCommit);
        }
        let bytes = self.raw_commit(commit)?;
        read_commit(&bytes).map(Some).ok_or_else(|| broken("a commit without a tree"))
    }

    /// Returns the parents of the commit; `None` if the object does not exist.
    pub(super) fn parents(&self, commit: Commit) -> Result<Option<Vec<Id>>, Fault> {
        if !matches!(self.header(commit.0)?, Some((_, ObjectType::Commit))) {
            return Ok(None);
        }
        Ok(Some(read_parents(&self.raw_commit(commit)?)))
    }

    /// Returns a commit in its stored form.
    pub(super) fn raw_commit(&self, commit: Commit) -> Result<Vec<u8>, Fault> {
        self.read(commit.0, ObjectType::Commit, COMMIT_BYTES, "a commit in bytes")
    }

    /// Returns a tag object in its stored form.
    pub(super) fn raw_tag(&self, id: Id) -> Result<Vec<u8>, Fault> {
        self.read(id, ObjectType::Tag, COMMIT_BYTES, "a tag in bytes")
    }

    /// Returns the only commit with this abbreviated id; `None` if there is none.
    pub(super) fn commit_of(&self, beginning: &Abbreviation) -> Result<Option<Commit>, Fault> {
        let (oid, digits) = beginning.oid()?;
        let mut hits = Vec::new();
        match self.odb.exists_prefix(oid, digits) {
            Ok(hit) => hits.push(Id::from(hit)),
            Err(error) if error.code() == ErrorCode::NotFound => {}
            // Trees and blobs may have the same abbreviated id.
            Err(error) if error.code() == ErrorCode::Ambiguous => {
                let every = self.odb.foreach(|oid| {
                    let id = Id::from(*oid);
                    if beginning.begins(Commit(id)) {
                        hits.push(id);
                    }
                    true
                });
                every.map_err(|error| damaged(error.message()))?;
            }
            Err(error) => return Err(damaged(error.message())),
        }
        let mut commits = Vec::new();
        for id in hits {
            if matches!(self.header(id)?, Some((_, ObjectType::Commit))) {
                commits.push(Commit(id));
            }
        }
        beginning.among(commits)
    }

    /// Returns the directory at `base_dir` under the tree `root`.
    pub(super) fn directory(&self, root: Id, base_dir: &BaseDir) -> Result<Option<Id>, Fault> {
        let mut at = root;
        for part in base_dir.parts() {
            let bytes = self.tree(at)?;
            let mut hit = None;
            for item in TreeItems(&bytes) {
                let item = item?;
                if item.name == part.as_bytes() && item.kind == ItemKind::Directory && hit.replace(item.id).is_some() {
                    return Err(broken("a directory with two items of one name"));
                }
            }
            match hit {
                Some(id) => at = id,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// Finds the entries with this name in the directories above `base_dir` under the tree `root`, from the root
    /// down. Returns the path, kind and id of each entry that is not a directory.
    pub(super) fn above(
        &self,
        root: Id,
        base_dir: &BaseDir,
        name: &str,
    ) -> Result<Vec<(String, EntryKind, Id)>, Fault> {
        let (mut at, mut path, mut found) = (root, String::new(), Vec::new());
        for part in base_dir.parts() {
            let bytes = self.tree(at)?;
            let mut below = None;
            for item in TreeItems(&bytes) {
                let item = item?;
                if item.name == part.as_bytes() && item.kind == ItemKind::Directory {
                    below = Some(item.id);
                } else if item.name == name.as_bytes()
                    && let Some(kind) = item.kind.entry()
                {
                    found.push((format!("{path}{name}"), kind, item.id));
                }
            }
            let Some(below) = below else { break };
            at = below;
            path = format!("{path}{part}/");
        }
        Ok(found)
    }

    /// Lists a directory: the displayed names, with the kind of each entry that is not a directory.
    pub(super) fn names(&self, directory: Id) -> Result<Vec<(String, Option<EntryKind>)>, Fault> {
        let bytes = self.tree(directory)?;
        TreeItems(&bytes).map(|item| item.map(|item| (path_flaw::shown(item.name), item.kind.entry()))).collect()
    }

    /// Returns the file, link or submodule at a path under the tree `root`.
    pub(super) fn entry(&self, root: Id, path: &BaseDir) -> Result<Option<(EntryKind, Id)>, Fault> {
        let (parent, name) = path.split();
        let Some(directory) = self.directory(root, &parent)? else { return Ok(None) };
        let bytes = self.tree(directory)?;
        for item in TreeItems(&bytes) {
            let item = item?;
            if item.name == name.as_bytes() {
                return Ok(item.kind.entry().map(|kind| (kind, item.id)));
            }
        }
        Ok(None)
    }

    /// Finds the submodules at these paths under the tree `root`. Each directory on the way is read once.
    ///
    /// # Errors
    /// The directories exceed the limit together, or one of them lists a name twice: that of a submodule, or of a
    /// directory that contains one.
    pub(super) fn submodules<'p>(
        &self,
        root: Id,
        paths: impl Iterator<Item = &'p str>,
    ) -> Result<BTreeMap<&'p str, Commit>, Fault> {
        let mut found = BTreeMap::new();
        let mut left = SEARCHED_BYTES;
        let mut open = vec![(root, paths.map(|path| (path, path)).collect::<Vec<_>>())];
        while let Some((tree, paths)) = open.pop() {
            let bytes = self.tree(tree)?;
            let too_large = Fault::TooLarge { what: "directories with submodules in bytes", limit: SEARCHED_BYTES };
            left = left.checked_sub(bytes.len() as u64).ok_or(too_large)?;
            // For each name: the paths to search below it, and whether the name was already seen.
            let mut names: HashMap<&[u8], (Vec<_>, bool)> = HashMap::new();
            for (path, rest) in paths {
                let (name, below) = rest.split_once('/').map_or((rest, None), |(name, below)| (name, Some(below)));
                names.entry(name.as_bytes()).or_default().0.push((path, below));
            }
            for item in TreeItems(&bytes) {
                let item = item?;
                let Some((searched, is_there)) = names.get_mut(item.name) else { continue };
                if std::mem::replace(is_there, true) {
                    return Err(broken("a directory with two items of one name"));
                }
                match item.kind {
                    ItemKind::Submodule => {
                        let here = searched.iter().filter(|(_, below)| below.is_none());
                        found.extend(here.map(|(path, _)| (*path, Commit(item.id))));
                    }
                    ItemKind::Directory => {
                        let below = searched.iter().filter_map(|(path, below)| Some((*path, (*below)?)));
                        let below = below.collect::<Vec<_>>();
                        open.extend((!below.is_empty()).then_some((item.id, below)));
                    }
                    ItemKind::File | ItemKind::Symlink => {}
                }
            }
        }
        Ok(found)
    }

    /// Returns the content of a file.
    pub(super) fn blob(&self, id: BlobId, limit: u64) -> Result<Vec<u8>, Fault> {
        self.read(id.0, ObjectType::Blob, limit, "the file in bytes")
    }

    /// Returns a directory in its stored form.
    pub(super) fn tree(&self, id: Id) -> Result<Vec<u8>, Fault> {
        self.read(id, ObjectType::Tree, TREE_BYTES, "a directory in bytes")
    }

    /// Returns size and kind of an object; `None` if it does not exist.
    pub(super) fn header(&self, id: Id) -> Result<Option<(u64, ObjectType)>, Fault> {
        match self.odb.read_header(id.oid()?) {
            Ok((size, kind)) => Ok(Some((size as u64, kind))),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(damaged(error.message())),
        }
    }

    fn read(&self, id: Id, kind: ObjectType, limit: u64, what: &'static str) -> Result<Vec<u8>, Fault> {
        let (size, found) = self.header(id)?.ok_or_else(|| damaged(&format!("object {id} is missing")))?;
        if found != kind {
            return Err(damaged(&format!("object {id} has a different type than expected")));
        }
        if size > limit {
            return Err(Fault::TooLarge { what, limit });
        }
        let object = self.odb.read(id.oid()?).map_err(|error| damaged(error.message()))?;
        Ok(object.data().to_vec())
    }
}

/// Returns the error for an object that is missing or damaged. The mirror determines whether the disk or the remote is
/// the cause.
pub(super) fn damaged(what: &str) -> Fault {
    Fault::Corrupt { what: what.to_owned() }
}

/// Returns the error for an object that matches its id but is malformed, so it is malformed at the remote, too.
fn broken(what: &str) -> Fault {
    Fault::Broken { what: what.to_owned() }
}

fn read_commit(bytes: &[u8]) -> Option<CommitInfo> {
    let tree = bytes.strip_prefix(b"tree ")?.get(..40).and_then(Id::parse)?;
    let text = String::from_utf8_lossy(bytes);
    let (fields, message) = text.split_once("\n\n").unwrap_or((&text, ""));
    let printable = |text: &str, most: usize| -> String {
        text.trim().chars().map(|c| if is_unprintable(c) { ' ' } else { c }).take(most).collect()
    };
    let author = fields.lines().find_map(|line| line.strip_prefix("author ")).unwrap_or_default();
    let (name, when) = author.rsplit_once('>').unwrap_or((author, ""));
    let seconds = when.split_whitespace().next().and_then(|seconds| seconds.parse().ok());
    // Times before 1970 are wrong, and the API server refuses those before the year 0.
    let seconds = seconds.filter(|seconds: &i64| *seconds >= 0);
    let header = CommitHeader {
        subject: printable(message.trim_start().lines().next().unwrap_or_default(), 200),
        author: printable(name.split('<').next().unwrap_or_default(), 72),
        authored: seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()),
    };
    Some(CommitInfo { tree, header })
}

fn read_parents(bytes: &[u8]) -> Vec<Id> {
    let lines = bytes.split(|byte| *byte == b'\n').skip(1);
    lines.map_while(|line| line.strip_prefix(b"parent ")).filter_map(Id::parse).collect()
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_a_commit() {
        let text = format!(
            "tree {}\nauthor Ada\tL <a@b> 60 +0200\ncommitter c <d> 0 +0000\n\n\n  web: two\treplicas\n\nauthor x <y> 1 +0000",
            "1".repeat(40)
        );
        let header = read_commit(text.as_bytes()).unwrap().header;
        assert_eq!((&*header.subject, &*header.author), ("web: two replicas", "Ada L"));
        assert_eq!(header.authored, Some(Timestamp::from_second(60).unwrap()));
        assert_eq!(read_commit(b"tree 123"), None);
        for author in [
            "",
            "author",
            "author <> x",
            "author a 5 +0000",
            "author a <b> 99999999999999999999 +0000",
            "author a <b> -99999999999 +0000",
        ] {
            let text = format!("tree {}\n{author}", "2".repeat(40));
            let header = read_commit(text.as_bytes()).unwrap().header;
            assert_eq!((&*header.subject, header.authored), ("", None), "{author}");
        }
    }

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

    proptest! {
        #[test]
        fn reads_any_tree_to_an_end(bytes: Vec<u8>) {
            let _ = TreeItems(&bytes).count();
            let _ = read_commit(&bytes);
        }
    }
}
