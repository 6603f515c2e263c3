//! Connects to a remote cluster with a [`Kubeconfig`] from a Secret.
//!
//! Invariant: this is the only way to a cluster of a kubeconfig from a Secret, and it needs [`AllowedAddresses`]. A
//! connection uses only an address that these contain, without a proxy or a second lookup.
//! Invariant: no redirect is followed. The clients do not support them.

use std::net::IpAddr;
use std::time::Duration;

use kube::Config;
use kube::config::AuthInfo;

use super::allowed_addresses::{AllowedAddresses, NoAddress};
use super::answer_limits::AnswerLimits;
use super::connect::{CONNECT_TIMEOUT, Clients, Cluster, client_over, kept_alive, setup};
use super::error::{Attempt, Cause, Error, Target};
use super::kind::{Kind, Scope};
use super::kubeconfig::Kubeconfig;
use super::request::DEADLINE;
use super::resolver::Resolver;

/// Timeout of the request for the cluster's ID.
const WITHIN: Duration = Duration::from_secs(15);
/// Maximum number of pages of a remote cluster that are read concurrently.
const PAGES: usize = 1;
/// Maximum length of a UID, which is usually a UUID.
const MAX_UID: usize = 64;
/// The namespace whose UID identifies a cluster.
const KUBE_SYSTEM: &str = "kube-system";

impl Cluster {
    /// Creates the clients of a remote cluster. Sends no request.
    ///
    /// # Errors
    /// The host is not allowed, or TLS cannot be configured with the kubeconfig.
    pub async fn remote(kubeconfig: &Kubeconfig, addresses: AllowedAddresses) -> Result<Self, Error> {
        let (host, port) = kubeconfig.address();
        // The connector does not resolve IP addresses, so a host that is an IP address is checked here.
        if host.parse::<IpAddr>().is_ok() {
            let refused =
                |why: NoAddress| Error::new(Attempt::Connect, Target::Cluster, Cause::Unreachable(Box::new(why)));
            addresses.find(host, port).await.map_err(refused)?;
        }
        let config = config(kubeconfig);
        let resolver = Resolver::by(addresses);
        let clients = Clients {
            unary: client_over(&config, kept_alive(resolver.clone())).map_err(setup)?,
            watches: client_over(&config, kept_alive(resolver)).map_err(setup)?,
        };
        Ok(Self::of_clients(clients, PAGES, AnswerLimits::OTHER, DEADLINE))
    }

    /// Returns the ID of the cluster: the UID of its namespace `kube-system`, which never changes.
    ///
    /// # Errors
    /// No response in time, invalid credentials, a missing permission to read that namespace, or an invalid UID.
    pub async fn id(&self) -> Result<String, Error> {
        let namespaces = Kind::fixed("v1", "Namespace", "namespaces", Scope::Cluster);
        let failed = |cause| Error::new(Attempt::Read, Target::Object(namespaces.key(None, KUBE_SYSTEM)), cause);
        let found = tokio::time::timeout(WITHIN, self.get_metadata(&namespaces, None, KUBE_SYSTEM)).await;
        let found = found.unwrap_or_else(|_| Err(failed(Cause::TimedOut(WITHIN))))?;
        let uid = found.and_then(|meta| meta.uid).ok_or_else(|| failed(Cause::Unaddressable))?;
        // The UID is shown and stored, but the remote cluster controls it.
        let is_uid =
            |uid: &str| uid.len() <= MAX_UID && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if is_uid(&uid) { Ok(uid) } else { Err(failed(Cause::NoUid)) }
    }

    /// Replaces the connection and the credentials by those of `other`. Discovery and the counts stay. Open watches
    /// continue on the old connection until they end.
    pub fn take_connection_of(&self, other: &Self) {
        let clients = other.0.clients.read().clone();
        *self.0.clients.write() = clients;
    }
}

fn config(kubeconfig: &Kubeconfig) -> Config {
    let mut config = Config::new(kubeconfig.server.clone());
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = None;
    config.root_cert.clone_from(&kubeconfig.authorities);
    config.tls_server_name.clone_from(&kubeconfig.server_name);
    config.auth_info = AuthInfo {
        token: kubeconfig.token.as_ref().map(|token| token.expose().clone().into()),
        client_certificate_data: kubeconfig.identity.as_ref().map(|(certificate, _)| certificate.clone()),
        client_key_data: kubeconfig.identity.as_ref().map(|(_, key)| key.expose().clone().into()),
        ..AuthInfo::default()
    };
    config
}
