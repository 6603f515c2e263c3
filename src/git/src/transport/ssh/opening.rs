//! Opens private keys. Each key is opened once for all users, and kept while it has a user.
//!
//! Opening an encrypted key takes some tenths of a second of CPU time, even if it fails. Failures are cached, too.
//!
//! Invariant: at most [`AT_ONCE`] keys are being opened, including those for callers that have given up. The slots are
//! shared fairly between namespaces.
//! Invariant: a key is dropped from memory with the last remote that uses it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use russh::keys::PrivateKey;
use sha2::{Digest as _, Sha256};

use crate::error::Fault;
use crate::fair_queue::Tenant;
use crate::permits::Permits;
use crate::ssh_fault::SshFault;
use crate::ssh_key::SshIdentity;

/// Maximum number of keys being opened.
pub(crate) const AT_ONCE: usize = 2;

/// The result of opening a key.
type Outcome = Result<Arc<PrivateKey>, SshFault>;
/// Storage for a remote's opened key.
pub(crate) type KeyPlace = Arc<Mutex<Option<Arc<Outcome>>>>;

/// All opened keys.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    known: Arc<Mutex<HashMap<[u8; 32], Weak<Outcome>>>>,
    permits: Permits,
    opened: Arc<AtomicU64>,
}

impl Keys {
    pub(super) fn new() -> Self {
        Self { known: Arc::default(), permits: Permits::new(AT_ONCE), opened: Arc::default() }
    }

    /// Returns the number of keys that were opened or found invalid since the start.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Returns the key of a remote. `place` keeps it alive.
    pub(super) async fn open(
        &self,
        tenant: &Tenant,
        identity: &Arc<SshIdentity>,
        place: &KeyPlace,
    ) -> Result<Arc<PrivateKey>, Fault> {
        let kept = place.lock().clone();
        let outcome = if let Some(outcome) = kept {
            outcome
        } else {
            let (keys, identity, place) = (self.clone(), Arc::clone(identity), Arc::clone(place));
            self.permits.share(tenant).run(move || keys.open_now(&identity, &place)).await?
        };
        Ok((*outcome).clone()?)
    }

    /// Opens a key. The result is kept even if the caller has given up, so that the next caller need not repeat it.
    fn open_now(&self, identity: &SshIdentity, place: &KeyPlace) -> Arc<Outcome> {
        let name = name(identity);
        let known = self.known.lock().get(&name).and_then(Weak::upgrade);
        let outcome = known.unwrap_or_else(|| {
            self.opened.fetch_add(1, Ordering::Relaxed);
            Arc::new(identity.private_key().map(Arc::new))
        });
        *place.lock() = Some(Arc::clone(&outcome));
        let mut known = self.known.lock();
        known.retain(|_, outcome| outcome.strong_count() > 0);
        known.insert(name, Arc::downgrade(&outcome));
        outcome
    }
}

/// Returns the identity of a key: its field, content and passphrase.
fn name(identity: &SshIdentity) -> [u8; 32] {
    let passphrase = identity.passphrase.as_ref().map(|text| text.expose().as_str()).unwrap_or_default();
    let mut digest = Sha256::new();
    for part in [identity.field, identity.key.expose(), passphrase] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}
