//! Commits saved files of a work tree immediately, for `dev --work-tree`.
//!
//! Not here: other branches that are created or moved after the start.

use std::{
    fs,
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use notify::{EventKind, RecursiveMode, Watcher as _, event::ModifyKind};

use crate::cli::work_tree::{self, WorkTree};

/// Time without changes before a commit.
const QUIET: Duration = Duration::from_millis(50);
/// Interval of commits while files are saved continuously.
const MAX_DELAY: Duration = Duration::from_millis(500);
/// Minimum time between commits. After commits in quicker succession, the delay doubles each time, up to
/// [`LONGEST_PAUSE`].
const OFTEN: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Why the work tree cannot be followed.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Error {
    #[error(transparent)]
    Tree(#[from] work_tree::Error),
    #[error("could not watch {path}", path = .0.display())]
    Watch(PathBuf, #[source] notify::Error),
}

/// A kind of change in the work tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    /// A file may have changed.
    File,
    /// A directory may be new, or no longer ignored.
    Directory,
}

/// Commits whenever a file is saved, and calls `notify`, on a thread that lives as long as the process.
pub(super) fn watch(mut tree: WorkTree, notify: impl Fn() + Send + 'static) -> Result<(), Error> {
    let (changes, seen) = channel();
    // A file may have been saved since the first commit.
    let _ = changes.send(Change::File);
    let watch = |cause| Error::Watch(tree.root.clone(), cause);
    let mut watcher = notify::recommended_watcher(move |event: Result<notify::Event, notify::Error>| {
        if let Some(change) = change(&event) {
            let _ = changes.send(change);
        }
    })
    .map_err(watch)?;
    watch_directories(&tree, &mut watcher).map_err(watch)?;
    let root = tree.root.clone();
    let follow = move || {
        let (mut pause, mut last) = (QUIET, Instant::now());
        while let Some(change) = next(&seen, pause) {
            if change == Change::Directory
                && let Err(error) = watch_directories(&tree, &mut watcher)
            {
                tracing::warn!("new directories of the work tree are not watched: {error}");
            }
            match tree.commit() {
                Ok(Some(_)) => {
                    // A file that is written continuously is not committed after each write.
                    pause = if last.elapsed() < OFTEN { (pause * 2).min(LONGEST_PAUSE) } else { QUIET };
                    last = Instant::now();
                    notify();
                }
                Ok(None) => {}
                // A file may have been deleted in the meantime, which causes another event.
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "saved files are not seen");
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("work-tree".into()).spawn(follow);
    thread.map(drop).map_err(|cause| work_tree::Error::Write(root, cause).into())
}

/// Watches the directories that Git does not ignore.
fn watch_directories(tree: &WorkTree, watcher: &mut notify::RecommendedWatcher) -> notify::Result<()> {
    let mut left = vec![tree.root.clone()];
    while let Some(directory) = left.pop() {
        match watcher.watch(&directory, RecursiveMode::NonRecursive) {
            Err(error) if !matches!(error.kind, notify::ErrorKind::PathNotFound) => return Err(error),
            _ => {}
        }
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let path = entry.path();
            let inside = path.strip_prefix(&tree.root).unwrap_or(&path).join("");
            let is_ignored = || tree.repository.is_path_ignored(&inside).unwrap_or(false);
            if is_directory && entry.file_name() != ".git" && !is_ignored() {
                left.push(path);
            }
        }
    }
    Ok(())
}

/// Returns the kind of change that an event reports. An error may hide any change.
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

/// Returns the largest change before the next pause of length `pause`; `None` after the last change.
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
    use std::path::Path;

    use git2::Repository;

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

    /// Returns every file in a repository's own directory, with its length.
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

        // The next run starts with an empty repository.
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
