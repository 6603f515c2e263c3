//! A Git server over HTTP on loopback that counts what it is asked: `git upload-pack` behind the two addresses of the
//! smart protocol.
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
    body::Bytes,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tokio::{io::AsyncWriteExt as _, net::TcpListener, process::Command, task::JoinHandle};

use super::Error;

/// Serves one repository until it is dropped.
pub(super) struct GitServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    directory: PathBuf,
    lookups: AtomicU64,
    fetches: AtomicU64,
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Questions for references.
    pub lookups: u64,
    /// Requests for objects.
    pub fetches: u64,
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl GitServer {
    /// Serves this repository.
    pub(super) async fn start(directory: &Path) -> Result<Self, Error> {
        let shared = Shared { directory: directory.to_owned(), lookups: 0.into(), fetches: 0.into() };
        let shared = Arc::new(shared);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::Start)?;
        let address = listener.local_addr().map_err(Error::Start)?;
        let router = Router::new()
            .route("/load.git/info/refs", get(advertise))
            .route("/load.git/git-upload-pack", post(answer))
            .with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            // It ends with the measurement.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, shared, serving })
    }

    /// Address of the repository.
    pub(super) fn url(&self) -> String {
        format!("http://{}/load.git", self.address)
    }

    /// What was asked until now.
    pub(super) fn asked(&self) -> Asked {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Asked { lookups: read(&self.shared.lookups), fetches: read(&self.shared.fetches) }
    }
}

impl Asked {
    /// What came after `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self { lookups: self.lookups - earlier.lookups, fetches: self.fetches - earlier.fetches }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
        let (lookups, fetches) = (plural(self.lookups, "lookup", "lookups"), plural(self.fetches, "fetch", "fetches"));
        write!(f, "{lookups} and {fetches} at the Git server")
    }
}

async fn advertise(State(shared): State<Arc<Shared>>) -> Response {
    respond(&shared, &["--advertise-refs"], Bytes::new(), "advertisement").await
}

async fn answer(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let asks = |command: &[u8]| body.windows(command.len()).any(|window| window == command);
    if asks(b"command=ls-refs") {
        shared.lookups.fetch_add(1, Ordering::Relaxed);
    } else if asks(b"command=fetch") {
        shared.fetches.fetch_add(1, Ordering::Relaxed);
    }
    respond(&shared, &[], body, "result").await
}

async fn respond(shared: &Shared, options: &[&str], body: Bytes, kind: &str) -> Response {
    match upload_pack(&shared.directory, options, &body).await {
        Ok(output) => {
            let kind = format!("application/x-git-upload-pack-{kind}");
            ([(header::CONTENT_TYPE, kind)], output).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn upload_pack(directory: &Path, options: &[&str], body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut command = Command::new("git");
    command.arg("upload-pack").arg("--stateless-rpc").args(options).arg(directory).env("GIT_PROTOCOL", "version=2");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let input = child.stdin.take();
    let write = async {
        if let Some(mut input) = input {
            // Whoever ends early does not read what it was sent.
            let _ = input.write_all(body).await;
        }
    };
    let ((), output) = tokio::join!(write, child.wait_with_output());
    Ok(output?.stdout)
}

#[cfg(test)]
mod tests {
    use super::{super::load::Load, *};

    #[tokio::test]
    async fn serves_a_clone_and_counts_it() {
        let folder = tempfile::tempdir().unwrap();
        Load::new(&folder.path().join("origin"), 2).unwrap();
        let server = GitServer::start(&folder.path().join("origin")).await.unwrap();
        let before = server.asked();
        let mut clone = Command::new("git");
        clone.args(["clone", "--quiet", "--depth=1", &server.url(), "clone"]);
        let clone = clone.env("GIT_CONFIG_NOSYSTEM", "1").current_dir(folder.path()).status().await;
        assert!(clone.expect("`git` is installed (apt-get install git)").success());
        assert!(folder.path().join("clone/function-0001/handler.js").exists());
        let asked = server.asked().since(before);
        assert_eq!(asked.to_string(), "1 lookup and 1 fetch at the Git server");
    }
}
