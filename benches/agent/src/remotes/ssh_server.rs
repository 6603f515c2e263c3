//! A Git server over SSH on loopback: OpenSSH's `sshd` with `git-shell`, behind a relay that counts what it answers.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    process::Command,
    task::JoinHandle,
};

use super::{Error, process::Process, stand::free_port};

const SSHD: &str = "/usr/sbin/sshd";
/// How long sshd may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves the repositories of a directory until it is dropped.
pub(super) struct SshServer {
    room: TempDir,
    root: PathBuf,
    address: SocketAddr,
    user: String,
    counts: Arc<Counts>,
    relaying: JoinHandle<()>,
    /// Kept for as long as it is needed.
    _sshd: Process,
}

#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    bytes: AtomicU64,
}

/// What was asked.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// Connections.
    pub connections: u64,
    /// Bytes that the client received, as they were on the wire.
    pub bytes: u64,
    /// Runs of `git-upload-pack`.
    pub runs: u64,
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.relaying.abort();
    }
}

impl SshServer {
    /// Serves the repositories in this directory.
    pub(super) async fn start(root: &Path) -> Result<Self, Error> {
        let room = tempfile::tempdir().map_err(Error::Directory)?;
        // Run by root, sshd insists on it.
        let _ = fs::create_dir_all("/run/sshd");
        for name in ["host", "key"] {
            run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f"], &room.path().join(name)).await?;
        }
        let port = free_port()?;
        configure(room.path(), port).map_err(Error::Directory)?;
        let mut command = Command::new(SSHD);
        command.arg("-D").arg("-f").arg(room.path().join("config"));
        let sshd = Process::spawn(command)?;
        wait_for(port).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::Start)?;
        let address = listener.local_addr().map_err(Error::Start)?;
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        let relaying = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                counted.connections.fetch_add(1, Ordering::Relaxed);
                let counted = Arc::clone(&counted);
                // A connection that breaks is the client's matter.
                tokio::spawn(async move { relay(client, port, &counted).await.ok() });
            }
        });
        let user = user().await?;
        Ok(Self { room, root: root.to_owned(), address, user, counts, relaying, _sshd: sshd })
    }

    /// Address of a repository.
    pub(super) fn url(&self, name: &str) -> String {
        format!("ssh://{}@{}{}/{name}", self.user, self.address, self.root.display())
    }

    /// Private key and `known_hosts`.
    pub(super) fn secret(&self) -> Result<(String, String), Error> {
        let read = |name: &str| fs::read_to_string(self.room.path().join(name)).map_err(Error::Directory);
        let host = format!("[{}]:{} {}", self.address.ip(), self.address.port(), read("host.pub")?);
        Ok((read("key")?, host))
    }

    /// What was asked until now.
    pub(super) fn asked(&self) -> Asked {
        let runs = fs::metadata(self.room.path().join("runs")).map_or(0, |file| file.len());
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Asked { connections: read(&self.counts.connections), bytes: read(&self.counts.bytes), runs }
    }
}

impl Asked {
    /// What came after `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            connections: self.connections - earlier.connections,
            bytes: self.bytes - earlier.bytes,
            runs: self.runs - earlier.runs,
        }
    }
}

/// Every run of the command adds a byte to the file `runs`.
fn configure(room: &Path, port: u16) -> io::Result<()> {
    let public = fs::read_to_string(room.join("key.pub"))?;
    let shown = room.display();
    let command = format!("printf x >> '{shown}/runs'; exec git-shell -c \\\"$SSH_ORIGINAL_COMMAND\\\"");
    fs::write(room.join("authorized_keys"), format!("restrict,command=\"{command}\" {public}"))?;
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {shown}/host\nPidFile none\nUsePAM no\nStrictModes no\n\
         AuthorizedKeysFile {shown}/authorized_keys\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin yes\nAcceptEnv GIT_PROTOCOL\nMaxStartups 1000\nLogLevel QUIET\n"
    );
    fs::write(room.join("config"), config)
}

async fn relay(mut client: TcpStream, port: u16, counts: &Counts) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let down = async {
        let mut piece = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from_server.read(&mut piece).await {
            counts.bytes.fetch_add(length as u64, Ordering::Relaxed);
            to_client.write_all(&piece[..length]).await?;
        }
        Ok::<_, io::Error>(())
    };
    // Either side may end the connection.
    tokio::select! {
        ended = tokio::io::copy(&mut from_client, &mut to_server) => ended.map(drop),
        ended = down => ended,
    }
}

async fn wait_for(port: u16) -> Result<(), Error> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(Error::NotStarted)
}

async fn run(program: &str, arguments: &[&str], path: &Path) -> Result<(), Error> {
    let ended = Command::new(program).args(arguments).arg(path).stdin(Stdio::null()).status().await;
    if ended.map_err(Error::Start)?.success() { Ok(()) } else { Err(Error::NotStarted) }
}

async fn user() -> Result<String, Error> {
    let output = Command::new("id").arg("-un").output().await.map_err(Error::Start)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
