//! Which directory of a node is in use: its process holds a lock on a file in it, which the system releases when the process
//! ends, however it ends.
//!
//! Invariant: the file has its name only while it is locked, so a node that starts does not look abandoned.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::slot::Slot;

/// The locked file.
const LOCK: &str = "lock";

/// Takes a directory that exists. It is in use until the result is dropped.
pub(super) fn hold(directory: &Path) -> io::Result<File> {
    let unnamed = directory.join("lock.new");
    let file = File::create(&unnamed)?;
    file.try_lock()?;
    fs::rename(unnamed, directory.join(LOCK))?;
    Ok(file)
}

/// Whether a directory is that of a node that is no more. A cluster with another directory may have its networks by now.
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
