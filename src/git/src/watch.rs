//! Detects new commits in a local repository, for `mainstay dev`.
//!
//! Invariant: a commit writes many files, but causes only one notification, about 100 ms after the last write.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use notify::{EventKind, RecursiveMode, Watcher as _};

use super::error::{Error, Fault};
use super::transport::local;

const QUIET: Duration = Duration::from_millis(100);
/// Interval of notifications for a repository that changes continuously.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// A running watch. Dropping it stops it.
pub struct LocalWatch {
    _watcher: notify::RecommendedWatcher,
}

impl fmt::Debug for LocalWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalWatch")
    }
}

/// Calls `notify` on a separate thread whenever a reference of the repository at `path` may have changed.
pub fn watch_local(path: &Path, notify: impl Fn() + Send + 'static) -> Result<LocalWatch, Error> {
    start(path, notify).map_err(|cause| Error::Watch { path: path.to_owned(), cause: Arc::new(cause) })
}

fn start(path: &Path, notify: impl Fn() + Send + 'static) -> Result<LocalWatch, Fault> {
    let watch_fault = |error: notify::Error| Fault::Watch { what: error.to_string() };
    let repository = local::open(path)?;
    let (own, common) = (repository.path().to_owned(), repository.commondir().to_owned());
    let (changes, touches) = channel();
    let mut watcher = notify::recommended_watcher(move |event: Result<notify::Event, notify::Error>| {
        // An error may hide a change, so it counts as a change.
        if event.is_err() || event.is_ok_and(|event| matters(&event)) {
            let _ = changes.send(());
        }
    })
    .map_err(watch_fault)?;
    let mut flat = vec![own, common.clone()];
    flat.dedup();
    for directory in flat {
        watcher.watch(&directory, RecursiveMode::NonRecursive).map_err(watch_fault)?;
    }
    for deep in [common.join("refs"), common.join("reftable")] {
        if deep.is_dir() {
            watcher.watch(&deep, RecursiveMode::Recursive).map_err(watch_fault)?;
        }
    }
    let thread = std::thread::Builder::new().name("watch-local".into());
    thread
        .spawn(move || notify_when_quiet(&touches, &notify))
        .map_err(|error| Fault::Watch { what: error.to_string() })?;
    Ok(LocalWatch { _watcher: watcher })
}

/// Returns whether an event can mean that a reference moved.
fn matters(event: &notify::Event) -> bool {
    if matches!(event.kind, EventKind::Access(_)) {
        return false;
    }
    event.need_rescan() || event.paths.is_empty() || event.paths.iter().any(|path| is_reference(path))
}

fn is_reference(path: &Path) -> bool {
    if path.extension().is_some_and(|extension| extension == "lock") {
        return false;
    }
    let names_it = path.file_name().is_some_and(|name| name == "HEAD" || name == "packed-refs");
    names_it || path.components().any(|part| part.as_os_str() == "refs" || part.as_os_str() == "reftable")
}

fn notify_when_quiet(touches: &Receiver<()>, notify: &impl Fn()) {
    while touches.recv().is_ok() {
        let first = Instant::now();
        while first.elapsed() < MAX_DELAY {
            match touches.recv_timeout(QUIET) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_references() {
        let is = |text: &str| is_reference(Path::new(text));
        assert!(is("/r/.git/HEAD") && is("/r/.git/packed-refs") && is("/r/.git/refs/heads/a/b"));
        assert!(!is("/r/.git/index") && !is("/r/.git/refs/heads/main.lock") && !is("/r/.git/COMMIT_EDITMSG"));
    }
}
