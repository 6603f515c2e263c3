//! The host keys for all repositories, the wait for them, and requests to pin keys.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::Fault;
use crate::known_hosts::HostKeys;
use crate::pinning::{FirstUse, PinRequest, SupersededPins};
use crate::shared_host_keys::{Origin, SharedHostKeys};
use crate::ssh_fault::SshFault;
use crate::ssh_key::SshIdentity;

/// Maximum wait until the keys are known.
const WITHIN: Duration = Duration::from_secs(10);
/// Maximum number of keys that wait to be pinned. Further connections wait for a free slot, until their own deadline.
const WAITING: usize = 16;

/// The [`SharedHostKeys`] of a process.
#[derive(Debug)]
pub(crate) struct KeysForAll(watch::Sender<SharedHostKeys>);

impl KeysForAll {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(SharedHostKeys::Published))
    }

    /// Replaces the keys, and returns whether they differ. Receivers are woken only if they do.
    pub(super) fn set(&self, keys: SharedHostKeys) -> bool {
        self.0.send_if_modified(|old| {
            let differs = *old != keys;
            *old = keys;
            differs
        })
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<SharedHostKeys> {
        self.0.subscribe()
    }

    /// Returns the keys of a host, by its name in `known_hosts`, and their origin.
    pub(super) async fn of(&self, name: &str, identity: &SshIdentity) -> Result<(HostKeys, Origin), Fault> {
        let mut keys = self.0.subscribe();
        // If the wait times out, `keys_of` returns the reason.
        let _ = tokio::time::timeout(WITHIN, keys.wait_for(SharedHostKeys::are_known)).await;
        let found = keys.borrow().keys_of(name, identity);
        found
            .map_err(|why| Fault::Network { what: format!("the host keys for all repositories cannot be read: {why}") })
    }
}

/// The channel for pin requests, if this process pins keys.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    requests: Mutex<Option<mpsc::Sender<PinRequest>>>,
    superseded: watch::Sender<SupersededPins>,
}

impl Pins {
    /// Returns a receiver for the keys to pin.
    pub(crate) fn subscribe(&self) -> mpsc::Receiver<PinRequest> {
        let (sender, receiver) = mpsc::channel(WAITING);
        *self.requests.lock() = Some(sender);
        receiver
    }

    /// Returns the superseded pins.
    pub(crate) fn superseded(&self) -> &watch::Sender<SupersededPins> {
        &self.superseded
    }

    /// Requests to pin a key, and returns the result. The connection that presented the key is not used.
    pub(super) async fn pin(&self, first_use: FirstUse) -> SshFault {
        let FirstUse { host, key, fingerprint: presented, .. } = first_use.clone();
        let sender = self.requests.lock().clone();
        let (answer, answered) = oneshot::channel();
        let sent = match sender {
            None => false,
            Some(sender) => sender.send(PinRequest { first_use, answer }).await.is_ok(),
        };
        if !sent {
            return SshFault::HostKeyFirstUse { host, presented, key };
        }
        match answered.await {
            Ok(Ok(())) => SshFault::HostKeyPinned { host, presented },
            Ok(Err(why)) => SshFault::HostKeyNotPinned { host, presented, why },
            Err(_) => SshFault::HostKeyFirstUse { host, presented, key },
        }
    }
}
