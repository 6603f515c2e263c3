//! A `nats-server` with JetStream on disk, TLS of a private CA, and a login.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::tls::{Pair, PrivateCa};
use super::world::free_address;
use super::{ROOT, isolated};

/// Timeout of a start.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server. It ends when this is dropped.
pub struct NatsServer {
    child: Child,
    address: SocketAddr,
    /// Its monitoring, over HTTP.
    monitor: SocketAddr,
    room: tempfile::TempDir,
}

impl NatsServer {
    pub fn start() -> Self {
        let (address, monitor, room) = (free_address(), free_address(), tempfile::tempdir().unwrap());
        let authority = PrivateCa::new();
        let Pair { certificate, key } = authority.issue("127.0.0.1");
        let login = room.path().join("login");
        fs::create_dir(&login).unwrap();
        let config = format!(
            "listen: \"{address}\"\nhttp: \"{monitor}\"\njetstream {{ store_dir: \"data\" }}\n\
             authorization {{ user: mainstay, password: \"hunter2\" }}\n\
             tls {{ cert_file: \"server.crt\", key_file: \"server.key\" }}\n"
        );
        for (path, text) in [
            ("server.crt", certificate),
            ("server.key", key),
            ("server.conf", config),
            ("login/ca.crt", authority.pem()),
            ("login/username", "mainstay".to_owned()),
            // Editors add the newline.
            ("login/password", "hunter2\n".to_owned()),
        ] {
            fs::write(room.path().join(path), text).unwrap();
        }
        let server = Self { child: spawn(room.path()), address, monitor, room };
        server.wait();
        server
    }

    pub fn url(&self) -> String {
        format!("tls://{}", self.address)
    }

    /// Returns a directory as a mounted Secret has it.
    pub fn credentials(&self) -> PathBuf {
        self.room.path().join("login")
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the server again, with the same data.
    pub fn restart(&mut self) {
        self.child = spawn(self.room.path());
        self.wait();
    }

    /// Returns the state of each stream whose name begins with this.
    pub fn streams(&self, prefix: &str) -> Vec<Value> {
        let all: Value = serde_json::from_str(&self.get("/jsz?accounts=true&streams=true").unwrap()).unwrap();
        let accounts = all["account_details"].as_array().cloned().unwrap_or_default();
        let streams = accounts.into_iter().filter_map(|account| account["stream_detail"].as_array().cloned());
        let named = |stream: &Value| stream["name"].as_str().is_some_and(|name| name.starts_with(prefix));
        streams.flatten().filter(named).map(|mut stream| stream["state"].take()).collect()
    }

    fn wait(&self) {
        let end = Instant::now() + PATIENCE;
        while !self.get("/healthz").is_some_and(|answer| answer.contains("ok")) {
            assert!(Instant::now() < end, "nats-server does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns a page of the monitoring.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.monitor).ok()?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(room: &Path) -> Child {
    // `.ci/test` builds it there.
    let built = Path::new(ROOT).join("target/tools/nats-server");
    let program = if built.is_file() { built } else { PathBuf::from("nats-server") };
    let mut command = isolated(program);
    command.args(["--config", "server.conf"]).current_dir(room).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("`nats-server` is missing; `.ci/test --install` installs it")
}
