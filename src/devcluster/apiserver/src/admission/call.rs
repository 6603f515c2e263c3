//! Calls a webhook: connects unless a connection is open, posts the review and reads the response, within time and size
//! limits.
//!
//! Invariant: a call always ends at its deadline, and reads no more than its limit.
//! Invariant: a URL that the embedder refuses is neither resolved nor connected to.
//!
//! Not here: proxies.

use super::{
    Answer, WebhookCall,
    kept::{Kept, Sender, Whom},
    review, trust,
};
use crate::{server::Server, store::Key, verbs::text};
use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::net::TcpStream;

/// Maximum size of a response, in bytes.
const MAX_ANSWER: usize = 3 << 20;
/// Maximum size of the quoted part of a response, in bytes.
const MAX_QUOTED: usize = 2048;

/// Calls a webhook.
pub(super) async fn ask(server: &Server, webhook_call: &WebhookCall, uid: String) -> Answer {
    let mut review = webhook_call.review.clone();
    review["request"]["uid"] = uid.into();
    let place = Place::of(server, &webhook_call.client, webhook_call.timeout)
        .map_err(|why| format!("failed to call webhook: {why}"))?;
    let failed = |why: String| format!("failed to call webhook: Post \"{}\": {why}", place.shown);
    let limit = Duration::from_secs(webhook_call.timeout);
    let posted = tokio::time::timeout(limit, post(server.webhooks(), &place, review.to_string().into())).await;
    let Posted { code, plain, body } =
        posted.map_err(|_| failed("context deadline exceeded".to_owned()))?.map_err(|failure| match failure {
            Failure::Transport(why) => failed(why),
            Failure::Answer(why) => format!("failed to call webhook: {why}"),
        })?;
    if !(200..300).contains(&code) {
        // Only a body with a text media type is quoted.
        let text = String::from_utf8_lossy(&body[..body.len().min(MAX_QUOTED)]).trim().to_owned();
        let text = if plain { text } else { "unknown".to_owned() };
        return Err(format!("failed to call webhook: {}", unsuccessful(code, &text)));
    }
    review::read(&body, &review, webhook_call.mutating)
}

/// Returns the error for an unsuccessful status code.
fn unsuccessful(code: u16, text: &str) -> String {
    match code {
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => text.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        500.. => format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        _ => "the server rejected our request for an unknown reason".to_owned(),
    }
}

/// The response of a webhook.
struct Posted {
    code: u16,
    /// Whether the media type is text.
    plain: bool,
    body: Bytes,
}

enum Failure {
    /// No complete response arrived.
    Transport(String),
    /// The response could not be read completely, for example because it is too long.
    Answer(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Transport(error.to_string())
    }
}

/// The location of a webhook.
struct Place {
    /// The URL in errors.
    shown: String,
    /// The target of connections: a host and port, or a socket address set by the embedder.
    connect: Connect,
    /// The expected name in the certificate.
    name: ServerName<'static>,
    host: String,
    path: String,
    bundle: String,
}

enum Connect {
    Host(String, u16),
    Socket(SocketAddr),
}

impl Place {
    fn of(server: &Server, client: &Value, timeout: u64) -> Result<Self, String> {
        let bundle = text(client, "/caBundle").to_owned();
        let with_timeout =
            |path: &str| format!("{path}{}timeout={timeout}s", if path.contains('?') { '&' } else { '?' });
        let service = &client["service"];
        if service.is_null() {
            let url: Uri = text(client, "/url").parse().map_err(|_| "the URL cannot be read".to_owned())?;
            let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
            let port = url.port_u16().unwrap_or(443);
            let path = with_timeout(url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str));
            let authority = url.authority().map(ToString::to_string).unwrap_or_default();
            let name = ServerName::try_from(host.clone()).map_err(|_| "the host name cannot be read".to_owned())?;
            let shown = format!("https://{authority}{path}");
            if let Some(why) = server.webhook_refusal(&host, port) {
                return Err(format!("Post \"{shown}\": {why}"));
            }
            return Ok(Self { shown, connect: Connect::Host(host, port), name, host: authority, path, bundle });
        }
        let (namespace, name) = (text(service, "/namespace"), text(service, "/name"));
        let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
        let host = format!("{name}.{namespace}.svc");
        let path = with_timeout(&format!("/{}", text(service, "/path").trim_start_matches('/')));
        let shown = format!("https://{host}:{port}{path}");
        let unreachable = |why: String| format!("Post \"{shown}\": {why}");
        if server.store().get("services", &Key::new(namespace, name)).is_none() {
            return Err(unreachable(format!("service {name:?} not found")));
        }
        let socket = server.service_route(namespace, name, port);
        let socket = socket.ok_or_else(|| unreachable(format!("no endpoints available for service {name:?}")))?;
        let certified =
            ServerName::try_from(host.clone()).map_err(|_| unreachable("the host name cannot be read".to_owned()))?;
        let host = format!("{host}:{port}");
        Ok(Self { shown, connect: Connect::Socket(socket), name: certified, host, path, bundle })
    }
}

impl Place {
    fn whom(&self) -> Whom {
        let address = match &self.connect {
            Connect::Host(host, port) => format!("{host}:{port}"),
            Connect::Socket(socket) => socket.to_string(),
        };
        (address, self.name.to_str().into_owned(), self.bundle.clone())
    }
}

async fn connect(place: &Place) -> Result<TcpStream, Failure> {
    let connected = match &place.connect {
        Connect::Host(host, port) => TcpStream::connect((host.as_str(), *port)).await,
        Connect::Socket(socket) => TcpStream::connect(socket).await,
    };
    connected.map_err(|error| {
        let what = if error.kind() == io::ErrorKind::ConnectionRefused {
            "connection refused".to_owned()
        } else {
            error.to_string()
        };
        Failure::Transport(format!("dial tcp {}: connect: {what}", place.whom().0))
    })
}

/// Opens a connection and completes its handshake.
async fn open(kept: &Kept, place: &Place) -> Result<Sender, Failure> {
    let unknown = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    let trust = kept.trust(&place.bundle).ok_or_else(|| Failure::Transport(unknown.to_owned()))?;
    let stream = connect(place).await?;
    stream.set_nodelay(true)?;
    let connector = tokio_rustls::TlsConnector::from(trust);
    let stream = connector.connect(place.name.clone(), stream).await;
    let stream = stream.map_err(|error| Failure::Transport(trust::explain(&error)))?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(transport)?;
    // The task ends when its sender is dropped, when the webhook closes the connection, or on an error, which the
    // sender reports.
    tokio::spawn(connection);
    Ok(sender)
}

fn transport(error: hyper::Error) -> Failure {
    Failure::Transport(if error.is_incomplete_message() { "EOF".to_owned() } else { error.to_string() })
}

async fn post(kept: &Kept, place: &Place, body: Bytes) -> Result<Posted, Failure> {
    let whom = place.whom();
    // A kept connection may be closed by now. A request that was not sent on it is sent on a different connection. If
    // the connection ends just as it takes the request, hyper reports that its own task is gone, a "user" error.
    while let Some(mut sender) = kept.take(&whom, Instant::now()) {
        match sender.try_send_request(request(place, body.clone())?).await {
            Ok(response) => return answer(kept, whom, sender, response).await,
            Err(mut failed) => {
                let was_closed = failed.error().is_incomplete_message() || failed.error().is_user();
                if failed.take_message().is_none() && !was_closed {
                    return Err(transport(failed.into_error()));
                }
            }
        }
    }
    let mut sender = open(kept, place).await?;
    let response = sender.send_request(request(place, body)?).await.map_err(transport)?;
    answer(kept, whom, sender, response).await
}

fn request(place: &Place, body: Bytes) -> Result<Request<Full<Bytes>>, Failure> {
    Request::post(&place.path)
        .header(header::HOST, &place.host)
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .header(header::ACCEPT, "application/json, */*")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .map_err(|error| Failure::Transport(error.to_string()))
}

async fn answer(kept: &Kept, whom: Whom, sender: Sender, response: Response<Incoming>) -> Result<Posted, Failure> {
    let code = response.status().as_u16();
    let media = response.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let plain = media.is_some_and(|media| media.starts_with("text/"));
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
    let body = body.map_err(|error| Failure::Answer(format!("reading the answer: {error}")))?;
    kept.put(whom, Instant::now(), sender);
    Ok(Posted { code, plain, body: body.to_bytes() })
}
