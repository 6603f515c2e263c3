//! Connects to another cluster by a [`Kubeconfig`] from a Secret, and follows whether that one answers.
//!
//! The caller finds the addresses: the Secret's author chooses the host, and not every host may be
//! connected to.
//!
//! Invariant: a connection leads to an address that the [`Addresses`] answered, and to no other: no proxy, no second lookup.
//! Invariant: no redirect is followed: none of the clients knows them.

use std::net::IpAddr;
use std::time::Duration;

use kube::Config;
use kube::config::AuthInfo;

use super::answer_limits::AnswerLimits;
use super::connect::{CONNECT_TIMEOUT, Clients, Cluster, client_over, kept_alive, setup};
use super::error::{Attempt, Cause, Error, Target};
use super::kind::{Kind, Scope};
use super::kubeconfig::Kubeconfig;
use super::request::DEADLINE;
use super::resolver::{Addresses, NoAddress, Resolver};

/// How long a cluster may take to say which one it is.
const WITHIN: Duration = Duration::from_secs(15);
/// Pages of lists of another cluster that are read at the same time.
const PAGES: usize = 1;
/// Maximum length of the uid of an object, which is a UUID everywhere.
const MAX_UID: usize = 64;
/// The namespace that every cluster has, and by whose uid it is known.
const KUBE_SYSTEM: &str = "kube-system";

impl Cluster {
    /// Creates the clients for another cluster. Only the name of its address is looked up yet.
    ///
    /// # Errors
    /// The host may not be connected to, or TLS cannot be set up with what the kubeconfig holds.
    pub async fn remote(kubeconfig: &Kubeconfig, addresses: Addresses) -> Result<Self, Error> {
        let (host, port) = kubeconfig.address();
        // The connector asks no resolver about an IP address.
        if host.parse::<IpAddr>().is_ok() {
            let refused =
                |why| Error::new(Attempt::Connect, Target::Cluster, Cause::Unreachable(Box::new(NoAddress(why))));
            addresses(host.to_owned(), port).await.map_err(refused)?;
        }
        let config = config(kubeconfig);
        let resolver = Resolver::by(addresses);
        let clients = Clients {
            unary: client_over(&config, kept_alive(resolver.clone())).map_err(setup)?,
            watches: client_over(&config, kept_alive(resolver)).map_err(setup)?,
        };
        Ok(Self::of_clients(clients, PAGES, AnswerLimits::OTHER, DEADLINE))
    }

    /// Which cluster it is: the uid of its namespace `kube-system`, which it keeps for as long as it exists.
    ///
    /// # Errors
    /// It does not answer in time, the credentials are not valid, or they may not read that namespace.
    pub async fn id(&self) -> Result<String, Error> {
        let namespaces = Kind::fixed("v1", "Namespace", "namespaces", Scope::Cluster);
        let failed = |cause| Error::new(Attempt::Read, Target::Object(namespaces.key(None, KUBE_SYSTEM)), cause);
        let found = tokio::time::timeout(WITHIN, self.get_metadata(&namespaces, None, KUBE_SYSTEM)).await;
        let found = found.unwrap_or_else(|_| Err(failed(Cause::TimedOut(WITHIN))))?;
        let uid = found.and_then(|meta| meta.uid).ok_or_else(|| failed(Cause::Unaddressable))?;
        // It is shown and kept, and the other cluster chooses it.
        let is_uid =
            |uid: &str| uid.len() <= MAX_UID && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if is_uid(&uid) { Ok(uid) } else { Err(failed(Cause::NoUid)) }
    }

    /// From now on requests go where those of `other` go, with its credentials; what is known of the cluster stays. Watches
    /// that are under way go on until they end.
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
