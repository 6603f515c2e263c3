//! An API server without credentials: each user's requests have the token of the user.
//!
//! TLS is set up once. All users share the connections, because the API server authenticates each request.
//!
//! Invariant: a request has the credentials of its user's token only, whatever credentials the configuration of this
//! process has. Invariant: few large events of watches are in memory at the same time for all users together.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Uri};
use http_body::{Frame, SizeHint};
use kube::client::Body;
use kube::config::AuthInfo;
use kube::{Client, Config};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;

use mainstay_object::Secret;

use super::answer_limits::AnswerLimits;
use super::connect::{Clients, Cluster, client_over, kept_alive, setup};
use super::error::{Attempt, Cause, Error, Target};
use super::kubeconfig::certificates;
use super::origin::Origin;
use super::request::DEADLINE;
use super::resolver::Resolver;

/// Maximum number of pages of lists that are read concurrently for a user.
const PAGES: usize = 2;

/// Maximum size of an incomplete event of a watch that is read without a permit, in bytes.
const SMALL_EVENT: usize = 16 << 10;
/// Maximum number of larger events that are read at the same time for all users. An update of a large object reaches the
/// watches of all users at the same time.
const LARGE_EVENTS: usize = 2;

/// The URL of an API server, and the certificate authorities with which its certificate is verified.
/// Clones share connections.
#[derive(Clone)]
pub struct ApiServer {
    config: Config,
    /// The clients without credentials, which the first user creates.
    clients: Arc<Mutex<Option<Clients>>>,
    /// The permits of large events.
    large_events: Arc<Semaphore>,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("url", &self.config.cluster_url).finish_non_exhaustive()
    }
}

fn wrong(why: &'static str) -> Error {
    Error::new(Attempt::Connect, Target::Cluster, Cause::Configuration(why.into()))
}

impl ApiServer {
    /// Maximum memory of the large events of all watches at the same time, in bytes. An API server stores objects of at most
    /// 1.5 MiB, and a buffer has at most twice the size of its event.
    pub const EVENT_MEMORY: usize = LARGE_EVENTS * (4 << 20);

    /// Returns the server of a kubeconfig, without the credentials in it. Runs no program and sends no request.
    ///
    /// # Errors
    /// If the kubeconfig cannot be read.
    pub async fn from_origin(origin: &Origin) -> Result<Self, Error> {
        Ok(Self::without_credentials(origin.config().await?))
    }

    /// Returns the server at this URL. Without authorities (PEM), those of the machine are trusted.
    ///
    /// # Errors
    /// If the URL is not an HTTPS URL, or if there is no certificate among the authorities.
    pub fn at(url: &Uri, authorities: Option<&[u8]>) -> Result<Self, Error> {
        if url.scheme_str() != Some("https") || url.host().is_none_or(str::is_empty) {
            return Err(wrong(
                "the URL of the API server must begin with https://, or tokens would be sent unencrypted",
            ));
        }
        let mut config = Config::new(url.clone());
        if let Some(pem) = authorities {
            let found = certificates(pem).ok_or_else(|| wrong("the CA bundle has no certificate in PEM format"))?;
            config.root_cert = Some(found.into_iter().map(|certificate| certificate.to_vec()).collect());
        }
        Ok(Self::without_credentials(config))
    }

    fn without_credentials(mut config: Config) -> Self {
        config.auth_info = AuthInfo::default();
        Self { config, clients: Arc::default(), large_events: Arc::new(Semaphore::new(LARGE_EVENTS)) }
    }

    /// Returns a connection with the permissions of a token. Sends no request.
    ///
    /// # Errors
    /// If TLS cannot be set up, or if no header can contain the token.
    pub fn as_user(&self, token: &Secret<String>) -> Result<Cluster, Error> {
        let bearer = HeaderValue::try_from(format!("Bearer {}", token.expose()));
        let mut bearer = bearer.map_err(|_| wrong("the token has characters that no header may have"))?;
        bearer.set_sensitive(true);
        let Clients { unary, watches } = self.clients()?;
        let [unary, watches] = [unary, watches].map(|client| with_token(client, &bearer, &self.large_events));
        Ok(Cluster::of_clients(Clients { unary, watches }, PAGES, AnswerLimits::OF_USER, DEADLINE))
    }

    fn clients(&self) -> Result<Clients, Error> {
        let mut clients = self.clients.lock();
        if let Some(clients) = &*clients {
            return Ok(clients.clone());
        }
        let new = if self.config.proxy_url.is_some() {
            Cluster::connect(self.config.clone())?.0.clients.read().clone()
        } else {
            let client = client_over(&self.config, kept_alive(Resolver::system())).map_err(setup)?;
            Clients { unary: client.clone(), watches: client }
        };
        *clients = Some(new.clone());
        Ok(new)
    }
}

/// Returns a client that adds a token to each request. The large events of its watches have permits.
fn with_token(client: Client, bearer: &HeaderValue, large_events: &Arc<Semaphore>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let (bearer, large_events) = (bearer.clone(), Arc::clone(large_events));
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(AUTHORIZATION, bearer.clone());
        let is_watch = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"));
        let permits = is_watch.then(|| Arc::clone(&large_events));
        let client = client.clone();
        async move {
            let response = client.send(request).await?;
            Ok::<_, kube::Error>(response.map(|body| EventBody::new(body, permits)))
        }
    });
    Client::new(service, namespace)
}

/// The body of a response. If it is a watch, the reader buffers an event until its end, so a large event has a permit.
struct EventBody {
    body: Body,
    /// `None` for a response that is not a watch.
    permits: Option<PollSemaphore>,
    permit: Option<OwnedSemaphorePermit>,
    /// The size of the incomplete event, in bytes.
    size: usize,
}

impl EventBody {
    fn new(body: Body, permits: Option<Arc<Semaphore>>) -> Self {
        Self { body, permits: permits.map(PollSemaphore::new), permit: None, size: 0 }
    }
}

impl http_body::Body for EventBody {
    type Data = Bytes;
    type Error = kube::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, kube::Error>>> {
        let this = self.get_mut();
        if this.size > SMALL_EVENT
            && this.permit.is_none()
            && let Some(permits) = &mut this.permits
        {
            // The semaphore is never closed.
            this.permit = ready!(permits.poll_acquire(cx));
        }
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let end = data.iter().rposition(|byte| *byte == b'\n');
            this.size = end.map_or(this.size + data.len(), |end| data.len() - end - 1);
            if this.size <= SMALL_EVENT {
                this.permit = None;
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;
    use http_body_util::BodyExt as _;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::super::fake;
    use super::*;

    /// Returns whether a body has data now.
    fn has_data(body: &mut EventBody) -> bool {
        body.frame().now_or_never().is_some()
    }

    #[tokio::test]
    async fn few_large_events_of_all_users_are_read_at_the_same_time() {
        let (permits, part) = (Arc::new(Semaphore::new(LARGE_EVENTS)), "x".repeat(SMALL_EVENT + 1));
        let mut watches = Vec::new();
        for _ in 0..=LARGE_EVENTS {
            let (pipe, body) = fake::stream().await;
            watches.push((pipe, EventBody::new(body, Some(Arc::clone(&permits)))));
        }
        let mut send = |number: usize, text: &str| {
            let (pipe, body) = &mut watches[number];
            pipe.send(text);
            has_data(body)
        };
        assert_eq!([0, 1, 2].map(|number| send(number, &part)), [true; 3], "the first parts need no permit");
        assert_eq!([0, 1, 2].map(|number| send(number, &part)), [true, true, false]);
        assert!(send(0, "\nx") && send(2, ""), "the end of an event returns its permit");
        assert!(send(0, "y\n") && send(0, "z\n"), "small events need none");
        drop(watches.remove(1));
        assert_eq!(permits.available_permits(), 1, "so does the end of a watch");
    }

    #[tokio::test]
    async fn a_response_that_is_not_a_watch_has_no_lines() {
        let (pipe, body) = fake::stream().await;
        let mut body = EventBody::new(body, None);
        for _ in 0..3 {
            pipe.send(&"x".repeat(SMALL_EVENT + 1));
            assert!(has_data(&mut body));
        }
    }

    #[test]
    fn a_server_needs_https_and_a_certificate_in_its_bundle() {
        for url in ["http://kubernetes.default.svc", "kubernetes.default.svc", "/a"] {
            assert!(ApiServer::at(&url.parse().unwrap(), None).is_err(), "{url}");
        }
        let url = "https://kubernetes.default.svc".parse().unwrap();
        assert!(ApiServer::at(&url, None).is_ok());
        assert!(ApiServer::at(&url, Some(b"no certificate")).is_err());
    }

    #[test]
    fn credentials_of_the_configuration_are_dropped() {
        let mut config = Config::new("https://kubernetes.default.svc".parse().unwrap());
        config.auth_info.token = Some("of-the-process".to_owned().into());
        config.auth_info.impersonate = Some("alice".to_owned());
        let server = ApiServer::without_credentials(config);
        assert!(server.config.auth_info.token.is_none() && server.config.auth_info.impersonate.is_none());
    }

    /// Returns the user name that equals the token of the request.
    async fn review(request: Request<hyper::body::Incoming>) -> Result<http::Response<String>, Infallible> {
        let token = request.headers()[AUTHORIZATION].to_str().unwrap().strip_prefix("Bearer ").unwrap().to_owned();
        let review = json!({"status": {"userInfo": {"username": token}}}).to_string();
        Ok(http::Response::builder().header("content-type", "application/json").body(review).unwrap())
    }

    #[tokio::test]
    async fn users_share_connections_and_each_request_has_the_token_of_its_user() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let opened = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&opened);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let connection = http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service_fn(review)));
            }
        });
        let server = ApiServer::without_credentials(Config::new(url.parse().unwrap()));
        // A connection returns to the others a moment after its response, so that not every user finds one.
        for number in 1..=100 {
            let user = format!("user-{number}");
            let cluster = server.as_user(&Secret::new(user.clone())).unwrap();
            assert_eq!(cluster.user_name().await.unwrap(), Some(user));
        }
        let opened = opened.load(Ordering::Relaxed);
        assert!(opened < 50, "{opened} connections");
        assert!(server.as_user(&Secret::new("a\nb".to_owned())).is_err());
    }
}
