//! The GitSyncs whose work ends because other agents take them over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use mainstay_object::Owner;

/// The tokens of the work for GitSyncs. An agent without shards keeps none.
#[derive(Debug, Default)]
pub(super) struct Losses {
    is_shared: AtomicBool,
    tokens: Mutex<HashMap<Owner, CancellationToken>>,
}

impl Losses {
    /// Keeps tokens from now on.
    pub(super) fn share(&self) {
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// Returns the token that ends the work for a GitSync.
    pub(super) fn begin(&self, owner: &Owner) -> CancellationToken {
        if !self.is_shared.load(Ordering::Relaxed) {
            return CancellationToken::new();
        }
        self.tokens.lock().entry(owner.clone()).or_default().clone()
    }

    /// Ends the work for a GitSync, also if its task has not begun it yet.
    pub(super) fn lose(&self, owner: &Owner) {
        self.tokens.lock().entry(owner.clone()).or_default().cancel();
    }

    /// Forgets the token of a GitSync.
    pub(super) fn end(&self, owner: &Owner) {
        self.tokens.lock().remove(owner);
    }
}
