//! A cache of decoded files, by path, blob id and form.
//!
//! Invariant: an encrypted file is returned only for the keys that it was verified with.
//! Invariant: the cache keeps no object alive. A file is cached while its objects are used elsewhere.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Form;
use crate::sops::{KeyId, Sealed};
use mainstay_git::BlobId;
use mainstay_object::Object;

type Files = HashMap<(BlobId, Arc<str>, Form, Reading), Cached>;

/// How a file was read. Encrypted files are cached per set of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reading {
    /// Not encrypted: the result is the same for all consumers.
    Plain,
    /// Unverified, although it may be encrypted with SOPS.
    Unverified,
    /// Verified with these keys, if it is encrypted.
    Verified(KeyId),
}

#[derive(Debug)]
struct Cached {
    objects: Box<[Weak<Object>]>,
    sealed: Vec<Arc<Sealed>>,
}

/// The objects of a file, and the encrypted file for decrypting them.
pub(super) type Found = (Vec<Arc<Object>>, Vec<Arc<Sealed>>);

/// The cache, shared by all GitSyncs.
#[derive(Debug, Default)]
pub struct DecodeCache(Mutex<Files>);

impl DecodeCache {
    /// Returns the file at this path for a consumer with these keys, if all of its objects still exist.
    pub(super) fn get(&self, id: BlobId, path: &Arc<str>, form: Form, keys: Option<KeyId>) -> Option<Found> {
        let files = self.0.lock();
        let own = keys.map_or(Reading::Unverified, Reading::Verified);
        let mut readings = [Reading::Plain, own].into_iter();
        let cached = readings.find_map(|reading| files.get(&(id, Arc::clone(path), form, reading)))?;
        let objects = cached.objects.iter().map(Weak::upgrade).collect::<Option<_>>()?;
        Some((objects, cached.sealed.clone()))
    }

    /// Adds a file that decoded to these objects without a problem.
    pub(super) fn insert(&self, id: BlobId, path: &Arc<str>, form: Form, reading: Reading, found: Found) {
        let (objects, sealed) = found;
        if objects.is_empty() {
            return; // Without objects it would never be dropped; and it is cheap to decode.
        }
        let objects = objects.iter().map(Arc::downgrade).collect();
        self.0.lock().insert((id, Arc::clone(path), form, reading), Cached { objects, sealed });
    }

    /// Drops files whose objects no longer exist.
    pub(super) fn drop_unused(&self) {
        let mut files = self.0.lock();
        files.retain(|_, cached| cached.objects.iter().all(|object| object.strong_count() > 0));
        files.shrink_to_fit();
    }

    /// Returns the number of cached files.
    pub fn files(&self) -> usize {
        self.0.lock().len()
    }
}
