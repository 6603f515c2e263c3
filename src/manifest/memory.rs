//! What a file decoded to, by its path and blob id.
//!
//! Invariant: it keeps nothing alive. A file is remembered as long as somebody holds the objects that it decoded to, so
//! what the last decode of no holder used is gone by itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::object::Object;
use crate::source::BlobId;

type Files = HashMap<(BlobId, Arc<str>), Box<[Weak<Object>]>>;

/// Remembers decoded files; shared by everyone who decodes.
#[derive(Debug, Default)]
pub struct Memory(Mutex<Files>);

impl Memory {
    /// What the file at this path decoded to, if somebody still holds all of it.
    pub(super) fn recall(&self, id: BlobId, path: &Arc<str>) -> Option<Vec<Arc<Object>>> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(&(id, Arc::clone(path)))?.iter().map(Weak::upgrade).collect()
    }

    /// Remembers a file that decoded to these objects without a problem.
    pub(super) fn remember(&self, id: BlobId, path: &Arc<str>, objects: &[Arc<Object>]) {
        if objects.is_empty() {
            return; // Nothing would ever end the memory of it, and it is cheap to read again.
        }
        let objects = objects.iter().map(Arc::downgrade).collect();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((id, Arc::clone(path)), objects);
    }

    /// Drops the files whose objects nobody holds any more.
    pub(super) fn forget_unused(&self) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|_, objects| objects.iter().all(|object| object.strong_count() > 0));
        files.shrink_to_fit();
    }

    /// Number of files remembered.
    pub fn files(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
