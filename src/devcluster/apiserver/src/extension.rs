//! Services beside the Kubernetes API on the same listener, such as an image registry.

use std::{fmt, io, net::SocketAddr};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Response, request::Parts};
use http_body_util::combinators::UnsyncBoxBody;

use crate::{body::Body, fault_injection::FaultInjection};

/// The body of a request to an extension.
pub type Sent = UnsyncBoxBody<Bytes, io::Error>;

/// Answers all requests below one path. The API server neither authenticates nor authorises them.
pub trait Extension: fmt::Debug + Send + Sync {
    /// Returns whether the extension serves a path.
    fn serves(&self, path: &str) -> bool;

    /// Receives the address that the cluster listens on.
    fn listening(&self, address: SocketAddr);

    /// Answers a request. `faults` counts requests and may make them fail.
    fn answer<'a>(&'a self, faults: &'a FaultInjection, parts: Parts, body: Sent) -> BoxFuture<'a, Response<Body>>;
}
