//! The cluster on a TCP port.
//!
//! Without a token only loopback addresses are listened on. On loopback only requests that name a loopback host are
//! answered, and none that carry an `Origin`: a web page in a browser on the same machine must not reach the cluster.
//! With a token, TLS and plain HTTP are answered at one port: kubectl sends tokens over TLS only, and the clients of image
//! registries that are on loopback speak plain HTTP.

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
use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinHandle,
    time::timeout,
};

/// How long a connection may take until it has said what it is.
const OPENING: Duration = Duration::from_secs(30);

/// Maximum size of a request's head, and of a piece of a body.
const HEAD_BYTES: usize = 64 << 10;
/// Connections at the same time, most of them watches; others wait.
const CONNECTIONS: usize = 512;

/// A cluster that is being served; dropping it ends the listening and all connections.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    certificate: Option<Certificate>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Serving {
    /// The address that was bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig for it, with this token; over TLS if tokens are asked for.
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

    /// Ends when the listener does.
    pub async fn wait(mut self) {
        // An error here is the end of the task by an abort, which is an end as well.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.task.abort();
    }
}

/// The clients that are accepted.
#[derive(Debug)]
struct Guard {
    token: Option<String>,
    loopback: bool,
    /// With a token.
    certificate: Option<Certificate>,
}

impl Guard {
    fn admit<B>(&self, server: &Server, request: &Request<B>) -> Result<(), Status> {
        let text = |name| request.headers().get(name).and_then(|v: &http::HeaderValue| v.to_str().ok());
        if request.headers().contains_key(header::ORIGIN) {
            return Err(Status::new(403, "Forbidden", "requests of web pages are not answered"));
        }
        let host = text(header::HOST).or_else(|| request.uri().host()).unwrap_or_default();
        if self.loopback && !is_loopback(host) {
            return Err(Status::new(403, "Forbidden", "only requests to a loopback host are answered"));
        }
        let Some(token) = &self.token else { return Ok(()) };
        let extended = server.extension(request.uri().path()).is_some();
        let given = text(header::AUTHORIZATION).unwrap_or_default();
        let bearer = given.strip_prefix("Bearer ").unwrap_or_default();
        // Clients of image registries know user names and passwords: any name, and the token as the password.
        let password = given.strip_prefix("Basic ").filter(|_| extended);
        let password = password.and_then(password_of).unwrap_or_default();
        let bearer = bearer.trim();
        if equal(bearer.as_bytes(), token.as_bytes()) || equal(&password, token.as_bytes()) {
            return Ok(());
        }
        // Whether it is still good is asked where everyone's credentials are looked at.
        let signed = !extended && server.signer().is_some_and(|signer| signer.verify(bearer).is_some());
        if signed { Ok(()) } else { Err(Status::new(401, "Unauthorized", "Unauthorized")) }
    }
}

/// The password in basic authentication.
fn password_of(encoded: &str) -> Option<Vec<u8>> {
    let decoded = BASE64_STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl Server {
    /// Serves the cluster.
    ///
    /// Fails when the address cannot be bound, and for an address that is not loopback without a token.
    pub async fn serve(&self, listen: SocketAddr, token: Option<String>) -> io::Result<Serving> {
        let loopback = listen.ip().is_loopback();
        if !loopback && token.as_ref().is_none_or(String::is_empty) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "listening on an address that is not loopback needs a token",
            ));
        }
        let listener = TcpListener::bind(listen).await?;
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

    /// A kubeconfig for an address.
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

async fn accept(server: Server, listener: TcpListener, guard: Arc<Guard>, stopped: watch::Receiver<bool>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // It is never closed.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let opened = open(server.clone(), stream, guard.clone(), stopped.clone());
                tokio::spawn(async move {
                    opened.await;
                    drop(permit);
                });
            }
            // Out of file descriptors, or a connection that was gone at once: neither is the listener's end.
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

/// Finds out whether a connection is one of TLS.
async fn open(server: Server, stream: TcpStream, guard: Arc<Guard>, stopped: watch::Receiver<bool>) {
    // Without it small answers wait for acknowledgements.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_loopback_hosts() {
        for host in ["localhost", "localhost:80", "127.0.0.1:6443", "127.1.2.3", "[::1]:80", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "example.com", "localhost.example.com:80", "10.0.0.1", "127.0.0.1.example.com"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
