//! The host keys that hold for all repositories, and the wait for them.

use std::time::Duration;

use tokio::sync::watch;

use crate::source::error::Fault;
use crate::source::known_hosts::HostKeys;
use crate::source::shared_host_keys::{Origin, SharedHostKeys};

/// Maximum wait until they are known.
const WITHIN: Duration = Duration::from_secs(10);

/// The [`SharedHostKeys`] of a process.
#[derive(Debug)]
pub(in crate::source) struct KeysForAll(watch::Sender<SharedHostKeys>);

impl KeysForAll {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(SharedHostKeys::Published))
    }

    /// Replaces them, and returns whether they are others; nobody is woken if they are the same.
    pub(super) fn set(&self, keys: SharedHostKeys) -> bool {
        self.0.send_if_modified(|old| {
            let differs = *old != keys;
            *old = keys;
            differs
        })
    }

    pub(in crate::source) fn subscribe(&self) -> watch::Receiver<SharedHostKeys> {
        self.0.subscribe()
    }

    /// The keys of a host, by its name in `known_hosts`, and where they come from.
    pub(super) async fn of(&self, name: &str, secret: Option<&str>) -> Result<(HostKeys, Origin), Fault> {
        let mut keys = self.0.subscribe();
        // When the time is over, the reason is known.
        let _ = tokio::time::timeout(WITHIN, keys.wait_for(SharedHostKeys::are_known)).await;
        let found = keys.borrow().keys_of(name, secret);
        found
            .map_err(|why| Fault::Network { what: format!("the host keys for all repositories cannot be read: {why}") })
    }
}
