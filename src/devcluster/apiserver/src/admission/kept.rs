//! Connections to webhooks that stay open between calls, as on a real server.
//!
//! Invariant: a connection serves only calls to the same address and name under the same `caBundle`.
//! Invariant: at most [`MOST`] connections are idle. Connections idle for [`IDLE`] are not used.

use super::trust;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Maximum idle time of a connection; Go's default.
const IDLE: Duration = Duration::from_secs(90);
/// Maximum number of idle connections.
const MOST: usize = 32;
/// Maximum number of cached bundles.
const BUNDLES: usize = 16;

/// An open idle connection.
pub(super) type Sender = SendRequest<Full<Bytes>>;

/// The identity of a connection: address, name in the certificate, and CA bundle.
pub(super) type Whom = (String, String, String);

/// The idle connections and the cached bundles.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    idle: Mutex<Vec<(Whom, Instant, Sender)>>,
    trust: Mutex<Vec<(String, Arc<ClientConfig>)>>,
}

impl Kept {
    /// Takes an idle connection that is still open, as far as is known.
    pub(super) fn take(&self, whom: &Whom, now: Instant) -> Option<Sender> {
        let mut idle = self.idle.lock();
        idle.retain(|(_, since, sender)| now.duration_since(*since) < IDLE && sender.is_ready());
        let last = idle.iter().rposition(|(other, _, _)| other == whom)?;
        Some(idle.remove(last).2)
    }

    /// Keeps a connection whose response was read completely.
    pub(super) fn put(&self, whom: Whom, now: Instant, sender: Sender) {
        let mut idle = self.idle.lock();
        if idle.len() >= MOST {
            idle.remove(0);
        }
        idle.push((whom, now, sender));
    }

    /// Returns the TLS settings for a CA bundle; `None` if it has no certificate.
    pub(super) fn trust(&self, bundle: &str) -> Option<Arc<ClientConfig>> {
        let mut read = self.trust.lock();
        if let Some((_, config)) = read.iter().find(|(other, _)| other == bundle) {
            return Some(config.clone());
        }
        let config = trust::client(bundle)?;
        if read.len() >= BUNDLES {
            read.remove(0);
        }
        read.push((bundle.to_owned(), config.clone()));
        Some(config)
    }
}
