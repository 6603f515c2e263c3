//! The versions of Node.js and Python on this machine, with which Functions run.

use std::{process::Stdio, time::Duration};

use mainstay_function::NodePrograms;
use tokio::process::Command;

/// Maximum time for a program to print its version. A slower program is not used.
const WITHIN: Duration = Duration::from_secs(10);

/// Returns the versions of the programs on the PATH.
pub(super) async fn installed() -> NodePrograms {
    let (nodejs, python) = tokio::join!(version("node"), version("python3"));
    NodePrograms { nodejs, python }
}

async fn version(program: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(WITHIN, command.output()).await.ok()?.ok()?;
    read(&String::from_utf8_lossy(&output.stdout))
}

/// Parses the version in `v22.4.1` or `Python 3.12.4`.
fn read(said: &str) -> Option<String> {
    let version = said.split_whitespace().last()?.trim_start_matches('v');
    version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_programs_say_of_their_version() {
        for (said, version) in [
            ("v22.4.1\n", Some("22.4.1")),
            ("Python 3.12.4\n", Some("3.12.4")),
            ("Python 3.14.0rc1", Some("3.14.0rc1")),
            ("", None),
            ("no such program", None),
        ] {
            assert_eq!(read(said).as_deref(), version, "{said}");
        }
    }
}
