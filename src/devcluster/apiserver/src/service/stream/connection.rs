//! The connections that requests come in, before and after they are upgraded.

use http::HeaderMap;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::sync::watch;

/// The connection that a request came in.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// Whether the listener is to end.
    pub(crate) stopped: watch::Receiver<bool>,
    /// Whether only this machine can connect.
    pub(crate) loopback: bool,
}

/// Both directions of an upgraded connection.
pub(super) type Io = TokioIo<Upgraded>;

/// A header as text.
pub(super) fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
