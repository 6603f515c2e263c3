//! A TCP port in front of a server on a Unix socket. Other users cannot open the socket, because they have no access to
//! its directory.
//!
//! Invariant: each request is checked, including later requests on a connection, because a browser may use one
//! connection for several pages.
//! Invariant: the port of [`Front::following`] is open only while the server is listening.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::listener::{Listener, Reach};
use super::web;

/// Interval between attempts to connect to the server.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum wait of a client while the server starts.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum time to receive the head of a request.
const HEAD: Duration = Duration::from_secs(30);

/// Returns whether requests for a host other than this machine are accepted.
type Known = dyn Fn(&str) -> bool + Send + Sync;
type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// A relaying port, which closes when this value is dropped.
#[derive(Debug)]
pub struct Front {
    task: JoinHandle<()>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Shared {
    socket: PathBuf,
    is_known: Box<Known>,
}

impl Front {
    /// Relays the connections of a listener. A request waits up to 10 s until a server is listening on the socket.
    pub fn waiting(listener: Listener, socket: PathBuf) -> Self {
        web::begin();
        let shared = Arc::new(Shared { socket, is_known: Box::new(|_| false) });
        let task = async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => _ = tokio::spawn(relay(Arc::clone(&shared), stream, PATIENCE)),
                    Err(error) => pause(&error).await,
                }
            }
        };
        Self { task: tokio::spawn(task) }
    }

    /// Listens on an address of this machine while a server is listening on the socket. Requests for hosts other than
    /// this machine are accepted if `is_known` accepts the host.
    pub fn following(
        address: SocketAddr,
        socket: PathBuf,
        is_known: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        web::begin();
        let shared = Arc::new(Shared { socket, is_known: Box::new(is_known) });
        let task = async move {
            loop {
                while UnixStream::connect(&shared.socket).await.is_err() {
                    sleep(LOOK).await;
                }
                match Listener::bind(address, Reach::SameUser) {
                    Ok(listener) => follow(&shared, &listener).await,
                    Err(error) => pause(&error).await,
                }
            }
        };
        Self { task: tokio::spawn(task) }
    }
}

/// Relays connections until the server has stopped.
async fn follow(shared: &Arc<Shared>, listener: &Listener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if UnixStream::connect(&shared.socket).await.is_err() {
                    return;
                }
                tokio::spawn(relay(Arc::clone(shared), stream, Duration::ZERO));
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn pause(error: &io::Error) {
    tracing::warn!(%error, "a local port could not accept a connection");
    sleep(Duration::from_millis(50)).await;
}

/// Relays a connection request by request, over one connection to the server.
async fn relay(shared: Arc<Shared>, mut stream: TcpStream, patience: Duration) {
    let _ = stream.set_nodelay(true);
    let sender = Arc::new(Mutex::new(None));
    let answering = service_fn(move |request: Request<Incoming>| {
        let (shared, sender) = (Arc::clone(&shared), Arc::clone(&sender));
        let has_body = !request.body().is_end_stream();
        async move {
            let response = answer(&shared, &sender, patience, request).await;
            Ok::<_, Infallible>(super::last_of_connection(has_body, response))
        }
    });
    let mut builder = Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).half_close(true);
    // The connection has ended, with or without an error.
    let _ = builder.serve_connection(TokioIo::new(&mut stream), answering).await;
    super::finish(stream).await;
}

async fn answer(
    shared: &Shared,
    sender: &Mutex<Option<SendRequest<Incoming>>>,
    patience: Duration,
    mut request: Request<Incoming>,
) -> Response<Body> {
    if let Err(refusal) = web::judge(request.method(), request.uri(), request.headers(), &shared.is_known) {
        return said(StatusCode::FORBIDDEN, &format!("{refusal}\n"));
    }
    web::unmark(request.headers_mut());
    let mut sender = sender.lock().await;
    let is_open = match sender.as_mut() {
        Some(sender) => sender.ready().await.is_ok(),
        None => false,
    };
    if !is_open {
        *sender = connect(shared, patience).await;
    }
    let Some(sender) = sender.as_mut() else {
        return said(StatusCode::BAD_GATEWAY, "the server behind this port does not run; its log says why\n");
    };
    match sender.send_request(request).await {
        Ok(answer) => answer.map(BodyExt::boxed_unsync),
        Err(_) => {
            said(StatusCode::BAD_GATEWAY, "the server behind this port exited before it responded; its log says why\n")
        }
    }
}

async fn connect(shared: &Shared, patience: Duration) -> Option<SendRequest<Incoming>> {
    let end = Instant::now() + patience;
    loop {
        if let Ok(stream) = UnixStream::connect(&shared.socket).await {
            let (sender, connection) = timeout(HEAD, handshake(TokioIo::new(stream))).await.ok()?.ok()?;
            // This task ends together with the client's connection.
            tokio::spawn(connection);
            return Some(sender);
        }
        if Instant::now() >= end {
            return None;
        }
        sleep(LOOK).await;
    }
}

fn said(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;

    use super::*;

    /// Returns the response to a request, read until the connection ends.
    async fn ask(address: SocketAddr, head: &str) -> Option<String> {
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        Some(text)
    }

    /// Starts a server that responds to each connection with the head that it received.
    fn echo(listener: UnixListener) -> JoinHandle<()> {
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut head = vec![0; 4096];
                    let Ok(read @ 1..) = stream.read(&mut head).await else { return };
                    let text = String::from_utf8_lossy(&head[..read]).into_owned();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}", text.len());
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        })
    }

    #[tokio::test]
    async fn a_request_waits_for_the_server_and_foreign_pages_are_refused() {
        let room = tempfile::tempdir().unwrap();
        let socket = room.path().join("s");
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Reach::SameUser).unwrap();
        let at = listener.local_addr().unwrap();
        let _front = Front::waiting(listener, socket.clone());
        let asked = tokio::spawn(ask(at, "GET /a?b HTTP/1.1\r\nHost: localhost\r\nX-Loopback-Judged: me"));
        let server = echo(UnixListener::bind(&socket).unwrap());
        let answer = asked.await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("GET /a?b HTTP/1.1"), "{answer}");
        assert!(!answer.contains("judged"), "{answer}");
        for (head, expected) in [
            ("GET / HTTP/1.1\r\nHost: evil.example", "DNS rebinding"),
            ("POST / HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\nContent-Length: 0", "another site"),
        ] {
            let answer = ask(at, head).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 403") && answer.contains(expected), "{answer}");
        }
        server.abort();
    }

    #[tokio::test]
    async fn the_port_is_there_while_the_server_is() {
        let room = tempfile::tempdir().unwrap();
        let socket = room.path().join("s");
        // With an ephemeral port, a client would sooner or later connect to itself.
        let [.., high, low] = std::process::id().to_be_bytes();
        let at = SocketAddr::from(([127, 253, high, low], 8080));
        let _front = Front::following(at, socket.clone(), |host| host == "shop");
        assert!(TcpStream::connect(at).await.is_err());
        let server = echo(UnixListener::bind(&socket).unwrap());
        let answers = async || {
            loop {
                if let Some(answer) = ask(at, "GET / HTTP/1.1\r\nHost: shop").await {
                    break answer;
                }
                tokio::task::yield_now().await;
            }
        };
        assert!(answers().await.starts_with("HTTP/1.1 200"));
        server.abort();
        let _ = server.await;
        while let Ok(mut stream) = TcpStream::connect(at).await {
            let _ = stream.read(&mut [0]).await;
        }
    }
}
