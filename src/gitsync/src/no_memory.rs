//! A commit that did not fit into memory. It is read again only when there may be enough memory.
//!
//! Not here: waiting for memory (`memory_wait`).

use std::sync::Arc;

use tokio::sync::Notify;

use super::contents::Contents;
use super::outcome::Refused;
use mainstay_api::conditions::Reason;
use mainstay_git::Commit;
use mainstay_object::Digest;
use mainstay_object::failure::Class;

/// The inputs of a commit's desired state: its contents, and the generation of the GitSync.
pub(super) type Request = (Option<Contents>, Option<i64>);

/// A commit that did not fit into memory.
#[derive(Debug)]
pub(super) struct NoMemory {
    pub(super) request: Request,
    /// The read commit, and the digest of its variables.
    pub(super) commit: Commit,
    pub(super) values: Option<Digest>,
    /// Minimum memory that the commit requires, in bytes.
    pub(super) bytes: usize,
    pub(super) message: String,
}

impl NoMemory {
    /// Returns the error. The commit is retried when memory becomes free, and periodically, because other GitSyncs may
    /// need less.
    pub(super) fn refused(&self) -> Refused {
        let (class, message) = (Class::NotReady, self.message.clone());
        Refused { class, reason: Reason::MemoryExhausted, message, retry_after: None }
    }
}

/// Notified when there may be memory for a commit.
pub(super) type Room = Arc<Notify>;
