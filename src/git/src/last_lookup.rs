//! What the last lookup of a remote came to, for whoever shows it: nobody asks the remote for that.
//!
//! Deliberately not here: lookups themselves (`lookup`).

use std::sync::Arc;
use std::time::Instant;

use super::error::{Error, Fault};
use super::reference::ResolvedRef;
use super::remote::Remote;

/// One lookup.
#[derive(Clone, Debug)]
pub struct LastLookup {
    /// When it began.
    pub began: Instant,
    /// What HEAD is, which every lookup asks for.
    pub(super) head: Result<ResolvedRef, Arc<Fault>>,
    /// Fingerprint and type of the host key that was accepted; `None` unless that is an SSH server.
    pub host_key: Option<String>,
}

impl LastLookup {
    /// What HEAD is, or why that is not known.
    pub fn head(&self, remote: &Remote) -> Result<&ResolvedRef, Error> {
        self.head.as_ref().map_err(|cause| Error::LookupHead { url: remote.url.clone(), cause: Arc::clone(cause) })
    }
}
