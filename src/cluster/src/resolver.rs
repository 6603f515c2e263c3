//! Names of API servers become addresses: by the resolver of the system, or by other rules, where not every host may be connected
//! to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::{BoxError, Service};

/// Finds the addresses of a host that may be connected to; the error is a sentence.
pub type Addresses = Arc<dyn Fn(String, u16) -> BoxFuture<'static, Result<Vec<SocketAddr>, String>> + Send + Sync>;

/// The host leads nowhere, or to no address that may be connected to.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoAddress(pub(super) String);

/// Looks names up for the connector: by the resolver of the system, or by another one, which judges them.
#[derive(Clone)]
pub(super) struct Resolver {
    system: GaiResolver,
    instead: Option<Addresses>,
}

impl Resolver {
    /// The resolver of the system.
    pub(super) fn system() -> Self {
        Self { system: GaiResolver::new(), instead: None }
    }

    /// Another one.
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
