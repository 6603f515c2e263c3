//! Connects to another cluster by a [`Kubeconfig`] from a Secret, and follows whether that one answers.
//!
//! Addresses are found by whoever asks for the connection: the Secret's author chooses the host, and not every host may be
//! connected to.
//!
//! Invariant: a connection leads to an address that the [`Addresses`] answered, and to no other: no proxy, no second lookup.
//! Invariant: no redirect is followed: none of the clients knows them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use kube::Config;
use kube::config::AuthInfo;
use tower::{BoxError, Service};

use super::connect::{CONNECT_TIMEOUT, Clients, Cluster, client_over, kept_alive, setup};
use super::error::{Attempt, Cause, Error, Target};
use super::kind::{Kind, Scope};
use super::kubeconfig::Kubeconfig;

/// How long a cluster may take to say which one it is.
const WITHIN: Duration = Duration::from_secs(15);
/// Pages of lists of another cluster that are read at the same time.
const PAGES: usize = 1;
/// The namespace that every cluster has, and by whose uid it is known.
const KUBE_SYSTEM: &str = "kube-system";

/// Finds the addresses of a host that may be connected to; the error is a sentence.
pub type Addresses = Arc<dyn Fn(String, u16) -> BoxFuture<'static, Result<Vec<SocketAddr>, String>> + Send + Sync>;

/// The last attempts to speak with a cluster failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trouble(pub(super) bool);

/// The host leads nowhere, or to no address that may be connected to.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NoAddress(String);

/// Looks names up for the connector: by the resolver of the system, or as it is told.
#[derive(Clone)]
pub(super) struct Resolver {
    system: GaiResolver,
    instead: Option<Addresses>,
}

impl Resolver {
    /// That of the system.
    pub(super) fn system() -> Self {
        Self { system: GaiResolver::new(), instead: None }
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.system.poll_ready(context).map_err(BoxError::from)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        if let Some(addresses) = &self.instead {
            let found = addresses(name.as_str().to_owned(), 0);
            return Box::pin(async move { found.await.map(Vec::into_iter).map_err(|why| NoAddress(why).into()) });
        }
        let found = self.system.call(name);
        Box::pin(async move { Ok(found.await?.collect::<Vec<_>>().into_iter()) })
    }
}

impl Cluster {
    /// Creates the clients for another cluster. Of its address nothing but the name is looked up yet.
    ///
    /// # Errors
    /// The host may not be connected to, or TLS cannot be set up with what the kubeconfig holds.
    pub async fn remote(kubeconfig: &Kubeconfig, addresses: Addresses) -> Result<Self, Error> {
        let (host, port) = kubeconfig.address();
        // The connector asks nobody about what is an address already.
        if host.parse::<IpAddr>().is_ok() {
            let refused =
                |why| Error::new(Attempt::Connect, Target::Cluster, Cause::Unreachable(Box::new(NoAddress(why))));
            addresses(host.to_owned(), port).await.map_err(refused)?;
        }
        let config = config(kubeconfig);
        let resolver = Resolver { instead: Some(addresses), ..Resolver::system() };
        let clients = Clients {
            unary: client_over(&config, kept_alive(resolver.clone())).map_err(setup)?,
            watches: client_over(&config, kept_alive(resolver)).map_err(setup)?,
        };
        Ok(Self::of_clients(clients, PAGES))
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
        found.and_then(|meta| meta.uid).ok_or_else(|| failed(Cause::Unaddressable))
    }

    /// From now on requests go where those of `other` go, with its credentials; what is known of the cluster stays. Watches
    /// that are under way go on until they end.
    pub fn take_connection_of(&self, other: &Self) {
        let clients = other.0.clients.read().clone();
        *self.0.clients.write() = clients;
    }

    /// Whether the last request was not answered, or only by saying that the credentials are not valid.
    pub fn is_in_trouble(&self) -> bool {
        self.0.trouble.lock().0
    }

    pub(super) fn note_answer(&self, trouble: Trouble) {
        *self.0.trouble.lock() = trouble;
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
