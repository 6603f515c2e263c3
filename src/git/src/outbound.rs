//! Sends requests to servers that objects name and that are no Git servers, within the egress policy.
//!
//! Invariant: the rules for hosts, proxies and certificates are those of repositories: one client serves both.
//! Invariant: no redirect is followed, so credentials reach only the named host.

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
use crate::transport::{Http, on_behalf_of};
use mainstay_object::failure::retry_after_header;

/// Maximum number of bytes of an answer that are kept.
const ANSWER_BYTES: usize = 4 << 10;

/// A client of one namespace.
#[derive(Debug)]
pub struct Outbound {
    http: Http,
    tenant: Tenant,
}

/// Returns why a host may not be reached.
pub type HostCheck = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// The answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The delay that the server asks for.
    pub retry_after: Option<Duration>,
    /// The first 4 KiB of the body.
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
        let connection = connection.within(self.egress(namespace));
        Ok(Outbound { http: self.http_of(&connection)?, tenant: namespace.into() })
    }
}

impl Outbound {
    /// Returns the client for the named host, the one for other hosts, and the check of a host before a request.
    pub fn clients(&self) -> (reqwest::Client, reqwest::Client, HostCheck) {
        let (own, foreign, names) = self.http.clients();
        (own, foreign, Arc::new(move |host| names.check_host(host).map_err(|fault| fault.to_string())))
    }

    /// Runs requests of [`clients`](Self::clients) for the namespace.
    pub async fn run<T>(&self, requests: impl Future<Output = T>) -> T {
        on_behalf_of(&self.tenant, requests).await
    }

    /// Sends a request. The whole exchange takes at most `timeout`, and 30 s by the deadline of Git requests.
    ///
    /// # Errors
    /// The server was not reached, or may not be reached.
    pub async fn send(&self, request: http::Request<Vec<u8>>, timeout: Duration) -> Result<Answer, Fault> {
        let unusable = |_| Fault::Network { what: "the request cannot be built from its address".to_owned() };
        let request = reqwest::Request::try_from(request).map_err(unusable)?;
        let sending = on_behalf_of(&self.tenant, self.http.send_plain(request, ANSWER_BYTES));
        let (response, body) = tokio::time::timeout(timeout, sending)
            .await
            .map_err(|_| Fault::Timeout { after: timeout, what: "waiting for a response" })??;
        let after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        Ok(Answer {
            status: response.status().as_u16(),
            retry_after: after.and_then(|text| retry_after_header(text, Timestamp::now())),
            body,
        })
    }
}
