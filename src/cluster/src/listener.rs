//! An HTTP listener for untrusted clients: probes, scrapes, webhooks.
//!
//! Invariant: a client takes at most one of a bounded number of connections, for a bounded time, and a request head of
//! at most 16 KiB. If all connections are taken, a new client replaces the one that has been idle longest. Idle clients
//! therefore block no others. A client counts as idle, too, while a handler that [receives](receive) its body waits for it.
//! Invariant: a connection carries one request, unless connections are [kept](Limits::kept).
//! Invariant: a panic while a response is created ends only its connection, with the status 500.
//! Invariant: a client that is still sending when the response arrives can read the response: the rest of the request
//! body is read and dropped, up to 1 MiB.
//! Invariant: a listener that serves only the same user rejects requests of foreign web pages, and requests with a host
//! other than this machine or a Service.
//! Invariant: the timeout of the head includes the TLS handshake, and the first byte if that decides on TLS.
//!
//! Not here: certificates, and limits of bodies, which the handler sets.

mod connection;
mod limits;
mod places;
mod receiving;
mod silent;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::{Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::connection::{Answered, Connection, LONGEST_READ, Moving};
pub use self::limits::Limits;
pub use self::places::is_spare;
use self::places::{Place, Places};
use self::receiving::Carrier;
pub use self::receiving::{Receiving, receive};
use self::silent::Entry;
use loopback::{Listener, Reach, last_of_connection, web};
use mainstay_api::names::EVENTING_NAMESPACE;
use mainstay_object::failure::{Panicked, caught};

/// Maximum size of a request's head, and of a chunk that is read in one step.
const HEAD_BYTES: usize = 16 << 10;
/// Maximum number of a request's headers.
const HEADERS: usize = 64;
/// Maximum number of bytes that are read and dropped after a response.
const UNREAD_BYTES: u64 = 1 << 20;
/// Delay after a failed accept, for example without free file descriptors.
const AGAIN: Duration = Duration::from_millis(50);
/// The first byte of a TLS connection: the type of a handshake record.
const HANDSHAKE: u8 = 22;

/// Marks a request that came over TLS.
#[derive(Clone, Copy, Debug)]
struct Encrypted;

/// Whether a request came over TLS.
pub fn is_encrypted(head: &http::request::Parts) -> bool {
    head.extensions.get::<Encrypted>().is_some()
}

/// The connections that use TLS.
#[derive(Clone)]
enum Encryption {
    None,
    All(TlsAcceptor),
    /// Connections that begin with a handshake record.
    AsTheyBegin(TlsAcceptor),
}

/// Marks a request whose client presented a certificate that the listener trusts.
#[derive(Clone, Copy, Debug)]
struct ClientCertificate;

/// Whether the client of a request presented a certificate that the listener trusts.
pub fn has_certificate(head: &http::request::Parts) -> bool {
    head.extensions.get::<ClientCertificate>().is_some()
}

/// Responds to requests until `stop`. Errors of a connection end only that connection.
pub async fn serve<F, Answer, B>(listener: Listener, limits: Limits, answer: F, stop: CancellationToken)
where
    F: Fn(Request<Incoming>) -> Answer + Clone + Send + Sync + 'static,
    Answer: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Default + Send + 'static,
{
    serve_with(listener, Encryption::None, limits, answer, stop).await;
}

/// Same as `serve`, over TLS.
pub async fn serve_tls<F, Answer, B>(
    listener: Listener,
    tls: TlsAcceptor,
    limits: Limits,
    answer: F,
    stop: CancellationToken,
) where
    F: Fn(Request<Incoming>) -> Answer + Clone + Send + Sync + 'static,
    Answer: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Default + Send + 'static,
{
    serve_with(listener, Encryption::All(tls), limits, answer, stop).await;
}

/// Same as `serve`, over TLS for clients that begin with a handshake, and over plain HTTP for others. Handlers call
/// [`is_encrypted`].
pub async fn serve_either<F, Answer, B>(
    listener: Listener,
    tls: TlsAcceptor,
    limits: Limits,
    answer: F,
    stop: CancellationToken,
) where
    F: Fn(Request<Incoming>) -> Answer + Clone + Send + Sync + 'static,
    Answer: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Default + Send + 'static,
{
    serve_with(listener, Encryption::AsTheyBegin(tls), limits, answer, stop).await;
}

async fn serve_with<F, Answer, B>(
    listener: Listener,
    encryption: Encryption,
    limits: Limits,
    answer: F,
    stop: CancellationToken,
) where
    F: Fn(Request<Incoming>) -> Answer + Clone + Send + Sync + 'static,
    Answer: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Default + Send + 'static,
{
    let reach = listener.reach();
    let answer = move |request: Request<Incoming>| {
        let answered = judged(reach, &request).map(|()| answer(request));
        async move {
            match answered {
                Ok(answered) => answered.await,
                Err(refusal) => refused(&refusal),
            }
        }
    };
    let places = Places::new(&limits);
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let Some(accepted) = stop.run_until_cancelled(accept(&listener)).await else { break };
        let Some(Some(place)) = stop.run_until_cancelled(places.take()).await else { break };
        let end = stop.child_token();
        let entry = place.silent.enter(end.clone());
        let limits = if place.spare.is_some() { limits.of_spare() } else { limits };
        let connection =
            caught(accepted_connection(accepted, encryption.clone(), limits, answer.clone(), entry, end, place));
        tasks.spawn(connection.map(|ended| ended.unwrap_or_else(report)));
    }
    drop(listener);
    let ended = async { while tasks.join_next().await.is_some() {} };
    let _ = timeout(limits.farewell, ended).await;
}

/// Whether a request may be passed to the handler. A port that is open to all clients leaves this decision to its
/// handler.
fn judged<B>(reach: Reach, request: &Request<B>) -> Result<(), web::Refusal> {
    let is_service = |host: &str| {
        let namespace = host.split_once('.').map_or("", |(_, namespace)| namespace);
        web::is_in_cluster(host) || namespace == EVENTING_NAMESPACE
    };
    match reach {
        Reach::Anyone => Ok(()),
        Reach::SameUser => web::judge(request.method(), request.uri(), request.headers(), is_service),
    }
}

/// Returns the response to a rejected request. The reason is in a header, because the type of the body is generic.
fn refused<B: Default>(refusal: &web::Refusal) -> Response<B> {
    let mut response = Response::new(B::default());
    *response.status_mut() = StatusCode::FORBIDDEN;
    if let Ok(reason) = http::HeaderValue::from_str(&refusal.to_string()) {
        response.headers_mut().insert("x-refused", reason);
    }
    response
}

/// Logs a request whose handler panicked.
fn report(panicked: Panicked) {
    tracing::error!(reason = "InternalError", why = panicked.to_string(), "a request got no response");
}

fn internal_error<B: Default>(panicked: Panicked) -> Response<B> {
    report(panicked);
    let mut response = Response::new(B::default());
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

async fn accept(listener: &Listener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                if !matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted) {
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }
}

async fn accepted_connection<F, Answer, B>(
    stream: TcpStream,
    encryption: Encryption,
    limits: Limits,
    answer: F,
    entry: Entry,
    end: CancellationToken,
    place: Place,
) where
    F: Fn(Request<Incoming>) -> Answer,
    Answer: Future<Output = Response<B>>,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Default + 'static,
{
    let _ = stream.set_nodelay(true);
    let tls = async {
        match encryption {
            Encryption::None => Some(None),
            Encryption::All(tls) => Some(Some(tls)),
            Encryption::AsTheyBegin(tls) => {
                let mut first = [0];
                let seen = timeout(limits.head, stream.peek(&mut first)).await;
                matches!(seen, Ok(Ok(1))).then(|| (first[0] == HANDSHAKE).then_some(tls))
            }
        }
    };
    let Some(tls) = end.run_until_cancelled(tls).await.flatten() else { return };
    let known = Connection::new(limits, entry, end.clone());
    let stream = Moving { stream, connection: Arc::clone(&known) };
    let Some(tls) = tls else { return connection(stream, limits, answer, known, end, place).await };
    let shaken = end.run_until_cancelled(timeout(limits.head, tls.accept(stream))).await;
    if let Some(Ok(Ok(stream))) = shaken {
        let certificate = stream.get_ref().1.peer_certificates().map(|_| ClientCertificate);
        let answer = |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Encrypted);
            if let Some(certificate) = certificate {
                request.extensions_mut().insert(certificate);
            }
            answer(request)
        };
        connection(stream, limits, answer, known, end, place).await;
    }
}

async fn connection<S, F, Answer, B>(
    mut stream: S,
    limits: Limits,
    answer: F,
    known: Arc<Connection>,
    end: CancellationToken,
    place: Place,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Fn(Request<Incoming>) -> Answer,
    Answer: Future<Output = Response<B>>,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Default + 'static,
{
    let service = service_fn(|mut request: Request<Incoming>| {
        known.begin();
        request.extensions_mut().insert(Carrier(Arc::clone(&known)));
        if let Some(spare) = place.spare {
            request.extensions_mut().insert(spare);
        }
        let has_body = !request.body().is_end_stream();
        let answered = caught(async { answer(request).await });
        let known = Arc::clone(&known);
        answered.map(move |answered| {
            let response = last_of_connection(has_body, answered.unwrap_or_else(internal_error));
            Ok::<_, Infallible>(response.map(|body| Answered::new(body, known)))
        })
    });
    let mut http = http1::Builder::new();
    // This is also the timeout between two requests, and includes the end of the previous response. The deadline of the
    // connection is earlier for clients that do not read.
    let head = limits.kept.map_or(limits.head, |kept| kept.max(LONGEST_READ));
    http.timer(TokioTimer::new()).header_read_timeout(head).keep_alive(limits.kept.is_some());
    http.max_buf_size(HEAD_BYTES).max_headers(HEADERS);
    let is_answered = {
        let mut connection = pin!(http.serve_connection(TokioIo::new(&mut stream), service));
        // An error of a connection affects only its client.
        tokio::select! {
            _ = &mut connection => true,
            () = known.late() => false,
            () = end.cancelled() => {
                if known.is_busy() {
                    connection.as_mut().graceful_shutdown();
                    let _ = timeout(limits.farewell, connection).await;
                }
                false
            }
        }
    };
    if is_answered {
        known.drains();
        let _ = end.run_until_cancelled(timeout(limits.head, drain(stream))).await;
    }
    drop(place);
}

/// Ends the response, and reads and drops the bytes that the client still sends. Closing a socket with unread bytes
/// would reset the connection, and the client would lose the response.
async fn drain<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> io::Result<()> {
    stream.shutdown().await?;
    tokio::io::copy(&mut stream.take(UNREAD_BYTES), &mut tokio::io::sink()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Full};
    use parking_lot::Mutex;

    use super::*;

    /// Returns the status line of the response to a request for this path.
    async fn ask(address: std::net::SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    }

    /// Panics in the call for `/call`, and in the returned future for `/answer`.
    fn answer(request: Request<Incoming>) -> impl Future<Output = Response<Full<Bytes>>> + Send {
        let path = request.uri().path().to_owned();
        assert_ne!(path, "/call", "injected");
        async move {
            assert_ne!(path, "/answer", "injected");
            Response::new(Full::default())
        }
    }

    /// Sends a request on a connection and returns the status line of its response, which has no body.
    async fn ask_on(stream: &mut TcpStream) -> Option<String> {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.ok()?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.ok()?);
        }
        String::from_utf8(answer).unwrap().lines().next().map(str::to_owned)
    }

    #[tokio::test(start_paused = true)]
    async fn a_kept_connection_carries_many_requests_and_gives_way_to_a_new_client() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Reach::Anyone).unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let kept = Duration::from_secs(60);
        let limits = Limits { connections: 2, kept: Some(kept), ..Limits::default() };
        let serving = tokio::spawn(serve(listener, limits, answer, stop.clone()));
        let ok = Some("HTTP/1.1 200 OK".to_owned());
        let (mut first, mut second) =
            (TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap());
        for _ in 0..20 {
            assert_eq!((ask_on(&mut first).await, ask_on(&mut second).await), (ok.clone(), ok.clone()));
            tokio::time::sleep(kept * 3 / 4).await;
        }
        // Both connections are idle, the first one longer.
        let mut third = TcpStream::connect(address).await.unwrap();
        assert_eq!(ask_on(&mut third).await, ok);
        assert_eq!((ask_on(&mut first).await, ask_on(&mut second).await), (None, ok.clone()));
        tokio::time::sleep(kept * 2).await;
        assert_eq!(ask_on(&mut third).await, None, "it was silent for too long");
        stop.cancel();
        assert!(serving.await.is_ok());
    }

    #[tokio::test]
    async fn a_response_that_does_not_wait_for_the_body_announces_the_end_of_its_connection() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Reach::Anyone).unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let limits = Limits { kept: Some(Duration::from_secs(60)), ..Limits::default() };
        let answer = |request: Request<Incoming>| async move {
            let is_root = request.uri().path() == "/";
            let status = if is_root { StatusCode::OK } else { StatusCode::PAYLOAD_TOO_LARGE };
            let mut response = Response::new(Full::<Bytes>::default());
            *response.status_mut() = status;
            response
        };
        let serving = tokio::spawn(serve(listener, limits, answer, stop.clone()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        assert_eq!(ask_on(&mut stream).await.as_deref(), Some("HTTP/1.1 200 OK"), "and the connection is kept");
        stream.write_all(b"POST /large HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n").await.unwrap();
        let mut answered = vec![0; 1 << 10];
        let size = stream.read(&mut answered).await.unwrap();
        let answered = String::from_utf8(answered[..size].to_vec()).unwrap();
        assert!(answered.starts_with("HTTP/1.1 413 ") && answered.contains("connection: close"), "{answered}");
        stop.cancel();
        assert!(serving.await.is_ok());
    }

    #[tokio::test]
    async fn an_answer_that_is_being_written_is_not_interrupted() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Reach::Anyone).unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let (send, pieces) = tokio::sync::mpsc::channel::<Bytes>(1);
        let pieces = Arc::new(Mutex::new(Some(pieces)));
        let answer = move |_: Request<Incoming>| {
            let pieces = pieces.lock().take();
            async move {
                let whole = futures::stream::unfold(pieces, |pieces| async {
                    let mut pieces = pieces?;
                    let piece = pieces.recv().await?;
                    Some((Ok::<_, io::Error>(hyper::body::Frame::data(piece)), Some(pieces)))
                });
                Response::new(http_body_util::StreamBody::new(whole).boxed_unsync())
            }
        };
        let limits = Limits { connections: 1, kept: Some(Duration::from_secs(60)), ..Limits::default() };
        let serving = tokio::spawn(serve(listener, limits, answer, stop.clone()));
        let mut first = TcpStream::connect(address).await.unwrap();
        assert_eq!(ask_on(&mut first).await.as_deref(), Some("HTTP/1.1 200 OK"));
        let mut second = TcpStream::connect(address).await.unwrap();
        for _ in 0..100 {
            send.send(Bytes::from_static(b"x")).await.unwrap();
            // The response body: one byte as a chunk.
            let mut chunk = [0; 6];
            first.read_exact(&mut chunk).await.unwrap();
            assert_eq!(&chunk, b"1\r\nx\r\n");
        }
        drop(send);
        let mut end = [0; 5];
        first.read_exact(&mut end).await.unwrap();
        assert_eq!(&end, b"0\r\n\r\n");
        // The connection is idle now and is closed for a new client.
        assert_eq!(ask_on(&mut second).await.as_deref(), Some("HTTP/1.1 200 OK"));
        stop.cancel();
        assert!(serving.await.is_ok());
    }

    #[tokio::test]
    async fn a_client_that_is_still_sending_reads_its_answer() {
        for kept in [None, Some(Duration::from_secs(60))] {
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Reach::Anyone).unwrap();
            let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
            let limits = Limits { connections: 1, kept, ..Limits::default() };
            let serving = tokio::spawn(serve(listener, limits, answer, stop.clone()));
            let mut first = TcpStream::connect(address).await.unwrap();
            first.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").await.unwrap();
            let mut status = [0; 15];
            first.read_exact(&mut status).await.unwrap();
            assert_eq!(&status, b"HTTP/1.1 200 OK");
            for _ in 0..100 {
                first.write_all(&[b'x'; 10_000]).await.unwrap();
            }
            first.read_to_end(&mut Vec::new()).await.unwrap();
            // The connection has its response and is closed for a new client.
            let mut second = TcpStream::connect(address).await.unwrap();
            assert_eq!(ask_on(&mut second).await.as_deref(), Some("HTTP/1.1 200 OK"));
            drop(first);
            stop.cancel();
            assert!(serving.await.is_ok());
        }
    }

    #[tokio::test]
    async fn a_panic_ends_its_connection_and_no_other() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Reach::Anyone).unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let serving =
            tokio::spawn(serve(listener, Limits { connections: 1, ..Limits::default() }, answer, stop.clone()));
        for path in ["/call", "/answer"] {
            assert_eq!(ask(address, path).await, "HTTP/1.1 500 Internal Server Error");
            assert_eq!(ask(address, "/").await, "HTTP/1.1 200 OK", "after {path}");
        }
        // A request is in flight at the stop.
        let last = tokio::spawn(async move { ask(address, "/answer").await });
        last.await.unwrap();
        stop.cancel();
        assert!(serving.await.is_ok(), "the listener ends with the process only");
    }
}
