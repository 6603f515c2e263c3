//! The measured child processes, so that memory and CPU time are separate.
//!
//! Invariant: a child does not outlive the benchmark.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use super::{Error, watchdog::Watched};

/// Clock ticks per second of `/proc/<pid>/stat`; a constant of Linux's ABI.
const TICKS: f64 = 100.0;
/// Deadline of a child's start.
const PATIENCE: Duration = Duration::from_mins(5);

/// A running child.
pub(super) struct Process {
    child: Child,
    id: u32,
    /// Dropped after the child, which is killed when it is dropped.
    _watched: Watched,
}

impl Process {
    /// Starts this program with other arguments and additional environment variables in a directory. Inherits standard
    /// error.
    pub(super) fn start<A: AsRef<OsStr>>(
        arguments: &[A],
        environment: &[(OsString, OsString)],
        directory: &Path,
    ) -> Result<Self, Error> {
        let mut command = Command::new(std::env::current_exe().map_err(Error::Start)?);
        command.args(arguments).current_dir(directory);
        // The agent's messages at `info` are suppressed.
        command.env("RUST_LOG", std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".into()));
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        Self::spawn(command)
    }

    /// Starts a program. Inherits standard error; standard output is piped.
    pub(super) fn spawn(mut command: Command) -> Result<Self, Error> {
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn().map_err(Error::Start)?;
        let id = child.id().ok_or_else(|| Error::Start(io::ErrorKind::NotFound.into()))?;
        Ok(Self { child, id, _watched: Watched::new(id) })
    }

    /// Returns the first line of the child's output.
    pub(super) async fn first_line(&mut self) -> Result<String, Error> {
        let out = self.child.stdout.take().ok_or_else(|| Error::Start(io::ErrorKind::BrokenPipe.into()))?;
        let mut lines = BufReader::new(out).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.map_err(|_| Error::NotStarted)?;
        line.map_err(Error::Start)?.ok_or(Error::NotStarted)
    }

    /// Waits until `url` answers 200. An early end of the child is an error.
    pub(super) async fn answers(&mut self, url: &str) -> Result<Duration, Error> {
        let start = Instant::now();
        let client = reqwest::Client::new();
        while start.elapsed() < PATIENCE {
            if client.get(url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(start.elapsed());
            }
            if self.child.try_wait().map_err(Error::Start)?.is_some() {
                return Err(Error::NotStarted);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(Error::NotStarted)
    }

    /// Kills the process and waits for its end.
    pub(super) async fn kill(&mut self) -> Result<(), Error> {
        self.child.kill().await.map_err(Error::Start)
    }

    /// Whether the process has ended.
    pub(super) fn has_ended(&mut self) -> Result<bool, Error> {
        Ok(self.child.try_wait().map_err(Error::Start)?.is_some())
    }

    /// Returns the process ID.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Returns the CPU time since the start in seconds.
    pub(super) fn processor_seconds(&self) -> Result<f64, Error> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.id)).map_err(Error::Measure)?;
        processor_seconds(&text).ok_or_else(|| Error::Measure(io::ErrorKind::InvalidData.into()))
    }

    /// Returns the peak resident memory since the last [`Self::forget_peak`] in MiB.
    pub(super) fn peak_mib(&self) -> Result<f64, Error> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.id)).map_err(Error::Measure)?;
        peak_mib(&text).ok_or_else(|| Error::Measure(io::ErrorKind::InvalidData.into()))
    }

    /// Returns the resident memory of its own in MiB, without pages of files such as the program.
    pub(super) fn own_mib(&self) -> Result<f64, Error> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.id)).map_err(Error::Measure)?;
        mib(&text, "RssAnon:").ok_or_else(|| Error::Measure(io::ErrorKind::InvalidData.into()))
    }

    /// Resets the peak.
    pub(super) fn forget_peak(&self) -> Result<(), Error> {
        fs::write(format!("/proc/{}/clear_refs", self.id), "5").map_err(Error::Measure)
    }
}

/// Sums `utime` and `stime`, the 14th and 15th field. The second field, a name in parentheses, may contain any
/// character.
fn processor_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}

fn peak_mib(status: &str) -> Option<f64> {
    mib(status, "VmHWM:")
}

fn mib(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_linux_says_of_a_process() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 4 0 1000 1 1 1";
        assert_eq!(processor_seconds(stat), Some(3.0));
        assert_eq!(peak_mib("Name:\tx\nVmHWM:\t   65536 kB\nVmRSS:\t 1 kB\n"), Some(64.0));
        assert_eq!(mib("RssAnon:\t 2048 kB\n", "RssAnon:"), Some(2.0));
        assert_eq!((processor_seconds("nonsense"), peak_mib("nonsense")), (None, None));
    }
}
