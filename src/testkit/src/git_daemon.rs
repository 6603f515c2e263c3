//! `git daemon` on loopback.

use std::{
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

/// A running daemon. The daemon is killed when this value is dropped.
pub struct GitDaemon {
    process: Child,
    port: u16,
}

impl Drop for GitDaemon {
    fn drop(&mut self) {
        // An error means that the process has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl GitDaemon {
    /// Serves the repositories in `root`.
    pub fn start(root: &Path) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // Runs the program directly, because `git daemon` would start it as a child.
        let output = crate::isolated("git").arg("--exec-path").output().unwrap();
        let path = Path::new(String::from_utf8(output.stdout).unwrap().trim()).join("git-daemon");
        let mut command = crate::isolated(path);
        command.args(["--export-all", "--reuseaddr", "--listen=127.0.0.1", &format!("--port={port}")]);
        command.arg(format!("--base-path={}", root.display())).arg(root);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let daemon = Self { process: process.expect("`git daemon` is installed (apt-get install git)"), port };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < crate::PATIENCE, "the daemon listens");
            std::thread::sleep(Duration::from_millis(10));
        }
        daemon
    }

    /// Returns the URL of a repository: `git://127.0.0.1:<port>/<name>`.
    pub fn url(&self, name: &str) -> String {
        format!("git://127.0.0.1:{}/{name}", self.port)
    }
}
