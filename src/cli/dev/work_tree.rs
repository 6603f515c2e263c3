//! The work tree as a repository: what is saved becomes a commit of a private repository, which `dev --work-tree` follows.
//!
//! Invariant: nothing is written to the user's repository, neither objects nor index nor references, nor to the work tree.
//! What Git ignores is left out.
//!
//! Deliberately absent: other branches that are created or moved after the start, and the filters of `.gitattributes` that
//! are programs (a file in Git LFS is the file itself).

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use git2::{IndexAddOption, Oid, Repository};
use notify::{EventKind, RecursiveMode, Watcher as _, event::ModifyKind};

/// Nothing was saved for so long before a commit is made.
const QUIET: Duration = Duration::from_millis(50);
/// What is saved without a pause becomes commits at this interval.
const MAX_DELAY: Duration = Duration::from_millis(500);
/// Commits that follow each other faster than this make the next one wait twice as long as the last one, up to
/// [`LONGEST_PAUSE`].
const OFTEN: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Larger files are left out, as the agent would refuse them. In bytes.
const LARGEST: u64 = 64 << 20;
/// The branch where the user's repository has no commit, or there is none.
const BRANCH: &str = "refs/heads/main";

/// Why the work tree could not be made a commit.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Error {
    #[error("could not write {path}", path = .0.display())]
    Write(PathBuf, #[source] io::Error),
    #[error("could not read the work tree {path}", path = .0.display())]
    Read(PathBuf, #[source] git2::Error),
    #[error("could not watch {path}", path = .0.display())]
    Watch(PathBuf, #[source] notify::Error),
}

/// A work tree and the repository of its commits.
pub(super) struct WorkTree {
    root: PathBuf,
    repository: Repository,
    /// Files that were left out for their size, and are told once.
    too_large: BTreeSet<Vec<u8>>,
}

/// What was seen in the work tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    /// A file may have changed.
    File,
    /// A directory may have come, or is not ignored any more.
    Directory,
}

impl WorkTree {
    /// A new repository at `directory` with the branches and tags of the user's, if there is one at `root`, and with the work
    /// tree as it is now on the branch that is checked out. What an earlier run left at `directory` goes.
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
        // For this process alone: a configured one would want a `.git` in the work tree.
        repository.set_workdir(root, false).map_err(read)?;
        let branch = theirs.as_ref().map_or_else(|| Ok(BRANCH.to_owned()), |theirs| copy(theirs, &repository));
        repository.set_head(&branch.map_err(read)?).map_err(read)?;
        if let Ok(head) = repository.head().and_then(|head| head.peel_to_tree()) {
            // Files that Git follows although it would ignore them.
            let read_tree =
                repository.index().and_then(|mut index| index.read_tree(&head).and_then(|()| index.write()));
            read_tree.map_err(read)?;
        }
        let mut tree = Self { root: root.to_owned(), repository, too_large: BTreeSet::new() };
        tree.commit()?;
        Ok(tree)
    }

    /// Makes a commit of what is there now, unless the last one has the same.
    fn commit(&mut self) -> Result<Option<Oid>, Error> {
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
        // What is gone.
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

    /// Makes a commit whenever something is saved, and calls `notify`, on a thread that lasts as long as the process.
    pub(super) fn watch(mut self, notify: impl Fn() + Send + 'static) -> Result<(), Error> {
        let (changes, seen) = channel();
        // Something may have been saved since the first commit.
        let _ = changes.send(Change::File);
        let watch = |cause| Error::Watch(self.root.clone(), cause);
        let mut watcher = notify::recommended_watcher(move |event: Result<notify::Event, notify::Error>| {
            if let Some(change) = change(&event) {
                let _ = changes.send(change);
            }
        })
        .map_err(watch)?;
        self.watch_directories(&mut watcher).map_err(watch)?;
        let root = self.root.clone();
        let follow = move || {
            let (mut pause, mut last) = (QUIET, Instant::now());
            while let Some(change) = next(&seen, pause) {
                if change == Change::Directory
                    && let Err(error) = self.watch_directories(&mut watcher)
                {
                    tracing::warn!("new directories of the work tree are not watched: {error}");
                }
                match self.commit() {
                    Ok(Some(_)) => {
                        // A file that is written all the time is not worth a commit each time.
                        pause = if last.elapsed() < OFTEN { (pause * 2).min(LONGEST_PAUSE) } else { QUIET };
                        last = Instant::now();
                        notify();
                    }
                    Ok(None) => {}
                    // A file may have gone meanwhile, which is heard of, too.
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "what was saved is not seen");
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("work-tree".into()).spawn(follow);
        thread.map(drop).map_err(|cause| Error::Write(root, cause))
    }

    /// Watches the directories that Git does not ignore.
    fn watch_directories(&self, watcher: &mut notify::RecommendedWatcher) -> notify::Result<()> {
        let mut left = vec![self.root.clone()];
        while let Some(directory) = left.pop() {
            match watcher.watch(&directory, RecursiveMode::NonRecursive) {
                Err(error) if !matches!(error.kind, notify::ErrorKind::PathNotFound) => return Err(error),
                _ => {}
            }
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            for entry in entries.flatten() {
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let path = entry.path();
                let inside = path.strip_prefix(&self.root).unwrap_or(&path).join("");
                let is_ignored = || self.repository.is_path_ignored(&inside).unwrap_or(false);
                if is_directory && entry.file_name() != ".git" && !is_ignored() {
                    left.push(path);
                }
            }
        }
        Ok(())
    }
}

/// Lets the repository at `directory` use the objects of another one, and ignore what that ignores.
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

/// Copies branches and tags; the branch that is checked out, or, if none is, one that leads to the same commit.
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

/// What an event means. An error may hide any change.
fn change(event: &notify::Result<notify::Event>) -> Option<Change> {
    let Ok(event) = event else { return Some(Change::Directory) };
    let is_rule = |path: &PathBuf| path.file_name().is_some_and(|name| name == ".gitignore");
    match event.kind {
        EventKind::Access(_) => None,
        EventKind::Modify(ModifyKind::Name(_)) | EventKind::Create(_) => Some(Change::Directory),
        _ if event.need_rescan() || event.paths.iter().any(is_rule) => Some(Change::Directory),
        _ => Some(Change::File),
    }
}

/// The sum of the changes up to the next `pause`; `None` when there will be no more.
fn next(seen: &Receiver<Change>, pause: Duration) -> Option<Change> {
    let mut sum = seen.recv().ok()?;
    let first = Instant::now();
    while first.elapsed() < pause.max(MAX_DELAY) {
        match seen.recv_timeout(pause) {
            Ok(change) => sum = sum.max(change),
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(tree: &WorkTree) -> Vec<String> {
        let mut names = Vec::new();
        let head = tree.repository.head().unwrap().peel_to_tree().unwrap();
        head.walk(git2::TreeWalkMode::PreOrder, |directory, entry| {
            if entry.kind() != Some(git2::ObjectType::Tree) {
                names.push(format!("{directory}{}", entry.name().unwrap()));
            }
            git2::TreeWalkResult::Ok
        })
        .unwrap();
        names
    }

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Every file of a repository's own directory, with its length.
    fn inside(directory: &Path) -> Vec<(PathBuf, u64)> {
        let mut found: Vec<(PathBuf, u64)> = Vec::new();
        let mut left = vec![directory.to_owned()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap().flatten() {
                if entry.path().is_dir() {
                    left.push(entry.path());
                } else {
                    found.push((entry.path(), entry.metadata().unwrap().len()));
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn commits_what_is_saved_and_leaves_the_repository_of_the_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("work");
        write(&root, "a.yaml", "a");
        write(&root, "kept.log", "followed although it is ignored now");
        let theirs = Repository::init(&root).unwrap();
        super::super::git::commit_all(&root, "one").unwrap();
        write(&root, ".gitignore", "*.log\n");
        fs::write(root.join(".git/info/exclude"), "private\n").unwrap();
        write(&root, "noise.log", "");
        write(&root, "private", "");
        write(&root, "b/new.yaml", "b");
        std::os::unix::fs::symlink("/etc/passwd", root.join("link")).unwrap();
        let before = (inside(&root.join(".git")), theirs.head().unwrap().target());

        let ours = folder.path().join("ours.git");
        let mut tree = WorkTree::new(&root, &ours).unwrap();
        assert_eq!(files(&tree), [".gitignore", "a.yaml", "b/new.yaml", "kept.log", "link"]);
        assert_eq!(tree.commit().unwrap(), None);
        fs::remove_file(root.join("a.yaml")).unwrap();
        write(&root, "kept.log", "changed");
        assert!(tree.commit().unwrap().is_some());
        assert_eq!(files(&tree), [".gitignore", "b/new.yaml", "kept.log", "link"]);
        let head = tree.repository.head().unwrap();
        assert_eq!(head.name().ok(), theirs.head().unwrap().name().ok());
        assert_eq!((inside(&root.join(".git")), theirs.head().unwrap().target()), before);

        // The next run begins anew.
        drop(head);
        drop(tree);
        assert_eq!(files(&WorkTree::new(&root, &ours).unwrap()).len(), 4);
    }

    #[test]
    fn needs_no_repository_and_no_commit() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("work");
        write(&root, "a.yaml", "a");
        let tree = WorkTree::new(&root, &folder.path().join("one.git")).unwrap();
        assert_eq!(files(&tree), ["a.yaml"]);
        Repository::init(&root).unwrap();
        let tree = WorkTree::new(&root, &folder.path().join("two.git")).unwrap();
        assert_eq!(files(&tree), ["a.yaml"]);
    }
}
