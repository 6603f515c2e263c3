//! Docker's registry as a process. It can use TLS and a password, have a full volume, or be killed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpSocket;
use tokio::process::Child;

/// User name and password of registries with authentication.
pub const USER: &str = "builder";
pub const PASSWORD: &str = "sesame-5f2";
/// A host for which a registry with TLS has a certificate, besides `127.0.0.1`. At it, the user `AWS` has the same
/// password.
pub const ECR_HOST: &str = "123456789012.dkr.ecr.eu-west-1.amazonaws.com";
/// The password in Apache's password file format: bcrypt with few rounds.
const HASH: &str = "$2b$04$tSTRDEot/N2HJd5rGnQqiuTsd0I4HEZw35z8aANhHsJYkuEdLKbMu";
/// Mounts a private file system of `$1` bytes at `$2`, which ends with the process, and runs the remaining arguments
/// there.
const ON_VOLUME: &str = "mount -t tmpfs -o size=$1 tmpfs \"$2\" && shift 2 && exec \"$@\"";

/// How the registry is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Over plain HTTP, without authentication.
    Plainly,
    /// Over TLS with a private CA, for [`USER`].
    Safely,
}

/// Docker's registry. The process is killed when this value is dropped.
pub struct DockerRegistry {
    address: SocketAddr,
    #[expect(dead_code, reason = "its port stays that of the registry")]
    reserved: TcpSocket,
    /// The registry's CA certificate in PEM format.
    authority: String,
    directory: tempfile::TempDir,
    /// The size in bytes of the registry's own volume, if it has one.
    volume: Option<u64>,
    process: Child,
}

impl DockerRegistry {
    pub async fn start(served: Served) -> Self {
        let htpasswd = format!("{USER}:{HASH}\nAWS:{HASH}\n");
        let htpasswd = (served == Served::Safely).then_some(&*htpasswd);
        Self::listening(served, htpasswd, None, true).await
    }

    /// Serves plain HTTP without authentication. With `deletes`, requests that delete images are allowed.
    pub async fn deleting(deletes: bool) -> Self {
        Self::listening(Served::Plainly, None, None, deletes).await
    }

    /// Serves plain HTTP without authentication, with its images on a file system of this size in bytes.
    pub async fn on_volume(bytes: u64) -> Self {
        Self::listening(Served::Plainly, None, Some(bytes), true).await
    }

    async fn listening(served: Served, htpasswd: Option<&str>, volume: Option<u64>, deletes: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let mut configuration = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\n  delete: {{enabled: {deletes}}}\n",
            path("images")
        );
        let mut authority = String::new();
        let mut http = String::from("http:\n  addr: ADDRESS\n");
        if served == Served::Safely {
            authority = certificates(directory.path());
            http += &format!("  tls: {{certificate: {}, key: {}}}\n", path("server.pem"), path("key.pem"));
        }
        if let Some(htpasswd) = htpasswd {
            std::fs::write(path("htpasswd"), htpasswd).unwrap();
            configuration += &format!("auth: {{htpasswd: {{realm: tests, path: {}}}}}\n", path("htpasswd"));
        }
        std::fs::write(path("config.yml"), configuration + &http).unwrap();
        std::fs::create_dir(path("images")).unwrap();
        let (reserved, address) = reserve();
        let process = serve(directory.path(), address, volume).await;
        Self { address, reserved, authority, directory, volume, process }
    }

    /// Returns `127.0.0.1:PORT`, as in image names.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Returns the CA certificate in PEM format.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the directory with the CA certificate, in the format of skopeo.
    pub fn certificates(&self) -> String {
        self.directory.path().join("authorities").display().to_string()
    }

    /// Returns the directory of the registry's images.
    pub fn images(&self) -> PathBuf {
        let images = self.directory.path().join("images");
        match self.process.id().filter(|_| self.volume.is_some()) {
            // The mount of the volume is visible only in the mount namespace of the registry's process.
            Some(id) => PathBuf::from(format!("/proc/{id}/root{}", images.display())),
            None => images,
        }
    }

    /// Fills the registry's volume so that this many bytes remain.
    pub fn leave(&self, bytes: u64) {
        use std::io::Write as _;
        let ballast = self.images().join("ballast");
        let mut file = std::fs::File::create(&ballast).unwrap();
        let size = self.volume.expect("its volume is a file system of its own");
        let piece = vec![0; 64 << 10];
        let mut written = 0;
        while written < size {
            match file.write(&piece) {
                Ok(0) | Err(_) => break,
                Ok(more) => written += more as u64,
            }
        }
        file.set_len(written.saturating_sub(bytes)).unwrap();
    }

    /// Frees the space on the volume again.
    pub fn make_room(&self) {
        std::fs::remove_file(self.images().join("ballast")).unwrap();
    }

    /// Kills the registry with SIGKILL.
    pub async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }

    /// Starts it again with an address that it notifies of pushes.
    pub async fn notify(&mut self, url: &str) {
        self.kill().await;
        let path = self.directory.path().join("config.yml");
        let configuration = std::fs::read_to_string(&path).unwrap();
        let endpoint = format!("{{name: tests, url: '{url}', timeout: 5s, threshold: 1, backoff: 1s}}");
        std::fs::write(path, format!("{configuration}notifications: {{endpoints: [{endpoint}]}}\n")).unwrap();
        self.restart().await;
    }

    /// Starts the registry again after [`kill`](Self::kill), with the same address and images.
    pub async fn restart(&mut self) {
        self.process = serve(self.directory.path(), self.address, self.volume).await;
    }
}

/// Returns a free port of loopback, and the socket that reserves it. The socket does not listen, and both it and the
/// registry set `SO_REUSEADDR`, so the registry can listen there. No other socket gets the port as a free one, also while
/// the registry is killed.
fn reserve() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Runs the registry with the configuration of a directory, and waits until it listens.
async fn serve(directory: &Path, address: SocketAddr, volume: Option<u64>) -> Child {
    let path = |name: &str| directory.join(name).display().to_string();
    let configuration = std::fs::read_to_string(path("config.yml")).unwrap();
    std::fs::write(path("now.yml"), configuration.replace("ADDRESS", &address.to_string())).unwrap();
    let mut command = match volume {
        None => crate::isolated_async("docker-registry"),
        Some(bytes) => {
            let mut command = crate::isolated_async("unshare");
            command.args(["--map-root-user", "--mount", "sh", "-c", ON_VOLUME, "sh"]);
            command.args([&bytes.to_string(), &path("images"), "docker-registry"]);
            command
        }
    };
    let mut process = command
        .args(["serve", &path("now.yml")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("`docker-registry` is installed (apt-get install docker-registry)");
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let listening = async {
        let mut said = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("listening on ") {
                return;
            }
            said.push(line);
        }
        panic!("docker-registry ended (a volume of its own needs user namespaces): {said:#?}");
    };
    tokio::time::timeout(crate::PATIENCE, listening).await.expect("it listens in time");
    // Reads further lines, so that the process does not block on a full pipe.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    process
}

/// Writes a key and a certificate for 127.0.0.1 and [`ECR_HOST`], and returns the CA certificate in PEM format.
fn certificates(directory: &Path) -> String {
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "private authority");
    let key = rcgen::KeyPair::generate().unwrap();
    let authority = parameters.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(parameters, key);
    let server = rcgen::CertificateParams::new(["127.0.0.1", ECR_HOST].map(str::to_owned)).unwrap();
    let server_key = rcgen::KeyPair::generate().unwrap();
    let certificate = server.signed_by(&server_key, &issuer).unwrap();
    std::fs::write(directory.join("server.pem"), certificate.pem()).unwrap();
    std::fs::write(directory.join("key.pem"), server_key.serialize_pem()).unwrap();
    std::fs::create_dir(directory.join("authorities")).unwrap();
    std::fs::write(directory.join("authorities/ca.crt"), authority.pem()).unwrap();
    authority.pem()
}
