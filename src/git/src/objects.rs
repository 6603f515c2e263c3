//! Reads commits, trees and blobs from an object database. Everything here blocks.
//!
//! libgit2 finds and unpacks objects and verifies their ids. Commits and trees are parsed by the agent, because this needs
//! no repository and bounds the cost of a malicious tree.
//!
//! Invariant: the size of an object is checked against a limit before the object is read.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use git2::{ErrorCode, ObjectType, Odb};
use jiff::Timestamp;

use super::abbreviation::Abbreviation;
use super::entry::EntryKind;
use super::error::Fault;
use super::id::{BlobId, Commit, Id};
use super::large_trees::LargeTrees;
use super::path_flaw;
use super::reference::BaseDir;
use super::tree::{ItemKind, Tree, TreeItem};
use mainstay_object::is_unprintable;

const COMMIT_BYTES: u64 = 4 << 20;
const TREE_BYTES: u64 = 16 << 20;
/// Maximum total bytes of the directories in which submodules are searched.
const SEARCHED_BYTES: u64 = 64 << 20;

/// An object database.
pub(super) struct Objects {
    odb: Odb<'static>,
    /// The large directories of the same database.
    large: Arc<LargeTrees>,
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
        Self::open_with(path, Arc::default())
    }

    /// Opens the database in the directory `path`. `large` has directories of it that were read before.
    pub(super) fn open_with(path: &Path, large: Arc<LargeTrees>) -> Result<Self, Fault> {
        let text = path.to_str().ok_or(Fault::Malformed { why: "the path of the repository must be UTF-8" })?;
        let odb = Odb::new().map_err(Fault::git)?;
        odb.add_disk_alternate(text).map_err(Fault::git)?;
        Ok(Self { odb, large })
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
            let tree = self.parsed(at)?;
            let mut hits = tree.named(part.as_bytes()).filter(|item| item.kind == ItemKind::Directory);
            let Some(hit) = hits.next() else { return Ok(None) };
            if hits.next().is_some() {
                return Err(broken("a directory with two items of one name"));
            }
            at = hit.id;
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
            let tree = self.parsed(at)?;
            let entries = tree.named(name.as_bytes());
            found.extend(entries.filter_map(|item| Some((format!("{path}{name}"), item.kind.entry()?, item.id))));
            let below = tree.named(part.as_bytes()).filter(|item| item.kind == ItemKind::Directory).last();
            let Some(below) = below else { break };
            at = below.id;
            path = format!("{path}{part}/");
        }
        Ok(found)
    }

    /// Lists a directory: the displayed names, with the kind of each entry that is not a directory.
    pub(super) fn names(&self, directory: Id) -> Result<Vec<(String, Option<EntryKind>)>, Fault> {
        let bytes = self.tree(directory)?;
        TreeItem::all(&bytes).map(|item| item.map(|item| (path_flaw::shown(item.name), item.kind.entry()))).collect()
    }

    /// Returns the file, link or submodule at a path under the tree `root`.
    pub(super) fn entry(&self, root: Id, path: &BaseDir) -> Result<Option<(EntryKind, Id)>, Fault> {
        let (parent, name) = path.split();
        let Some(directory) = self.directory(root, &parent)? else { return Ok(None) };
        let tree = self.parsed(directory)?;
        let first = tree.named(name.as_bytes()).next();
        Ok(first.and_then(|item| Some((item.kind.entry()?, item.id))))
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
            for item in TreeItem::all(&bytes) {
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

    /// Returns a directory in which items are looked up by name.
    fn parsed(&self, id: Id) -> Result<Arc<Tree>, Fault> {
        if let Some(tree) = self.large.get(id) {
            return Ok(tree);
        }
        let tree = Arc::new(Tree::parse(self.tree(id)?)?);
        self.large.keep(id, &tree);
        Ok(tree)
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
    fn a_large_directory_is_read_once_and_only_for_its_database() {
        let directory = tempfile::tempdir().unwrap();
        let repository = git2::Repository::init_bare(directory.path()).unwrap();
        let empty = repository.treebuilder(None).unwrap().write().unwrap();
        let mut root = repository.treebuilder(None).unwrap();
        for number in 0..300 {
            root.insert(format!("team-{number:03}"), empty, 0o040_000).unwrap();
        }
        let root = Id::from(root.write().unwrap());
        let path = directory.path().join("objects");
        let large = Arc::new(LargeTrees::default());
        let find = |large: &Arc<LargeTrees>| {
            let objects = Objects::open_with(&path, Arc::clone(large)).unwrap();
            objects.directory(root, &BaseDir::parse("team-299").unwrap())
        };
        assert_eq!(find(&large).unwrap(), Some(Id::from(empty)));
        std::fs::remove_dir_all(path.join(&root.to_string()[..2])).unwrap();
        assert_eq!(find(&large).unwrap(), Some(Id::from(empty)));
        assert!(find(&Arc::default()).is_err(), "the object is gone");
    }

    proptest! {
        #[test]
        fn reads_any_commit_to_an_end(bytes: Vec<u8>) {
            let _ = read_commit(&bytes);
        }
    }
}
