//! Real counterparts of the agent: Gitea, an image registry with referrers, ORAS, Helm and an OpenTelemetry Collector.
//!
//! `.ci/real hosts` builds the programs from their Go modules and runs these tests. The manifest excludes this target from
//! `cargo test` and `cargo nextest run`: other runs neither list nor skip its tests. A cargo feature would do the same, but
//! compile the package again.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod collector;
mod gitea;
mod registry;
mod sources;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use mainstay_testkit::PATIENCE;
use tokio::net::TcpStream;
use tokio::process::Child;

/// Returns a file of the directory into which `.ci/real hosts` builds.
fn built(name: &str) -> PathBuf {
    let directory = std::env::var_os("MAINSTAY_TEST_HOSTS").expect("MAINSTAY_TEST_HOSTS is set by `.ci/real hosts`");
    Path::new(&directory).join(name)
}

/// Runs a command that must succeed. Returns its standard output.
fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{error}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}

/// Starts a server, whose output goes to `log`, and waits until it accepts connections. It ends when the result is dropped.
async fn serve(command: Command, log: &Path, address: SocketAddr) -> Child {
    let file = File::create(log).unwrap();
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).kill_on_drop(true);
    let mut server = command.spawn().unwrap();
    let said = || fs::read_to_string(log).unwrap();
    let listening = async {
        while TcpStream::connect(address).await.is_err() {
            let ended = server.try_wait().unwrap();
            assert!(ended.is_none(), "{command:?} ended: {}", said());
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    let listens = tokio::time::timeout(PATIENCE, listening).await;
    assert!(listens.is_ok(), "{command:?} does not listen: {}", said());
    server
}
