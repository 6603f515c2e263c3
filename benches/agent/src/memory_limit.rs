//! Limits the memory of a process by a cgroup, like its container would, if this machine permits it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Roots of cgroups and their limit files, for versions 2 and 1.
const PLACES: [(&str, &str); 2] =
    [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];

/// A process with a memory limit. Dropping this removes the limit.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    directory: PathBuf,
    process: u32,
}

impl MemoryLimit {
    /// Limits the memory of a process, including its file cache. `None` if this machine does not permit it.
    pub(super) fn set(process: u32, mib: u64) -> Option<Self> {
        PLACES.iter().find_map(|(root, limit)| {
            let directory = Path::new(root).join(format!("mainstay-bench-{process}"));
            fs::create_dir(&directory).ok()?;
            let made = Self { directory, process };
            made.limit(limit, mib).ok()?;
            Some(made)
        })
    }

    fn limit(&self, name: &str, mib: u64) -> io::Result<()> {
        // Exists only if the cgroup can limit memory.
        let limit = self.directory.join(name);
        fs::metadata(&limit)?;
        fs::write(limit, (mib << 20).to_string())?;
        fs::write(self.directory.join("cgroup.procs"), self.process.to_string())
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // Fails for a process that has ended.
        if let Some(root) = self.directory.parent() {
            let _ = fs::write(root.join("cgroup.procs"), self.process.to_string());
        }
        let _ = fs::remove_dir(&self.directory);
    }
}
