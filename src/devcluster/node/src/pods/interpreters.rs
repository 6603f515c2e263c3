//! A Python environment for images without their base layers: this machine's Python without its installed packages.
//!
//! The environment contains the standard library only, so that a program does not find packages that its real image
//! lacks.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::kubelet::Node;

/// Deadline. Creating an environment writes a few links and one file.
const WITHIN: Duration = Duration::from_secs(30);

impl Node {
    /// Returns the directory of programs that replaces the programs of an image, depending on the command's first word.
    pub(super) async fn interpreters(&self, word: Option<&str>) -> Option<PathBuf> {
        if word? != "python3" {
            return None;
        }
        self.python.get_or_init(|| self.environment()).await.clone()
    }

    async fn environment(&self) -> Option<PathBuf> {
        let place = self.directory().join("python");
        let mut command = Command::new("python3");
        command.args(["-m", "venv", "--without-pip", "--symlinks"]).arg(&place);
        command.env("PATH", &self.options.path).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let why = match tokio::time::timeout(WITHIN, command.output()).await {
            Ok(Ok(output)) if output.status.success() => return Some(place.join("bin")),
            Ok(Ok(output)) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it took more than {} s", WITHIN.as_secs()),
        };
        tracing::warn!(why, "pods see the Python packages of this machine");
        None
    }
}
