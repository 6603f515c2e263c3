//! A watchdog process that kills the containers if this process cannot.
//!
//! A shell reads the live process groups from a pipe. The pipe closes when this process ends, even by SIGKILL, and the
//! shell then kills the remaining groups. If the shell is killed, too, a file per group remains, and the next node in
//! the same directory kills those groups. Processes outside their group are found by their mark.
//!
//! Invariant: a group is registered as soon as it starts, and removed only after its end.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};

use super::marks;

/// Reads `+group` and `-group`, and kills the remaining groups at the end. The argument is the node's mark.
const SCRIPT: &str = r#"trap '' INT TERM HUP
live=' '
while read -r line; do
  group=${line#?}
  case $line in
    +*) live="$live$group " ;;
    -*) case $live in *" $group "*) live="${live%% "$group" *} ${live#* "$group" }" ;; esac ;;
  esac
done
for group in $live; do kill -9 "-$group" 2>/dev/null; done
for round in 1 2 3 4 5; do
  found=$(grep -slF -e "$1" /proc/[0-9]*/environ)
  [ -n "$found" ] || exit 0
  for file in $found; do file=${file#/proc/}; kill -9 "${file%/environ}" 2>/dev/null; done
done
exit 0
"#;

/// The live process groups of a node.
#[derive(Debug)]
pub(super) struct Watchdog {
    directory: PathBuf,
    mark: String,
    shell: Mutex<Option<(Child, ChildStdin)>>,
}

impl Watchdog {
    /// Creates a watchdog; the shell starts with the first group. `node` is the node's directory.
    pub(super) fn new(node: &Path) -> Self {
        Self { directory: node.join("processes"), mark: marks::of_node(node), shell: Mutex::default() }
    }

    /// Registers a group.
    pub(super) fn add(&self, group: Pid) {
        let group = group.as_raw_nonzero();
        let begun = started(group.get()).unwrap_or_default();
        if let Err(error) = fs::write(self.directory.join(group.to_string()), begun) {
            tracing::warn!(%error, "a process group is not on record");
        }
        self.send(&format!("+{group}\n"));
    }

    /// Removes a dead group.
    pub(super) fn remove(&self, group: Pid) {
        let group = group.as_raw_nonzero();
        self.send(&format!("-{group}\n"));
        // An error of this directory was already logged on write.
        let _ = fs::remove_file(self.directory.join(group.to_string()));
    }

    fn send(&self, line: &str) {
        let mut shell = self.shell.lock();
        if shell.is_none() {
            *shell = spawn(&self.mark).map_err(|error| tracing::warn!(%error, "no watchdog over processes")).ok();
        }
        if let Some((_, pipe)) = &mut *shell
            && let Err(error) = pipe.write_all(line.as_bytes())
        {
            tracing::warn!(%error, "the watchdog over processes is gone");
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some((mut child, pipe)) = self.shell.lock().take() {
            drop(pipe);
            // The shell ends immediately. An error means that it was already reaped.
            let _ = child.wait();
        }
    }
}

fn spawn(mark: &str) -> std::io::Result<(Child, ChildStdin)> {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "watchdog", mark]).env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn()?;
    let pipe = child.stdin.take().ok_or_else(|| std::io::Error::other("the shell has no input"))?;
    Ok((child, pipe))
}

/// Returns the start time of a process in ticks since boot; `None` if it does not exist.
fn started(process: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may contain any character. The start time is the 20th field after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

/// Kills the remaining process groups of an earlier node.
pub(super) fn kill_leftovers(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let group = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let known = fs::read_to_string(entry.path()).unwrap_or_default();
        if let Some(group) = group
            && !known.is_empty()
            && started(group).as_ref() == Some(&known)
            && let Some(pid) = Pid::from_raw(group)
        {
            tracing::info!(group, "killing a process that an earlier node has left");
            // The group may have ended.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = fs::remove_file(entry.path());
    }
}
