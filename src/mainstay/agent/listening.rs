//! Where the agent listens for webhooks: those of Git hosts, and those of the API server.
//!
//! Deliberately absent: health and metrics, which fail the agent only when it runs.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::RootCertStore;

use super::error::Error;
use mainstay_api::names::ADMISSION;
use mainstay_cluster::certificate::Lifetimes;
use mainstay_gitsync::receiver::BaseUrl;

/// Where deliveries of webhooks come in.
#[derive(Clone, Debug)]
pub struct Receive {
    /// The listener.
    pub listener: Arc<std::net::TcpListener>,
    /// The address under which hosts reach it.
    pub base: BaseUrl,
}

impl Receive {
    /// Listens on an address. Port 0 takes a free one.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn bind(address: SocketAddr, base: BaseUrl) -> Result<Self, Error> {
        let listener = listen(address).map_err(|cause| Error::Receive { address, cause })?;
        Ok(Self { listener: Arc::new(listener), base })
    }

    /// The address that is listened on.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }
}

/// Where the API server asks about writes.
#[derive(Clone, Debug)]
pub struct Admit {
    /// The listener.
    pub listener: Arc<std::net::TcpListener>,
    /// How long its certificates hold.
    pub lifetimes: Lifetimes,
    /// The authorities of the certificates that API servers show for admission; `None`: these show none.
    pub client_authorities: Option<Arc<RootCertStore>>,
}

impl Admit {
    /// Listens on an address. Port 0 takes a free one.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn bind(address: SocketAddr) -> Result<Self, Error> {
        let listener = listen(address).map_err(|cause| Error::Admit { address, cause })?;
        Ok(Self { listener: Arc::new(listener), lifetimes: Lifetimes::default(), client_authorities: None })
    }

    /// The address that is listened on.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// What API servers call it: the Service, and the address if it is one.
    pub(super) fn names(&self, namespace: &str) -> Vec<String> {
        let service = format!("{ADMISSION}.{namespace}.svc");
        let address = self.address().map(|address| address.ip()).filter(|ip| !ip.is_unspecified());
        std::iter::once(service).chain(address.map(|ip| ip.to_string())).collect()
    }
}

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
