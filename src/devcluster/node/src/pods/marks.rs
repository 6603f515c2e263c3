//! Marks by which the processes of a container are found again that have left its process group.
//!
//! A program that makes itself a daemon is in a group and a session of its own. It still has the environment of its
//! container, and in it the mark.
//!
//! Deliberately absent: processes that empty their environment; nothing short of the kernel's own walls holds those.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// The variable.
const NAME: &str = "DEVCLUSTER_CONTAINER";
/// Rounds of killing: what is killed may just have started another process.
const ROUNDS: usize = 20;

/// The mark of one container, as long as it runs; all that carry it are dead when this is dropped.
pub(super) struct Mark {
    value: String,
}

impl Mark {
    /// A fresh mark below that of its node.
    pub(super) fn new(node: &Path) -> Self {
        Self { value: format!("{}/{:032x}", node.display(), fastrand::u128(..)) }
    }

    /// The variable and its value.
    pub(super) fn variable(&self) -> (String, String) {
        (NAME.to_owned(), self.value.clone())
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        kill(&format!("{NAME}={}", self.value));
    }
}

/// How the marks of a node begin, as they stand in an environment.
pub(super) fn of_node(node: &Path) -> String {
    format!("{NAME}={}/", node.display())
}

/// Kills what carries a mark of a node that is no more.
pub(super) fn kill_all(node: &Path) {
    kill(&of_node(node));
}

/// Kills all processes with a variable that begins so.
fn kill(beginning: &str) {
    for _ in 0..ROUNDS {
        let found: Vec<Pid> = carriers(beginning.as_bytes()).collect();
        if found.is_empty() {
            return;
        }
        for process in found {
            // It may have ended since it was seen.
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

fn carriers(beginning: &[u8]) -> impl Iterator<Item = Pid> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let id: i32 = entry.file_name().to_str()?.parse().ok()?;
        // Those of other users cannot be read, and are none of ours; a dead one has no environment.
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let carries = environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(beginning));
        if carries && id != own { Pid::from_raw(id) } else { None }
    })
}
