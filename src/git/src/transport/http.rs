//! Requests to a Git server over HTTP. Statuses become errors, and redirects are followed here, not by the client.
//!
//! Invariant: a client is dropped, together with its certificates, with the last remote that uses it. Only the client
//! with default settings is kept.
//! Invariant: credentials are sent only to the host of the repository's address. A redirect to a different host is
//! followed without credentials, and a redirect from https to http is not followed.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use jiff::Timestamp;
use parking_lot::Mutex;
use reqwest::{StatusCode, Url, header};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::body::Body;
use super::endpoint::{Endpoint, append, host, redirected};
use super::http_fault::network;
use super::names::{self, Names};
use crate::error::{Fault, Sent};
use crate::github_app::{GithubApp, Issuer};
use crate::{Connection, Credentials, Deadlines, DefaultProxy};
use mainstay_object::failure::retry_after_header;

/// Some servers accept only clients that identify as git.
const AGENT: &str = concat!("git/2.0 (mainstay ", env!("CARGO_PKG_VERSION"), ")");
const REDIRECTS: usize = 5;
/// Maximum size of a response to a GitHub App, in bytes.
const APP_ANSWER_BYTES: usize = 64 << 10;
/// Maximum length of a token, in bytes.
const TOKEN_BYTES: usize = 4 << 10;
/// The service of pushes.
const PUSH: &str = "git-receive-pack";

/// Storage for a remote's client.
pub(crate) type ClientPlace = Mutex<Option<Arc<Http>>>;

/// All clients.
#[derive(Debug)]
pub(crate) struct HttpClients {
    deadlines: Deadlines,
    names: Names,
    proxy: DefaultProxy,
    usual: OnceLock<Arc<Http>>,
    /// Clients, by the digest of their connection. The references are weak, so that a private key is dropped with its
    /// last use.
    others: Mutex<HashMap<[u8; 32], Weak<Http>>>,
}

impl HttpClients {
    pub(crate) fn new(deadlines: Deadlines, names: Names, proxy: DefaultProxy) -> Self {
        Self { deadlines, names, proxy, usual: OnceLock::new(), others: Mutex::default() }
    }

    /// Returns the client for a remote's connection. `place` keeps it alive.
    pub(crate) fn get(&self, connection: &Connection, place: &ClientPlace) -> Result<Arc<Http>, Fault> {
        if *connection == Connection::default() {
            return self.usual();
        }
        if let Some(kept) = &*place.lock() {
            return Ok(Arc::clone(kept));
        }
        let digest = connection.digest();
        let known = self.others.lock().get(&digest).and_then(Weak::upgrade);
        let client = match known {
            Some(client) => client,
            None => Arc::new(self.made(&self.names.within(connection.egress), connection)?),
        };
        let mut others = self.others.lock();
        others.retain(|_, client| client.strong_count() > 0);
        others.insert(digest, Arc::downgrade(&client));
        *place.lock() = Some(Arc::clone(&client));
        Ok(client)
    }

    /// Returns a client that no remote shares.
    pub(crate) fn alone(&self, connection: &Connection) -> Result<Http, Fault> {
        self.made(&self.names.within(connection.egress), connection)
    }

    fn made(&self, names: &Names, connection: &Connection) -> Result<Http, Fault> {
        Http::new(self.deadlines, names, connection, self.proxy)
    }

    fn usual(&self) -> Result<Arc<Http>, Fault> {
        if let Some(usual) = self.usual.get() {
            return Ok(Arc::clone(usual));
        }
        let usual = Arc::new(self.made(&self.names, &Connection::default())?);
        Ok(Arc::clone(self.usual.get_or_init(|| usual)))
    }
}

const NO_OWNER: &str = "it has no installation of the App for this owner (404); correct githubAppInstallationOwner in the \
                        Secret, or name the number under githubAppInstallationID";
const NO_INSTALLATION: &str =
    "it has no such installation of the App (404); correct githubAppInstallationID in the Secret";

/// An installation of a GitHub App. Other fields are ignored.
#[derive(Deserialize)]
struct Installation {
    id: u64,
}

/// Returns the error that an API refuses an App.
fn refused_by(api: &Url, why: &str) -> Fault {
    Fault::App { host: api.host_str().unwrap_or_default().to_owned(), why: why.to_owned() }
}

/// The API's response to a GitHub App.
#[derive(Deserialize)]
struct AppAnswer {
    token: String,
    expires_at: Timestamp,
}

/// A client for remotes with the same connection settings.
pub(crate) struct Http {
    /// Client for the host of the repository's address.
    own: reqwest::Client,
    /// Client for other hosts, without the client certificate.
    foreign: reqwest::Client,
    pub(super) connection: Connection,
    pub(super) names: Names,
    pub(super) deadlines: Deadlines,
    /// TLS settings of connections without HTTP.
    pub(super) tls: OnceLock<Arc<rustls::ClientConfig>>,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The `Debug` output of the clients would contain the proxy's password.
        f.debug_struct("Http").field("connection", &self.connection).finish_non_exhaustive()
    }
}

impl Http {
    pub(super) fn new(
        deadlines: Deadlines,
        names: &Names,
        connection: &Connection,
        proxy: DefaultProxy,
    ) -> Result<Self, Fault> {
        // This fails only if a provider is already installed, which works, too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if let Some(proxy) = &connection.proxy {
            // The client does not call the resolver for a proxy that is an IP address.
            names.check_address(&proxy.host).map_err(|fault| match fault {
                Fault::Confined { why } => Fault::Proxy { why: format!("{proxy}: {why}") },
                fault => fault,
            })?;
        }
        let made = |connection: &Connection| client(deadlines, names, connection, proxy);
        let foreign = made(&Connection { client: None, ..connection.clone() })?;
        let own = if connection.client.is_some() { made(connection)? } else { foreign.clone() };
        let (connection, names) = (connection.clone(), names.clone());
        Ok(Self { own, foreign, connection, names, deadlines, tls: OnceLock::new() })
    }

    pub(super) fn client(&self, at: &Endpoint) -> &reqwest::Client {
        if at.own { &self.own } else { &self.foreign }
    }

    /// Returns the two clients, and the resolver that limits the hosts they may reach.
    pub(crate) fn clients(&self) -> (reqwest::Client, reqwest::Client, Names) {
        (self.own.clone(), self.foreign.clone(), self.names.clone())
    }

    /// Requests the advertisement, and follows redirects.
    pub(super) async fn advertisement(
        &self,
        url: &Url,
        credentials: &Credentials,
        limit: u64,
    ) -> Result<(Endpoint, Body), Fault> {
        self.advertised(url, credentials, limit, "git-upload-pack").await
    }

    /// Requests the advertisement for a push, and follows redirects.
    pub(super) async fn push_advertisement(
        &self,
        url: &Url,
        credentials: &Credentials,
        limit: u64,
    ) -> Result<(Endpoint, Body), Fault> {
        self.advertised(url, credentials, limit, PUSH).await
    }

    async fn advertised(
        &self,
        url: &Url,
        credentials: &Credentials,
        limit: u64,
        service: &str,
    ) -> Result<(Endpoint, Body), Fault> {
        let mut at = Endpoint { base: url.clone(), own: true };
        for _ in 0..=REDIRECTS {
            let query = format!("service={service}");
            let mut request = self.client(&at).get(append(&at.base, "info/refs", Some(&query)));
            if service != PUSH {
                request = request.header("git-protocol", "version=2");
            }
            let request = request.header(header::PRAGMA, "no-cache");
            let response = self.send(request, &at, credentials).await?;
            if response.status().is_redirection() {
                at = redirected(&at, url, &response)?;
                continue;
            }
            let expected = format!("application/x-{service}-advertisement");
            let response = accepted(response, &at, self.sent(credentials), &expected)?;
            return Ok((at, self.body(response, limit)));
        }
        Err(Fault::Redirect { to: host(&at.base), why: "there are more than five redirects" })
    }

    /// Sends a push.
    pub(super) async fn ask_to_push(
        &self,
        at: &Endpoint,
        credentials: &Credentials,
        request_body: Vec<u8>,
        limit: u64,
    ) -> Result<Body, Fault> {
        let request = self
            .client(at)
            .post(append(&at.base, PUSH, None))
            .header(header::CONTENT_TYPE, "application/x-git-receive-pack-request")
            .header(header::ACCEPT, "application/x-git-receive-pack-result")
            .body(request_body);
        let response = self.send(request, at, credentials).await?;
        if response.status().is_redirection() {
            return Err(Fault::Redirect { to: host(&at.base), why: "only the first request may be redirected" });
        }
        let response = accepted(response, at, self.sent(credentials), "application/x-git-receive-pack-result")?;
        Ok(self.body(response, limit))
    }

    /// Sends a protocol request.
    pub(super) async fn ask(
        &self,
        at: &Endpoint,
        credentials: &Credentials,
        version: Version,
        request_body: Vec<u8>,
        limit: u64,
    ) -> Result<Body, Fault> {
        let mut request = self
            .client(at)
            .post(append(&at.base, "git-upload-pack", None))
            .header(header::CONTENT_TYPE, "application/x-git-upload-pack-request")
            .header(header::ACCEPT, "application/x-git-upload-pack-result")
            .body(request_body);
        if version == Version::Two {
            request = request.header("git-protocol", "version=2");
        }
        let response = self.send(request, at, credentials).await?;
        if response.status().is_redirection() {
            let to = response.headers().get(header::LOCATION).and_then(|to| at.base.join(to.to_str().ok()?).ok());
            let to = to.map_or_else(|| "an unknown URL".to_owned(), |to| host(&to));
            return Err(Fault::Redirect { to, why: "only the first request may be redirected" });
        }
        let response = accepted(response, at, self.sent(credentials), "application/x-git-upload-pack-result")?;
        Ok(self.body(response, limit))
    }

    pub(super) async fn send(
        &self,
        request: reqwest::RequestBuilder,
        at: &Endpoint,
        credentials: &Credentials,
    ) -> Result<reqwest::Response, Fault> {
        let request = match credentials {
            Credentials::Basic { username, password } if at.own => {
                request.basic_auth(username, Some(password.expose()))
            }
            Credentials::Bearer(token) if at.own => request.bearer_auth(token.expose()),
            _ => request,
        };
        self.answer(request).await
    }

    fn network(&self, error: &reqwest::Error) -> Fault {
        match (network(error), &self.connection.proxy) {
            (Fault::Network { what }, Some(proxy)) if error.is_connect() => {
                Fault::Proxy { why: format!("{proxy}: {what}") }
            }
            (fault, _) => fault,
        }
    }

    /// Requests a token of a GitHub App from this API. Returns it with its expiry.
    pub(crate) async fn app_token(
        &self,
        app: &GithubApp,
        api: &Issuer,
    ) -> Result<(Zeroizing<String>, Timestamp), Fault> {
        let refused = |why: &str| refused_by(api.url(), why);
        let found = match app.installation_url(api) {
            None => None,
            Some(url) => {
                let answer = self.ask_app(app, api, self.foreign.get(url), NO_OWNER).await?;
                let answer: Installation =
                    serde_json::from_slice(&answer).map_err(|_| refused("its response has no installation"))?;
                Some(answer.id)
            }
        };
        let answer = self.ask_app(app, api, self.foreign.post(app.token_url(api, found)), NO_INSTALLATION).await?;
        let answer: AppAnswer = serde_json::from_slice(&answer).map_err(|_| refused("its response has no token"))?;
        let is_plain = answer.token.bytes().all(|byte| byte.is_ascii_graphic());
        if answer.token.is_empty() || answer.token.len() > TOKEN_BYTES || !is_plain {
            return Err(refused("its response has no token"));
        }
        Ok((Zeroizing::new(answer.token), answer.expires_at))
    }

    /// Sends a request signed by the App. `missing` is the reason that a response with status 404 means.
    async fn ask_app(
        &self,
        app: &GithubApp,
        api: &Issuer,
        request: reqwest::RequestBuilder,
        missing: &str,
    ) -> Result<Vec<u8>, Fault> {
        let refused = |why: &str| Err(refused_by(api.url(), why));
        let asked = request
            .bearer_auth(app.signed_request(Timestamp::now().as_second())?.expose())
            .header(header::ACCEPT, "application/vnd.github+json")
            .header("x-github-api-version", "2022-11-28");
        let mut response = self.answer(asked).await?;
        match response.status() {
            StatusCode::CREATED | StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => {
                return refused(
                    "it does not accept the key (401); correct githubAppID and githubAppPrivateKey in the Secret",
                );
            }
            StatusCode::FORBIDDEN => {
                return refused("the installation is suspended or may not read the repository (403)");
            }
            StatusCode::NOT_FOUND => return refused(missing),
            status if status.is_redirection() => return refused("it redirects, which is not followed"),
            status => return Err(Fault::Status { status: status.as_u16(), retry_after: None }),
        }
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(&mut response).await? {
            body.extend_from_slice(&chunk);
            if body.len() > APP_ANSWER_BYTES {
                return Err(Fault::TooLarge {
                    what: "the response with the token of the GitHub App in bytes",
                    limit: 65_536,
                });
            }
        }
        Ok(body)
    }

    /// Sends a request to a server other than a Git server. Returns the response and at most this many bytes of its
    /// body.
    pub(crate) async fn send_plain(
        &self,
        request: reqwest::Request,
        most: usize,
    ) -> Result<(reqwest::Response, Vec<u8>), Fault> {
        let mut response = self.answer(reqwest::RequestBuilder::from_parts(self.own.clone(), request)).await?;
        let mut body = Vec::new();
        while body.len() < most {
            let Some(chunk) = self.chunk(&mut response).await? else { break };
            body.extend_from_slice(&chunk);
        }
        body.truncate(most);
        Ok((response, body))
    }

    /// Sends a request and returns the response.
    async fn answer(&self, request: reqwest::RequestBuilder) -> Result<reqwest::Response, Fault> {
        let silence = self.deadlines.silence;
        let (client, request) = request.build_split();
        let request = request.map_err(|error| self.network(&error))?;
        // The client does not call the resolver for IP addresses, so they are checked here.
        request.url().host_str().map_or(Ok(()), |host| self.names.check_host(host))?;
        self.check_proxy().await?;
        match tokio::time::timeout(silence, client.execute(request)).await {
            Ok(answer) => answer.map_err(|error| self.network(&error)),
            Err(_) => Err(Fault::Timeout { after: silence, what: "waiting for a response" }),
        }
    }

    /// Refuses a forbidden proxy. The client checks it again, but does not report the reason.
    async fn check_proxy(&self) -> Result<(), Fault> {
        let Some(proxy) = self.connection.proxy.as_deref().filter(|_| self.names.are_limited()) else { return Ok(()) };
        let tenant = names::tenant();
        let found = self.names.find(&tenant, &proxy.host, proxy.port);
        match tokio::time::timeout(self.deadlines.connect, found).await {
            Ok(Err(Fault::Confined { why })) => Err(Fault::Proxy { why: format!("{proxy}: {why}") }),
            // The client reports other errors of the proxy.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Returns the next bytes of a response.
    async fn chunk(&self, response: &mut reqwest::Response) -> Result<Option<bytes::Bytes>, Fault> {
        let silence = self.deadlines.silence;
        match tokio::time::timeout(silence, response.chunk()).await {
            Ok(chunk) => chunk.map_err(|error| network(&error)),
            Err(_) => Err(Fault::Timeout { after: silence, what: "waiting for data" }),
        }
    }

    pub(super) fn sent(&self, credentials: &Credentials) -> Sent {
        credentials.sent(&self.connection)
    }

    pub(super) fn body(&self, response: reqwest::Response, limit: u64) -> Body {
        Body::http(response, limit, self.deadlines.silence)
    }
}

fn client(
    deadlines: Deadlines,
    names: &Names,
    connection: &Connection,
    proxy: DefaultProxy,
) -> Result<reqwest::Client, Fault> {
    let mut builder = reqwest::Client::builder()
        .user_agent(AGENT)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(deadlines.connect)
        .dns_resolver(names.clone());
    if proxy == DefaultProxy::None {
        builder = builder.no_proxy();
    }
    if let Some(authorities) = &connection.authorities {
        let certificates = reqwest::Certificate::from_pem_bundle(authorities.pem().as_bytes());
        builder = builder.tls_certs_only(certificates.map_err(|error| network(&error))?);
    }
    if let Some(proxy) = &connection.proxy {
        let url = proxy.url().ok_or(Fault::Stopped)?;
        let proxy = reqwest::Proxy::all(url.expose().clone());
        // Some proxies close a connection silently after a response, so that the next request on it would fail.
        builder = builder.proxy(proxy.map_err(|error| network(&error))?).pool_max_idle_per_host(0);
    }
    if let Some(client) = &connection.client {
        let identity = reqwest::Identity::from_pem(client.pem().as_bytes());
        builder = builder.identity(identity.map_err(|error| network(&error))?);
    }
    builder.build().map_err(|error| network(&error))
}

/// The protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// 0: all references are advertised first.
    Zero,
    /// 2: references are requested.
    Two,
}

pub(super) fn accepted(
    response: reqwest::Response,
    at: &Endpoint,
    with: Sent,
    expected: &str,
) -> Result<reqwest::Response, Fault> {
    let status = response.status();
    let header = |name| response.headers().get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    if !status.is_success() {
        let holds_back = matches!(with, Sent::WithCredentials | Sent::WithCertificate);
        let elsewhere = (!at.own && holds_back).then(|| host(&at.base));
        return Err(match status {
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => Fault::ProxyDenied,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Fault::Denied { status: status.as_u16(), with, elsewhere }
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => Fault::NotFound { status: status.as_u16() },
            _ => Fault::Status {
                status: status.as_u16(),
                retry_after: header(header::RETRY_AFTER).and_then(|text| retry_after_header(text, Timestamp::now())),
            },
        });
    }
    match header(header::CONTENT_TYPE).unwrap_or_default() {
        kind if kind.starts_with(expected) => Ok(response),
        kind if kind.starts_with("text/html") => Err(Fault::WebPage),
        kind if kind.starts_with("text/plain") => {
            Err(Fault::Protocol { why: "it serves plain files only (the \"dumb\" protocol)" })
        }
        _ => Err(Fault::Protocol { why: "the content type is not that of Git" }),
    }
}
