//! Requests to a Git LFS server: the locations of objects, and their bytes.
//!
//! Invariant: the repository's credentials are sent only to its own server. If the LFS server returns headers for a
//! download, they are sent only to the server of that download. Redirects are not followed.

use std::collections::BTreeMap;

use reqwest::{Url, header};

use super::body::Body;
use super::endpoint::{Endpoint, append, host};
use super::http::{Http, accepted};
use crate::Credentials;
use crate::error::Fault;
use crate::lfs::LfsServer;

/// Some servers respond with `application/json`.
const JSON: &str = "application/";
const KIND: &str = "application/vnd.git-lfs+json";
/// Maximum number of headers that a server may specify for a download.
const HEADERS: usize = 32;
/// Headers that belong to the connection or to other hosts, so a server must not set them.
const OURS: [&str; 8] = [
    "connection",
    "content-length",
    "host",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

impl Http {
    /// Returns the response of the batch API.
    pub(crate) async fn lfs_batch(
        &self,
        server: &LfsServer,
        credentials: &Credentials,
        request: Vec<u8>,
        limit: u64,
    ) -> Result<Vec<u8>, Fault> {
        let at = Endpoint { base: server.url.clone(), own: server.is_own };
        let request = self.client(&at).post(append(&server.url, "objects/batch", None)).body(request);
        let request = request.header(header::ACCEPT, KIND).header(header::CONTENT_TYPE, KIND);
        let (request, credentials) = with_headers(request, &server.header, credentials)?;
        let response = not_redirected(self.send(request, &at, credentials).await?, &server.url)?;
        self.body(accepted(response, &at, self.sent(credentials), JSON)?, limit).all().await
    }

    /// Downloads an object. Authorization headers from the server take precedence over the credentials.
    pub(crate) async fn lfs_object(
        &self,
        (url, is_own): (Url, bool),
        headers: &BTreeMap<String, String>,
        credentials: &Credentials,
        limit: u64,
    ) -> Result<Body, Fault> {
        let at = Endpoint { base: url.clone(), own: is_own };
        let credentials = if is_own { credentials } else { &Credentials::Anonymous };
        let (request, credentials) = with_headers(self.client(&at).get(url.clone()), headers, credentials)?;
        let response = not_redirected(self.send(request, &at, credentials).await?, &url)?;
        Ok(self.body(accepted(response, &at, self.sent(credentials), "")?, limit))
    }
}

/// Adds the server's headers to the request. Returns the credentials to send in addition to them.
fn with_headers<'c>(
    mut request: reqwest::RequestBuilder,
    headers: &BTreeMap<String, String>,
    mut credentials: &'c Credentials,
) -> Result<(reqwest::RequestBuilder, &'c Credentials), Fault> {
    const BAD: Fault = Fault::Lfs { why: "the server requires request headers that are invalid or too many" };
    if headers.len() > HEADERS {
        return Err(BAD);
    }
    for (name, value) in headers {
        let name = header::HeaderName::from_bytes(name.as_bytes()).map_err(|_| BAD)?;
        let mut value = header::HeaderValue::from_str(value).map_err(|_| BAD)?;
        value.set_sensitive(true);
        if name == header::AUTHORIZATION {
            credentials = &Credentials::Anonymous;
        }
        if !OURS.contains(&name.as_str()) {
            request = request.header(name, value);
        }
    }
    Ok((request, credentials))
}

fn not_redirected(response: reqwest::Response, at: &Url) -> Result<reqwest::Response, Fault> {
    if !response.status().is_redirection() {
        return Ok(response);
    }
    let to = response.headers().get(header::LOCATION).and_then(|to| at.join(to.to_str().ok()?).ok());
    let to = to.map_or_else(|| "an unknown URL".to_owned(), |to| host(&to));
    Err(Fault::Redirect {
        to,
        why: "requests for Git LFS go only to the URL in .lfsconfig or the URL of the repository",
    })
}
