//! A limit of processor time for a process, as its container has it: a cgroup, where this machine lets us make one.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Where cgroups of version 1 are that limit it.
const FIRST: &str = "/sys/fs/cgroup/cpu";
/// Microseconds in which the limit holds.
const PERIOD: u64 = 100_000;

/// A process that has such a limit; it ends with this.
#[derive(Debug)]
pub(crate) struct CpuLimit {
    process: u32,
    /// The cgroup that was made for it; `None` if it has one already.
    made: Option<PathBuf>,
}

impl CpuLimit {
    /// Limits a process from now on; `None` if this machine does not let us.
    pub(crate) fn set(process: u32, millicores: u64) -> Option<Self> {
        let quota = PERIOD * millicores / 1000;
        Self::in_its_cgroup(process, quota).or_else(|| Self::in_a_new_one(process, quota).ok())
    }

    /// Version 2: a process is in one cgroup, which may have been made to limit its memory.
    fn in_its_cgroup(process: u32, quota: u64) -> Option<Self> {
        let cgroups = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
        let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let name = format!("-{process}");
        // No other than one of our own.
        let limit = Path::new("/sys/fs/cgroup").join(path).join("cpu.max");
        if !path.ends_with(&name) || fs::metadata(&limit).is_err() {
            return None;
        }
        fs::write(limit, format!("{quota} {PERIOD}")).ok()?;
        Some(Self { process, made: None })
    }

    fn in_a_new_one(process: u32, quota: u64) -> io::Result<Self> {
        let directory = Path::new(FIRST).join(format!("mainstay-tests-{process}"));
        fs::create_dir(&directory)?;
        let made = Self { process, made: Some(directory.clone()) };
        fs::write(directory.join("cpu.cfs_period_us"), PERIOD.to_string())?;
        fs::write(directory.join("cpu.cfs_quota_us"), quota.to_string())?;
        fs::write(directory.join("cgroup.procs"), process.to_string())?;
        Ok(made)
    }
}

impl Drop for CpuLimit {
    fn drop(&mut self) {
        if let Some(directory) = &self.made {
            // A process that has ended is in none.
            let _ = fs::write(Path::new(FIRST).join("cgroup.procs"), self.process.to_string());
            let _ = fs::remove_dir(directory);
        }
    }
}
