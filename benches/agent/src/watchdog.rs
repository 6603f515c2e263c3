//! A shell that kills the child processes of the benchmark if the benchmark cannot.
//!
//! The shell reads their IDs from a pipe. The pipe closes when the benchmark ends, even by SIGKILL.

use std::{
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    sync::LazyLock,
};

use parking_lot::Mutex;

/// Reads `+ID` and `-ID`, and kills the remaining processes at the end.
const SCRIPT: &str = r#"trap '' INT TERM HUP
live=' '
while read -r line; do
  id=${line#?}
  case $line in
    +*) live="$live$id " ;;
    -*) case $live in *" $id "*) live="${live%% "$id" *} ${live#* "$id" }" ;; esac ;;
  esac
done
for id in $live; do kill -9 "$id" 2>/dev/null; done
exit 0
"#;

/// The shell; `None` if it could not be started.
static SHELL: LazyLock<Mutex<Option<Child>>> = LazyLock::new(|| Mutex::new(start().ok()));

/// A process that the shell kills at the end, unless this is dropped before.
#[derive(Debug)]
pub(super) struct Watched(u32);

impl Watched {
    /// Registers a process.
    pub(super) fn new(id: u32) -> Self {
        send('+', id);
        Self(id)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        send('-', self.0);
    }
}

fn send(sign: char, id: u32) {
    if let Some(shell) = &mut *SHELL.lock() {
        write(shell, sign, id);
    }
}

fn write(shell: &mut Child, sign: char, id: u32) {
    if let Some(pipe) = &mut shell.stdin {
        // Without the shell, only a killed benchmark leaves processes.
        let _ = pipe.write_all(format!("{sign}{id}\n").as_bytes());
    }
}

fn start() -> io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT]).env_clear().current_dir("/");
    // Signals to the group of the benchmark do not end the shell.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn the_remaining_processes_are_killed_when_the_pipe_closes() {
        let sleep = || Command::new("sleep").arg("600").spawn().unwrap();
        let (mut killed, mut removed, mut shell) = (sleep(), sleep(), start().unwrap());
        for (sign, id) in [('+', removed.id()), ('+', killed.id()), ('-', removed.id())] {
            write(&mut shell, sign, id);
        }
        // Before it waits, it closes the pipe.
        assert!(shell.wait().unwrap().success());
        let ended = removed.try_wait().unwrap();
        removed.kill().unwrap();
        removed.wait().unwrap();
        assert_eq!((killed.wait().unwrap().signal(), ended), (Some(9), None));
    }
}
