//! Serves the cluster on a TCP port.
//!
//! Without a token, the server listens on loopback only. On loopback it accepts only connections of the same user and
//! requests for a loopback host. Requests with an `Origin` are always refused: web pages in a browser on this machine
//! must not reach the cluster. With a token, one port serves both TLS and plain HTTP. kubectl sends tokens over TLS
//! only, and image registry clients on loopback use plain HTTP.

use crate::{
    certificate::Certificate,
    server::{Server, equal},
    service::{self, Body, respond, stream::Connection},
    status::Status,
};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::{Request, Response, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use loopback::{Listener, Reach, web};
use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::{Semaphore, watch},
    task::JoinHandle,
    time::timeout,
};

/// Maximum time for a new connection to send its first byte, and for a TLS handshake.
const OPENING: Duration = Duration::from_secs(30);

/// Maximum size of a request's head and of a chunk of a body, in bytes.
const HEAD_BYTES: usize = 64 << 10;
/// Maximum number of concurrent connections, mostly watches. Further connections wait.
const CONNECTIONS: usize = 512;

/// A cluster that is being served. Dropping it closes the listener and all connections.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    certificate: Option<Certificate>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Serving {
    /// Returns the bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns a kubeconfig with this token. The kubeconfig uses TLS if the listener requires a token.
    pub fn kubeconfig(&self, token: Option<&str>) -> String {
        let cluster = match &self.certificate {
            None => format!("server: \"http://{}\"", self.address),
            Some(certificate) => {
                let trusted = BASE64_STANDARD.encode(certificate.pem());
                format!("server: \"https://{}\", certificate-authority-data: {trusted}", self.address)
            }
        };
        kubeconfig(&cluster, token)
    }

    /// Waits until the listener ends.
    pub async fn wait(mut self) {
        // An error means that the task was aborted, so it has ended.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.task.abort();
    }
}

/// The rules for accepting clients.
#[derive(Debug)]
struct Guard {
    token: Option<String>,
    loopback: bool,
    /// Present if there is a token.
    certificate: Option<Certificate>,
}

impl Guard {
    fn admit<B>(&self, server: &Server, request: &Request<B>) -> Result<(), Status> {
        let text = |name| request.headers().get(name).and_then(|v: &http::HeaderValue| v.to_str().ok());
        if request.headers().contains_key(header::ORIGIN) {
            return Err(Status::new(403, "Forbidden", "requests of web pages are not answered"));
        }
        if self.loopback && !web::is_this_machine(&web::host(request.headers(), request.uri())) {
            return Err(Status::new(403, "Forbidden", "only requests to a loopback host are answered"));
        }
        let Some(token) = &self.token else { return Ok(()) };
        let extended = server.extension(request.uri().path()).is_some();
        let given = text(header::AUTHORIZATION).unwrap_or_default();
        let bearer = given.strip_prefix("Bearer ").unwrap_or_default();
        // Image registry clients send a user name and password: any name, with the token as password.
        let password = given.strip_prefix("Basic ").filter(|_| extended);
        let password = password.and_then(password_of).unwrap_or_default();
        let bearer = bearer.trim();
        if equal(bearer.as_bytes(), token.as_bytes()) || equal(&password, token.as_bytes()) {
            return Ok(());
        }
        // The signature is enough here. Authentication checks expiry for all credentials.
        let signed = !extended && server.signer().is_some_and(|signer| signer.verify(bearer).is_some());
        if signed { Ok(()) } else { Err(Status::new(401, "Unauthorized", "Unauthorized")) }
    }
}

/// Decodes the password of basic authentication.
fn password_of(encoded: &str) -> Option<Vec<u8>> {
    let decoded = BASE64_STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}

impl Server {
    /// Serves the cluster.
    ///
    /// Fails if the address cannot be bound, or if it is not loopback and there is no token.
    #[expect(clippy::unused_async, reason = "it needs a runtime, which only a caller that waits is sure to have")]
    pub async fn serve(&self, listen: SocketAddr, token: Option<String>) -> io::Result<Serving> {
        let loopback = listen.ip().is_loopback();
        if !loopback && token.as_ref().is_none_or(String::is_empty) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "listening on an address that is not loopback needs a token",
            ));
        }
        let listener = Listener::bind(listen, Reach::of(listen))?;
        let address = listener.local_addr()?;
        if let Some(extension) = &self.options().extension {
            extension.listening(address);
        }
        if let Some(token) = &token {
            self.learn_token(token);
        }
        let (stop, stopped) = watch::channel(false);
        let certificate = token.is_some().then(|| Certificate::new(listen.ip())).transpose()?;
        let guard = Arc::new(Guard { token, loopback, certificate: certificate.clone() });
        let task = tokio::spawn(accept(self.clone(), listener, guard, stopped));
        Ok(Serving { address, certificate, stop, task })
    }

    /// Returns a kubeconfig for an address.
    pub fn kubeconfig(&self, address: SocketAddr, token: Option<&str>) -> String {
        kubeconfig(&format!("server: \"http://{address}\""), token)
    }
}

fn kubeconfig(cluster: &str, token: Option<&str>) -> String {
    let user = token.map_or_else(|| "{}".to_owned(), |token| format!("{{token: {token:?}}}"));
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: devcluster\nclusters:\n- name: devcluster\n  cluster: \
         {{{cluster}}}\nusers:\n- name: devcluster\n  user: {user}\ncontexts:\n- name: \
         devcluster\n  context: {{cluster: devcluster, user: devcluster}}\n"
    )
}

async fn accept(server: Server, listener: Listener, guard: Arc<Guard>, stopped: watch::Receiver<bool>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let opened = open(server.clone(), stream, guard.clone(), stopped.clone());
                tokio::spawn(async move {
                    opened.await;
                    drop(permit);
                });
            }
            // File descriptors ran out, or the client closed the connection immediately. The listener continues.
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

/// Detects TLS from the first byte of a connection and serves it.
async fn open(server: Server, stream: TcpStream, guard: Arc<Guard>, stopped: watch::Receiver<bool>) {
    // With Nagle's algorithm, small responses wait for acknowledgements.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps delaying small packets");
    }
    let Some(certificate) = &guard.certificate else { return connection(server, stream, guard, stopped).await };
    let mut first = [0];
    match timeout(OPENING, stream.peek(&mut first)).await {
        Ok(Ok(1)) if Certificate::begins(first[0]) => {
            match timeout(OPENING, certificate.acceptor().accept(stream)).await {
                Ok(Ok(stream)) => connection(server, stream, guard, stopped).await,
                Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
                Err(_) => tracing::debug!("a handshake took too long"),
            }
        }
        Ok(Ok(_)) => connection(server, stream, guard, stopped).await,
        Ok(Err(_)) | Err(_) => tracing::debug!("a connection ended before it said anything"),
    }
}

async fn connection<S>(server: Server, stream: S, guard: Arc<Guard>, mut stopped: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let place = Connection { stopped: stopped.clone(), loopback: guard.loopback };
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(place.clone());
        let (server, guard) = (server.clone(), guard.clone());
        async move { Ok::<Response<Body>, Infallible>(guarded(&server, &guard, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .max_buf_size(HEAD_BYTES)
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::select! {
        ended = connection => if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        },
        _ = stopped.wait_for(|stop| *stop) => {}
    }
}

async fn guarded(server: &Server, guard: &Guard, request: Request<Incoming>) -> Response<Body> {
    let extended = server.extension(request.uri().path()).is_some();
    match guard.admit(server, &request) {
        Ok(()) => service::answer(server, request).await,
        Err(status) => {
            let mut response = respond::status(&status);
            if status.code == 401 && extended {
                let challenge = http::HeaderValue::from_static("Basic realm=\"devcluster\"");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            }
            response
        }
    }
}
