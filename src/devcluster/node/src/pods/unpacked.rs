//! The unpacked images of a node.
//!
//! Invariant: an image's files exist while a container may run, and for some images longer.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use super::unpack::unpack;
use crate::registry;

/// Number of unused images that are kept.
const KEPT: usize = 4;

/// The files of an unpacked image. Dropping this removes them.
#[derive(Debug)]
pub(super) struct Files {
    digest: String,
    pub(super) place: PathBuf,
}

impl Drop for Files {
    fn drop(&mut self) {
        let place = std::mem::take(&mut self.place);
        // Removal may be slow, and the runtime may have ended, so a thread removes the files.
        std::thread::spawn(move || {
            if let Err(error) = fs::remove_dir_all(&place) {
                tracing::debug!(%error, "the files of an image stay until the node begins again");
            }
        });
    }
}

/// The unpacked images of a node.
#[derive(Debug, Default)]
pub(super) struct Images {
    known: Vec<Weak<Files>>,
    /// The most recently used images, so that the next pod of a workload need not unpack them.
    recent: VecDeque<Arc<Files>>,
}

impl Images {
    /// Returns the files of an image, if it is unpacked.
    pub(super) fn find(&mut self, digest: &str) -> Option<Arc<Files>> {
        self.known.retain(|files| files.strong_count() > 0);
        self.known.iter().filter_map(Weak::upgrade).find(|files| files.digest == digest)
    }

    /// Unpacks an image below a directory.
    pub(super) async fn unpack(&mut self, directory: &Path, found: &registry::Image) -> Result<Arc<Files>, String> {
        let name = format!("{}-{:08x}", found.digest.replace(':', "-"), fastrand::u32(..));
        let place = directory.join("images").join(name);
        let (layers, root) = (found.layers.clone(), place.clone());
        let done = tokio::task::spawn_blocking(move || unpack(&layers, &root)).await;
        let done = done.map_err(|_| "unpacking was interrupted".to_owned())?;
        done.map_err(|e| format!("unpacking {}: {e}", found.id))?;
        let files = Arc::new(Files { digest: found.digest.clone(), place });
        self.known.push(Arc::downgrade(&files));
        Ok(files)
    }

    /// Keeps an image among the recently used ones.
    pub(super) fn keep(&mut self, files: &Arc<Files>) {
        self.recent.retain(|known| known.digest != files.digest);
        self.recent.push_front(files.clone());
        self.recent.truncate(KEPT);
    }
}
