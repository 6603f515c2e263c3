//! Servers of NATS with JetStream on disk, TLS of a private CA, and a login: one, or those of an installation.

use crate::PATIENCE;
use std::collections::BTreeMap;
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

/// The servers. They end when this is dropped.
pub struct NatsServers {
    servers: Vec<Server>,
    room: tempfile::TempDir,
}

/// The contents of an installation.
pub struct Installed<'a> {
    /// The number of servers.
    pub servers: usize,
    /// The configuration, with the names, ports and paths of pods.
    pub configuration: &'a str,
    /// The Secret, by its keys.
    pub secret: &'a BTreeMap<String, String>,
    /// Keys of the Secret and their files, for servers and for clients.
    pub files: [&'a [(String, String)]; 2],
}

struct Server {
    child: Child,
    address: SocketAddr,
    /// Its monitoring, over HTTP.
    monitor: SocketAddr,
    directory: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl NatsServers {
    /// Starts one server.
    pub fn one() -> Self {
        Self::with(
            "authorization { user: mainstay, password: \"hunter2\" }\n\
             tls { cert_file: \"server.crt\", key_file: \"server.key\" }\n",
        )
    }

    /// Starts one server without TLS, whose user may publish only to subjects below `mainstay`.
    pub fn plain() -> Self {
        Self::with(
            "authorization { users: [{ user: mainstay, password: \"hunter2\", permissions: {\n\
             publish: \"mainstay.>\", subscribe: \"mainstay.>\" } }] }\n",
        )
    }

    /// Starts one server with this login and this security.
    fn with(security: &str) -> Self {
        let (address, monitor, room) = (free_address(), free_address(), tempfile::tempdir().unwrap());
        let authority = PrivateCa::new();
        let Pair { certificate, key } = authority.issue("127.0.0.1");
        let login = room.path().join("login");
        fs::create_dir(&login).unwrap();
        let config =
            format!("listen: \"{address}\"\nhttp: \"{monitor}\"\njetstream {{ store_dir: \"data\" }}\n{security}");
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
        let server = Server::begin(address, monitor, room.path().to_owned(), Vec::new());
        server.wait("/healthz");
        Self { servers: vec![server], room }
    }

    /// Starts the servers of an installation, on the loopback. Names, ports and paths of pods are replaced, and nothing
    /// else.
    pub fn installed(installed: &Installed<'_>) -> Self {
        let Installed { servers: number, configuration, secret, files } = *installed;
        let room = tempfile::tempdir().unwrap();
        for (directory, files) in ["tls", "login"].into_iter().zip(files) {
            fs::create_dir(room.path().join(directory)).unwrap();
            for (key, file) in files {
                fs::write(room.path().join(directory).join(file), &secret[key]).unwrap();
            }
        }
        let routes: Vec<SocketAddr> = (0..number).map(|_| free_address()).collect();
        let begin = |(index, route): (usize, &SocketAddr)| {
            let (address, monitor) = (free_address(), free_address());
            let directory = room.path().join(format!("server-{index}"));
            fs::create_dir(&directory).unwrap();
            let mut text = configuration.to_owned();
            let mut replace = |from: String, to: String| {
                assert!(text.contains(&from), "the configuration has no {from:?}");
                text = text.replace(&from, &to);
            };
            replace("\nport: 4222\n".to_owned(), format!("\nlisten: \"{address}\"\n"));
            replace("\nhttp_port: 8222\n".to_owned(), format!("\nhttp: \"{monitor}\"\n"));
            replace("/data".to_owned(), directory.join("data").display().to_string());
            replace("/etc/nats-tls".to_owned(), room.path().join("tls").display().to_string());
            if number > 1 {
                replace("\n  port: 6222\n".to_owned(), format!("\n  listen: \"{route}\"\n"));
            }
            for (other, route) in routes.iter().enumerate().filter(|_| number > 1) {
                replace(format!("mainstay-nats-{other}.mainstay-nats.kyma-system.svc:6222"), route.to_string());
            }
            assert!(!text.contains("kyma-system"), "{text}");
            fs::write(directory.join("server.conf"), text).unwrap();
            let variables = vec![
                ("POD_NAME", format!("mainstay-nats-{index}")),
                ("NATS_USERNAME", secret["username"].clone()),
                ("NATS_PASSWORD", secret["password"].clone()),
            ];
            Server::begin(address, monitor, directory, variables)
        };
        let servers: Vec<Server> = routes.iter().enumerate().map(begin).collect();
        // The path of the readiness probe.
        for server in &servers {
            server.wait("/healthz?js-server-only=true");
        }
        let installed = Self { servers, room };
        let end = Instant::now() + PATIENCE;
        while installed.peers().iter().any(|peers| peers.len() + 1 < number) {
            assert!(Instant::now() < end, "the servers do not find each other");
            std::thread::sleep(Duration::from_millis(20));
        }
        // With a leader, the server is healthy.
        for server in &installed.servers {
            server.wait("/healthz");
        }
        installed
    }

    /// Returns the number of servers.
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    pub fn url(&self) -> String {
        let urls: Vec<String> = self.servers.iter().map(|server| format!("tls://{}", server.address)).collect();
        urls.join(",")
    }

    /// Returns the address of the first server.
    pub fn address(&self) -> SocketAddr {
        self.servers[0].address
    }

    /// Returns a directory as a mounted Secret has it.
    pub fn credentials(&self) -> PathBuf {
        self.room.path().join("login")
    }

    /// Kills a server with SIGKILL.
    pub fn kill(&mut self, index: usize) {
        self.servers[index].kill();
    }

    /// Starts a server again, with the same data, and waits until it has all of its streams.
    pub fn restart(&mut self, index: usize) {
        let server = &mut self.servers[index];
        server.child = spawn(&server.directory, &server.variables);
        server.wait("/healthz");
    }

    /// Returns the state of each stream of the first server whose name begins with this.
    pub fn streams(&self, prefix: &str) -> Vec<Value> {
        let text = self.servers[0].get("/jsz?accounts=true&streams=true").unwrap();
        let all: Value = serde_json::from_str(&text).unwrap();
        let accounts = all["account_details"].as_array().cloned().unwrap_or_default();
        let streams = accounts.into_iter().filter_map(|account| account["stream_detail"].as_array().cloned());
        let named = |stream: &Value| stream["name"].as_str().is_some_and(|name| name.starts_with(prefix));
        streams.flatten().filter(named).map(|mut stream| stream["state"].take()).collect()
    }

    /// Returns what each server says of its streams and consumers, for the message of a failure.
    pub fn report(&self) -> String {
        let page = "/jsz?accounts=true&streams=true&consumers=true&config=true&raft=true";
        let report = |server: &Server| format!("{}:\n{}", server.address, server.get(page).unwrap_or_default());
        self.servers.iter().map(report).collect::<Vec<_>>().join("\n")
    }

    /// Returns the names of the other servers that each server is connected to.
    pub fn peers(&self) -> Vec<Vec<String>> {
        let peers = |server: &Server| {
            let text = server.get("/routez").unwrap();
            let all: Value = serde_json::from_str(&text).unwrap();
            let routes = all["routes"].as_array().cloned().unwrap_or_default();
            let mut names: Vec<_> =
                routes.iter().filter_map(|route| Some(route["remote_name"].as_str()?.to_owned())).collect();
            names.sort();
            names.dedup();
            names
        };
        self.servers.iter().map(peers).collect()
    }

    /// Returns for each server how it writes events to its disk: `sync_interval` in nanoseconds, and `sync_always`.
    pub fn syncs(&self) -> Vec<(u64, bool)> {
        let sync = |server: &Server| {
            let all: Value = serde_json::from_str(&server.get("/jsz").unwrap()).unwrap();
            let config = &all["config"];
            (config["sync_interval"].as_u64().unwrap(), config["sync_always"].as_bool().unwrap_or(false))
        };
        self.servers.iter().map(sync).collect()
    }
}

impl Drop for NatsServers {
    fn drop(&mut self) {
        self.servers.iter_mut().for_each(Server::kill);
    }
}

impl Server {
    fn begin(
        address: SocketAddr,
        monitor: SocketAddr,
        directory: PathBuf,
        variables: Vec<(&'static str, String)>,
    ) -> Self {
        Self { child: spawn(&directory, &variables), address, monitor, directory, variables }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until this page of the monitoring says that the server is healthy.
    fn wait(&self, page: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(page).unwrap_or_default();
            if answer.contains("\"ok\"") {
                return;
            }
            assert!(Instant::now() < end, "nats-server is not healthy: {answer}");
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

fn spawn(directory: &Path, variables: &[(&'static str, String)]) -> Child {
    // `.ci/test` builds it there.
    let built = Path::new(ROOT).join("target/tools/nats-server");
    let program = if built.is_file() { built } else { PathBuf::from("nats-server") };
    let mut command = isolated(program);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command.args(["--config", "server.conf"]).current_dir(directory).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("`nats-server` is missing; `.ci/test --install` installs it")
}
