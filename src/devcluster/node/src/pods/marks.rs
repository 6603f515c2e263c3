//! Marks that identify a container's processes after they left its process group.
//!
//! A daemon creates its own group and session, but inherits the environment, which contains the mark.
//!
//! Not here: processes that clear their environment. Only kernel isolation could contain such processes.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// Name of the variable.
const NAME: &str = "DEVCLUSTER_CONTAINER";
/// Maximum rounds of killing. A killed process may have started another process.
const ROUNDS: usize = 20;

/// The mark of a running container. Dropping it kills all marked processes.
pub(super) struct Mark {
    value: String,
}

impl Mark {
    /// Creates a mark below the node's mark.
    pub(super) fn new(node: &Path) -> Self {
        Self { value: format!("{}/{:032x}", node.display(), fastrand::u128(..)) }
    }

    /// Returns name and value of the variable.
    pub(super) fn variable(&self) -> (String, String) {
        (NAME.to_owned(), self.value.clone())
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        kill(&format!("{NAME}={}", self.value));
    }
}

/// Returns the common prefix of a node's marks in an environment.
pub(super) fn of_node(node: &Path) -> String {
    format!("{NAME}={}/", node.display())
}

/// Kills the marked processes of a node that no longer runs.
pub(super) fn kill_all(node: &Path) {
    kill(&of_node(node));
}

/// Kills all processes with a variable of this prefix.
fn kill(beginning: &str) {
    for _ in 0..ROUNDS {
        let found: Vec<Pid> = carriers(beginning.as_bytes()).collect();
        if found.is_empty() {
            return;
        }
        for process in found {
            // The process may have ended.
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

fn carriers(beginning: &[u8]) -> impl Iterator<Item = Pid> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let id: i32 = entry.file_name().to_str()?.parse().ok()?;
        // Unreadable for dead processes, and for processes of other users, which the node did not start.
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let carries = environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(beginning));
        if carries && id != own { Pid::from_raw(id) } else { None }
    })
}
