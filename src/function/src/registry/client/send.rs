//! Sends requests. Redirects are followed here, and every step has a deadline.
//!
//! Invariant: an `Authorization` header is sent only to its origin (scheme, host and port), before and after redirects.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::blob::Progress;
use super::{Client, Fault, challenge::challenge, error::is_about_room};
use mainstay_object::failure::network_error;

const REDIRECTS: usize = 5;
/// Maximum number of bytes of an error response that are read.
const MAX_REFUSAL: u64 = 8 << 10;
/// Maximum length in characters of a message about a certificate.
const MAX_CERTIFICATE: usize = 200;

/// A request without its URL.
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<&'a super::Content<'a>>,
}

impl Ask<'_> {
    pub(super) fn new(method: Method) -> Self {
        Self { method, headers: HeaderMap::new(), body: None }
    }

    pub(super) fn accepting(method: Method, media: &'static str) -> Self {
        let mut ask = Self::new(method);
        ask.headers.insert(header::ACCEPT, HeaderValue::from_static(media));
        ask
    }
}

impl Client {
    /// Sends a request, and authenticates if the registry asks for it. Returns a successful response.
    pub(super) async fn ask(&self, ask: &Ask<'_>, url: &Url) -> Result<Response, Fault> {
        let mut authenticated = false;
        loop {
            let authorization = self.authorization();
            let (response, own) = self.follow(ask, url, &self.origin, authorization).await?;
            let status = response.status();
            if status == StatusCode::UNAUTHORIZED && own && !authenticated {
                let headers = response.headers().get_all(header::WWW_AUTHENTICATE);
                let asked = challenge(headers.iter().filter_map(|value| value.to_str().ok()));
                if let Some(asked) = asked {
                    self.authenticate(&asked).await?;
                    authenticated = true;
                    continue;
                }
            }
            return if status.is_success() { Ok(response) } else { Err(self.refused(response, "the registry").await) };
        }
    }

    /// Sends a request and follows redirects of reads. `authorization` is sent only to `origin`. Also returns whether
    /// the response came from `origin`.
    pub(super) async fn follow(
        &self,
        ask: &Ask<'_>,
        url: &Url,
        origin: &Url,
        authorization: Option<HeaderValue>,
    ) -> Result<(Response, bool), Fault> {
        let reads = matches!(ask.method, Method::GET | Method::HEAD);
        let mut at = url.clone();
        for _ in 0..=REDIRECTS {
            let own = at.origin() == origin.origin();
            (self.network.check)(at.host_str().unwrap_or_default()).map_err(|why| Fault::Forbidden { why })?;
            let http = if at.origin() == self.origin.origin() { &self.network.own } else { &self.network.foreign };
            let mut request = http.request(ask.method.clone(), at.clone()).headers(ask.headers.clone());
            if let Some(value) = authorization.clone().filter(|_| own) {
                request = request.header(header::AUTHORIZATION, value);
            }
            let progress = Arc::new(Progress::default());
            let mut size = 0;
            if let Some(content) = ask.body {
                size = content.size();
                request = request.header(header::CONTENT_LENGTH, size).body(content.open(&progress).await?);
            }
            let response = self.answered(request, &progress, size).await?;
            if !is_redirect(response.status()) {
                return Ok((response, own));
            }
            let to = location(&response, &at).ok_or(Fault::Protocol { why: "a redirect has no URL" })?;
            if !reads {
                return Err(Fault::Redirect { to: host(&to), why: "only reads may be redirected" });
            }
            allowed(&at, &to)?;
            at = to;
        }
        Err(Fault::Redirect { to: host(&at), why: "there were more than five redirects" })
    }

    /// Returns the head of the response, within the deadline for the transfer and the idle timeout.
    async fn answered(
        &self,
        request: reqwest::RequestBuilder,
        progress: &Progress,
        size: u64,
    ) -> Result<Response, Fault> {
        let whole = self.deadlines.whole(size);
        let end = Instant::now() + whole;
        let answer = request.send();
        tokio::pin!(answer);
        let mut seen = 0;
        loop {
            let silent = Instant::now() + self.deadlines.silence;
            if let Ok(answer) = timeout_at(silent.min(end), &mut answer).await {
                return answer.map_err(|error| progress.take_fault().unwrap_or_else(|| network(&error)));
            }
            let now = progress.moved.load(Ordering::Relaxed);
            if Instant::now() >= end {
                return Err(Fault::Timeout { after: whole, what: "sending, or waiting for a response" });
            }
            if now == seen {
                return Err(Fault::Timeout { after: self.deadlines.silence, what: "nothing moved" });
            }
            seen = now;
        }
    }

    /// Returns a body of at most `limit` bytes.
    pub(super) async fn body(&self, response: Response, what: &'static str, limit: u64) -> Result<Vec<u8>, Fault> {
        read(response, what, limit, self.deadlines.silence).await
    }

    /// Returns the error for an error response. The error uses from the body only a code of the specification, and
    /// whether the registry is full.
    pub(super) async fn refused(&self, response: Response, by: &'static str) -> Fault {
        let status = response.status();
        let retry_after = retry_after(response.headers());
        if matches!(status.as_u16(), 401 | 403 | 407) {
            return Fault::Denied { by, status: status.as_u16(), anonymous: self.access.login.is_none() };
        }
        let body = read(response, "a refusal", MAX_REFUSAL, self.deadlines.silence).await.unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        if is_about_room(status.as_u16(), &body) {
            return Fault::Full { status: status.as_u16() };
        }
        let code = body["errors"][0]["code"].as_str().filter(|code| is_code(code));
        Fault::Status { status: status.as_u16(), code: code.map(str::to_owned), retry_after }
    }

    /// Returns the URL of an upload. If the host is the registry's own, the scheme is kept, because a registry behind a
    /// proxy may report a different scheme.
    pub(super) fn upload_at(&self, response: &Response) -> Result<Url, Fault> {
        let mut to = location(response, response.url()).ok_or(Fault::Protocol { why: "an upload has no address" })?;
        if to.host() == self.origin.host() && (to.port().is_none() || to.port() == self.origin.port()) {
            let (path, query) = (to.path().to_owned(), to.query().map(str::to_owned));
            to = self.origin.clone();
            to.set_path(&path);
            to.set_query(query.as_deref());
            return Ok(to);
        }
        allowed(&self.origin, &to)?;
        Ok(to)
    }
}

async fn read(mut response: Response, what: &'static str, limit: u64, silence: Duration) -> Result<Vec<u8>, Fault> {
    let end = Instant::now() + silence;
    let mut bytes = Vec::new();
    loop {
        let Ok(chunk) = timeout_at(end, response.chunk()).await else {
            return Err(Fault::Timeout { after: silence, what });
        };
        let Some(chunk) = chunk.map_err(|error| network(&error))? else { return Ok(bytes) };
        if (bytes.len() + chunk.len()) as u64 > limit {
            return Err(Fault::TooLarge { what, limit });
        }
        bytes.extend_from_slice(&chunk);
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn is_code(text: &str) -> bool {
    !text.is_empty() && text.len() <= 40 && text.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
}

/// Returns the target of a redirect without user name, password and fragment.
pub(super) fn location(response: &Response, base: &Url) -> Option<Url> {
    location_in(response.headers().get(header::LOCATION)?.to_str().ok()?, base)
}

/// Returns the URL in a string without user name, password and fragment.
pub(super) fn location_in(text: &str, base: &Url) -> Option<Url> {
    let mut to = base.join(text).ok()?;
    // These fail only for URLs without a host, which `allowed` refuses.
    let _ = to.set_username("");
    let _ = to.set_password(None);
    to.set_fragment(None);
    Some(to)
}

pub(super) fn allowed(from: &Url, to: &Url) -> Result<(), Fault> {
    let why = match (from.scheme(), to.scheme()) {
        (_, "https") | ("http", "http") => return Ok(()),
        ("https", "http") => "it changes from https to http",
        _ => "it is not HTTP",
    };
    Err(Fault::Redirect { to: host(to), why })
}

pub(super) fn host(url: &Url) -> String {
    let name = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

pub(super) fn network(error: &reqwest::Error) -> Fault {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    match causes.filter_map(tls_error).last() {
        Some(rustls::Error::InvalidCertificate(why)) => {
            // The message may quote the certificate, which the server controls.
            Fault::Untrusted { why: why.to_string().chars().take(MAX_CERTIFICATE).collect() }
        }
        _ => Fault::Network { what: network_error(error), is_outage: is_outage(error) },
    }
}

/// Returns the TLS error inside of nested I/O errors, or the error itself.
fn tls_error<'e>(mut cause: &'e (dyn std::error::Error + 'static)) -> Option<&'e rustls::Error> {
    while let Some(wrapped) = cause.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref()) {
        cause = wrapped;
    }
    cause.downcast_ref()
}

/// Whether the connection was refused or broke. Unknown host names and untrusted certificates do not count.
fn is_outage(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        let broke = cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message);
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        broke
            || matches!(
                kind,
                Some(
                    io::ErrorKind::ConnectionRefused
                        | io::ErrorKind::ConnectionReset
                        | io::ErrorKind::ConnectionAborted
                        | io::ErrorKind::BrokenPipe
                        | io::ErrorKind::UnexpectedEof
                        | io::ErrorKind::HostUnreachable
                        | io::ErrorKind::NetworkUnreachable
                )
            )
    })
}

/// Returns the seconds of `Retry-After`. A date is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_https_for_nothing() {
        let check = |from: &str, to: &str| allowed(&from.parse().unwrap(), &to.parse().unwrap()).is_ok();
        assert!(check("https://a.io", "https://b.io") && check("http://localhost", "https://b.io"));
        assert!(check("http://localhost", "http://localhost:1"));
        assert!(!check("https://a.io", "http://a.io") && !check("http://localhost", "file:///etc/passwd"));
    }

    #[test]
    fn takes_codes_and_no_prose() {
        assert!(is_code("BLOB_UNKNOWN"));
        assert!(!is_code("") && !is_code("the password is hunter2") && !is_code(&"A".repeat(41)));
    }

    #[tokio::test]
    async fn a_server_that_is_away_is_an_outage_and_a_wrong_name_is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let is_outage = async |url: String| match network(&client.get(url).send().await.unwrap_err()) {
            Fault::Network { is_outage, .. } => is_outage,
            other => panic!("{other}"),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let closing = tokio::spawn(async move {
            drop(listener.accept().await.unwrap());
        });
        assert!(is_outage(format!("http://{address}/")).await, "it closes the connection");
        closing.await.unwrap();
        assert!(is_outage(format!("http://{address}/")).await, "nobody listens");
        assert!(!is_outage("http://registry.invalid/".to_owned()).await);
    }
}
