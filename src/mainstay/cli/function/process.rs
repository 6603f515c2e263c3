//! Runs a program on this machine, with all of its child processes.
//!
//! Invariant: after the end of the program, no process of its group remains, even if this process is killed. Invariant:
//! on Linux, no process that left the group remains either, unless this process is killed ([`descendants`]).

use std::{
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};

use super::descendants;

/// Maximum time for a program to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// Kills a process group when its standard input is closed.
const WATCHDOG: &str = "read -r _; kill -9 -\"$0\"";

/// A running process group. Only one group exists at a time, and this process starts no other programs.
pub(super) struct Group {
    child: Child,
    pid: Pid,
    is_over: bool,
    /// A shell that waits for the end of this process, and then kills the group.
    watchdog: Option<Child>,
}

impl Group {
    /// Starts a program without input, with the output of this process.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        let child = command.stdin(Stdio::null()).process_group(0).kill_on_drop(true).spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no id"))?;
        let mut group = Self { child, pid, is_over: false, watchdog: None };
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", WATCHDOG, &pid.as_raw_nonzero().to_string()]).stdin(Stdio::piped());
        group.watchdog = Some(watchdog.stderr(Stdio::null()).process_group(0).kill_on_drop(true).spawn()?);
        Ok(group)
    }

    /// Waits for the end of the program.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.kill();
        status
    }

    /// Terminates the group, and kills it after a timeout.
    pub(super) async fn end(&mut self) {
        if !self.is_over {
            // The program may have ended just now.
            let _ = kill_process(self.pid, Signal::TERM);
            let _ = tokio::time::timeout(GRACE, self.child.wait()).await;
            self.kill();
            let _ = self.child.wait().await;
        }
    }

    fn kill(&mut self) {
        if !self.is_over {
            self.is_over = true;
            // The last process may have ended just now.
            let _ = kill_process_group(self.pid, Signal::KILL);
            // The group's number may be reused from now on, so the watchdog must not use it.
            self.watchdog = None;
            descendants::kill(self.pid);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
