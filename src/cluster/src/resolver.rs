//! Resolves names of API servers: by the resolver of the system, or by a function that allows only some hosts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::{BoxError, Service};

/// Resolves a host and a port if the host is allowed. The error is a sentence.
pub type Addresses = Arc<dyn Fn(String, u16) -> BoxFuture<'static, Result<Vec<SocketAddr>, String>> + Send + Sync>;

/// The host has no address, or no address that is allowed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoAddress(pub(super) String);

/// Resolves names for the connector.
#[derive(Clone)]
pub(super) struct Resolver {
    system: GaiResolver,
    instead: Option<Addresses>,
}

impl Resolver {
    /// Returns the resolver of the system.
    pub(super) fn system() -> Self {
        Self { system: GaiResolver::new(), instead: None }
    }

    /// Returns a resolver that uses `addresses`.
    pub(super) fn by(addresses: Addresses) -> Self {
        Self { instead: Some(addresses), ..Self::system() }
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
