//! Connects to a cluster: creates a [`Cluster`] with two clients from a configuration.
//!
//! Requests use a client with a read timeout and without the client's own retries, which may repeat a write for
//! minutes. Watches use a client without a read timeout but with TCP keepalive, which detects a dead peer within half
//! a minute even on an idle stream.
//!
//! Not here: the source of the configuration (`origin`), and the headers of a request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use parking_lot::RwLock;
use tokio::sync::Semaphore;
use tower::{BoxError, ServiceBuilder};

use super::absent::AbsentNamespaces;
use super::answer_limits::AnswerLimits;
use super::count::{Requests, Verb};
use super::discover::Discovery;
use super::error::{Attempt, Cause, Error, Target};
use super::request::{DEADLINE, transport};
use super::resolver::Resolver;
use super::service_account::ServiceAccount;
use super::turns::Turns;
use super::watch::Unstreamed;

/// A request fails after this time without data.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of pages that are read concurrently. While a page is parsed, it takes three times its size.
const PAGES: usize = 4;
/// Maximum size of the buffer of a connection, in bytes. The buffer of an idle watch stays as large as its largest
/// object, up to this size.
const READ_BUFFER: usize = 64 << 10;
/// TCP keepalive of watches: a dead peer is detected after 15 s + 3 × 5 s.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);

/// Maximum number of requests in flight, without watches, slow and urgent requests. Each request takes a connection, which
/// costs the agent about 90 KiB with TLS. Otherwise thousands of GitSyncs that follow one commit would open thousands
/// of connections.
pub(super) const IN_FLIGHT: usize = 32;

/// Time after which a request in flight is slow. A slow webhook for one kind does not block requests for others.
const SLOW: Duration = Duration::from_secs(1);

/// Whether a request waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The request waits.
    Waits,
    /// The request is sent immediately. The caller limits the number of such requests.
    AtOnce,
}

/// A connection to a cluster. Clones share it. Requests use the agent's own permissions, or those of the impersonated
/// ServiceAccount (field 1). They wait for their turn, unless they are urgent (field 2).
#[derive(Clone)]
pub struct Cluster(pub(super) Arc<Inner>, pub(super) Option<ServiceAccount>, pub(super) Turn);

/// The clients of one cluster. Clones share connections.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) unary: Client,
    pub(super) watches: Client,
}

pub(super) struct Inner {
    /// Replaced when the credentials change.
    pub(super) clients: RwLock<Clients>,
    /// Whether the last request got no response, or one that rejected the credentials.
    in_trouble: AtomicBool,
    pub(super) requests: Requests,
    pub(super) discovery: Discovery,
    pub(super) unstreamed: Unstreamed,
    /// Limits the pages that are read concurrently.
    pub(super) pages: Semaphore,
    pub(super) turns: Turns,
    pub(super) limits: AnswerLimits,
    /// Deadline of a request, from sending it to the last byte of its response.
    pub(super) deadline: Duration,
    /// The namespaces to which lists and watches are limited; unset without a limit.
    pub(super) scope: OnceLock<Arc<[String]>>,
    pub(super) absent: AbsentNamespaces,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    /// Creates the clients from a configuration, with the timeouts of this module and without retries. Sends no
    /// request. Must be called within a tokio runtime.
    pub fn connect(config: Config) -> Result<Self, Error> {
        Self::within(config, None)
    }

    /// Same as `connect`, with a different timeout for each request except watches.
    pub(super) fn within(mut config: Config, timeout: Option<Duration>) -> Result<Self, Error> {
        config.default_retry = false;
        config.connect_timeout = Some(timeout.map_or(CONNECT_TIMEOUT, |timeout| timeout.min(CONNECT_TIMEOUT)));
        config.read_timeout = None;
        let watches = watch_client(config.clone()).map_err(setup)?;
        config.read_timeout = Some(timeout.unwrap_or(READ_TIMEOUT));
        config.write_timeout = Some(READ_TIMEOUT);
        config.reset_reader_on_write = true;
        let unary = ClientBuilder::try_from(config).map_err(setup)?.build();
        let clients = Clients { unary, watches };
        Ok(Self::of_clients(clients, PAGES, AnswerLimits::OWN, timeout.unwrap_or(DEADLINE)))
    }

    /// Uses existing clients: one for requests, one for watches. They may be clones of one client.
    pub fn from_clients(unary: Client, watches: Client) -> Self {
        Self::of_clients(Clients { unary, watches }, PAGES, AnswerLimits::OWN, DEADLINE)
    }

    pub(super) fn of_clients(clients: Clients, pages: usize, limits: AnswerLimits, deadline: Duration) -> Self {
        let inner = Inner {
            clients: RwLock::new(clients),
            in_trouble: AtomicBool::new(false),
            requests: Requests::default(),
            discovery: Discovery::default(),
            unstreamed: Unstreamed::default(),
            pages: Semaphore::new(pages),
            turns: Turns::new(IN_FLIGHT, SLOW),
            limits,
            deadline,
            scope: OnceLock::new(),
            absent: AbsentNamespaces::default(),
        };
        Self(Arc::new(inner), None, Turn::Waits)
    }

    /// Returns the same connection that impersonates this ServiceAccount; `None` stands for the agent's own
    /// permissions.
    #[must_use]
    pub fn acting_as(&self, account: Option<ServiceAccount>) -> Self {
        Self(Arc::clone(&self.0), account, self.2)
    }

    /// Returns the same connection for urgent requests, which do not wait while many others are in flight. The caller
    /// limits their number.
    #[must_use]
    pub fn urgent(&self) -> Self {
        Self(Arc::clone(&self.0), self.1.clone(), Turn::AtOnce)
    }

    /// The impersonated ServiceAccount; `None` stands for the agent's own permissions.
    pub fn acts_as(&self) -> Option<&ServiceAccount> {
        self.1.as_ref()
    }

    /// The number of requests sent, by verb and resource.
    pub fn requests(&self) -> &Requests {
        &self.0.requests
    }

    /// The namespace of the kubeconfig's context or of the pod, else `default`.
    pub fn default_namespace(&self) -> String {
        self.0.clients.read().unary.default_namespace().to_owned()
    }

    /// Whether the last request got no response, or one that rejected the credentials.
    pub fn is_in_trouble(&self) -> bool {
        self.0.in_trouble.load(Ordering::Relaxed)
    }

    pub(super) fn set_in_trouble(&self, is_so: bool) {
        self.0.in_trouble.store(is_so, Ordering::Relaxed);
    }

    pub(super) fn client(&self, verb: Verb) -> Client {
        let clients = self.0.clients.read();
        if verb == Verb::Watch { clients.watches.clone() } else { clients.unary.clone() }
    }
}

pub(super) fn setup(error: kube::Error) -> Error {
    Error::new(
        Attempt::Connect,
        Target::Cluster,
        match transport(error) {
            Cause::Unreachable(error) => Cause::Configuration(error),
            cause => cause,
        },
    )
}

/// The client for watches: HTTP/1.1, TCP keepalive, no decompression, no read timeout. Behind a proxy, the client
/// library's default connection is used, and only the watch's deadline detects a dead connection.
fn watch_client(config: Config) -> kube::Result<Client> {
    if config.proxy_url.is_some() {
        return Ok(ClientBuilder::try_from(config)?.build());
    }
    client_over(&config, kept_alive(Resolver::system()))
}

/// A connector that detects a dead peer.
pub(super) fn kept_alive(resolver: Resolver) -> HttpConnector<Resolver> {
    let mut connector = HttpConnector::new_with_resolver(resolver);
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE.0));
    connector.set_keepalive_interval(Some(KEEPALIVE.1));
    connector.set_keepalive_retries(Some(KEEPALIVE.2));
    connector
}

/// A client without timeouts: watches have none, and other requests have a deadline.
pub(super) fn client_over(config: &Config, connector: HttpConnector<Resolver>) -> kube::Result<Client> {
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let mut http = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
    http.http1_max_buf_size(READ_BUFFER);
    let http = http.build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// The settings of the proxy environment variables, with their usual meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxySettings {
    /// `HTTPS_PROXY`.
    pub https: Option<String>,
    /// `NO_PROXY`: hosts, domains with their subdomains, addresses, networks; `*` for everything.
    pub exceptions: String,
}

impl ProxySettings {
    /// Reads `HTTPS_PROXY` and `NO_PROXY`, in either case.
    pub fn from_environment() -> Self {
        let read = |upper: &str, lower: &str| {
            [upper, lower].into_iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        };
        Self { https: read("HTTPS_PROXY", "https_proxy"), exceptions: read("NO_PROXY", "no_proxy").unwrap_or_default() }
    }

    /// URL of the proxy for this host, if any. A proxy without a scheme is an HTTP proxy.
    pub(crate) fn proxy_of(&self, host: &str) -> Option<String> {
        let proxy = self.https.as_deref()?;
        let host = host.trim_matches(['[', ']']);
        if self.exceptions.split(',').map(str::trim).any(|exception| matches_exception(exception, host)) {
            return None;
        }
        Some(if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") })
    }
}

fn matches_exception(exception: &str, host: &str) -> bool {
    if exception == "*" {
        return true;
    }
    if let Ok(address) = host.parse::<std::net::IpAddr>() {
        return in_network(exception, address);
    }
    let domain = exception.trim_start_matches('.');
    if domain.is_empty() {
        return false;
    }
    let (host, domain) = (host.to_ascii_lowercase(), domain.to_ascii_lowercase());
    host == domain || host.strip_suffix(&domain).is_some_and(|rest| rest.ends_with('.'))
}

/// Whether an address equals `network` or lies in it (`10.96.0.0/12`).
fn in_network(network: &str, address: std::net::IpAddr) -> bool {
    use std::net::IpAddr;
    let (base, length) = match network.split_once('/') {
        Some((base, length)) => (base, length.parse::<u32>().ok()),
        None => (network, Some(128)),
    };
    let (Ok(base), Some(length)) = (base.parse::<IpAddr>(), length) else { return false };
    match (base, address) {
        (IpAddr::V4(base), IpAddr::V4(address)) => {
            let shift = 32 - length.min(32);
            u64::from(base.to_bits()) >> shift == u64::from(address.to_bits()) >> shift
        }
        (IpAddr::V6(base), IpAddr::V6(address)) => {
            let shift = 128 - length.min(128);
            base.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(exceptions: &str, host: &str, proxied: bool) {
        let settings = ProxySettings { https: Some("proxy:3128".to_owned()), exceptions: exceptions.to_owned() };
        let expected = proxied.then(|| "http://proxy:3128".to_owned());
        assert_eq!(settings.proxy_of(host), expected, "{host} with {exceptions}");
    }

    #[test]
    fn reaches_exceptions_without_the_proxy() {
        check("", "10.96.0.1", true);
        check("10.96.0.0/12,.svc", "10.96.0.1", false);
        check("10.96.0.0/12,.svc", "10.128.0.1", true);
        check("10.96.0.1", "10.96.0.1", false);
        check("10.96.0.0/999", "10.96.0.1", true);
        check("fd00::/8", "[fd00::1]", false);
        check("::/0", "[fd00::1]", false);
        check("0.0.0.0/0", "10.0.0.1", false);
        check(".svc, example.com", "kubernetes.default.svc", false);
        check(".svc, example.com", "API.Example.com", false);
        check(".svc, example.com", "notexample.com", true);
        check("*", "anything", false);
    }

    #[test]
    fn needs_no_proxy_where_none_is_set() {
        assert_eq!(ProxySettings::default().proxy_of("10.0.0.1"), None);
    }
}
