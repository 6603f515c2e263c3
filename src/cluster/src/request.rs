//! Sends requests with a deadline, counts them, and returns the bytes of the response or an [`Error`].
//!
//! Invariant: at most 64 KiB of a refusal's body are read, and only a redacted [`Refusal`] is kept.
//!
//! Not here: retries, and parsing of bodies other than refusals.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;

use mainstay_object::Key;

use super::connect::{Cluster, Turn};
use super::count::Verb;
use super::error::{Attempt, Cause, Error, Target};
use super::kind::Kind;
use super::refusal::{Denial, Refusal};

/// The default deadline of a request. API servers cut requests at 60 s.
pub(super) const DEADLINE: Duration = Duration::from_secs(65);
/// Maximum size of a refusal's body.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const USER_AGENT: &str = concat!("mainstay/", env!("CARGO_PKG_VERSION"));
/// The media type of responses.
pub(super) const JSON: &str = "application/json";

/// A request before it is sent.
pub(super) struct Call {
    pub attempt: Attempt,
    pub verb: Verb,
    pub resource: Arc<str>,
    /// The object that errors name. Also determines how texts are redacted.
    pub key: Key,
    pub method: Method,
    pub path: String,
    pub accept: &'static str,
    pub content_type: Option<&'static str>,
    pub body: Bytes,
}

impl Call {
    /// Returns a request about one object. Fails if one of the names cannot be part of a path.
    pub(super) fn object(
        attempt: Attempt,
        verb: Verb,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        subresource: Option<&str>,
    ) -> Result<Self, Error> {
        let key = kind.key(namespace, name);
        let failed = |cause| Error::new(attempt, Target::Object(key.clone()), cause);
        if kind.namespaced && namespace.is_none() {
            return Err(failed(Cause::NoNamespace));
        }
        let unusable = |segment: &str| matches!(segment, "" | "." | "..");
        if unusable(name) || key.namespace.as_deref().is_some_and(unusable) {
            return Err(failed(Cause::Unaddressable));
        }
        let path = kind.path(namespace, Some(name), subresource);
        Ok(Self::new(attempt, verb, Arc::clone(&kind.resource), key, path))
    }

    /// Returns a request about a collection.
    pub(super) fn collection(attempt: Attempt, verb: Verb, kind: &Kind, namespace: Option<&str>, path: String) -> Self {
        Self::new(attempt, verb, Arc::clone(&kind.resource), kind.key(namespace, ""), path)
    }

    /// Returns a GET request.
    pub(super) fn new(attempt: Attempt, verb: Verb, resource: Arc<str>, key: Key, path: String) -> Self {
        Self {
            attempt,
            verb,
            resource,
            key,
            method: Method::GET,
            path,
            accept: JSON,
            content_type: None,
            body: Bytes::new(),
        }
    }

    /// Adds a body to the request.
    pub(super) fn with(mut self, method: Method, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        self.method = method;
        self.content_type = Some(content_type);
        self.body = body.into();
        self
    }

    /// Returns an error of this request.
    pub(super) fn failed(&self, cause: impl Into<Cause>) -> Error {
        let subject = if !self.key.name.is_empty() {
            Target::Object(self.key.clone())
        } else if self.attempt == Attempt::Discover {
            Target::Cluster
        } else {
            let namespace = self.key.namespace.as_deref().map(str::to_owned);
            Target::Collection { resource: self.resource.to_string(), namespace }
        };
        Error::new(self.attempt, subject, cause)
    }

    fn request(&self) -> Result<Request<Body>, Error> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(self.path.as_str())
            .header(header::ACCEPT, self.accept)
            .header(header::USER_AGENT, USER_AGENT);
        if let Some(content_type) = self.content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        if self.verb == Verb::Watch {
            // Servers from version 1.37 on compress each event of a watch separately. Common decoders read only the
            // first event.
            request = request.header(header::ACCEPT_ENCODING, "identity");
        }
        request.body(Body::from(self.body.clone())).map_err(|_| self.failed(Cause::Unaddressable))
    }
}

impl Cluster {
    /// Sends a request and reads its whole response.
    pub(super) async fn ask(&self, call: &Call) -> Result<Bytes, Error> {
        self.ask_within(call, self.0.limits.bytes).await
    }

    /// Same as `ask`, for a response of at most `most` bytes.
    pub(super) async fn ask_within(&self, call: &Call, most: usize) -> Result<Bytes, Error> {
        let limits = if call.attempt == Attempt::Discover { self.0.limits.of_discovery() } else { self.0.limits };
        let answer = async || {
            let answer = async {
                let response = self.open(call).await?;
                let answer = read_body(response.into_body(), most).await.map_err(|cause| call.failed(cause))?;
                limits.check(&answer).map_err(|cause| call.failed(cause))?;
                Ok(answer)
            };
            let timed = tokio::time::timeout(self.0.deadline, answer).await;
            timed.unwrap_or_else(|_| {
                self.set_in_trouble(true);
                Err(call.failed(Cause::TimedOut(self.0.deadline)))
            })
        };
        // The future is on the heap, so that tasks which send a request are small.
        match self.2 {
            Turn::Waits => self.0.turns.run(answer).await,
            Turn::AtOnce => Box::pin(answer()).await,
        }
    }

    /// Sends a request and returns the response once its headers have arrived. Refusals become errors.
    pub(super) async fn open(&self, call: &Call) -> Result<Response<Body>, Error> {
        let client = self.client(call.verb);
        let mut request = call.request()?;
        // All accounts share one discovery table, so discovery is not impersonated.
        let account = self.1.as_ref().filter(|_| call.attempt != Attempt::Discover);
        if let Some(account) = account {
            request.headers_mut().insert(IMPERSONATE_USER, account.user());
        }
        self.0.requests.add(call.verb, &call.resource);
        let response = client.send(request).await;
        let is_answered = response.as_ref().is_ok_and(|response| response.status() != StatusCode::UNAUTHORIZED);
        self.set_in_trouble(!is_answered);
        let response = response.map_err(|error| call.failed(transport(error)))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status().as_u16();
        let retry_after = retry_after(response.headers());
        let body = read_body(response.into_body(), MAX_REFUSAL_BYTES).await.unwrap_or_default();
        let mut refusal = Refusal::read(&call.key, code, retry_after, &body);
        if let Some(account) = account.filter(|_| refusal.denial == Some(Denial::Permission)) {
            refusal.message = account.lacks(call.verb, &call.resource, &call.key, &String::from_utf8_lossy(&body));
        }
        Err(call.failed(refusal))
    }
}

async fn read_body(body: Body, most: usize) -> Result<Bytes, Cause> {
    match Limited::new(body, most).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Cause::TooLarge(most)),
        Err(error) => Err(Cause::Unreachable(error)),
    }
}

/// Returns the cause of a failure below HTTP.
pub(super) fn transport(error: kube::Error) -> Cause {
    match error {
        kube::Error::Auth(_) => Cause::Credentials,
        kube::Error::Service(error) => Cause::Unreachable(error),
        error => Cause::Unreachable(Box::new(error)),
    }
}

/// Parses a `Retry-After` in seconds; API servers do not use its date form.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(mainstay_object::failure::retry_after(seconds))
}

#[cfg(test)]
mod tests;
