//! The listeners for webhooks of Git hosts, and for admission webhooks of the API server.
//!
//! Not here: the listener for health and metrics. Only a failure while the agent runs ends the agent.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::RootCertStore;

use super::error::Error;
use loopback::{Reach, Reserved};
use mainstay_api::names::ADMISSION;
use mainstay_cluster::certificate::Lifetimes;
use mainstay_gitsync::receiver::BaseUrl;

/// The listener for deliveries of webhooks.
#[derive(Clone, Debug)]
pub struct Receive {
    /// The listener.
    pub listener: Arc<Reserved>,
    /// The URL at which Git hosts reach the listener.
    pub base: BaseUrl,
}

impl Receive {
    /// Binds an address; port 0 selects a free one.
    ///
    /// # Errors
    /// Fails if the address cannot be bound.
    pub fn bind(address: SocketAddr, reach: Reach, base: BaseUrl) -> Result<Self, Error> {
        let listener = Reserved::bind(address, reach).map_err(|cause| Error::Receive { address, cause })?;
        Ok(Self { listener: Arc::new(listener), base })
    }

    /// Returns the bound address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }
}

/// The listener for admission requests of the API server.
#[derive(Clone, Debug)]
pub struct Admit {
    /// The listener.
    pub listener: Arc<Reserved>,
    /// Lifetimes of the listener's certificates.
    pub lifetimes: Lifetimes,
    /// CAs of the API server's client certificates for admission; `None` if the API server presents no certificate.
    pub client_authorities: Option<Arc<RootCertStore>>,
}

impl Admit {
    /// Binds an address; port 0 selects a free one.
    ///
    /// # Errors
    /// Fails if the address cannot be bound.
    pub fn bind(address: SocketAddr, reach: Reach) -> Result<Self, Error> {
        let listener = Reserved::bind(address, reach).map_err(|cause| Error::Admit { address, cause })?;
        Ok(Self { listener: Arc::new(listener), lifetimes: Lifetimes::default(), client_authorities: None })
    }

    /// Returns the bound address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Returns the names that API servers use: the Service, and the IP address if it is specific.
    pub(super) fn names(&self, namespace: &str) -> Vec<String> {
        let service = format!("{ADMISSION}.{namespace}.svc");
        let address = self.address().map(|address| address.ip()).filter(|ip| !ip.is_unspecified());
        std::iter::once(service).chain(address.map(|ip| ip.to_string())).collect()
    }
}
