//! A Git server over HTTP that counts lookups, fetches and bytes: `git upload-pack` behind the two URLs of the smart
//! protocol.
//!
//! Not here: pushes, authentication, and protocol versions other than 2, which Mainstay and Git clients since 2018 use.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
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
    process::Command,
};

use super::{CountedReader, Counters, Counts, Error, Listening, increment};

/// Serves the repositories of a directory until it is dropped.
pub(crate) struct HttpServer {
    listening: Listening,
}

struct Served {
    directory: PathBuf,
    counters: Arc<Counters>,
}

impl HttpServer {
    /// Starts serving the repositories of a directory by their names.
    pub(crate) async fn start(directory: &Path) -> Result<Self, Error> {
        let directory = directory.to_owned();
        let listening = Listening::start(|listener, counters| async move {
            let router = Router::new()
                .route("/{name}/info/refs", get(advertise))
                .route("/{name}/git-upload-pack", post(answer))
                .with_state(Arc::new(Served { directory, counters }));
            // Ends with the benchmark.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { listening: listening.await? })
    }

    /// Returns the URL of a repository.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.listening.address)
    }

    /// Returns the counts so far.
    pub(crate) fn counts(&self) -> Counts {
        self.listening.counts()
    }
}

async fn advertise(State(served): State<Arc<Served>>, UrlPath(name): UrlPath<String>) -> Response {
    respond(served, &name, &["--advertise-refs"], Bytes::new(), "advertisement").await
}

async fn answer(State(served): State<Arc<Served>>, UrlPath(name): UrlPath<String>, body: Bytes) -> Response {
    let asks = |command: &[u8]| body.windows(command.len()).any(|window| window == command);
    if asks(b"command=ls-refs") {
        increment(&served.counters.lookups);
    } else if asks(b"command=fetch") {
        increment(&served.counters.fetches);
    }
    respond(served, &name, &[], body, "result").await
}

async fn respond(served: Arc<Served>, name: &str, options: &[&str], body: Bytes, kind: &str) -> Response {
    match upload_pack(&served, name, options, body).await {
        Ok(output) => {
            let kind = format!("application/x-git-upload-pack-{kind}");
            ([(header::CONTENT_TYPE, kind)], output).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Streams the response, because a pack may be larger than the memory.
async fn upload_pack(served: &Served, name: &str, options: &[&str], body: Bytes) -> io::Result<Body> {
    let mut command = Command::new("git");
    command.arg("upload-pack").arg("--stateless-rpc").args(options).arg(served.directory.join(name));
    command.env("GIT_PROTOCOL", "version=2").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
    let (mut input, reader) = (child.stdin.take().ok_or_else(broken)?, child.stdout.take().ok_or_else(broken)?);
    // A process that ends early does not read its input.
    let _ = input.write_all(&body).await;
    drop(input);
    let output = CountedReader { reader, counters: Arc::clone(&served.counters) };
    let pieces = futures::stream::try_unfold((child, output), async |(child, mut output)| {
        let mut piece = BytesMut::with_capacity(64 << 10);
        let length = output.read_buf(&mut piece).await?;
        Ok::<_, io::Error>((length > 0).then(|| (piece.freeze(), (child, output))))
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
        let server = HttpServer::start(folder.path()).await.unwrap();
        let before = server.counts();
        let mut clone = Command::new("git");
        clone.args(["clone", "--quiet", "--depth=1", &server.url("origin"), "clone"]);
        let clone = clone.env("GIT_CONFIG_NOSYSTEM", "1").current_dir(folder.path()).status().await;
        assert!(clone.expect("`git` is installed (apt-get install git)").success());
        assert!(folder.path().join("clone/a.txt").exists());
        let counts = server.counts().since(before);
        assert_eq!(counts.to_string(), "1 lookup and 1 fetch at the Git server");
        assert!(counts.bytes > 100, "{counts:?}");
    }
}
