//! Proxies on loopback: `tinyproxy` for HTTP, `microsocks` for SOCKS version 5.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// A running proxy. The proxy is killed when this value is dropped.
pub struct Proxy {
    process: Child,
    address: String,
    #[expect(dead_code, reason = "its configuration is there")]
    room: TempDir,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns a port on loopback that was free at the time of the call.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Proxy {
    /// Starts an HTTP proxy with this user name and password.
    pub fn http(username: &str, password: &str) -> Self {
        let (room, port) = (tempfile::tempdir().unwrap(), port());
        let config = room.path().join("config");
        let text = format!(
            "Port {port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 20\nBasicAuth {username} {password}\nPidFile \
             \"{0}/pid\"\nLogFile \"{0}/log\"\n",
            room.path().display()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = crate::isolated("tinyproxy");
        command.arg("-d").arg("-c").arg(config);
        Self::start(command, format!("http://127.0.0.1:{port}"), port, room)
    }

    /// Starts a SOCKS proxy with this user name and password.
    pub fn socks(username: &str, password: &str) -> Self {
        let (room, port) = (tempfile::tempdir().unwrap(), port());
        let mut command = crate::isolated("microsocks");
        command.args(["-i", "127.0.0.1", "-p", &port.to_string(), "-u", username, "-P", password]);
        Self::start(command, format!("socks5://127.0.0.1:{port}"), port, room)
    }

    fn start(mut command: Command, address: String, port: u16, room: TempDir) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("the proxy is installed (apt-get install tinyproxy microsocks)");
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < crate::PATIENCE, "the proxy listens");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { process, address, room }
    }

    /// Returns the proxy's URL, as in a Secret.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn stop(&mut self) {
        // An error means that the process has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
