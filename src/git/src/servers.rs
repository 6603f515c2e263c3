//! Other servers than Git's that somebody names in a namespace: the same rules hold for what the agent connects to.
//!
//! Deliberately not here: connecting.

use std::net::SocketAddr;

use super::Source;
use super::egress::REFUSED;
use super::error::Fault;

/// What is said of a host that a confined namespace may not have connected to. Nothing is said of what is there.
const CONFINED: &str = "the host is not found, or has an address of the cluster, of the machine or of a private network, to which the \
     agent does not connect for this namespace; its operator allows networks with --allow-network";

impl Source {
    /// The addresses of another server than Git's that this namespace names, of those that it may have connected to; the error
    /// is a sentence about the host.
    ///
    /// # Errors
    /// The host is not found, or leads only to addresses that are not connected to.
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

    /// Whether what is on this machine counts as any other place: on a developer's machine.
    pub fn allows_local(&self) -> bool {
        self.inner.settings.allow_local
    }
}
