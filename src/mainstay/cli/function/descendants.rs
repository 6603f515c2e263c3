//! Processes that have left the process group of the program that began them, such as those that make themselves daemons.
//!
//! On Linux this process adopts what its descendants leave behind, so that all of them are found below it. If it is killed
//! itself, so that it can do nothing more, nobody ends them; elsewhere nobody does at all.

/// From now on, whoever loses its parent below this process becomes its child.
#[cfg(target_os = "linux")]
pub(super) fn adopt() {
    // A kernel that cannot do that has them as any other system.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

#[cfg(not(target_os = "linux"))]
pub(super) fn adopt() {}

/// Kills all processes below this one, and waits until they have ended; `own` is left for its owner to wait for.
#[cfg(target_os = "linux")]
pub(super) fn kill(own: rustix::process::Pid) {
    use std::time::{Duration, Instant};

    use rustix::process::{Signal, WaitOptions, kill_process, waitpid};

    /// How long a killed process may take to end.
    const PATIENCE: Duration = Duration::from_secs(1);

    let mut killed = Vec::new();
    loop {
        // What is killed may just have begun another.
        let fresh: Vec<_> = all().into_iter().filter(|process| !killed.contains(process)).collect();
        if fresh.is_empty() {
            break;
        }
        for process in fresh {
            // It may have ended since it was seen.
            let _ = kill_process(process, Signal::KILL);
            killed.push(process);
        }
    }
    let end = Instant::now() + PATIENCE;
    // Parents come first: what they leave is ours then.
    for process in killed.into_iter().filter(|process| *process != own) {
        while matches!(waitpid(Some(process), WaitOptions::NOHANG), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn kill(_: rustix::process::Pid) {}

/// All processes below this one, parents before their children.
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

/// A process and its parent, from its line of the kernel; the name in parentheses may hold anything.
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
