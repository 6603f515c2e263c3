//! Sends requests to servers other than Git servers, if an object contains their address. Enforces the egress policy.
//!
//! Invariant: hosts, proxies and certificates obey the same rules as for repositories, because the same client is used.
//! Invariant: no redirect is followed, so credentials are sent only to the configured host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use reqwest::header;

use crate::connection::Connection;
use crate::error::Fault;
use crate::fair_queue::Tenant;
use crate::proxy::Proxy;
use crate::remotes::Source;
use crate::transport::{Http, LineConnection, on_behalf_of};
use mainstay_object::failure::{rate_limit_headers, retry_after_header};

/// A client of one namespace.
#[derive(Debug)]
pub struct Outbound {
    http: Http,
    connection: Connection,
    tenant: Tenant,
}

/// Returns why a host may not be reached.
pub type HostCheck = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// The response of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The delay that the server requests.
    pub retry_after: Option<Duration>,
    /// The first bytes of the body.
    pub body: Vec<u8>,
}

impl Source {
    /// Returns a client for a namespace. `tls` is a Secret with certificates, and `proxy` one with a proxy.
    ///
    /// # Errors
    /// A field of a Secret cannot be used.
    pub fn outbound(
        &self,
        namespace: &str,
        tls: Option<&BTreeMap<String, ByteString>>,
        proxy: Option<&BTreeMap<String, ByteString>>,
    ) -> Result<Outbound, Fault> {
        let mut connection = tls.map_or_else(|| Ok(Connection::default()), Connection::read)?;
        connection.proxy = proxy.map(Proxy::read).transpose()?.map(Arc::new);
        Outbound::new(self, namespace, &connection.within(self.egress(namespace)))
    }
}

impl Outbound {
    pub(crate) fn new(source: &Source, namespace: &str, connection: &Connection) -> Result<Self, Fault> {
        Ok(Self { http: source.http_of(connection)?, connection: connection.clone(), tenant: namespace.into() })
    }

    /// Returns the client for the configured host, the client for other hosts, and the check of a host before a
    /// request.
    pub fn clients(&self) -> (reqwest::Client, reqwest::Client, HostCheck) {
        let (own, foreign, names) = self.http.clients();
        (own, foreign, Arc::new(move |host| names.check_host(host).map_err(|fault| fault.to_string())))
    }

    /// Returns the settings of the client's connections.
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Runs requests that use [`clients`](Self::clients) on behalf of the namespace.
    pub async fn run<T>(&self, requests: impl Future<Output = T>) -> T {
        on_behalf_of(&self.tenant, requests).await
    }

    /// Connects to a server whose protocol has lines, without encryption. Must run within [`run`](Self::run).
    ///
    /// # Errors
    /// The server was not reached, or the egress policy does not allow it.
    pub async fn connect(&self, host: &str, port: u16) -> Result<LineConnection, Fault> {
        self.http.connect(host, port).await
    }

    /// Encrypts a connection. The certificate must be valid for its host.
    ///
    /// # Errors
    /// One side does not accept the other's certificate, or the server does not support TLS.
    pub async fn encrypt(&self, connection: LineConnection) -> Result<LineConnection, Fault> {
        self.http.encrypt(connection).await
    }

    /// Returns whether the Secrets have certificates, so that only an encrypted connection is expected.
    pub fn has_certificates(&self) -> bool {
        self.http.has_certificates()
    }

    /// Sends a request. The whole exchange takes at most `timeout`, and at most the deadline of Git requests (30 s). At
    /// most this many bytes of the body are read.
    ///
    /// # Errors
    /// The server was not reached, or the egress policy does not allow it.
    pub async fn send(
        &self,
        request: http::Request<Vec<u8>>,
        timeout: Duration,
        bytes: usize,
    ) -> Result<Answer, Fault> {
        let unusable = |_| Fault::Network { what: "the request cannot be built from its address".to_owned() };
        let request = reqwest::Request::try_from(request).map_err(unusable)?;
        let sending = on_behalf_of(&self.tenant, self.http.send_plain(request, bytes));
        let (response, body) = tokio::time::timeout(timeout, sending)
            .await
            .map_err(|_| Fault::Timeout { after: timeout, what: "waiting for a response" })??;
        let status = response.status().as_u16();
        Ok(Answer { status, retry_after: retry_after(status, response.headers(), Timestamp::now()), body })
    }
}

/// Returns the delay that a server requests: `Retry-After`, or the end of the rate limit if it was exceeded.
fn retry_after(status: u16, headers: &header::HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let requested = text("retry-after").and_then(|text| retry_after_header(text, now));
    let is_limited = matches!(status, 403 | 429);
    requested.or_else(|| {
        let (remaining, reset) = (text("x-ratelimit-remaining")?, text("x-ratelimit-reset")?);
        rate_limit_headers(remaining, reset, now).filter(|_| is_limited)
    })
}

#[cfg(test)]
mod tests {
    use mainstay_object::egress::EgressPolicy;

    use super::*;
    use crate::Settings;

    #[test]
    fn a_response_without_retry_after_says_by_its_rate_limit_when_the_next_request_may_be_sent() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let seconds = |status: u16, fields: &[(&'static str, &'static str)]| {
            let fields = fields
                .iter()
                .map(|&(name, value)| (header::HeaderName::from_static(name), header::HeaderValue::from_static(value)));
            retry_after(status, &fields.collect(), now).map(|delay| delay.as_secs())
        };
        let limit = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000060")];
        assert_eq!(seconds(403, &limit), Some(60));
        assert_eq!(seconds(429, &limit), Some(60));
        assert_eq!(seconds(404, &limit), None);
        assert_eq!(seconds(403, &limit[..1]), None);
        assert_eq!(seconds(403, &[("x-ratelimit-remaining", "9"), limit[1]]), None);
        assert_eq!(seconds(403, &[("retry-after", "7"), limit[0], limit[1]]), Some(7));
        assert_eq!(seconds(200, &[("retry-after", "7")]), Some(7));
    }

    #[tokio::test]
    async fn a_proxy_that_is_an_internal_address_is_refused_before_any_request() {
        let room = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(room.path());
        settings.egress = EgressPolicy { unconfined: Some(vec!["agent".to_owned()]), ..EgressPolicy::default() };
        let source = Source::new(settings);
        let refused = |namespace: &str, address: &str| {
            let proxy = [("address".to_owned(), ByteString(address.as_bytes().to_vec()))].into();
            source.outbound(namespace, None, Some(&proxy)).err().map(|fault| fault.to_string())
        };
        for address in [
            "http://10.0.0.5:3128",
            "http://127.0.0.1",
            "https://[::1]:8443",
            "socks5://[::ffff:10.0.0.5]",
            "http://2130706433:80",
            "http://0x7f.1:80",
        ] {
            let why = refused("tenant", address).unwrap_or_default();
            assert!(why.contains("private network"), "{address}: {why:?}");
            assert_eq!(refused("agent", address), None, "{address}");
        }
        assert_eq!(refused("tenant", "http://8.8.4.4:3128"), None);
        assert!(refused("agent", "http://169.254.169.254:80").is_some());
    }
}
