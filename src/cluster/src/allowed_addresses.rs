//! The addresses that a connection to a remote cluster may use. The author of a Secret chooses the host, and some hosts
//! are not allowed.
//!
//! Invariant: each address is checked by egress rules, also if the function that looks names up has checked it.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;

use mainstay_object::egress::{Egress, EgressPolicy, EgressRefusal};

/// Resolves a host and a port. The error is a sentence.
pub type Addresses = Arc<dyn Fn(String, u16) -> BoxFuture<'static, Result<Vec<SocketAddr>, String>> + Send + Sync>;

/// The host has no address, or no address that is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoAddress {
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Refused(EgressRefusal),
}

/// A function that looks names up, and the egress rules for its results.
#[derive(Clone)]
pub struct AllowedAddresses {
    egress: Egress,
    policy: EgressPolicy,
    look_up: Addresses,
}

impl AllowedAddresses {
    /// Returns the addresses that `look_up` finds and that the rules allow.
    pub fn new(egress: Egress, policy: EgressPolicy, look_up: Addresses) -> Self {
        Self { egress, policy, look_up }
    }

    /// Returns the addresses that the resolver of the system finds, for commands. Connections to remote clusters use no
    /// proxy, so the rules need no names of proxies.
    pub fn of_system(egress: Egress) -> Self {
        let look_up: Addresses = Arc::new(|host, port| {
            Box::pin(async move {
                let found = tokio::net::lookup_host((host.as_str(), port)).await;
                let found = found.map_err(|error| format!("the name {host} is not found ({error})"))?;
                Ok(found.collect())
            })
        });
        Self::new(egress, EgressPolicy::default(), look_up)
    }

    /// Returns the allowed addresses of a host.
    ///
    /// # Errors
    /// The host is not found, or none of its addresses is allowed.
    pub(super) async fn find(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, NoAddress> {
        let found = (self.look_up)(host.to_owned(), port).await.map_err(NoAddress::NotFound)?;
        self.permitted(found)
    }

    fn permitted(&self, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, NoAddress> {
        let refusal = |address: &SocketAddr| self.policy.refusal(self.egress, address.ip());
        let refused = found.iter().find_map(refusal);
        let permitted: Vec<SocketAddr> = found.into_iter().filter(|address| refusal(address).is_none()).collect();
        match refused {
            Some(refusal) if permitted.is_empty() => Err(NoAddress::Refused(refusal)),
            _ => Ok(permitted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_addresses_of_the_machine_has_only_its_other_addresses() {
        let found = |addresses: &[&str], egress| {
            let found: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
            AllowedAddresses::of_system(egress).permitted(found)
        };
        let (local, far) = ("127.0.0.1:443", "10.0.0.1:443");
        assert_eq!(found(&[local, far], Egress::OffMachine), Ok(vec![far.parse().unwrap()]));
        assert_eq!(found(&[local, "[::1]:443"], Egress::OffMachine), Err(NoAddress::Refused(EgressRefusal::Machine)));
        assert_eq!(found(&[local], Egress::Unrestricted), Ok(vec![local.parse().unwrap()]));
        for egress in [Egress::OffMachine, Egress::Unrestricted] {
            for metadata in ["169.254.169.254:80", "[fe80::1]:80"] {
                let refused = Err(NoAddress::Refused(EgressRefusal::Metadata));
                assert_eq!(found(&[metadata], egress), refused, "{metadata}");
            }
        }
    }

    #[tokio::test]
    async fn an_address_is_checked_although_the_lookup_allows_it() {
        let look_up: Addresses =
            Arc::new(|_, port| Box::pin(async move { Ok(vec![SocketAddr::from(([10, 0, 0, 1], port))]) }));
        let allowed = |egress| AllowedAddresses::new(egress, EgressPolicy::default(), Arc::clone(&look_up));
        let found = allowed(Egress::Confined).find("inside", 443).await;
        assert_eq!(found, Err(NoAddress::Refused(EgressRefusal::Internal)));
        assert_eq!(
            allowed(Egress::OffMachine).find("inside", 443).await,
            Ok(vec![SocketAddr::from(([10, 0, 0, 1], 443))])
        );
    }
}
