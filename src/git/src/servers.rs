//! Applies the egress rules of a namespace to servers other than Git servers.
//!
//! Not here: connecting.

use std::net::SocketAddr;

use super::Source;
use super::egress::REFUSED;
use super::error::Fault;
use mainstay_object::egress::EgressPolicy;

/// The message for a host that a confined namespace may not connect to. It reveals nothing about the address.
const CONFINED: &str = "the host is not found, or has an address of the cluster, of the machine or of a private network, to which the \
     agent does not connect for this namespace; its operator allows networks with --allow-network";

impl Source {
    /// Resolves the host of a server other than a Git server, and returns the addresses that this namespace may connect
    /// to.
    ///
    /// # Errors
    /// A sentence about the host, if it is not found or has only forbidden addresses.
    pub async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        let names = self.inner.names.within(self.egress(&self.tenant));
        let found = async {
            names.check_host(host)?;
            names.find(&self.tenant, host, port).await
        };
        found.await.map_err(|fault| match fault {
            Fault::Confined { why: REFUSED } => CONFINED.to_owned(),
            fault => fault.to_string(),
        })
    }

    /// Returns the egress rules of all namespaces.
    pub fn egress_policy(&self) -> &EgressPolicy {
        &self.inner.settings.egress
    }

    /// Returns whether local addresses are allowed, as on a developer's machine.
    pub fn allows_local(&self) -> bool {
        self.inner.settings.allow_local
    }
}
