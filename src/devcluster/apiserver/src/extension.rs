//! Services beside the Kubernetes API on the same listener, such as an image registry.

use std::{fmt, io, net::SocketAddr};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Response, request::Parts};
use http_body_util::combinators::UnsyncBoxBody;

use crate::{body::Body, fault_injection::FaultInjection};

/// The body of a request to an extension.
pub type Sent = UnsyncBoxBody<Bytes, io::Error>;

/// Answers all requests below one path, without authentication and authorisation by the API server.
pub trait Extension: fmt::Debug + Send + Sync {
    /// Whether a path is below that of the extension.
    fn serves(&self, path: &str) -> bool;

    /// The cluster listens on an address from now on.
    fn listening(&self, address: SocketAddr);

    /// Answers a request; `faults` may want it counted or failed.
    fn answer<'a>(&'a self, faults: &'a FaultInjection, parts: Parts, body: Sent) -> BoxFuture<'a, Response<Body>>;
}
