//! Finds processes that have left the process group of their program, such as daemons.
//!
//! On Linux, this process adopts orphaned descendants, so all of them are found below this process. If this process is
//! killed, or on other systems, such processes continue.

/// Makes this process adopt orphaned descendants from now on.
#[cfg(target_os = "linux")]
pub(super) fn adopt() {
    // A kernel without this feature behaves like other systems.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

#[cfg(not(target_os = "linux"))]
pub(super) fn adopt() {}

/// Kills all processes below this one, and waits for their end. The process `own` is also killed, but its owner waits
/// for it.
#[cfg(target_os = "linux")]
pub(super) fn kill(own: rustix::process::Pid) {
    use std::time::{Duration, Instant};

    use rustix::process::{Signal, WaitOptions, kill_process, waitpid};

    /// Maximum time for a killed process to end.
    const PATIENCE: Duration = Duration::from_secs(1);

    let mut killed = Vec::new();
    loop {
        // A process may have started another one just before it was killed.
        let fresh: Vec<_> = all().into_iter().filter(|process| !killed.contains(process)).collect();
        if fresh.is_empty() {
            break;
        }
        for process in fresh {
            // The process may already have ended.
            let _ = kill_process(process, Signal::KILL);
            killed.push(process);
        }
    }
    let end = Instant::now() + PATIENCE;
    // Parents come first, because this process adopts the children of ended parents.
    for process in killed.into_iter().filter(|process| *process != own) {
        while matches!(waitpid(Some(process), WaitOptions::NOHANG), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn kill(_: rustix::process::Pid) {}

/// Returns all processes below this one, parents before their children.
#[cfg(target_os = "linux")]
fn all() -> Vec<rustix::process::Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes: Vec<_> =
        entries.filter_map(|entry| parent(&std::fs::read_to_string(entry.path().join("stat")).ok()?)).collect();
    let mut found = vec![rustix::process::getpid()];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(processes.iter().filter(|(_, of)| *of == parent).map(|(process, _)| *process));
        at += 1;
    }
    found.split_off(1)
}

/// Parses a process and its parent from the kernel's status line of the process. The name in parentheses may contain
/// any character.
#[cfg(target_os = "linux")]
fn parent(line: &str) -> Option<(rustix::process::Pid, rustix::process::Pid)> {
    let number = |text: &str| rustix::process::Pid::from_raw(text.trim().parse().ok()?);
    let (process, rest) = line.split_once('(')?;
    let (_, rest) = rest.rsplit_once(')')?;
    Some((number(process)?, number(rest.split_whitespace().nth(1)?)?))
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[test]
    fn the_parent_of_a_process_is_read_whatever_it_is_called() {
        let read = |line: &str| super::parent(line).map(|(a, b)| (a.as_raw_nonzero().get(), b.as_raw_nonzero().get()));
        assert_eq!(read("12 (sh) S 7 12 12 0"), Some((12, 7)));
        assert_eq!(read("12 (a ) R 1 (b) S 7 12"), Some((12, 7)));
        for line in ["", "12", "12 (sh", "12 (sh) S", "12 (sh) S 0 0", "x (sh) S 7"] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
