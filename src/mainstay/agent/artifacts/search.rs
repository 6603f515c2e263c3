//! The search for a signature that counts: the part that signatures of cosign and of notation share.
//!
//! Invariant: each signature has at most [`LONGEST`] bytes.
//! Invariant: a failed request for one signature does not hide another one that is valid.

use bytes::Bytes;

use super::failure::Failure;
use super::referrers;
use mainstay_function::registry::{Client, Digest, Error};
use mainstay_git::Source;
use mainstay_object::failure::{Class, chain};

/// Maximum number of signatures of a place that are read.
pub(super) const MOST: usize = 32;
/// Maximum size of a signature with its payload, in bytes.
const LONGEST: u64 = 256 << 10;

/// The search for a signature that counts. `F` is the reason why one does not.
pub(super) struct Search<'s, F> {
    client: &'s Client,
    source: &'s Source,
    /// The flaw of a signature that the registry does not send.
    unsent: F,
    /// Whether there are more signatures than are read.
    pub(super) is_cut: bool,
    /// The number of signatures that do not count.
    flawed: usize,
    /// The flaw of the best signature.
    flaw: Option<F>,
    /// The first failed request.
    failed: Option<String>,
}

impl<'s, F: Clone + Ord + Send + 'static> Search<'s, F> {
    pub(super) fn new(client: &'s Client, source: &'s Source, unsent: F) -> Self {
        Self { client, source, unsent, is_cut: false, flawed: 0, flaw: None, failed: None }
    }

    /// Returns the manifest with a digest, if it can be read.
    pub(super) async fn manifest(&mut self, digest: &Digest) -> Option<Bytes> {
        let client = self.client;
        match client.again(|| client.manifest(digest)).await {
            Ok(manifest) => Some(manifest.bytes),
            Err(error) => {
                self.miss(&error);
                None
            }
        }
    }

    /// Returns the bytes of a signature, if they can be read.
    pub(super) async fn signature(&mut self, digest: &Digest, size: u64) -> Option<Vec<u8>> {
        match self.client.small_blob(digest, size, LONGEST).await {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.miss(&error);
                None
            }
        }
    }

    /// Has a signature judged, and returns the verdict if it counts.
    ///
    /// # Errors
    /// The agent stops.
    pub(super) async fn judge<V: Send + 'static>(
        &mut self,
        judge: impl FnOnce() -> Result<V, F> + Send + 'static,
    ) -> Result<Option<V>, String> {
        match self.source.run_alone(judge).await.map_err(|fault| fault.to_string())? {
            Ok(verdict) => Ok(Some(verdict)),
            Err(flaw) => {
                self.reject(flaw);
                Ok(None)
            }
        }
    }

    /// Records a signature that does not count.
    pub(super) fn reject(&mut self, flaw: F) {
        self.flawed += 1;
        self.flaw = self.flaw.take().max(Some(flaw));
    }

    fn miss(&mut self, error: &Error) {
        if error.fault.class() == Class::Invalid {
            self.reject(self.unsent.clone());
        } else {
            self.failed.get_or_insert_with(|| format!("a signature: {}", chain(error)));
        }
    }

    /// Returns the failure of a search without a signature that counts. `refusal` returns the reason for the flaw of the
    /// best signature and the number of those that do not count.
    pub(super) fn outcome(self, refusal: impl FnOnce(Option<F>, usize) -> String) -> Failure {
        if let Some(failed) = self.failed {
            return Failure::Read(failed);
        }
        let rest = if self.is_cut { referrers::rest(MOST) } else { String::new() };
        Failure::Unsigned(refusal(self.flaw, self.flawed) + &rest)
    }
}
