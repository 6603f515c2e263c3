//! What one GitSync manages and wants.
//!
//! Not here: what follows from that for the others (`registry`).

use std::collections::HashSet;
use std::sync::Arc;

use mainstay_object::Key;

/// What one GitSync manages and wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Value of its label.
    pub label: Arc<str>,
    /// What it follows: remote and reference, as one text.
    pub branch: Option<String>,
    /// What its inventory lists; `None` until it was read.
    pub managed: Option<Arc<HashSet<Key>>>,
    /// What of that it has applied, as its inventory says in the cluster.
    pub taken: Option<Arc<HashSet<Key>>>,
    /// What it wants; `None` until a commit could be decoded.
    pub desired: Option<Arc<HashSet<Key>>>,
    /// The commit that `desired` belongs to.
    pub planned: Option<String>,
    /// The only namespace that it may touch, if it is confined to one.
    pub confined_to: Option<Arc<str>>,
    /// It acts as a ServiceAccount, and may touch whatever that one may.
    pub by_account: bool,
    /// Both of its loops are stopped.
    pub suspended: bool,
    /// An attempt was made, whatever became of it: what it wants is known as far as it can be known now.
    pub tried: bool,
    /// It cannot be known now what it wants; `None` once it is.
    pub cannot_read: Option<CannotRead>,
    /// What it manages, is confined, and has lost to one that is not, until that one gives it up.
    pub outranked: HashSet<Key>,
    /// There is something in that which it has not planned for yet.
    pub has_lost: bool,
    /// What it reads its repository with: its GitRepository, and the Secrets that they name.
    pub reads_by: Arc<[Key]>,
    /// Its objects go with it when it is deleted, so it is kept where it only left a repository.
    pub takes_objects: bool,
}

/// A GitSync does not come to plan a commit until somebody has put something right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotRead {
    /// The commit that it cannot read; `None` when it cannot look any commit up.
    pub commit: Option<String>,
    /// Those objects of the commit that could be read.
    pub readable: Arc<HashSet<Key>>,
}

impl Row {
    /// Whether nobody need wait until it has planned this commit, because it read as much of it as it can until somebody has
    /// put something right.
    pub(super) fn is_done_reading(&self, commit: &str) -> bool {
        self.cannot_read.as_ref().is_some_and(|one| one.commit.as_deref() == Some(commit))
    }

    /// Whether it may touch an object.
    pub(super) fn covers(&self, key: &Key) -> bool {
        self.by_account || self.is_at_home(key)
    }

    /// Whether it may touch an object whatever the rights of a ServiceAccount are, or those are of the object's namespace.
    pub(super) fn is_at_home(&self, key: &Key) -> bool {
        self.confined_to.is_none() || self.confined_to == key.namespace
    }

    /// Whether it has an object that the live label says is its own. What it merely says of objects elsewhere is no claim: only
    /// with rights there could it have put its label on them.
    pub(super) fn has_labelled(&self, key: &Key, label: Option<&str>) -> bool {
        let manages = self.managed.as_ref().is_some_and(|managed| managed.contains(key));
        let wants = self.desired.as_ref().is_none_or(|desired| desired.contains(key));
        self.by_account && label.is_some_and(|label| *label == *self.label) && manages && wants
    }

    /// Whether it counts for `own`: it waits for that one, and has to be asked for what it has.
    pub(super) fn is_peer_of(&self, own: Option<&Row>) -> bool {
        let theirs = self.confined_to.as_ref();
        theirs.is_none_or(|theirs| own.and_then(|own| own.confined_to.as_ref()) == Some(theirs))
    }

    /// Whether it takes an object over as soon as that is given up.
    pub(super) fn takes(&self, key: &Key) -> bool {
        let wants = self.desired.as_ref().is_some_and(|desired| desired.contains(key));
        wants && self.is_at_home(key) && !self.suspended && self.cannot_read.is_none()
    }

    pub(super) fn can_read_of_its_commit(&self, key: &Key) -> bool {
        self.cannot_read.as_ref().is_some_and(|one| one.readable.contains(key))
    }
}
