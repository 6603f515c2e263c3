//! A commit for which there was no memory: it is not read again before there may be enough.
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

/// What decides what is kept of a commit: what it holds, and the generation of the GitSync.
pub(super) type Request = (Option<Contents>, Option<i64>);

/// What there was no memory for.
#[derive(Debug)]
pub(super) struct NoMemory {
    pub(super) request: Request,
    /// The commit that was read, and the values of its variables.
    pub(super) commit: Commit,
    pub(super) values: Option<Digest>,
    /// What it takes, at least, in bytes.
    pub(super) bytes: usize,
    pub(super) message: String,
}

impl NoMemory {
    /// Tried again when there is room, and after a while, because others may need less by then.
    pub(super) fn refused(&self) -> Refused {
        let (class, message) = (Class::NotReady, self.message.clone());
        Refused { class, reason: Reason::MemoryExhausted, message, retry_after: None }
    }
}

/// Who is woken when there may be memory for a commit.
pub(super) type Room = Arc<Notify>;
