//! Connections to webhooks that stay open between calls, as a real server keeps them.
//!
//! Invariant: a connection serves only calls to the same address and name under the same `caBundle`.
//! Invariant: at most [`MOST`] are idle, and none is used that was idle for [`IDLE`].

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

/// How long a connection is kept that nobody uses; Go's default.
const IDLE: Duration = Duration::from_secs(90);
/// Most idle connections to all webhooks.
const MOST: usize = 32;
/// Most bundles that are kept read.
const BUNDLES: usize = 16;

/// An open connection on which nothing is asked.
pub(super) type Sender = SendRequest<Full<Bytes>>;

/// Whom a connection leads to: where it connects, the name in the certificate, and the bundle that vouches for it.
pub(super) type Whom = (String, String, String);

/// All that is kept.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    idle: Mutex<Vec<(Whom, Instant, Sender)>>,
    trust: Mutex<Vec<(String, Arc<ClientConfig>)>>,
}

impl Kept {
    /// A connection that is open, as far as this side knows.
    pub(super) fn take(&self, whom: &Whom, now: Instant) -> Option<Sender> {
        let mut idle = self.idle.lock();
        idle.retain(|(_, since, sender)| now.duration_since(*since) < IDLE && sender.is_ready());
        let last = idle.iter().rposition(|(other, _, _)| other == whom)?;
        Some(idle.remove(last).2)
    }

    /// Keeps a connection whose answer has been read to its end.
    pub(super) fn put(&self, whom: Whom, now: Instant, sender: Sender) {
        let mut idle = self.idle.lock();
        if idle.len() >= MOST {
            idle.remove(0);
        }
        idle.push((whom, now, sender));
    }

    /// How to speak TLS with whom a bundle vouches for; `None` when it holds no certificate.
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
