//! A program on this machine, with all that it begins.
//!
//! Invariant: when it has been ended, nothing of its process group is left; also when this process is killed.
//! Invariant: on Linux nothing is left that has gone out of the group either, unless this process is killed ([`descendants`]).

use std::{
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};

use super::descendants;

/// How long a program may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(5);

/// Kills a group when nobody holds the other end of its input any more.
const WATCHDOG: &str = "read -r _; kill -9 -\"$0\"";

/// A running process group; there is one at a time, and no other process that this one has begun.
pub(super) struct Group {
    child: Child,
    pid: Pid,
    is_over: bool,
    /// Waits for our end.
    watchdog: Option<Child>,
}

impl Group {
    /// Starts a program that has nothing to read and writes where we do.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        let child = command.stdin(Stdio::null()).process_group(0).kill_on_drop(true).spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no number"))?;
        let mut group = Self { child, pid, is_over: false, watchdog: None };
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", WATCHDOG, &pid.as_raw_nonzero().to_string()]).stdin(Stdio::piped());
        group.watchdog = Some(watchdog.stderr(Stdio::null()).process_group(0).kill_on_drop(true).spawn()?);
        Ok(group)
    }

    /// Waits for its end.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.kill();
        status
    }

    /// Asks it to end, and ends it if it does not.
    pub(super) async fn end(&mut self) {
        if !self.is_over {
            // It may just have ended.
            let _ = kill_process(self.pid, Signal::TERM);
            let _ = tokio::time::timeout(GRACE, self.child.wait()).await;
            self.kill();
            let _ = self.child.wait().await;
        }
    }

    fn kill(&mut self) {
        if !self.is_over {
            self.is_over = true;
            // The last of them may just have ended.
            let _ = kill_process_group(self.pid, Signal::KILL);
            // Its number may be given to another group from now on.
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
