//! Deletes objects, but only in the state that was checked.
//!
//! Invariant: a deletion has the UID and the resource version of the checked object as preconditions. After a conflict,
//! the object is read and checked again, at most five times. Then the conflict is returned, and the caller retries.
//!
//! Not here: permission to delete (`managed::deletion`, `managed::replacement`, `rerun`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::Writer;
use crate::managed::verdict::{resource_version, uid};
use mainstay_cluster::{Cluster, Error, Guard, Kind, Propagation, Removal};
use mainstay_object::Key;

/// Maximum number of repeated reads after conflicts.
const LOOKS_AGAIN: usize = 5;

/// The version of an object that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The UID.
    pub uid: String,
    /// The resource version.
    pub resource_version: String,
}

/// An object or its metadata, read before a deletion.
pub trait Found: Sized + Send {
    /// Reads the object; `None` if it does not exist.
    fn look(cluster: &Cluster, kind: &Kind, key: &Key) -> impl Future<Output = Result<Option<Self>, Error>> + Send;

    /// Returns the version of the object.
    fn version(&self) -> Version;
}

impl Found for ObjectMeta {
    async fn look(cluster: &Cluster, kind: &Kind, key: &Key) -> Result<Option<Self>, Error> {
        cluster.get_metadata(kind, key.namespace.as_deref(), &key.name).await
    }

    fn version(&self) -> Version {
        Version {
            uid: self.uid.clone().unwrap_or_default(),
            resource_version: self.resource_version.clone().unwrap_or_default(),
        }
    }
}

impl Found for Value {
    async fn look(cluster: &Cluster, kind: &Kind, key: &Key) -> Result<Option<Self>, Error> {
        cluster.get(kind, key.namespace.as_deref(), &key.name).await
    }

    fn version(&self) -> Version {
        Version { uid: uid(self).to_owned(), resource_version: resource_version(self).to_owned() }
    }
}

/// The outcome of a deletion.
#[derive(Debug)]
pub enum Deleted<F, K> {
    /// The object did not exist.
    Absent,
    /// The object stays, with the reason of `judge`.
    Kept(K),
    /// The object was deleted.
    Done {
        /// Whether the object is gone or terminating.
        removal: Removal,
        /// The object as it was read; `None` if the `judged` version was still current.
        found: Option<F>,
    },
}

impl Writer {
    /// Deletes an object without an owner in the store, if `judge` permits. `judged` is a version that `judge` already
    /// permitted; the object is read only if it has changed since then.
    pub async fn delete_unowned<K>(
        &self,
        kind: &Kind,
        key: &Key,
        judged: Option<Version>,
        judge: impl Fn(&ObjectMeta) -> Result<(), K>,
    ) -> Result<Deleted<ObjectMeta, K>, Error> {
        let _lock = self.lock_object(key).await;
        self.delete_as_found(kind, key, judged, judge).await
    }

    /// Deletes an object if `judge` permits. `judged` is a version that `judge` already permitted; the object is read
    /// only if it has changed since then. The caller holds the object's lock.
    pub async fn delete_as_found<F: Found, K>(
        &self,
        kind: &Kind,
        key: &Key,
        judged: Option<Version>,
        judge: impl Fn(&F) -> Result<(), K>,
    ) -> Result<Deleted<F, K>, Error> {
        self.delete_with(kind, key, judged, judge, Propagation::Background).await
    }

    /// Deletes an object after its dependents (foreground deletion).
    pub(super) async fn delete_last<F: Found, K>(
        &self,
        kind: &Kind,
        key: &Key,
        judge: impl Fn(&F) -> Result<(), K>,
    ) -> Result<Deleted<F, K>, Error> {
        self.delete_with(kind, key, None, judge, Propagation::Foreground).await
    }

    async fn delete_with<F: Found, K>(
        &self,
        kind: &Kind,
        key: &Key,
        mut judged: Option<Version>,
        judge: impl Fn(&F) -> Result<(), K>,
        propagation: Propagation,
    ) -> Result<Deleted<F, K>, Error> {
        let mut looks_left = LOOKS_AGAIN;
        loop {
            let (version, found) = if let Some(version) = judged.take() {
                (version, None)
            } else {
                let Some(found) = F::look(self.cluster(), kind, key).await? else { return Ok(Deleted::Absent) };
                if let Err(why) = judge(&found) {
                    return Ok(Deleted::Kept(why));
                }
                (found.version(), Some(found))
            };
            let guard = Guard { uid: Some(&version.uid), resource_version: Some(&version.resource_version) };
            let namespace = key.namespace.as_deref();
            match self.cluster().delete(kind, namespace, &key.name, guard, propagation).await {
                Err(error) if error.is_conflict() && looks_left > 0 => looks_left -= 1,
                removal => return Ok(Deleted::Done { removal: removal?, found }),
            }
        }
    }
}
