//! The managed and desired objects of one GitSync. Together they are its claims (`registry`): the managed objects,
//! without those that its last planned commit lacks. A suspension changes neither set.
//!
//! Not here: the consequences for other GitSyncs (`registry`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use mainstay_object::{Key, Owner};

/// The managed and desired objects of one GitSync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Label value of its objects.
    pub label: Arc<str>,
    /// The followed remote and reference, as one string.
    pub branch: Option<String>,
    /// The objects in its inventory; `None` until it was read.
    pub managed: Option<Arc<HashSet<Key>>>,
    /// The objects that its written inventory lists as applied.
    pub taken: Option<Arc<HashSet<Key>>>,
    /// The desired objects; `None` until a commit was decoded.
    pub desired: Option<Arc<HashSet<Key>>>,
    /// The commit of `desired`.
    pub planned: Option<String>,
    /// The only namespace that the GitSync may touch, if it is confined.
    pub confined_to: Option<Arc<str>>,
    /// Whether the GitSync impersonates a ServiceAccount, and may touch all objects that the account may.
    pub by_account: bool,
    /// Whether the GitSync is suspended.
    pub suspended: bool,
    /// Whether an attempt was made, with any outcome. After an attempt, the desired objects are known as far as
    /// possible.
    pub tried: bool,
    /// The spec of the last attempt; `None` before the first one.
    pub spec: Option<Spec>,
    /// The GitSyncs in its commit whose spec the commit changes, until they have made an attempt with it.
    pub changed_syncs: HashMap<Owner, ChangedSync>,
    /// The reason why its desired objects are unknown; `None` once they are known.
    pub cannot_read: Option<CannotRead>,
    /// Managed objects that this confined GitSync lost to an unconfined one, until the latter gives them up.
    pub outranked: HashSet<Key>,
    /// Whether some of the `outranked` objects were lost since the last plan.
    pub has_lost: bool,
    /// The GitRepository, and the Secrets that the GitRepository references.
    pub reads_by: Arc<[Key]>,
    /// Whether another agent looks after the GitSync. Its status shows the rest of the row, and its label its objects.
    pub is_of_other_agent: bool,
    /// The objects that the GitSync of another agent gives up.
    pub given_up: HashSet<Key>,
    /// The objects that the GitSync of another agent cannot apply, as far as its status lists them.
    pub failing: HashSet<Key>,
    /// Whether the GitSync of another agent wants more objects than its status lists.
    pub wants_more: bool,
    /// Whether the objects of the GitSync are deleted with it. Such a GitSync is kept if only its manifest was removed
    /// from a repository.
    pub takes_objects: bool,
}

/// A GitSync whose spec a commit changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedSync {
    /// The GitSync is not applied yet.
    Unapplied,
    /// The GitSync is applied with this spec.
    Applied(Spec),
    /// The GitSync is paused, or belongs to another owner. It keeps its former spec, and is not awaited.
    Left,
}

/// A spec of a GitSync, as the API server counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// UID of the GitSync.
    pub uid: String,
    /// Number of the spec: `metadata.generation`.
    pub generation: i64,
}

impl Spec {
    /// Returns the spec of a GitSync with this metadata.
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self { uid: metadata.uid.clone().unwrap_or_default(), generation: metadata.generation.unwrap_or_default() }
    }
}

/// A GitSync that cannot plan a commit until a user corrects an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotRead {
    /// The unreadable commit; `None` if the reference cannot be looked up.
    pub commit: Option<String>,
    /// The readable objects of the commit.
    pub readable: Arc<HashSet<Key>>,
}

impl Row {
    /// Records the spec of an attempt. After a change of the spec, the desired objects are unknown until the attempt has ended.
    pub(crate) fn begin_attempt(&mut self, spec: Spec) {
        if self.spec.as_ref().is_some_and(|before| *before != spec) {
            (self.tried, self.planned) = (false, None);
        }
        self.spec = Some(spec);
    }

    /// Whether an attempt was made with a spec or a later one. A GitSync that was recreated since has another UID.
    pub(super) fn has_tried(&self, applied: &Spec) -> bool {
        let is_later = |own: &Spec| own.uid != applied.uid || own.generation >= applied.generation;
        self.tried && self.spec.as_ref().is_some_and(is_later)
    }

    /// Whether other GitSyncs need not wait for a plan of the commit, because only a user can correct the error of this
    /// GitSync.
    pub(super) fn is_done_reading(&self, commit: &str) -> bool {
        self.cannot_read.as_ref().is_some_and(|one| one.commit.as_deref() == Some(commit))
    }

    /// Whether the GitSync of another agent manages an object with this label, and does not give it up.
    pub(super) fn holds_elsewhere(&self, key: &Key, label: &str) -> bool {
        self.is_of_other_agent && *label == *self.label && !self.given_up.contains(key)
    }

    /// Whether the GitSync of another agent manages an object with this label, and has given it up.
    pub(super) fn offers_elsewhere(&self, key: &Key, label: &str) -> bool {
        self.is_of_other_agent && *label == *self.label && self.given_up.contains(key)
    }

    /// Whether the GitSync may touch an object.
    pub(super) fn covers(&self, key: &Key) -> bool {
        self.by_account || self.is_at_home(key)
    }

    /// Whether the GitSync may touch an object without the permissions of a ServiceAccount: it is unconfined, or the
    /// object is in its namespace.
    pub(super) fn is_at_home(&self, key: &Key) -> bool {
        self.confined_to.is_none() || self.confined_to == key.namespace
    }

    /// Whether the GitSync manages an object whose live label is its own. An inventory entry for an object in a
    /// different namespace is not enough; the label shows that the GitSync had permissions there.
    pub(super) fn has_labelled(&self, key: &Key, label: Option<&str>) -> bool {
        let manages = self.managed.as_ref().is_some_and(|managed| managed.contains(key));
        let wants = self.desired.as_ref().is_none_or(|desired| desired.contains(key));
        self.by_account && label.is_some_and(|label| *label == *self.label) && manages && wants
    }

    /// Whether the GitSync is a peer of `own`: unconfined, or confined to the same namespace. Peers wait for each other
    /// and respect each other's claims.
    pub(super) fn is_peer_of(&self, own: Option<&Row>) -> bool {
        let theirs = self.confined_to.as_ref();
        theirs.is_none_or(|theirs| own.and_then(|own| own.confined_to.as_ref()) == Some(theirs))
    }

    /// Whether the GitSync takes an object over as soon as its present owner gives it up.
    pub(super) fn takes(&self, key: &Key) -> bool {
        let wants = self.desired.as_ref().is_some_and(|desired| desired.contains(key));
        wants && self.is_at_home(key) && !self.suspended && self.cannot_read.is_none()
    }

    pub(super) fn can_read_of_its_commit(&self, key: &Key) -> bool {
        self.cannot_read.as_ref().is_some_and(|one| one.readable.contains(key))
    }
}
