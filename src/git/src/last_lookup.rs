//! The result of a remote's last lookup, for display. Reading it sends no request.
//!
//! Not here: lookups (`lookup`).

use std::sync::Arc;
use std::time::Instant;

use super::error::{Error, Fault};
use super::reference::ResolvedRef;
use super::remote::Remote;

/// One lookup.
#[derive(Clone, Debug)]
pub struct LastLookup {
    /// When the lookup began.
    pub began: Instant,
    /// The resolved HEAD, which every lookup requests.
    pub(super) head: Result<ResolvedRef, Arc<Fault>>,
    /// Fingerprint and type of the accepted host key; `None` unless the server is reached over SSH.
    pub host_key: Option<String>,
}

impl LastLookup {
    /// Returns the resolved HEAD.
    ///
    /// # Errors
    /// Why HEAD did not resolve.
    pub fn head(&self, remote: &Remote) -> Result<&ResolvedRef, Error> {
        self.head.as_ref().map_err(|cause| Error::LookupHead { url: remote.url.clone(), cause: Arc::clone(cause) })
    }
}
