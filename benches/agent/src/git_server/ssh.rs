//! A Git server over SSH that counts connections, commands and bytes: OpenSSH's `sshd` with `git-shell` behind a relay.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::{
    io::BufReader,
    net::{TcpListener, TcpStream},
    process::Command,
};

use super::{CountedReader, Counters, Counts, Error, Listening, increment, process::Process, stand::free_port};

const SSHD: &str = "/usr/sbin/sshd";
/// Deadline of the start of sshd.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves the repositories of a directory until it is dropped.
pub(crate) struct SshServer {
    directory: TempDir,
    root: PathBuf,
    user: String,
    listening: Listening,
    /// Runs as long as the server.
    _sshd: Process,
}

impl SshServer {
    /// Starts serving the repositories of a directory.
    pub(crate) async fn start(root: &Path) -> Result<Self, Error> {
        let directory = tempfile::tempdir().map_err(Error::Directory)?;
        // As root, sshd requires this directory.
        let _ = fs::create_dir_all("/run/sshd");
        for name in ["host", "key"] {
            run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f"], &directory.path().join(name)).await?;
        }
        let port = free_port()?;
        configure(directory.path(), port).map_err(Error::Directory)?;
        let mut command = Command::new(SSHD);
        command.arg("-D").arg("-f").arg(directory.path().join("config"));
        let sshd = Process::spawn(command)?;
        wait_for(port).await?;
        let listening = Listening::start(|listener, counters| relay_all(listener, port, counters)).await?;
        let user = user().await?;
        Ok(Self { directory, root: root.to_owned(), user, listening, _sshd: sshd })
    }

    /// Returns the URL of a repository.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("ssh://{}@{}{}/{name}", self.user, self.listening.address, self.root.display())
    }

    /// Returns the private key and `known_hosts`.
    pub(crate) fn secret(&self) -> Result<(String, String), Error> {
        let read = |name: &str| fs::read_to_string(self.directory.path().join(name)).map_err(Error::Directory);
        let address = self.listening.address;
        let host = format!("[{}]:{} {}", address.ip(), address.port(), read("host.pub")?);
        Ok((read("key")?, host))
    }

    /// Returns the counts so far.
    pub(crate) fn counts(&self) -> Counts {
        let commands = fs::metadata(self.directory.path().join("runs")).map_or(0, |file| file.len());
        Counts { commands, ..self.listening.counts() }
    }
}

/// Each execution of the command appends a byte to the file `runs`.
fn configure(directory: &Path, port: u16) -> io::Result<()> {
    let public = fs::read_to_string(directory.join("key.pub"))?;
    let shown = directory.display();
    let command = format!("printf x >> '{shown}/runs'; exec git-shell -c \\\"$SSH_ORIGINAL_COMMAND\\\"");
    fs::write(directory.join("authorized_keys"), format!("restrict,command=\"{command}\" {public}"))?;
    // A separate home excludes the user's shell startup files from the measurement.
    let config = format!(
        "SetEnv HOME={shown}\nPort {port}\nListenAddress 127.0.0.1\nHostKey {shown}/host\nPidFile none\nUsePAM no\nStrictModes no\n\
         AuthorizedKeysFile {shown}/authorized_keys\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin yes\nAcceptEnv GIT_PROTOCOL\nMaxStartups 1000\nLogLevel QUIET\n"
    );
    fs::write(directory.join("config"), config)
}

async fn relay_all(listener: TcpListener, port: u16, counters: Arc<Counters>) {
    while let Ok((client, _)) = listener.accept().await {
        increment(&counters.connections);
        let counters = Arc::clone(&counters);
        // The client reports a broken connection.
        tokio::spawn(async move { relay(client, port, counters).await.ok() });
    }
}

async fn relay(mut client: TcpStream, port: u16, counters: Arc<Counters>) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.split();
    let (reader, mut to_server) = server.split();
    let mut from_server = BufReader::with_capacity(64 << 10, CountedReader { reader, counters });
    // Either side may end the connection.
    tokio::select! {
        ended = tokio::io::copy(&mut from_client, &mut to_server) => ended.map(drop),
        ended = tokio::io::copy_buf(&mut from_server, &mut to_client) => ended.map(drop),
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
