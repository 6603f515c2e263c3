//! The one place where objects are deleted: as they were judged, or not at all.
//!
//! Invariant: a deletion carries the UID and the resource version of what was judged. If somebody changes the object
//! before, it is looked at and judged again, a few times: a new owner or an annotation that keeps it counts, and a status
//! that is written all the time does not hold it up. Then the conflict is the outcome, and whoever asked tries again.
//!
//! Deliberately absent: who may delete what (`managed::deletion`, `managed::replacement`, `rerun`), and what follows.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::Writer;
use crate::managed::verdict::{resource_version, uid};
use mainstay_cluster::{Cluster, Error, Guard, Kind, Propagation, Removal};
use mainstay_object::Key;

/// How often an object is looked at again that changed between the look and its deletion.
const LOOKS_AGAIN: usize = 5;

/// The state of an object that was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its UID.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
}

/// What is looked at before a deletion: a whole object, or its metadata.
pub trait Found: Sized + Send {
    /// Reads it; `None` if it does not exist.
    fn look(cluster: &Cluster, kind: &Kind, key: &Key) -> impl Future<Output = Result<Option<Self>, Error>> + Send;

    /// Its state.
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

/// What became of a deletion.
#[derive(Debug)]
pub enum Deleted<F, K> {
    /// There was nothing to delete.
    Absent,
    /// It may not be deleted as it was found.
    Kept(K),
    /// It was deleted.
    Done {
        /// How.
        removal: Removal,
        /// What was found, if it had to be looked at.
        found: Option<F>,
    },
}

impl Writer {
    /// Deletes an object that no owner in the store has, if it may be deleted as it is found: `judge` says why not. What was
    /// `judged` already is not looked at unless it has changed since.
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

    /// Deletes an object, if it may be deleted as it is found: `judge` says why not. What was `judged` already is not looked
    /// at unless it has changed since. The caller holds the object's lock.
    pub async fn delete_as_found<F: Found, K>(
        &self,
        kind: &Kind,
        key: &Key,
        judged: Option<Version>,
        judge: impl Fn(&F) -> Result<(), K>,
    ) -> Result<Deleted<F, K>, Error> {
        self.delete_with(kind, key, judged, judge, Propagation::Background).await
    }

    /// The same, after what the object owns.
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
