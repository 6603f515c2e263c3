//! Runs the tools that build kustomizations and render charts: with an empty environment, without network, and with
//! bounded time and resources.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::network::cut_off;

/// Maximum time of a run.
pub(super) const DEADLINE: Duration = BOUNDS.deadline;
/// Limits of a run. Building three thousand objects with prefixes needs a third of the time and half of the memory. In
/// a cluster, the memory must fit into the renderer's container; otherwise the container is killed instead of the tool.
const BOUNDS: Bounds = Bounds { deadline: Duration::from_secs(60), cpu_seconds: 60, memory: 400 << 20 };
/// Memory above which the tool collects garbage more often.
const SOFT_MEMORY: &str = "GOMEMLIMIT=96MiB";
/// Maximum number of open files of a run.
const FILES: u64 = 256;
/// Maximum size of the output, in bytes. It is larger than the size limit of manifests.
pub(super) const OUTPUT: u64 = 17 << 20;
/// Maximum number of bytes that are read from the error output.
pub(super) const COMPLAINT: u64 = 64 << 10;
/// The home directory of the tool. The directory does not exist, so the tool reads no configuration of the agent or of
/// the commit.
const NOBODYS_HOME: &str = "/nonexistent";

/// Candidate programs in order of preference, each with the arguments that all of its runs have.
type Programs = [(&'static str, &'static [&'static str])];

/// The purpose of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Purpose {
    /// Building kustomizations.
    Kustomize,
    /// Rendering charts.
    Helm,
}

impl Purpose {
    fn programs(self) -> &'static Programs {
        match self {
            Self::Kustomize => &[("kustomize", &["build"]), ("kubectl", &["kustomize"])],
            Self::Helm => &[("helm", &["template"])],
        }
    }
}

/// Prefixes of the message that a Go program prints when its memory is exhausted.
const NO_MEMORY: [&str; 3] = ["fatal error: ", "runtime: ", "runtime/cgo: "];

/// Resource limits of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    /// Maximum duration.
    deadline: Duration,
    /// Maximum CPU time, in seconds.
    cpu_seconds: u64,
    /// Maximum writable memory, in bytes.
    memory: u64,
}

/// A program that builds kustomizations or renders charts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    path: PathBuf,
    arguments: &'static [&'static str],
    bounds: Bounds,
}

/// The result of a run.
#[derive(Debug)]
pub(super) enum Run {
    /// The program succeeded, with its output.
    Built(Vec<u8>),
    /// The program failed, with its error output. The error output must not be shown, because it may quote any value.
    Failed(String),
    /// The program was stopped or could not start, with the reason.
    Ended(String),
    /// The program does not exist.
    Missing,
    /// The container with the program does not respond.
    Away(std::io::Error),
}

impl Program {
    /// Finds the preferred program for a purpose, in the first of these directories that contains it.
    pub(super) fn find(path: &OsStr, purpose: Purpose) -> Option<Self> {
        purpose.programs().iter().find_map(|(name, arguments)| {
            let mut candidates = std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name));
            candidates.find(|program| is_program(program)).map(|path| Self { path, arguments, bounds: BOUNDS })
        })
    }

    /// Returns the path, size in bytes and last change of the program. They differ after an upgrade.
    pub(super) fn identity(&self) -> (PathBuf, Option<(u64, std::time::SystemTime)>) {
        let metadata = std::fs::metadata(&self.path).ok();
        (self.path.clone(), metadata.and_then(|found| Some((found.len(), found.modified().ok()?))))
    }

    /// Runs the program in `root`, which contains only the inputs and is removed afterwards. `arguments` follow the
    /// arguments that all runs have. The environment consists of these variables and of the limits. The program reads
    /// `input` from its standard input.
    pub(super) async fn run(
        &self,
        root: &Path,
        arguments: &[OsString],
        variables: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
        input: Option<&[u8]>,
    ) -> Run {
        let mut command = self.command(root, arguments, variables);
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        let mut child = match spawn(command).await {
            Ok(child) => child,
            Err(error) => return Run::Ended(format!("{} cannot be run: {error}", self.path.display())),
        };
        if let Some(pid) = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
            && let Err(error) = confine(pid, self.bounds)
        {
            return Run::Ended(format!("the tool's limits cannot be set: {error}"));
        }
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let whole = async {
            let complaint = async {
                let mut stderr = stderr;
                let complaint = read(stderr.as_mut(), COMPLAINT).await;
                // The rest is read and dropped, because the program would otherwise wait forever for a reader.
                if let Some(stderr) = &mut stderr {
                    _ = tokio::io::copy(stderr, &mut tokio::io::sink()).await;
                }
                complaint
            };
            let output = async {
                let output = read(stdout, OUTPUT).await;
                if output.len() as u64 >= OUTPUT { Err(()) } else { Ok(output) }
            };
            let Ok(((), output, complaint)) =
                tokio::try_join!(give(stdin, input), output, async { Ok(complaint.await) })
            else {
                return Run::Ended("its output is larger than 16 MiB".to_owned());
            };
            match child.wait().await {
                Ok(status) if status.success() => Run::Built(output),
                Ok(status) if status.code().is_some() => {
                    let words = String::from_utf8_lossy(&complaint).into_owned();
                    if NO_MEMORY.iter().any(|said| words.lines().any(|line| line.starts_with(said))) {
                        return Run::Ended(format!(
                            "the tool used more memory than it may ({} MiB)",
                            self.bounds.memory >> 20
                        ));
                    }
                    Run::Failed(words)
                }
                _ => Run::Ended(
                    "the tool was killed: it used more CPU time or memory than it may, or wrote a file".to_owned(),
                ),
            }
        };
        let deadline = self.bounds.deadline;
        let ended = tokio::time::timeout(deadline, whole).await;
        ended.unwrap_or_else(|_| Run::Ended(format!("timed out after {} s while it was built", deadline.as_secs())))
    }

    fn command(
        &self,
        root: &Path,
        arguments: &[OsString],
        variables: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
    ) -> Command {
        let mut command = Command::new(&self.path);
        let (variable, value) = SOFT_MEMORY.split_once('=').unwrap_or_default();
        command
            .args(self.arguments)
            .args(arguments)
            .current_dir(root)
            .env_clear()
            .env("HOME", NOBODYS_HOME)
            .env("PATH", "")
            .env(variable, value)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }
}

/// Writes the input of a program. A program that ends early does not read all, and its status says why.
async fn give(stdin: Option<ChildStdin>, input: Option<&[u8]>) -> Result<(), ()> {
    if let (Some(mut stdin), Some(input)) = (stdin, input) {
        _ = stdin.write_all(input).await;
    }
    Ok(())
}

/// Starts a program without network.
async fn spawn(mut command: Command) -> io::Result<Child> {
    let (runtime, (done, begun)) = (Handle::current(), oneshot::channel());
    let mut begin = move || {
        let _entered = runtime.enter();
        cut_off(std::env::consts::ARCH).map_err(io::Error::other)?;
        command.spawn()
    };
    // The thread cannot regain network access, so it ends after the start.
    std::thread::Builder::new().name("begin a tool".to_owned()).spawn(move || {
        // If the receiver is gone, the child is dropped with the result.
        _ = done.send(begin());
    })?;
    begun.await.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()))
}

/// Limits the resources of a process.
fn confine(pid: Pid, most: Bounds) -> Result<(), rustix::io::Errno> {
    let bounds = [
        (Resource::Cpu, most.cpu_seconds),
        (Resource::Data, most.memory),
        (Resource::Nofile, FILES),
        // The program may write only to its output.
        (Resource::Fsize, 0),
        (Resource::Core, 0),
    ];
    for (resource, most) in bounds {
        match prlimit(Some(pid), resource, Rlimit { current: Some(most), maximum: Some(most) }) {
            Ok(_) => {}
            // The process has already ended.
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads at most `most` bytes. The rest is not read, and the writer blocks until the run ends.
async fn read(from: Option<impl AsyncRead + Unpin>, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        // After an error, the bytes read so far are used.
        _ = from.take(most).read_to_end(&mut bytes).await;
    }
    bytes
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script in place of the tool.
    async fn run(script: &str) -> Run {
        within(BOUNDS, script).await
    }

    async fn within(bounds: Bounds, script: &str) -> Run {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("kustomize");
        // A separate process writes the file. The child of a concurrent test inherits all open files of this process
        // until exec, and a file that is open for writing cannot be executed.
        let mut writer = std::process::Command::new("/bin/sh");
        writer
            .args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod 755 \"$2\"", "write", script])
            .arg(&program);
        assert!(writer.status().unwrap().success());
        let path = std::env::join_paths(["/nothing".into(), directory.path().to_owned()]).unwrap();
        let tool = Program { bounds, ..Program::find(&path, Purpose::Kustomize).unwrap() };
        assert_eq!(tool.path, program);
        assert_eq!(Program::find(&path, Purpose::Helm), None);
        let root = tempfile::tempdir().unwrap();
        let none: [(&str, &Path); 0] = [];
        tool.run(root.path(), &["--".into(), root.path().join("app").into()], &none, None).await
    }

    #[tokio::test]
    async fn sees_nothing_of_the_environment_and_gets_the_directory() {
        let Run::Built(printed) = run("echo \"$*\"; export -p").await else { panic!("it fails") };
        let printed = String::from_utf8(printed).unwrap();
        assert!(printed.starts_with("build -- /") && printed.contains("/app\n"), "{printed}");
        assert!(printed.contains("HOME='/nonexistent'") || printed.contains("HOME=/nonexistent"), "{printed}");
        let allowed = ["HOME", "PATH", "PWD", "OLDPWD", "GOMEMLIMIT"];
        for line in printed.lines().skip(1) {
            let name = line.strip_prefix("export ").unwrap().split('=').next().unwrap();
            assert!(allowed.contains(&name), "{line}");
        }
    }

    #[tokio::test]
    async fn endless_output_ends_and_long_complaints_do_not_hang() {
        let Run::Ended(why) =
            run("while :; do echo 0123456789012345678901234567890123456789012345678901234567890123; done").await
        else {
            panic!("it did not end")
        };
        assert!(why.contains("16 MiB"), "{why}");
        let long = "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789012345678901234567890123 >&2; \
                    i=$((i+1)); done; exit 3";
        let Run::Failed(words) = run(long).await else { panic!("it did not fail") };
        assert_eq!(words.len() as u64, COMPLAINT);
    }

    #[tokio::test]
    async fn a_run_out_of_memory_is_called_that() {
        let Run::Ended(why) = run("echo 'fatal error: runtime: out of memory' >&2; exit 2").await else {
            panic!("it did not end")
        };
        assert_eq!(why, "the tool used more memory than it may (400 MiB)");
    }

    #[tokio::test]
    async fn a_run_ends_with_its_cpu_time_its_memory_and_its_deadline() {
        let ended = async |bounds, script: &str| match within(bounds, script).await {
            Run::Ended(why) => why,
            other => panic!("{script}: {other:?}"),
        };
        let why = ended(Bounds { cpu_seconds: 1, ..BOUNDS }, "while :; do :; done").await;
        assert!(why.contains("more CPU time or memory than it may"), "{why}");
        let hangs = "while :; do while read -r line; do :; done < /proc/version; done";
        let why = ended(Bounds { deadline: Duration::from_secs(1), ..BOUNDS }, hangs).await;
        assert_eq!(why, "timed out after 1 s while it was built");
        let grows = "x=0123456789012345; while :; do x=$x$x; done";
        let run = within(Bounds { memory: 64 << 20, cpu_seconds: 10, ..BOUNDS }, grows).await;
        // The shell itself reports that its memory is exhausted, and ends.
        assert!(
            matches!(&run, Run::Failed(words) if words.contains("memory")) || matches!(run, Run::Ended(_)),
            "{run:?}"
        );
    }

    #[tokio::test]
    async fn writes_no_files() {
        let Run::Ended(why) = run("read line < /proc/uptime; while :; do echo x > file || exit 3; done").await else {
            panic!("it wrote")
        };
        assert!(why.contains("wrote a file"), "{why}");
    }

    #[tokio::test]
    async fn a_missing_program_is_not_found() {
        assert_eq!(Program::find(OsStr::new("relative:/nothing"), Purpose::Kustomize), None);
    }
}
