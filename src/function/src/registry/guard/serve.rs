//! Refuses requests, or forwards them to the registry in the same pod.
//!
//! Invariant: the registry receives only the method, the checked target, and headers that the guard does not handle
//! itself.
//! Invariant: bodies are streamed, not buffered.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::TokioExecutor;
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::asked::{Part, Subject, is_read};
use super::files::{Files, Logins, ServeError, read};
use super::shares::{Place, SHARE, Shares};
use super::verdict::{self, Refusal, Visitor, judge};
use loopback::{Listener, web};
use mainstay_cluster::ServedCertificate;
use mainstay_cluster::listener::{self, Limits, is_encrypted};
use mainstay_object::failure::chain;

/// Limits for clients. A layer is one request, and the registry may take long to store a layer.
const LIMITS: Limits = Limits {
    connections: 192,
    spare: 0,
    head: Duration::from_secs(10),
    whole: Duration::from_secs(3600),
    kept: Some(Duration::from_secs(90)),
    idle: Some(Duration::from_secs(600)),
    farewell: Duration::from_secs(20),
};
/// Timeout for a connection to the registry in the same pod.
const CONNECT: Duration = Duration::from_secs(5);
/// Interval at which the files are read again. A kubelet updates the files of a Secret within one or two minutes.
const READ_EVERY: Duration = Duration::from_secs(5);
/// Number of bytes that are read from a response in one step.
const CHUNK: usize = 32 << 10;
/// Minimum time between log lines about an unreachable registry.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// Hop-by-hop headers, and headers that only the guard sets.
const NOT_PASSED: [HeaderName; 10] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::EXPECT,
    header::FORWARDED,
    header::HOST,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Prefixes of other headers that are not forwarded.
const NOT_PASSED_BEGINNINGS: [&str; 3] = ["x-forwarded-", "keep-alive", "proxy-"];

/// The guard's configuration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of the registry.
    pub registry: SocketAddr,
    /// The directory with the Secret's files `username`, `password`, `namespaceKey`, `tls.crt` and `tls.key`.
    pub files: PathBuf,
}

/// The body of a request or a response.
type Passed = UnsyncBoxBody<Bytes, hyper::Error>;

/// Serves requests until `stop`.
///
/// # Errors
/// Fails if the files cannot be read at the start. Later, the previous contents stay in effect after a failed read.
pub async fn serve(options: Options, listener: Listener, stop: CancellationToken) -> Result<(), ServeError> {
    let served = Arc::new(ServedCertificate::default());
    let read = read(&options.files)?;
    served.set(Some(read.certificate()?));
    let config = Arc::clone(&served).config(None).ok_or(ServeError::Tls)?;
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_nodelay(true);
    let guard = Arc::new(Guard {
        registry: options.registry,
        client: Client::builder(TokioExecutor::new()).http1_max_buf_size(CHUNK).build(connector),
        logins: RwLock::new(read.logins()),
        shares: Shares::default(),
        logged: Mutex::default(),
    });
    let following = stop.run_until_cancelled(follow(options.files, read, Arc::clone(&guard), served));
    let answer = move |request| Arc::clone(&guard).answer(request);
    let serving = listener::serve_either(listener, TlsAcceptor::from(Arc::new(config)), LIMITS, answer, stop.clone());
    tokio::join!(following, serving);
    Ok(())
}

/// Reads the files again at intervals, until the future is dropped.
async fn follow(directory: PathBuf, mut known: Files, guard: Arc<Guard>, served: Arc<ServedCertificate>) {
    let mut problem = String::new();
    loop {
        sleep(READ_EVERY).await;
        let next = read(&directory).and_then(|files| Ok((files.certificate()?, files)));
        match next {
            Ok((_, files)) if files == known => problem.clear(),
            Ok((certificate, files)) => {
                served.set(Some(certificate));
                *guard.logins.write() = files.logins();
                known = files;
                problem.clear();
                tracing::info!("the registry's certificate or login was replaced");
            }
            Err(error) => {
                let why = chain(&error);
                if why != problem {
                    tracing::warn!(
                        why,
                        "could not load the new certificate or login of the registry; the previous ones stay in use"
                    );
                }
                problem = why;
            }
        }
    }
}

struct Guard {
    registry: SocketAddr,
    client: Client<HttpConnector, Passed>,
    logins: RwLock<Logins>,
    shares: Shares,
    /// When the log last reported an unreachable registry.
    logged: Mutex<Option<Instant>>,
}

impl Guard {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Passed> {
        let (head, body) = request.into_parts();
        let visitor = self.logins.read().visitor(&head.headers);
        let subject = Subject::read(head.uri.path());
        let host = web::host(&head.headers, &head.uri);
        let asked = verdict::Request {
            method: &head.method,
            query: head.uri.query().unwrap_or_default(),
            is_encrypted: is_encrypted(&head),
            is_to_loopback: web::is_this_machine(&host),
        };
        let query = match judge(subject, &visitor, asked) {
            Ok(query) => query,
            Err(refusal) => return refused(&refusal),
        };
        let place = match &visitor {
            Visitor::Namespace(namespace) => match self.shares.take(namespace) {
                Some(place) => Some(place),
                None => return busy(),
            },
            Visitor::Unknown | Visitor::Registry => None,
        };
        let begins_upload = matches!(subject, Some(Subject::Of(_, Part::Uploads)));
        let passed = async {
            // Without the blob, the registry would start an upload.
            if verdict::shares(subject, &visitor) && !self.has(&query).await? {
                return Ok(error_answer(StatusCode::NOT_FOUND, "BLOB_UNKNOWN", "that repository has no such blob"));
            }
            self.pass(&head, &query, begins_upload, body).await
        };
        match passed.await {
            Ok(response) => response.map(|body| Placed { body, _place: place }.boxed_unsync()),
            Err(error) if is_of_client(&error) => {
                error_answer(StatusCode::BAD_REQUEST, "UNSUPPORTED", "the body of the request is not complete")
            }
            Err(error) => {
                self.log(&error);
                let said = "the registry behind the guard does not respond; it is starting, or its volume is not there";
                error_answer(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", said)
            }
        }
    }

    fn log(&self, error: &legacy::Error) {
        let mut logged = self.logged.lock();
        if logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            *logged = Some(Instant::now());
            tracing::warn!(why = chain(error), "the registry does not respond");
        }
    }

    async fn pass(
        &self,
        head: &Parts,
        query: &str,
        begins_upload: bool,
        body: Incoming,
    ) -> Result<Response<Passed>, legacy::Error> {
        let path = head.uri.path();
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let mut headers = passed(&head.headers);
        // A read has no body. With a content length, the registry would wait for a body.
        let body = if is_read(&head.method) {
            headers.remove(header::CONTENT_LENGTH);
            Empty::new().map_err(|never| match never {}).boxed_unsync()
        } else {
            body.boxed_unsync()
        };
        if begins_upload {
            // A form in the body could override the mount parameters of the query.
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        }
        let mut request = Request::new(body);
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = self.at(&target);
        *request.headers_mut() = headers;
        let (mut head, body) = self.client.request(request).await?.into_parts();
        head.headers = passed(&head.headers);
        Ok(Response::from_parts(head, body.boxed_unsync()))
    }

    /// Whether the registry has the blob of a mount query.
    async fn has(&self, query: &str) -> Result<bool, legacy::Error> {
        let Some((digest, from)) = verdict::mounted(query) else { return Ok(false) };
        let mut request = Request::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
        *request.method_mut() = Method::HEAD;
        *request.uri_mut() = self.at(&format!("/v2/{from}/blobs/{digest}"));
        Ok(self.client.request(request).await?.status().is_success())
    }

    /// Returns the registry's URL for a target that was parsed before.
    fn at(&self, target: &str) -> Uri {
        let uri = Uri::builder().scheme("http").authority(self.registry.to_string()).path_and_query(target);
        uri.build().unwrap_or_default()
    }
}

/// Whether the client's body caused the error.
fn is_of_client(error: &legacy::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<hyper::Error>());
    cause.is_some_and(hyper::Error::is_user)
}

/// A response whose request counts against the share of a namespace until the response is written.
struct Placed {
    body: Passed,
    _place: Option<Place>,
}

impl Body for Placed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns the response for a namespace that has used up its share.
fn busy() -> Response<Passed> {
    let said = format!("{SHARE} requests of this namespace are under way; try again in a moment");
    let mut response = error_answer(StatusCode::TOO_MANY_REQUESTS, "TOOMANYREQUESTS", &said);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// Returns the headers to forward.
fn passed(headers: &HeaderMap) -> HeaderMap {
    // Headers that are listed in `Connection` are hop-by-hop too.
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(|name| name.trim().to_ascii_lowercase()))
        .collect();
    let ends = |name: &HeaderName| {
        NOT_PASSED.contains(name)
            || NOT_PASSED_BEGINNINGS.iter().any(|beginning| name.as_str().starts_with(beginning))
            || named.iter().any(|named| named == name.as_str() && *name != header::CONTENT_LENGTH)
    };
    headers.iter().filter(|(name, _)| !ends(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn refused(refusal: &Refusal) -> Response<Passed> {
    let (status, code, message) = refusal.parts();
    let mut response = error_answer(status, code, &message);
    if *refusal == Refusal::Unauthorized {
        let asked = HeaderValue::from_static("Basic realm=\"Registry Realm\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, asked);
    }
    response
}

/// Returns an error in the format of the distribution specification.
fn error_answer(status: StatusCode, code: &str, message: &str) -> Response<Passed> {
    let body = serde_json::json!({"errors": [{"code": code, "message": message}]}).to_string();
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    headers.insert("docker-distribution-api-version", HeaderValue::from_static("registry/2.0"));
    response
}
