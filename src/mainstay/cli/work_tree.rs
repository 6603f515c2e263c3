//! Commits the saved state of a work tree to a private repository.
//!
//! Invariant: nothing is written to the user's work tree or repository: no object, no index, no reference.
//! Invariant: files that Git ignores are not committed.
//!
//! Not here: filters of `.gitattributes` that are programs. A file in Git LFS is committed as the file itself.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use git2::{IndexAddOption, Oid, Repository};

/// Maximum size of a file in bytes. The agent refuses larger objects, so larger files are excluded.
const LARGEST: u64 = 64 << 20;
/// The branch if the user has no repository, or if the HEAD of the repository is a commit.
const BRANCH: &str = "refs/heads/main";

/// The reason for a failed commit of the work tree.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("could not write {path}", path = .0.display())]
    Write(PathBuf, #[source] io::Error),
    #[error("could not read the work tree {path}", path = .0.display())]
    Read(PathBuf, #[source] git2::Error),
}

/// A work tree and the repository of its commits.
pub(super) struct WorkTree {
    pub(super) root: PathBuf,
    pub(super) repository: Repository,
    /// Files over the size limit. One warning is logged for each file.
    too_large: BTreeSet<Vec<u8>>,
}

impl WorkTree {
    /// Creates a repository at `directory`, and commits the work tree to the current branch. If there is a repository
    /// at `root`, the branches and tags of that repository are copied first. Replaces the directory of an earlier run.
    pub(super) fn new(root: &Path, directory: &Path) -> Result<Self, Error> {
        let write = |cause| Error::Write(directory.to_owned(), cause);
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(write(error)),
            _ => {}
        }
        let read = |cause| Error::Read(root.to_owned(), cause);
        let mut options = git2::RepositoryInitOptions::new();
        options.bare(true).external_template(false).mkpath(true);
        Repository::init_opts(directory, &options).map_err(read)?;
        let theirs = Repository::open(root).ok();
        if let Some(theirs) = &theirs {
            share(theirs, directory).map_err(write)?;
        }
        let repository = Repository::open(directory).map_err(read)?;
        // `set_workdir` changes only the state of this process. A work tree in the configuration would need a `.git`
        // file.
        repository.set_workdir(root, false).map_err(read)?;
        let branch = theirs.as_ref().map_or_else(|| Ok(BRANCH.to_owned()), |theirs| copy(theirs, &repository));
        repository.set_head(&branch.map_err(read)?).map_err(read)?;
        if let Ok(head) = repository.head().and_then(|head| head.peel_to_tree()) {
            // Starts the index from HEAD, so that files that are tracked and match an ignore rule stay tracked.
            let read_tree =
                repository.index().and_then(|mut index| index.read_tree(&head).and_then(|()| index.write()));
            read_tree.map_err(read)?;
        }
        let mut tree = Self { root: root.to_owned(), repository, too_large: BTreeSet::new() };
        tree.commit()?;
        Ok(tree)
    }

    /// Commits the work tree, unless it is unchanged.
    pub(super) fn commit(&mut self) -> Result<Option<Oid>, Error> {
        let (root, too_large) = (&self.root, &mut self.too_large);
        let read = |cause| Error::Read(root.clone(), cause);
        let repository = &self.repository;
        let mut index = repository.index().map_err(read)?;
        let mut fits = |path: &Path, _: &[u8]| {
            let is_large =
                fs::symlink_metadata(root.join(path)).is_ok_and(|file| file.is_file() && file.len() > LARGEST);
            if is_large && too_large.insert(path.as_os_str().as_encoded_bytes().to_vec()) {
                tracing::warn!("{path:?} is larger than {} MiB and is left out", LARGEST >> 20);
            }
            i32::from(is_large)
        };
        index.add_all(["*"], IndexAddOption::DEFAULT, Some(&mut fits)).map_err(read)?;
        // Removes deleted files from the index.
        index.update_all(["*"], Some(&mut fits)).map_err(read)?;
        index.write().map_err(read)?;
        let tree = repository.find_tree(index.write_tree().map_err(read)?).map_err(read)?;
        let parent = repository.head().ok().and_then(|head| head.peel_to_commit().ok());
        if parent.as_ref().is_some_and(|parent| parent.tree_id() == tree.id()) {
            return Ok(None);
        }
        let author = git2::Signature::now("Mainstay", "mainstay@localhost").map_err(read)?;
        let parents: Vec<_> = parent.iter().collect();
        let commit = repository.commit(Some("HEAD"), &author, &author, "the work tree as saved", &tree, &parents);
        commit.map(Some).map_err(read)
    }

    /// Returns the full name of the branch to which the work tree is committed.
    pub(super) fn branch(&self) -> String {
        let head = self.repository.head().ok();
        head.and_then(|head| head.name().ok().map(str::to_owned)).unwrap_or_else(|| BRANCH.to_owned())
    }
}

/// Makes the repository at `directory` use another repository's objects and its ignore rules.
fn share(theirs: &Repository, directory: &Path) -> io::Result<()> {
    let common = theirs.commondir();
    let objects = fs::canonicalize(common.join("objects"))?;
    let line = [objects.as_os_str().as_encoded_bytes(), b"\n"].concat();
    fs::create_dir_all(directory.join("objects/info"))?;
    fs::write(directory.join("objects/info/alternates"), line)?;
    fs::create_dir_all(directory.join("info"))?;
    for name in ["info/exclude", "shallow"] {
        match fs::copy(common.join(name), directory.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Copies branches and tags. Returns the current branch, or a new one for a detached HEAD.
fn copy(theirs: &Repository, ours: &Repository) -> Result<String, git2::Error> {
    for reference in theirs.references()?.flatten() {
        let (Ok(name), Some(target)) = (reference.name(), reference.target()) else { continue };
        if name.starts_with("refs/heads/") || name.starts_with("refs/tags/") {
            ours.reference(name, target, true, "")?;
        }
    }
    let head = theirs.find_reference("HEAD")?;
    if let Ok(Some(branch)) = head.symbolic_target() {
        return Ok(branch.to_owned());
    }
    if let Some(commit) = head.target() {
        ours.reference(BRANCH, commit, true, "")?;
    }
    Ok(BRANCH.to_owned())
}
