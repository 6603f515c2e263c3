//! A cache of decoded files, by path, blob id and form.
//!
//! Invariant: it keeps no object alive. A file is cached as long as its objects are used elsewhere.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Form;
use crate::object::Object;
use crate::source::BlobId;

type Files = HashMap<(BlobId, Arc<str>, Form), Box<[Weak<Object>]>>;

/// The cache, shared by all GitSyncs.
#[derive(Debug, Default)]
pub struct DecodeCache(Mutex<Files>);

impl DecodeCache {
    /// The objects of the file at this path, if all of them still exist.
    pub(super) fn get(&self, id: BlobId, path: &Arc<str>, form: Form) -> Option<Vec<Arc<Object>>> {
        let files = self.0.lock();
        files.get(&(id, Arc::clone(path), form))?.iter().map(Weak::upgrade).collect()
    }

    /// Adds a file that decoded to these objects without a problem.
    pub(super) fn insert(&self, id: BlobId, path: &Arc<str>, form: Form, objects: &[Arc<Object>]) {
        if objects.is_empty() {
            return; // Without objects it would never be dropped, and it is cheap to decode.
        }
        let objects = objects.iter().map(Arc::downgrade).collect();
        self.0.lock().insert((id, Arc::clone(path), form), objects);
    }

    /// Drops files whose objects do not exist any more.
    pub(super) fn drop_unused(&self) {
        let mut files = self.0.lock();
        files.retain(|_, objects| objects.iter().all(|object| object.strong_count() > 0));
        files.shrink_to_fit();
    }

    /// Number of cached files.
    pub fn files(&self) -> usize {
        self.0.lock().len()
    }
}
