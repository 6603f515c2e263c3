//! The connections of requests, before and after an upgrade.

use http::HeaderMap;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::sync::watch;

/// The connection of a request.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// Whether the listener has to stop.
    pub(crate) stopped: watch::Receiver<bool>,
    /// Whether only this machine can connect.
    pub(crate) loopback: bool,
}

/// Both directions of an upgraded connection.
pub(super) type Io = TokioIo<Upgraded>;

/// Returns a header as a string; empty if missing.
pub(super) fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
