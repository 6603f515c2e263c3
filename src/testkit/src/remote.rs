//! A bare repository in a temporary directory, written without a work tree.
//!
//! ```ignore
//! let mut remote = Remote::new();
//! let first = remote.file("a.yaml", "a: 1").file("b/c.yaml", "c: 2").commit("two files");
//! remote.remove("a.yaml").commit("one file");
//! remote.force(&first);
//! ```

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use git2::{Index, IndexEntry, IndexTime, ObjectType, Oid, Repository, Signature, Time};
use tempfile::TempDir;

/// Name of the repository's directory under [`Remote::root`].
pub const NAME: &str = "repo.git";

/// A repository, and the files of the next commit on the current branch.
pub struct Remote {
    directory: TempDir,
    repository: Repository,
    branch: String,
    files: BTreeMap<String, (u32, Oid)>,
    commits: i64,
}

impl Default for Remote {
    fn default() -> Self {
        Self::new()
    }
}

impl Remote {
    /// Returns an empty repository with the default branch `main`.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = git2::RepositoryInitOptions::new();
        // The repository is created without the template in the user's configuration.
        options.bare(true).initial_head("main").external_template(false);
        let repository = Repository::init_opts(directory.path().join(NAME), &options).unwrap();
        Self { directory, repository, branch: "main".into(), files: BTreeMap::new(), commits: 0 }
    }

    /// Returns the directory that contains the repository.
    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the repository's own directory.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(NAME)
    }

    /// Returns the newest commit of the current branch.
    pub fn head(&self) -> String {
        let reference = self.repository.find_reference(&format!("refs/heads/{}", self.branch)).unwrap();
        reference.peel_to_commit().unwrap().id().to_string()
    }

    /// Adds a file to the next commit.
    pub fn file(&mut self, path: &str, content: impl AsRef<[u8]>) -> &mut Self {
        self.entry(path, 0o100_644, content.as_ref())
    }

    /// Adds a symbolic link to the next commit.
    pub fn symlink(&mut self, path: &str, target: &str) -> &mut Self {
        self.entry(path, 0o120_000, target.as_bytes())
    }

    /// Adds a submodule to the next commit.
    pub fn submodule(&mut self, path: &str) -> &mut Self {
        let id = Oid::from_bytes(&[7; 20]).unwrap();
        self.files.insert(path.to_owned(), (0o160_000, id));
        self
    }

    /// Adds a submodule at this commit.
    pub fn submodule_at(&mut self, path: &str, commit: &str) -> &mut Self {
        self.files.insert(path.to_owned(), (0o160_000, Oid::from_str(commit).unwrap()));
        self
    }

    /// Adds an existing object of the repository as a file to the next commit.
    pub fn object(&mut self, path: &str, id: &str) -> &mut Self {
        self.files.insert(path.to_owned(), (0o100_644, Oid::from_str(id).unwrap()));
        self
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) -> &mut Self {
        let id = self.repository.blob(content).unwrap();
        self.files.insert(path.to_owned(), (mode, id));
        self
    }

    /// Removes a file or directory from the next commit.
    pub fn remove(&mut self, path: &str) -> &mut Self {
        let under = format!("{path}/");
        self.files.retain(|name, _| name != path && !name.starts_with(&under));
        self
    }

    /// Removes all files from the next commit.
    pub fn clear(&mut self) -> &mut Self {
        self.files.clear();
        self
    }

    /// Commits to the current branch and returns the commit ID.
    pub fn commit(&mut self, message: &str) -> String {
        let parent = self.tip();
        self.write(message, parent)
    }

    /// Replaces the current branch with a single commit without a parent, like a force push.
    pub fn orphan(&mut self, message: &str) -> String {
        self.write(message, None)
    }

    fn write(&mut self, message: &str, parent: Option<Oid>) -> String {
        let mut index = Index::new().unwrap();
        for (path, (mode, id)) in &self.files {
            let nothing = IndexTime::new(0, 0);
            index
                .add(&IndexEntry {
                    ctime: nothing,
                    mtime: nothing,
                    dev: 0,
                    ino: 0,
                    mode: *mode,
                    uid: 0,
                    gid: 0,
                    file_size: 0,
                    id: *id,
                    flags: 0,
                    flags_extended: 0,
                    path: path.clone().into_bytes(),
                })
                .unwrap();
        }
        self.commits += 1;
        let tree = self.repository.find_tree(index.write_tree_to(&self.repository).unwrap()).unwrap();
        let parents: Vec<_> = parent.map(|id| self.repository.find_commit(id).unwrap()).into_iter().collect();
        let parents: Vec<_> = parents.iter().collect();
        let person = person(self.commits);
        let id = self.repository.commit(None, &person, &person, message, &tree, &parents).unwrap();
        self.repository.reference(&self.full_name(), id, true, message).unwrap();
        id.to_string()
    }

    /// Commits to the current branch, with the signature that `sign` returns for the commit's bytes.
    pub fn signed(&mut self, message: &str, sign: impl FnOnce(&str) -> String) -> String {
        let unsigned = self.commit(message);
        let raw = self.raw(&unsigned);
        let signature = sign(&raw).trim_end().replace('\n', "\n ");
        let (headers, body) = raw.split_once("\n\n").unwrap();
        self.stored(&format!("{headers}\ngpgsig {signature}\n\n{body}"))
    }

    /// Returns an object as it is stored.
    pub fn raw(&self, id: &str) -> String {
        let database = self.repository.odb().unwrap();
        let object = database.read(Oid::from_str(id).unwrap()).unwrap();
        String::from_utf8(object.data().to_vec()).unwrap()
    }

    /// Stores a commit with these bytes, and points the current branch to it.
    pub fn stored(&mut self, raw: &str) -> String {
        let id = self.repository.odb().unwrap().write(ObjectType::Commit, raw.as_bytes()).unwrap();
        self.repository.reference(&self.full_name(), id, true, "stored").unwrap();
        id.to_string()
    }

    /// Points a tag to the target of another tag.
    pub fn copy_tag(&mut self, from: &str, to: &str) -> &mut Self {
        let target = self.repository.find_reference(&format!("refs/tags/{from}")).unwrap().target().unwrap();
        self.repository.reference(&format!("refs/tags/{to}"), target, true, "tag").unwrap();
        self
    }

    /// Adds an annotated tag on the current commit, with the signature that `sign` returns for the tag's bytes.
    pub fn signed_tag(&mut self, name: &str, sign: impl FnOnce(&str) -> String) -> &mut Self {
        let (commit, person) = (self.head(), "Somebody <somebody@example.org> 1700000000 +0000");
        let raw = format!("object {commit}\ntype commit\ntag {name}\ntagger {person}\n\n{name}\n");
        let raw = format!("{raw}{}", sign(&raw));
        let id = self.repository.odb().unwrap().write(ObjectType::Tag, raw.as_bytes()).unwrap();
        self.repository.reference(&format!("refs/tags/{name}"), id, true, "tag").unwrap();
        self
    }

    /// Points the current branch to another commit, like a force push. The files for the next commit become those of
    /// that commit.
    pub fn force(&mut self, commit: &str) -> &mut Self {
        let id = Oid::from_str(commit).unwrap();
        self.repository.reference(&self.full_name(), id, true, "force").unwrap();
        self.load(id);
        self
    }

    /// Switches to another branch: an existing one, or a new one from the current commit.
    pub fn branch(&mut self, name: &str) -> &mut Self {
        let here = self.tip();
        name.clone_into(&mut self.branch);
        match (self.tip(), here) {
            (Some(there), _) => self.load(there),
            (None, Some(here)) => {
                self.repository.reference(&self.full_name(), here, false, "branch").unwrap();
            }
            (None, None) => {}
        }
        self
    }

    /// Adds packed tags on the current commit: `tag-00000` and so on.
    pub fn packed_tags(&self, count: usize) {
        let head = self.head();
        let mut lines = vec!["# pack-refs with: peeled fully-peeled sorted ".to_owned()];
        lines.extend((0..count).map(|number| format!("{head} refs/tags/tag-{number:05}")));
        std::fs::write(self.path().join("packed-refs"), lines.join("\n") + "\n").unwrap();
    }

    /// Removes a branch.
    pub fn drop_branch(&mut self, name: &str) -> &mut Self {
        self.repository.find_reference(&format!("refs/heads/{name}")).unwrap().delete().unwrap();
        self
    }

    /// Removes a tag.
    pub fn drop_tag(&mut self, name: &str) -> &mut Self {
        self.repository.find_reference(&format!("refs/tags/{name}")).unwrap().delete().unwrap();
        self
    }

    /// Makes a branch the default one.
    pub fn default_branch(&mut self, name: &str) -> &mut Self {
        self.repository.set_head(&format!("refs/heads/{name}")).unwrap();
        self
    }

    /// Adds a lightweight tag on the current commit.
    pub fn tag(&mut self, name: &str) -> &mut Self {
        self.repository.reference(&format!("refs/tags/{name}"), self.tip().unwrap(), true, "tag").unwrap();
        self
    }

    /// Adds an annotated tag on the current commit.
    pub fn annotated_tag(&mut self, name: &str) -> &mut Self {
        let target = self.repository.find_object(self.tip().unwrap(), Some(ObjectType::Commit)).unwrap();
        self.repository.tag(name, &target, &person(0), "annotated", true).unwrap();
        drop(target);
        self
    }

    /// Adds a lightweight tag on a file instead of a commit.
    pub fn tag_file(&mut self, name: &str, path: &str) -> &mut Self {
        self.repository.reference(&format!("refs/tags/{name}"), self.files[path].1, true, "tag").unwrap();
        self
    }

    /// Returns a pack of the files for the next commit.
    pub fn pack(&self) -> Vec<u8> {
        let mut builder = self.repository.packbuilder().unwrap();
        for (_, id) in self.files.values() {
            builder.insert_object(*id, None).unwrap();
        }
        let mut pack = git2::Buf::new();
        builder.write_buf(&mut pack).unwrap();
        pack.to_vec()
    }

    /// Returns a pack of the newest commit and its files, all in the root, without the file at `path`.
    pub fn pack_without(&self, path: &str) -> Vec<u8> {
        let commit = self.repository.find_commit(self.tip().unwrap()).unwrap();
        let files = self.files.iter().filter(|(name, _)| *name != path).map(|(_, (_, id))| *id);
        let mut builder = self.repository.packbuilder().unwrap();
        for id in [commit.id(), commit.tree_id()].into_iter().chain(files) {
            builder.insert_object(id, None).unwrap();
        }
        let mut pack = git2::Buf::new();
        builder.write_buf(&mut pack).unwrap();
        pack.to_vec()
    }

    /// Sets a configuration value of the repository (`uploadpack.allowAnySHA1InWant`).
    pub fn configure(&mut self, key: &str, value: &str) -> &mut Self {
        self.repository.config().unwrap().set_str(key, value).unwrap();
        self
    }

    /// Commits the files for the next commit and one more entry with this name in the root, without any check. No
    /// client would write such a commit. Returns the commit ID.
    pub fn forged(&mut self, name: impl AsRef<[u8]>) -> String {
        self.forged_as("100644", name)
    }

    /// Commits a forged entry with this mode.
    pub fn forged_as(&mut self, mode: &str, name: impl AsRef<[u8]>) -> String {
        let forged = self.repository.blob(b"forged").unwrap();
        self.forged_of(&[(mode, name.as_ref(), forged)])
    }

    /// Commits forged entries with these modes, names and IDs, in this order.
    pub fn forged_of(&mut self, entries: &[(&str, &[u8], Oid)]) -> String {
        let honest = self.commit("honest");
        let tree = self.repository.find_commit(Oid::from_str(&honest).unwrap()).unwrap().tree_id();
        let mut bytes = self.repository.odb().unwrap().read(tree).unwrap().data().to_vec();
        bytes.extend(tree_items(entries));
        let tree = self.repository.odb().unwrap().write(ObjectType::Tree, &bytes).unwrap();
        self.commit_tree(tree)
    }

    /// Writes a tree with these entries, without any check.
    pub fn tree_of(&self, entries: &[(&str, &[u8], Oid)]) -> Oid {
        self.repository.odb().unwrap().write(ObjectType::Tree, &tree_items(entries)).unwrap()
    }

    /// Writes a file and returns its ID.
    pub fn blob(&self, content: &[u8]) -> Oid {
        self.repository.blob(content).unwrap()
    }

    /// Commits a tree to the current branch.
    pub fn commit_tree(&mut self, tree: Oid) -> String {
        let parent = self.tip().map(|parent| format!("parent {parent}\n")).unwrap_or_default();
        let person = "Somebody <somebody@example.org> 1700000000 +0000";
        self.stored(&format!("tree {tree}\n{parent}author {person}\ncommitter {person}\n\nforged\n"))
    }

    /// Writes an object with this ID whose content does not match the ID.
    pub fn lie(&self, id: Oid, kind: &str, content: &[u8]) {
        let id = id.to_string();
        let path = self.path().join("objects").join(&id[..2]).join(&id[2..]);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let whole = [format!("{kind} {}\0", content.len()).as_bytes(), content].concat();
        let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, &whole).unwrap();
        std::fs::write(path, packed.finish().unwrap()).unwrap();
    }

    /// Returns a pack of these objects.
    pub fn pack_of(&self, ids: &[Oid]) -> Vec<u8> {
        let mut builder = self.repository.packbuilder().unwrap();
        for id in ids {
            builder.insert_object(*id, None).unwrap();
        }
        let mut pack = git2::Buf::new();
        builder.write_buf(&mut pack).unwrap();
        pack.to_vec()
    }

    /// Points a reference to an object, regardless of its earlier target.
    pub fn refer(&self, name: &str, id: Oid) {
        self.repository.reference(name, id, true, "refer").unwrap();
    }

    /// Returns a commit and an object of a kind whose IDs have the same first seven digits. No reference points to them
    /// yet.
    pub fn twins(&self, kind: ObjectType) -> (Oid, Oid) {
        let parent = self.repository.find_commit(self.tip().unwrap()).unwrap();
        let person = "Somebody <somebody@example.org> 1700000000 +0000";
        let (tree, parent) = (parent.tree_id(), parent.id());
        let content = |kind: ObjectType, number: u32| match kind {
            ObjectType::Commit => {
                format!("tree {tree}\nparent {parent}\nauthor {person}\ncommitter {person}\n\n{number}\n")
            }
            _ => format!("{number}"),
        };
        let mut seen = [HashMap::new(), HashMap::new()];
        for number in 0.. {
            for (at, made) in [ObjectType::Commit, kind].into_iter().enumerate() {
                let id = Oid::hash_object(made, content(made, number).as_bytes()).unwrap();
                let beginning = id.to_string()[..7].to_owned();
                let other = seen[1 - at].get(&beginning).copied().filter(|other| *other != number);
                if let Some(other) = other {
                    let database = self.repository.odb().unwrap();
                    let (commit, twin) = if at == 0 { (number, other) } else { (other, number) };
                    let write = |kind, number| database.write(kind, content(kind, number).as_bytes()).unwrap();
                    return (write(ObjectType::Commit, commit), write(kind, twin));
                }
                seen[at].insert(beginning, number);
            }
        }
        unreachable!("some ids begin alike")
    }

    fn full_name(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    fn tip(&self) -> Option<Oid> {
        self.repository.find_reference(&self.full_name()).ok()?.target()
    }

    fn load(&mut self, commit: Oid) {
        let mut files = BTreeMap::new();
        let tree = self.repository.find_commit(commit).unwrap().tree().unwrap();
        tree.walk(git2::TreeWalkMode::PreOrder, |directory, entry| {
            if entry.kind() != Some(ObjectType::Tree) {
                let mode = u32::try_from(entry.filemode()).unwrap();
                files.insert(format!("{directory}{}", entry.name().unwrap()), (mode, entry.id()));
            }
            git2::TreeWalkResult::Ok
        })
        .unwrap();
        self.files = files;
    }
}

/// Returns the entries of a tree as Git stores them.
fn tree_items(entries: &[(&str, &[u8], Oid)]) -> Vec<u8> {
    let item = |(mode, name, id): &(&str, &[u8], Oid)| [mode.as_bytes(), b" ", *name, b"\0", id.as_bytes()].concat();
    entries.iter().flat_map(item).collect()
}

/// Returns a signature. With different times, commits with equal files have different IDs.
fn person(seconds: i64) -> Signature<'static> {
    Signature::new("Somebody", "somebody@example.org", &Time::new(1_700_000_000 + seconds, 0)).unwrap()
}
