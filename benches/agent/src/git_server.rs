//! A Git server over HTTP on loopback that counts what it is asked and what it answers: `git upload-pack` behind the two
//! addresses of the smart protocol.
//!
//! Deliberately absent: pushes, authentication, and every protocol but version 2, which is what Mainstay and every Git
//! since 2018 speak.

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path as UrlPath, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    process::Command,
    task::JoinHandle,
};

use super::Error;

/// Serves the repositories of a directory until it is dropped.
pub(super) struct GitServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    directory: PathBuf,
    lookups: AtomicU64,
    fetches: AtomicU64,
    bytes: AtomicU64,
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Questions for references.
    pub lookups: u64,
    /// Requests for objects.
    pub fetches: u64,
    /// Bytes of the bodies that were answered.
    pub bytes: u64,
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl GitServer {
    /// Serves the repositories in this directory, by their names there.
    pub(super) async fn start(directory: &Path) -> Result<Self, Error> {
        let shared = Shared { directory: directory.to_owned(), lookups: 0.into(), fetches: 0.into(), bytes: 0.into() };
        let shared = Arc::new(shared);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::Start)?;
        let address = listener.local_addr().map_err(Error::Start)?;
        let router = Router::new()
            .route("/{name}/info/refs", get(advertise))
            .route("/{name}/git-upload-pack", post(answer))
            .with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            // It ends with the measurement.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, shared, serving })
    }

    /// Address of a repository.
    pub(super) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// What was asked until now.
    pub(super) fn asked(&self) -> Asked {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Asked {
            lookups: read(&self.shared.lookups),
            fetches: read(&self.shared.fetches),
            bytes: read(&self.shared.bytes),
        }
    }
}

impl Asked {
    /// What came after `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            lookups: self.lookups - earlier.lookups,
            fetches: self.fetches - earlier.fetches,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
        let (lookups, fetches) = (plural(self.lookups, "lookup", "lookups"), plural(self.fetches, "fetch", "fetches"));
        write!(f, "{lookups} and {fetches} at the Git server")
    }
}

async fn advertise(State(shared): State<Arc<Shared>>, UrlPath(name): UrlPath<String>) -> Response {
    respond(shared, &name, &["--advertise-refs"], Bytes::new(), "advertisement").await
}

async fn answer(State(shared): State<Arc<Shared>>, UrlPath(name): UrlPath<String>, body: Bytes) -> Response {
    let asks = |command: &[u8]| body.windows(command.len()).any(|window| window == command);
    if asks(b"command=ls-refs") {
        shared.lookups.fetch_add(1, Ordering::Relaxed);
    } else if asks(b"command=fetch") {
        shared.fetches.fetch_add(1, Ordering::Relaxed);
    }
    respond(shared, &name, &[], body, "result").await
}

async fn respond(shared: Arc<Shared>, name: &str, options: &[&str], body: Bytes, kind: &str) -> Response {
    match upload_pack(shared, name, options, body).await {
        Ok(output) => {
            let kind = format!("application/x-git-upload-pack-{kind}");
            ([(header::CONTENT_TYPE, kind)], output).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The answer is passed on as it comes: a pack may be larger than the memory.
async fn upload_pack(shared: Arc<Shared>, name: &str, options: &[&str], body: Bytes) -> std::io::Result<Body> {
    let mut command = Command::new("git");
    command.arg("upload-pack").arg("--stateless-rpc").args(options).arg(shared.directory.join(name));
    command.env("GIT_PROTOCOL", "version=2").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let broken = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    let (mut input, output) = (child.stdin.take().ok_or_else(broken)?, child.stdout.take().ok_or_else(broken)?);
    // Whoever ends early does not read what it was sent.
    let _ = input.write_all(&body).await;
    drop(input);
    let pieces = futures::stream::try_unfold((child, output, shared), async |(child, mut output, shared)| {
        let mut piece = BytesMut::with_capacity(64 << 10);
        let length = output.read_buf(&mut piece).await?;
        shared.bytes.fetch_add(length as u64, Ordering::Relaxed);
        Ok::<_, std::io::Error>((length > 0).then(|| (piece.freeze(), (child, output, shared))))
    });
    Ok(Body::from_stream(pieces))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit;

    #[tokio::test]
    async fn serves_a_clone_and_counts_it() {
        let folder = tempfile::tempdir().unwrap();
        let origin = folder.path().join("origin");
        std::fs::create_dir_all(&origin).unwrap();
        commit::init(&origin).unwrap();
        std::fs::write(origin.join("a.txt"), "1").unwrap();
        commit::everything(&origin, "one").unwrap();
        let server = GitServer::start(folder.path()).await.unwrap();
        let before = server.asked();
        let mut clone = Command::new("git");
        clone.args(["clone", "--quiet", "--depth=1", &server.url("origin"), "clone"]);
        let clone = clone.env("GIT_CONFIG_NOSYSTEM", "1").current_dir(folder.path()).status().await;
        assert!(clone.expect("`git` is installed (apt-get install git)").success());
        assert!(folder.path().join("clone/a.txt").exists());
        let asked = server.asked().since(before);
        assert_eq!(asked.to_string(), "1 lookup and 1 fetch at the Git server");
        assert!(asked.bytes > 100, "{asked:?}");
    }
}
