//! A process with the memory limit of its container.

use std::{
    fs,
    process::{Child, Command},
};

use super::memory_limit::MemoryLimit;

/// Resident memory of the release program's own code, in MiB. The test program is larger.
const PROGRAM_MIB: u64 = 24;

/// A running process. The process is killed when this value is dropped.
pub struct LimitedProcess {
    child: Child,
    /// The limit; `None` if this machine allows no cgroup.
    limit: Option<MemoryLimit>,
}

impl LimitedProcess {
    /// Starts a process with this memory limit in MiB.
    pub fn start(command: &mut Command, mib: u64) -> Self {
        let child = command.spawn().unwrap();
        let limit = MemoryLimit::set(child.id(), mib);
        Self { child, limit }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the kernel enforces the limit.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Returns the exit status, if the process has ended.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Returns the peak resident memory of the process in MiB, corrected to the size of the release program.
    pub fn peak_mib(&self) -> u64 {
        peak_mib(self.id())
    }

    /// Returns the anonymous memory of the process in MiB, which the kernel can only swap out.
    pub fn own_mib(&self) -> u64 {
        status(self.id(), "RssAnon:")
    }
}

/// Returns the peak resident memory of a process in MiB, corrected to the size of the release program.
pub(super) fn peak_mib(process: u32) -> u64 {
    status(process, "VmHWM:").saturating_sub(status(process, "RssFile:")) + PROGRAM_MIB
}

fn status(process: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) >> 10
}

impl Drop for LimitedProcess {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
