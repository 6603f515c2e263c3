//! A request to the service of a Provider, as a value.

use std::fmt;

use http::{HeaderName, HeaderValue, Method, Request as HttpRequest};
use mainstay_object::Secret;
use serde_json::Value;

/// The sender's name in messages to services.
pub(crate) const REPORTER: &str = "mainstay";
const AGENT: &str = concat!("mainstay/", env!("CARGO_PKG_VERSION"));

/// A request. `Debug` shows neither its address nor its headers.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    pub(crate) method: Method,
    pub(crate) url: Secret<String>,
    pub(crate) headers: Vec<(String, Secret<String>)>,
    pub(crate) body: Vec<u8>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("method", &self.method).finish_non_exhaustive()
    }
}

impl Request {
    /// Returns a POST request with JSON.
    pub(crate) fn post(url: impl Into<String>, body: &Value) -> Self {
        let headers = vec![("content-type".to_owned(), Secret::new("application/json".to_owned()))];
        let body = body.to_string().into_bytes();
        Self { method: Method::POST, url: Secret::new(url.into()), headers, body }
    }

    /// Returns a GET request.
    pub(crate) fn get(url: impl Into<String>) -> Self {
        Self { method: Method::GET, url: Secret::new(url.into()), headers: Vec::new(), body: Vec::new() }
    }

    /// Returns the request with a number at the end of its address.
    pub(crate) fn numbered(&self, number: u64) -> Self {
        Self { url: Secret::new(format!("{}{number}", self.url.expose())), ..self.clone() }
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), Secret::new(value.into())));
        self
    }

    pub(crate) fn bearer(self, token: &str) -> Self {
        self.header("authorization", format!("Bearer {token}"))
    }

    /// Returns the request with this value of `Authorization`.
    #[must_use]
    pub fn authorized(self, authorization: &Secret<String>) -> Self {
        self.header("authorization", authorization.expose().as_str())
    }

    /// Returns the request for an HTTP client; `None` if the address or a header cannot be sent.
    pub fn into_http(self) -> Option<HttpRequest<Vec<u8>>> {
        let mut request = HttpRequest::builder().method(self.method).uri(self.url.expose());
        request = request.header(http::header::USER_AGENT, AGENT);
        for (name, value) in self.headers {
            let mut value = HeaderValue::from_str(value.expose()).ok()?;
            value.set_sensitive(true);
            request = request.header(HeaderName::try_from(name).ok()?, value);
        }
        request.body(self.body).ok()
    }
}
