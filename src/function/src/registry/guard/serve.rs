//! Answers requests: refuses them, or passes them on to the registry of the same pod.
//!
//! Invariant: nothing of a request's head reaches the registry but its method, what was judged of its target, and its headers
//! without those that are the guard's business.
//! Invariant: bodies are passed on as they come; none is kept.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::RwLock;
use ring::{hmac, rand};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::asked::Subject;
use super::logins::{NAMESPACE_KEY, NamespaceKey};
use super::verdict::{self, Refusal, Visitor, judge};
use crate::registry::Login;
use loopback::{Listener, web};
use mainstay_cluster::ServedCertificate;
use mainstay_cluster::certificate::certified;
use mainstay_cluster::listener::{self, Limits, is_encrypted};
use mainstay_object::Secret;
use mainstay_object::failure::chain;

/// What clients may cost. A layer is pushed or pulled in one request.
const LIMITS: Limits = Limits {
    connections: 256,
    head: Duration::from_secs(10),
    whole: Duration::from_secs(3600),
    kept: Some(Duration::from_secs(90)),
    farewell: Duration::from_secs(20),
};
/// Until the registry of the same pod takes a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How often the files are read again: a kubelet brings those of a Secret up to date within a minute or two.
const READ_EVERY: Duration = Duration::from_secs(5);
/// Larger files are none of this Secret.
const MAX_FILE: u64 = 1 << 20;
/// What ends at each hop, and what only the guard says.
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
/// Others that are not passed on begin like this.
const NOT_PASSED_BEGINNINGS: [&str; 3] = ["x-forwarded-", "keep-alive", "proxy-"];

/// Where the guard is, and what it guards.
#[derive(Clone, Debug)]
pub struct Options {
    /// The registry.
    pub registry: SocketAddr,
    /// The directory with the Secret's files `username`, `password`, `namespaceKey`, `tls.crt` and `tls.key`.
    pub files: PathBuf,
}

/// Why the guard does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A file of the Secret is missing or not readable.
    #[error("the file {path} of the registry's Secret cannot be read")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The certificate and its key do not belong together, or are none.
    #[error(
        "{directory}/tls.crt and tls.key are not a certificate and its key; the agent makes them when both are removed from the Secret"
    )]
    Certificate {
        /// The directory.
        directory: PathBuf,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls,
}

type Answer = UnsyncBoxBody<Bytes, hyper::Error>;

/// Answers requests until `stop`.
///
/// # Errors
/// The files cannot be read at the start. Later, the former ones count until there are readable ones.
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
        client: Client::builder(TokioExecutor::new()).build(connector),
        logins: RwLock::new(read.logins()),
    });
    let following = stop.run_until_cancelled(follow(options.files, read, Arc::clone(&guard), served));
    let answer = move |request| Arc::clone(&guard).answer(request);
    let serving = listener::serve_either(listener, TlsAcceptor::from(Arc::new(config)), LIMITS, answer, stop.clone());
    tokio::join!(following, serving);
    Ok(())
}

/// The files of the Secret.
#[derive(PartialEq, Eq)]
struct Files {
    directory: PathBuf,
    username: String,
    password: Secret<String>,
    namespace_key: Secret<String>,
    certificate: String,
    key: Secret<String>,
}

impl Files {
    fn certificate(&self) -> Result<rustls::sign::CertifiedKey, ServeError> {
        let directory = || ServeError::Certificate { directory: self.directory.clone() };
        certified(&self.certificate, &self.key).ok_or_else(directory)
    }

    fn logins(&self) -> Logins {
        let login = Login { username: self.username.clone(), password: self.password.clone() };
        Logins { registry: login, namespaces: NamespaceKey::new(&self.namespace_key) }
    }
}

fn read(directory: &Path) -> Result<Files, ServeError> {
    let text = |name: &str| {
        let path = directory.join(name);
        let text = read_file(&path).map_err(|cause| ServeError::File { path: path.clone(), cause })?;
        if text.is_empty() {
            return Err(ServeError::File { path, cause: io::Error::other("it is empty") });
        }
        Ok(text)
    };
    Ok(Files {
        directory: directory.to_owned(),
        username: text("username")?,
        password: Secret::new(text("password")?),
        namespace_key: Secret::new(text(NAMESPACE_KEY)?),
        certificate: text("tls.crt")?,
        key: Secret::new(text("tls.key")?),
    })
}

fn read_file(path: &Path) -> io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

/// Reads the files again, until it is dropped.
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
                    tracing::warn!(why, "the registry's former certificate and login are used");
                }
                problem = why;
            }
        }
    }
}

/// Who is let in.
struct Logins {
    registry: Login,
    namespaces: NamespaceKey,
}

impl Logins {
    fn visitor(&self, headers: &HeaderMap) -> Visitor {
        let Some(login) = given(headers) else { return Visitor::Unknown };
        if is_equal(&login, &self.registry) {
            Visitor::Registry
        } else if self.namespaces.lets_in(&login) {
            Visitor::Namespace(login.username)
        } else {
            Visitor::Unknown
        }
    }
}

/// Whether two logins are equal, in a time that says nothing about where they differ.
fn is_equal(one: &Login, other: &Login) -> bool {
    let text = |login: &Login| format!("{}:{}", login.username, login.password.expose());
    let Ok(key) = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new()) else { return false };
    hmac::verify(&key, text(one).as_bytes(), hmac::sign(&key, text(other).as_bytes()).as_ref()).is_ok()
}

/// The login of a request.
fn given(headers: &HeaderMap) -> Option<Login> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (username, password) = text.split_once(':')?;
    Some(Login { username: username.to_owned(), password: Secret::new(password.to_owned()) })
}

struct Guard {
    registry: SocketAddr,
    client: Client<HttpConnector, Incoming>,
    logins: RwLock<Logins>,
}

impl Guard {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Answer> {
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
        let begins_upload = matches!(subject, Some(Subject::Repository { begins_upload: true, .. }));
        match judge(subject, &visitor, asked) {
            Err(refusal) => refused(&refusal),
            Ok(query) => match self.pass(&head, &query, begins_upload, body).await {
                Ok(response) => response,
                Err(why) => {
                    tracing::warn!(why, "the registry does not answer");
                    let said =
                        "the registry behind the guard does not answer; it is starting, or its volume is not there";
                    error(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", said)
                }
            },
        }
    }

    async fn pass(
        &self,
        head: &Parts,
        query: &str,
        begins_upload: bool,
        body: Incoming,
    ) -> Result<Response<Answer>, String> {
        let path = head.uri.path();
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let uri = Uri::builder().scheme("http").authority(self.registry.to_string()).path_and_query(target);
        let uri = uri.build().map_err(|error| error.to_string())?;
        let mut request = Request::new(body);
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = passed(&head.headers);
        if begins_upload {
            // A form in the body could name what is taken over, past the query.
            let binary = HeaderValue::from_static("application/octet-stream");
            request.headers_mut().insert(header::CONTENT_TYPE, binary);
        }
        let response = self.client.request(request).await.map_err(|error| chain(&error))?;
        let (mut head, body) = response.into_parts();
        head.headers = passed(&head.headers);
        Ok(Response::from_parts(head, body.boxed_unsync()))
    }
}

/// The headers that are passed on.
fn passed(headers: &HeaderMap) -> HeaderMap {
    // What `Connection` names ends here, too.
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

fn refused(refusal: &Refusal) -> Response<Answer> {
    let (status, code, message) = refusal.parts();
    let mut response = error(status, code, &message);
    if *refusal == Refusal::Unauthorized {
        let asked = HeaderValue::from_static("Basic realm=\"Registry Realm\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, asked);
    }
    response
}

/// An error in the form of the distribution specification.
fn error(status: StatusCode, code: &str, message: &str) -> Response<Answer> {
    let body = serde_json::json!({"errors": [{"code": code, "message": message}]}).to_string();
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    headers.insert("docker-distribution-api-version", HeaderValue::from_static("registry/2.0"));
    response
}
