//! The files of images that are unpacked on a node.
//!
//! Invariant: the files of an image are there as long as a container may run, and a few images longer.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use super::unpack::unpack;
use crate::registry;

/// Unpacked images that are kept although no container has them.
const KEPT: usize = 4;

/// The files of an unpacked image; they go with this.
#[derive(Debug)]
pub(super) struct Files {
    digest: String,
    pub(super) place: PathBuf,
}

impl Drop for Files {
    fn drop(&mut self) {
        let place = std::mem::take(&mut self.place);
        // Many files take a while. A thread of its own, because there may be no runtime any more.
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
    /// The last that were asked for, so that the next pod of a workload need not unpack them again.
    recent: VecDeque<Arc<Files>>,
}

impl Images {
    /// Those of an image that are there.
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

    /// Keeps files for a while, also when nobody has them.
    pub(super) fn keep(&mut self, files: &Arc<Files>) {
        self.recent.retain(|known| known.digest != files.digest);
        self.recent.push_front(files.clone());
        self.recent.truncate(KEPT);
    }
}
