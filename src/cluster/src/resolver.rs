//! Resolves names of API servers: by the resolver of the system, or to allowed addresses only.

use std::net::SocketAddr;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::{BoxError, Service};

use super::allowed_addresses::AllowedAddresses;

/// Resolves names for the connector.
#[derive(Clone)]
pub(super) struct Resolver {
    system: GaiResolver,
    instead: Option<AllowedAddresses>,
}

impl Resolver {
    /// Returns the resolver of the system.
    pub(super) fn system() -> Self {
        Self { system: GaiResolver::new(), instead: None }
    }

    /// Returns a resolver that finds only `addresses`.
    pub(super) fn by(addresses: AllowedAddresses) -> Self {
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
        if let Some(addresses) = self.instead.clone() {
            return Box::pin(async move { Ok(addresses.find(name.as_str(), 0).await?.into_iter()) });
        }
        let found = self.system.call(name);
        Box::pin(async move { Ok(found.await?.collect::<Vec<_>>().into_iter()) })
    }
}
