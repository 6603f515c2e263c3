//! Locks the directory of a running node. The kernel releases the lock when the process ends, even by a crash.
//!
//! Invariant: the lock file gets its name only after it is locked, so a starting node does not look abandoned.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::slot::Slot;

/// Name of the lock file.
const LOCK: &str = "lock";

/// Locks an existing directory until the result is dropped.
pub(super) fn hold(directory: &Path) -> io::Result<File> {
    let unnamed = directory.join("lock.new");
    let file = File::create(&unnamed)?;
    file.try_lock()?;
    fs::rename(unnamed, directory.join(LOCK))?;
    Ok(file)
}

/// Whether a directory belongs to a node that no longer runs. A lock decides, because a different cluster with a
/// different directory may use the same networks.
pub(super) fn is_abandoned(directory: &Path) -> bool {
    let Some(name) = directory.file_name().and_then(|name| name.to_str()).filter(|name| Slot::is_name(name)) else {
        return false;
    };
    match File::open(directory.join(LOCK)) {
        Ok(file) => file.try_lock().is_ok(),
        Err(_) => Slot::abandoned(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_in_use_as_long_as_its_lock_is_held() {
        let room = tempfile::tempdir().unwrap();
        let (slot, other) = (Slot::take(), room.path().join("else"));
        let own = room.path().join(slot.name());
        for directory in [&own, &other] {
            fs::create_dir(directory).unwrap();
        }
        assert!(!is_abandoned(&own), "without a lock, the networks tell");
        let held = hold(&own).unwrap();
        assert!(!is_abandoned(&own));
        drop(held);
        assert!(is_abandoned(&own), "another cluster has the networks");
        assert!(!is_abandoned(&other));
    }
}
