//! Limits the CPU time of a process with a cgroup, like a container's limit, if this machine allows it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Directory of the CPU controller of cgroup version 1.
const FIRST: &str = "/sys/fs/cgroup/cpu";
/// Period of the limit in microseconds.
const PERIOD: u64 = 100_000;

/// A process with a CPU limit. The limit is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct CpuLimit {
    process: u32,
    /// The cgroup that was created for the process; `None` if the process already had a cgroup.
    made: Option<PathBuf>,
}

impl CpuLimit {
    /// Limits a process from now on; `None` if this machine does not allow it.
    pub(crate) fn set(process: u32, millicores: u64) -> Option<Self> {
        let quota = PERIOD * millicores / 1000;
        Self::in_its_cgroup(process, quota).or_else(|| Self::in_a_new_one(process, quota).ok())
    }

    /// Uses cgroup version 2. There, a process is in only one cgroup, which may already limit its memory.
    fn in_its_cgroup(process: u32, quota: u64) -> Option<Self> {
        let cgroups = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
        let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let name = format!("-{process}");
        // Changes only a cgroup that the tests created.
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
            // The write fails if the process has ended.
            let _ = fs::write(Path::new(FIRST).join("cgroup.procs"), self.process.to_string());
            let _ = fs::remove_dir(directory);
        }
    }
}
