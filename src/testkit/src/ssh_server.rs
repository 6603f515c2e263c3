//! A Git server over SSH on loopback: OpenSSH's `sshd`, one process per connection, as the current user, with fault
//! injection.
//!
//! Invariant: users and groups come from the server's own files, through `nss_wrapper`. So it does not matter whether
//! the machine has a user `git` or a different shell.

use std::{
    fs::{self, File},
    net::SocketAddr,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// An injected fault of the server.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The server closes the connection after this many bytes.
    CutAfter(usize),
    /// The server sends nothing more after this many bytes, and keeps the connection open.
    StallAfter(usize),
    /// The server sends these bytes without reading, and keeps the connection open.
    Say(Vec<u8>),
}

#[derive(Default)]
struct Levers {
    fault: Option<Fault>,
    connections: usize,
    ended: usize,
    bytes_out: usize,
}

struct Shared {
    room: TempDir,
    levers: Mutex<Levers>,
    restarts: tokio::sync::watch::Sender<usize>,
}

/// A running server. The server stops when this value is dropped.
pub struct SshServer {
    address: SocketAddr,
    root: PathBuf,
    shared: Arc<Shared>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl SshServer {
    /// Serves the repositories in `root` on a free port of loopback.
    pub async fn start(root: &Path) -> Self {
        Self::on(root, "127.0.0.1:0").await
    }

    /// Serves on port 22, at an unused loopback address.
    pub async fn start_on_port_22(root: &Path) -> Self {
        let unique = std::process::id() % 250;
        for last in 1..250 {
            let address = format!("127.77.{unique}.{last}:22");
            match TcpListener::bind(&address).await {
                Ok(listener) => return Self::serve(root, listener),
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
                Err(error) => panic!(
                    "port 22 of loopback cannot be used ({error}); as root: sysctl net.ipv4.ip_unprivileged_port_start=22"
                ),
            }
        }
        panic!(
            "127.77.{unique}.0/24:22: all addresses are in use; does a server of this machine listen on 0.0.0.0:22?"
        );
    }

    /// Adds a user `git`.
    pub fn add_git(&self) {
        self.write_users(&[USER, "git"]);
    }

    /// Writes the users for `sshd`. All users who can log in are aliases of the current user.
    fn write_users(&self, names: &[&str]) {
        let room = fs::metadata(self.shared.room.path()).unwrap();
        let mut users = "root:x:0:0::/:/bin/sh\nsshd:x:65534:65534::/run/sshd:/bin/false\n".to_owned();
        for name in names {
            users += &format!("{name}:x:{}:{}::{}:/bin/sh\n", room.uid(), room.gid(), self.root.display());
        }
        fs::write(self.path("passwd"), users).unwrap();
        fs::write(self.path("group"), format!("root:x:0:\nsshd:x:65534:\n{USER}:x:{}:\n", room.gid())).unwrap();
    }

    /// Returns the server's loopback address.
    pub fn ip(&self) -> std::net::IpAddr {
        self.address.ip()
    }

    async fn on(root: &Path, address: &str) -> Self {
        Self::serve(root, TcpListener::bind(address).await.unwrap())
    }

    fn serve(root: &Path, listener: TcpListener) -> Self {
        check_nss_wrapper();
        // `sshd` requires this directory if it runs as root.
        let _ = fs::create_dir_all("/run/sshd");
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            room: tempfile::tempdir().unwrap(),
            levers: Mutex::default(),
            restarts: tokio::sync::watch::Sender::new(0),
        });
        let taken = Arc::clone(&shared);
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(Arc::clone(&taken), stream));
            }
        });
        let server = Self { address, root: root.to_owned(), shared, serving };
        server.write_users(&[USER]);
        server.rotate(&["ed25519", "ecdsa", "rsa"]);
        server.configure("AcceptEnv GIT_PROTOCOL");
        server
    }

    fn path(&self, name: &str) -> PathBuf {
        self.shared.room.path().join(name)
    }

    /// Closes all connections, like a restart of the machine.
    pub fn restart(&self) {
        self.shared.restarts.send_modify(|count| *count += 1);
    }

    fn configure(&self, more: &str) {
        self.restart();
        let room = self.shared.room.path().display();
        // The home directory contains no configuration for Git or the shell.
        let config = format!(
            "SetEnv HOME={room} GIT_CONFIG_NOSYSTEM=1\nUsePAM no\nStrictModes no\nAuthorizedKeysFile {room}/authorized_keys\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPermitRootLogin yes\nLogLevel VERBOSE\n{more}\n"
        );
        fs::write(self.path("config"), config).unwrap();
    }

    /// Limits the server to version 0 of the Git protocol.
    pub fn speak_version_zero(&self) {
        self.configure("");
    }

    /// Replaces the host keys of these kinds.
    pub fn rotate(&self, kinds: &[&str]) {
        self.restart();
        for kind in ["ed25519", "ecdsa", "rsa"] {
            let path = self.path(&format!("host_{kind}"));
            let _ = fs::remove_file(path.with_extension("pub"));
            let _ = fs::remove_file(&path);
            if kinds.contains(&kind) {
                // The default of 3072 bits takes several times as long.
                generate(&path, kind, if kind == "rsa" { &["-b", "2048"] } else { &[] });
            }
        }
    }

    /// Makes the host present a certificate of its ed25519 key from this CA, with these options of `ssh-keygen`.
    pub fn certify(&self, ca: &Path, options: &[&str]) {
        let key = self.path("host_ed25519.pub");
        let mut command = crate::isolated("ssh-keygen");
        command.arg("-q").arg("-s").arg(ca).args(["-I", "host"]).args(options).arg(&key);
        assert!(command.stdin(Stdio::null()).status().unwrap().success());
        let certificate = self.path("host_ed25519-cert.pub");
        self.configure(&format!("AcceptEnv GIT_PROTOCOL\nHostCertificate {}", certificate.display()));
    }

    /// Returns the host's public key of a kind.
    pub fn host_key(&self, kind: &str) -> String {
        fs::read_to_string(self.path(&format!("host_{kind}.pub"))).unwrap().trim().to_owned()
    }

    /// Returns the fingerprint of the host's key of a kind, as in `ssh-keygen -l`.
    pub fn fingerprint(&self, kind: &str) -> String {
        fingerprint(&self.path(&format!("host_{kind}.pub")))
    }

    /// Returns the server's name in `known_hosts`.
    pub fn name(&self) -> String {
        match self.address.port() {
            22 => self.address.ip().to_string(),
            port => format!("[{}]:{port}", self.address.ip()),
        }
    }

    /// Returns the output of `ssh-keyscan` for these kinds of keys.
    pub fn known_hosts(&self, kinds: &[&str]) -> String {
        let line = |kind: &&str| format!("{} {}\n", self.name(), self.host_key(kind));
        kinds.iter().map(line).collect::<Vec<_>>().concat()
    }

    /// Requires two keys from now on.
    pub fn want_two_keys(&self) {
        self.configure("AuthenticationMethods publickey,publickey");
    }

    /// Accepts only a password from now on.
    pub fn want_a_password(&self) {
        // The existing values are replaced, because the first value of a setting takes precedence.
        self.restart();
        let config = fs::read_to_string(self.path("config")).unwrap();
        let config = config.replace("PasswordAuthentication no", "PasswordAuthentication yes\nPubkeyAuthentication no");
        fs::write(self.path("config"), config).unwrap();
    }

    /// Limits the number of channels of a connection.
    pub fn allow_channels(&self, most: usize) {
        self.configure(&format!("AcceptEnv GIT_PROTOCOL\nMaxSessions {most}"));
    }

    /// Accepts this public key, only for Git.
    pub fn authorize(&self, public: &str) {
        self.authorize_for(public, "exec git-shell -c \\\"$SSH_ORIGINAL_COMMAND\\\"");
    }

    /// Accepts this public key, only for this command in the directory of the repositories.
    pub fn authorize_for(&self, public: &str, command: &str) {
        let command = format!("cd '{}' && {command}", self.root.display());
        let mut lines = fs::read_to_string(self.path("authorized_keys")).unwrap_or_default();
        lines.push_str(&format!("restrict,command=\"{command}\" {}\n", public.trim()));
        fs::write(self.path("authorized_keys"), lines).unwrap();
    }

    /// No longer accepts any key.
    pub fn authorize_nobody(&self) {
        self.restart();
        fs::write(self.path("authorized_keys"), "").unwrap();
    }

    /// Returns `ssh://<user>@127.0.0.1:<port>/<directory>/<name>`.
    pub fn url(&self, name: &str) -> String {
        format!("ssh://{USER}@{}{}/{name}", self.address, self.root.display())
    }

    /// Returns `<user>@127.….…:<name>`.
    pub fn scp(&self, name: &str) -> String {
        assert_eq!(self.address.port(), 22);
        format!("{USER}@{}:{name}", self.address.ip())
    }

    /// Returns the server's port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sets or removes the fault of connections.
    pub fn fail(&self, fault: impl Into<Option<Fault>>) {
        self.restart();
        self.shared.levers.lock().fault = fault.into();
    }

    /// Returns the number of connections since the last call.
    pub fn take_connections(&self) -> usize {
        std::mem::take(&mut self.shared.levers.lock().connections)
    }

    /// Returns the number of closed connections.
    pub fn ended(&self) -> usize {
        self.shared.levers.lock().ended
    }

    /// Returns the log of `sshd`.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Returns the number of bytes that were sent to clients since the last call, including the SSH protocol.
    pub fn take_bytes(&self) -> usize {
        std::mem::take(&mut self.shared.levers.lock().bytes_out)
    }
}

/// The user name with which clients log in as the current user.
pub const USER: &str = "tester";

/// The library of Debian's package libnss-wrapper.
const NSS_WRAPPER: &str = "libnss_wrapper.so";

/// Fails if the library is missing. The linker would only warn, and `sshd` would use the machine's users.
fn check_nss_wrapper() {
    let said = crate::isolated("sh").args(["-c", ":"]).env("LD_PRELOAD", NSS_WRAPPER).output().unwrap().stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.is_empty(), "`nss_wrapper` is installed (apt-get install libnss-wrapper): {said}");
}

/// Creates a key pair with `ssh-keygen` in the file `path` and in the same path with the suffix `.pub`.
pub fn generate(path: &Path, kind: &str, more: &[&str]) {
    let mut command = crate::isolated("ssh-keygen");
    command.args(["-q", "-t", kind, "-C", "test", "-f"]).arg(path).args(more);
    if !more.contains(&"-N") {
        command.args(["-N", ""]);
    }
    let made = command.stdin(Stdio::null()).status();
    assert!(made.expect("`ssh-keygen` is installed (apt-get install openssh-client)").success());
}

/// Returns the fingerprint of a public key file, as `ssh-keygen -l` prints it.
pub fn fingerprint(path: &Path) -> String {
    let output = crate::isolated("ssh-keygen").arg("-lf").arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut words = text.split_whitespace();
    let (fingerprint, kind) = (words.nth(1).unwrap(), words.next_back().unwrap());
    format!("{fingerprint} {kind}")
}

async fn answer(shared: Arc<Shared>, stream: TcpStream) {
    let mut restarts = shared.restarts.subscribe();
    tokio::select! {
        () = serve(&shared, stream) => {}
        _ = restarts.changed() => {}
    }
    shared.levers.lock().ended += 1;
}

async fn serve(shared: &Shared, mut stream: TcpStream) {
    let fault = {
        let mut levers = shared.levers.lock();
        levers.connections += 1;
        levers.fault.clone()
    };
    if let Some(Fault::Say(words)) = &fault {
        let _ = stream.write_all(words).await;
        // Keeps the connection open until the client closes it.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        return;
    }
    let Ok((mine, theirs)) = tokio::net::UnixStream::pair() else { return };
    let theirs: OwnedFd = theirs.into_std().unwrap().into();
    let room = shared.room.path();
    let mut command = crate::isolated_async("/usr/sbin/sshd");
    command.arg("-i").arg("-e").arg("-f").arg(room.join("config"));
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let path = room.join(format!("host_{kind}"));
        if path.exists() {
            command.arg("-h").arg(path);
        }
    }
    command.env("LD_PRELOAD", NSS_WRAPPER);
    command.env("NSS_WRAPPER_PASSWD", room.join("passwd")).env("NSS_WRAPPER_GROUP", room.join("group"));
    set_blocking(&theirs);
    let log = File::options().append(true).create(true).open(room.join("log")).unwrap();
    command.stdin(theirs.try_clone().unwrap()).stdout(theirs).stderr(log).kill_on_drop(true);
    let mut child = command.spawn().expect("`sshd` is installed (apt-get install openssh-server)");
    drop(command);
    let (mut from_sshd, mut to_sshd) = mine.into_split();
    let (mut from_client, mut to_client) = stream.into_split();
    // The tasks end with the connection.
    let mut forward = tokio::task::JoinSet::new();
    forward.spawn(async move {
        let _ = tokio::io::copy(&mut from_client, &mut to_sshd).await;
    });
    let mut left = match fault {
        Some(Fault::CutAfter(bytes) | Fault::StallAfter(bytes)) => bytes,
        _ => usize::MAX,
    };
    let mut piece = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from_sshd.read(&mut piece).await {
        let sent = length.min(left);
        left -= sent;
        shared.levers.lock().bytes_out += sent;
        if to_client.write_all(&piece[..sent]).await.is_err() {
            break;
        }
        if left == 0 {
            if matches!(fault, Some(Fault::StallAfter(_))) {
                let _ = forward.join_next().await;
            }
            return;
        }
    }
    let _ = to_client.shutdown().await;
    forward.abort_all();
    let _ = child.wait().await;
}

/// Makes a socket blocking, as `sshd` expects. Sockets of the runtime are non-blocking.
fn set_blocking(socket: &OwnedFd) {
    std::os::unix::net::UnixStream::from(socket.try_clone().unwrap()).set_nonblocking(false).unwrap();
}
