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

/// The files, and the number of files that remained when unused files were last dropped.
#[derive(Debug, Default)]
struct Files {
    by_id: HashMap<(BlobId, Arc<str>, Form, Reading), Cached>,
    used: usize,
}

/// If the cache has fewer files, unused files are dropped after every commit.
const FEW: usize = 64;

/// How a file was read. Encrypted files are cached per set of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reading {
    /// Not encrypted. The result is the same for all consumers.
    Plain,
    /// Unverified, although it may be encrypted with SOPS.
    Unverified,
    /// Verified with these keys, in case the file is encrypted.
    Verified(KeyId),
}

#[derive(Debug)]
struct Cached {
    objects: Box<[Weak<Object>]>,
    sealed: Vec<Arc<Sealed>>,
}

/// The objects of a file, and the encrypted file if the objects must be decrypted.
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
        let cached = readings.find_map(|reading| files.by_id.get(&(id, Arc::clone(path), form, reading)))?;
        let objects = cached.objects.iter().map(Weak::upgrade).collect::<Option<_>>()?;
        Some((objects, cached.sealed.clone()))
    }

    /// Adds a file that was decoded into these objects without a problem.
    pub(super) fn insert(&self, id: BlobId, path: &Arc<str>, form: Form, reading: Reading, found: Found) {
        let (objects, sealed) = found;
        if objects.is_empty() {
            return; // Without objects it would never be dropped; and it is cheap to decode.
        }
        let objects = objects.iter().map(Arc::downgrade).collect();
        self.0.lock().by_id.insert((id, Arc::clone(path), form, reading), Cached { objects, sealed });
    }

    /// Drops files whose objects no longer exist, once the number of files has doubled. Checking all files with each
    /// commit would cost more than the commit. Returns the number of checked files.
    pub(super) fn drop_unused(&self) -> usize {
        let mut files = self.0.lock();
        let looked_at = files.by_id.len();
        if looked_at >= FEW && looked_at < 2 * files.used {
            return 0;
        }
        files.by_id.retain(|_, cached| cached.objects.iter().all(|object| object.strong_count() > 0));
        files.by_id.shrink_to_fit();
        files.used = files.by_id.len();
        looked_at
    }

    /// Returns the number of cached files.
    pub fn files(&self) -> usize {
        self.0.lock().by_id.len()
    }
}

#[cfg(test)]
mod tests {
    use mainstay_object::Place;
    use serde_json::json;

    use super::*;

    #[test]
    fn ten_thousand_commits_look_at_each_cached_file_a_few_times() {
        const COMMITS: usize = 10_000;
        let cache = DecodeCache::default();
        let object = |number: usize| {
            let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("a-{number}")}});
            Arc::new(Object::from_value(&value, Place::file("a.yaml")).unwrap())
        };
        let insert = |path: String, object: &Arc<Object>| {
            let found = (vec![Arc::clone(object)], Vec::new());
            cache.insert(BlobId::NONE, &path.into(), Form::default(), Reading::Plain, found);
            cache.drop_unused()
        };
        let kept = (0..COMMITS).map(object).collect::<Vec<_>>();
        let looked_at: usize =
            kept.iter().enumerate().map(|(number, object)| insert(format!("{number}"), object)).sum();
        assert!(looked_at < 4 * COMMITS, "{looked_at}");
        assert_eq!(cache.files(), COMMITS);
        drop(kept);
        (0..2 * COMMITS).for_each(|number| _ = insert(format!("other {number}"), &object(number)));
        assert!(cache.files() < 200, "{} that nobody uses are cached", cache.files());
    }
}
