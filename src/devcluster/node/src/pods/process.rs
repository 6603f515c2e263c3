//! Process groups.
//!
//! Invariant: dropping a [`Group`] kills all of its processes.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::watchdog::Watchdog;

/// Maximum size of a file that a container may write, in bytes.
#[cfg(target_os = "linux")]
const LARGEST_FILE: u64 = 8 << 30;

/// A program with its arguments, environment and working directory.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// The first word of the command as the pod states it.
    pub(super) name: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) directory: PathBuf,
}

/// Standard input of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// Empty.
    Empty,
    /// Written through a pipe.
    Piped,
}

/// A running process group.
pub(super) struct Group {
    watchdog: Arc<Watchdog>,
    pid: Pid,
    child: Child,
    dead: bool,
}

impl Group {
    /// Starts a program without input. Returns the pipes of its output.
    pub(super) fn start(watchdog: &Arc<Watchdog>, program: &Program) -> io::Result<(Self, ChildStdout, ChildStderr)> {
        let (group, _, stdout, stderr) = Self::start_with(watchdog, program, Input::Empty)?;
        Ok((group, stdout, stderr))
    }

    /// Starts a program with an input.
    pub(super) fn start_with(
        watchdog: &Arc<Watchdog>,
        program: &Program,
        input: Input,
    ) -> io::Result<(Self, Option<ChildStdin>, ChildStdout, ChildStderr)> {
        let mut command = Command::new(&program.path);
        command.arg0(OsString::from(&program.name)).args(&program.args);
        command.env_clear().envs(program.env.iter().map(|(name, value)| (name, value)));
        command.current_dir(&program.directory).process_group(0);
        command.stdin(if input == Input::Piped { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no number"))?;
        watchdog.add(pid);
        restrict(pid);
        let stdin = child.stdin.take();
        let pipes = child.stdout.take().zip(child.stderr.take());
        let group = Self { watchdog: watchdog.clone(), pid, child, dead: false };
        let (stdout, stderr) = pipes.ok_or_else(|| io::Error::other("the process has no output"))?;
        Ok((group, stdin, stdout, stderr))
    }

    /// Returns the ID of the group, which is its leader's PID.
    pub(super) fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sends SIGTERM to the leader only, as a container runtime does.
    pub(super) fn terminate(&self) {
        if !self.dead {
            // The process may have ended.
            let _ = kill_process(self.pid, Signal::TERM);
        }
    }

    fn kill_all(&self) {
        if !self.dead {
            // The group may have ended.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }

    /// Waits for the end of the leader and kills the rest of the group.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.bury();
        status
    }

    /// Kills the group immediately.
    pub(super) async fn kill(&mut self) -> io::Result<ExitStatus> {
        self.kill_all();
        self.wait().await
    }

    fn bury(&mut self) {
        if !self.dead {
            self.kill_all();
            self.dead = true;
            self.watchdog.remove(self.pid);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.bury();
    }
}

/// Forbids core dumps and limits the file size. `usage` monitors the other limits.
#[cfg(target_os = "linux")]
fn restrict(pid: Pid) {
    use rustix::process::{Resource, Rlimit, prlimit};
    for (resource, most) in [(Resource::Core, 0), (Resource::Fsize, LARGEST_FILE)] {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        if let Err(error) = prlimit(Some(pid), resource, limit) {
            tracing::debug!(%error, "a limit of a process could not be set");
        }
    }
}

/// Other systems cannot limit a running process.
#[cfg(not(target_os = "linux"))]
fn restrict(_: Pid) {}

/// Returns a container's exit code: 128 + the signal for a killed process.
pub(super) fn code(status: io::Result<ExitStatus>) -> i64 {
    use std::os::unix::process::ExitStatusExt as _;
    match status {
        Ok(status) => status.code().map_or_else(|| 128 + i64::from(status.signal().unwrap_or(0)), i64::from),
        // Another caller reaped the process, so its status is unknown.
        Err(_) => 255,
    }
}

/// Runs a program with a deadline. Returns its exit code and the first 4 KiB of stdout and of stderr.
pub(super) async fn run(watchdog: &Arc<Watchdog>, program: &Program, most: Duration) -> Result<(i64, String), String> {
    let (mut group, stdout, stderr) = Group::start(watchdog, program).map_err(|e| e.to_string())?;
    let output = async { tokio::join!(head(stdout), head(stderr)) };
    let ended = tokio::time::timeout(most, async { tokio::join!(group.wait(), output) }).await;
    let Ok((status, (out, err))) = ended else {
        return Err(format!("command {:?} timed out after {} s", program.name, most.as_secs()));
    };
    Ok((code(status), out + &err))
}

/// Returns the first 4 KiB of an output and discards the rest.
async fn head(mut output: impl tokio::io::AsyncRead + Unpin) -> String {
    use tokio::io::AsyncReadExt as _;
    let (mut text, mut buffer) = (Vec::new(), vec![0; 4096]);
    while let Ok(read @ 1..) = output.read(&mut buffer).await {
        let room = 4096_usize.saturating_sub(text.len());
        text.extend_from_slice(&buffer[..read.min(room)]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Builds the program of an `exec` handler, with the container's environment and directory.
pub(super) fn command(handler: &Value, program: &Program) -> Program {
    let mut words = handler["command"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let name = words.next().unwrap_or_default();
    let search = program.env.iter().find(|(known, _)| known == "PATH").map(|(_, list)| list.as_str());
    let mut places = search.unwrap_or_default().split(':').map(|entry| PathBuf::from(entry).join(&name));
    let path = if name.contains('/') { None } else { places.find(|path| path.is_file()) };
    Program { path: path.unwrap_or_else(|| PathBuf::from(&name)), name, args: words.collect(), ..program.clone() }
}
