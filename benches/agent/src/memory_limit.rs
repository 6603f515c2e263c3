//! A limit of memory for a process, as its container has it: a cgroup, where this machine lets us make one.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Where cgroups are, and the name of their limit: of version 2, and of version 1.
const PLACES: [(&str, &str); 2] =
    [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];

/// A process that has a limit of memory; it ends with this.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    directory: PathBuf,
    process: u32,
}

impl MemoryLimit {
    /// Limits what a process uses from now on, with its file cache; `None` if this machine does not let us.
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
        // Only there if the cgroup can limit memory.
        let limit = self.directory.join(name);
        fs::metadata(&limit)?;
        fs::write(limit, (mib << 20).to_string())?;
        fs::write(self.directory.join("cgroup.procs"), self.process.to_string())
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A process that has ended is in none.
        if let Some(root) = self.directory.parent() {
            let _ = fs::write(root.join("cgroup.procs"), self.process.to_string());
        }
        let _ = fs::remove_dir(&self.directory);
    }
}
