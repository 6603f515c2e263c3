//! The managed and desired objects of all GitSyncs that apply to a cluster. The registry prevents conflicts between
//! GitSyncs, and hands moved objects over instead of deleting them.
//!
//! A GitSync *claims* an object that it manages (its inventory lists the object, or its plan has reserved it), unless
//! its last planned commit lacks the object. A claim needs no live object: it outlives a deletion, a pause, a
//! suspension and a restart. Before the inventory is read, only the label of a live object shows a claim.
//!
//! Between equal GitSyncs (both unconfined, or confined to the same namespace), the one that claims the object keeps
//! it. The other one does not apply it, and reports a conflict (`failures`). If both follow the same branch, it first
//! waits until the claiming one has planned the same commit, unless that one is suspended. Each change of a row wakes
//! the GitSyncs that wait for others. So the other one plans again when the claim ends: a later commit lacks the
//! object, or the GitSync is deleted.
//!
//! A commit may create a GitSync, or change its spec, and move objects to it. Objects that left the commit are deleted only after
//! each such GitSync has made an attempt with that spec.
//!
//! A GitSync is *confined* to its namespace unless that namespace is trusted (`rights`). A ServiceAccount gives a
//! confined GitSync access to other namespaces, but it stays confined.
//!
//! Invariant: claims are found by object (`rows`), so the cost does not depend on the number of GitSyncs.
//! Invariant: one step checks that no other GitSync claims an object, and reserves it.
//! Invariant: an unconfined GitSync ignores claims of confined ones: it takes their objects without waiting. A confined
//! GitSync gets an object of an unconfined one only after that one has given it up.
//! Invariant: without a ServiceAccount, the claims of a confined GitSync cover only its namespace.
//! Invariant: if two GitSyncs are confined to different namespaces, a claim counts only while the live object carries
//! the label of the claiming GitSync, and only if that one has a ServiceAccount.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

pub use self::row::{CannotRead, ChangedSync, Row, Spec};
use self::rows::{Indexed, Rows};
use mainstay_git::RemoteUrl;
use mainstay_object::{Key, Owner};

mod outranked;
mod row;
mod rows;

/// The kinds that a GitSync needs to read its repository.
const READ_WITH: [(&str, &str); 2] = [("serverless.kyma-project.io", "GitRepository"), ("", "Secret")];

/// Why a GitSync is pending.
const UNTRIED: &str = "has not been read yet";
const UNAPPLIED: &str = "is in this commit and is not applied yet";
const WANTS_MORE: &str = "wants more objects than its status lists";

/// Whether a GitSync other than the managing one wants an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// None.
    Nobody,
    /// Another GitSync wants the object, or may want it.
    Peer,
    /// A confined GitSync wants the object, and the GitSync that manages it is unconfined.
    Tenant,
}

/// A GitSync that must plan before objects are deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The namespace and name of the GitSync.
    name: String,
    why: &'static str,
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitSync {}, which {}", self.name, self.why)
    }
}

/// The GitSync of another agent that should take an object over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Taker {
    /// Whether its status lists the object as failed.
    pub(super) is_failing: bool,
    /// Whether it is a confined GitSync that is no peer.
    pub(super) is_tenant: bool,
    /// Its namespace and name.
    pub(super) name: String,
    /// The commit that it has planned.
    pub(super) planned: Option<String>,
}

/// The claim of another GitSync on an object. The least of several claims counts: `Held` before `Undecided`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// This GitSync lists the object in its inventory and does not give it up.
    Held(String),
    /// This GitSync follows the same branch and has not planned this commit yet, or its inventory is unknown and the
    /// object has its label.
    Undecided(String),
    /// There is no claim.
    Free,
}

/// Returns the repository and reference of a GitSync as one string. GitSyncs with equal strings are planned together.
/// `found` is the full name of the reference as it was looked up last.
pub(super) fn branch(url: &RemoteUrl, reference: &str, found: Option<&str>) -> String {
    let is_found = |found: &&str| {
        let short = ["refs/heads/", "refs/tags/"].iter().find_map(|prefix| found.strip_prefix(prefix));
        reference == "HEAD" || short == Some(reference)
    };
    let reference = match found.filter(is_found) {
        Some(found) => found.to_owned(),
        None if reference == "HEAD" || reference.starts_with("refs/") || reference.contains(':') => {
            reference.to_owned()
        }
        None => format!("refs/heads/{reference}"),
    };
    format!("{} {reference}", url.identity())
}

/// The rows of all GitSyncs.
#[derive(Debug, Default)]
pub struct Registry {
    rows: Mutex<Rows>,
    changed: watch::Sender<u64>,
    outranked: watch::Sender<u64>,
    complete: watch::Sender<bool>,
}

/// Exclusive access to the rows, for one GitSync.
pub struct View<'a> {
    rows: &'a mut Rows,
    own: &'a Owner,
    looked_at: Cell<usize>,
}

impl Registry {
    /// Reads the rows and changes the row of GitSync `own`, in one step.
    pub fn with<T>(&self, own: &Owner, look: impl FnOnce(&mut View<'_>) -> T) -> T {
        let mut rows = self.rows.lock();
        let before = rows.owners.get(own).map(Indexed::of);
        let answer = look(&mut View { rows: &mut rows, own, looked_at: Cell::new(0) });
        rows.index(own, before);
        answer
    }

    /// Changes the row of GitSync `own`, and wakes waiting GitSyncs if the row is different.
    pub fn update(&self, own: &Owner, change: impl FnOnce(&mut Row)) {
        let changed = self.with(own, |view| {
            let row = view.own();
            let before = row.clone();
            change(row);
            let is_changed = *row != before;
            if row.tried && (!before.tried || row.spec != before.spec) {
                view.rows.forget_tried(own);
            }
            is_changed
        });
        if changed {
            self.notify();
        }
    }

    /// Changes the row of a GitSync of another agent. Returns whether there is one.
    pub(super) fn update_of_other_agent(&self, other: &Owner, change: impl FnOnce(&mut Row)) -> bool {
        let changed = self.with(other, |view| {
            view.own_row().filter(|row| row.is_of_other_agent)?;
            let row = view.own();
            let before = row.clone();
            change(row);
            Some(*row != before)
        });
        if changed == Some(true) {
            self.notify();
        }
        changed.is_some()
    }

    /// Registers a GitSync with the label of its objects. It may be confined to one namespace.
    pub fn enter(&self, own: &Owner, label: Arc<str>, confined_to: Option<Arc<str>>) {
        self.update(own, |row| {
            if row.is_of_other_agent {
                *row = Row::default();
            }
            row.label = label;
            row.confined_to = confined_to;
        });
    }

    /// Records that every GitSync of the cluster has a row.
    pub fn set_complete(&self) {
        self.complete.send_replace(true);
    }

    /// Waits until every GitSync of the cluster has a row. Before that, the desired objects of the others are unknown.
    pub async fn completed(&self) {
        // The sender lives as long as the registry.
        let _ = self.complete.subscribe().wait_for(|complete| *complete).await;
    }

    /// Wakes the GitSyncs that wait for others, because one of the awaited objects may have been applied.
    pub fn notify(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Wakes all GitSyncs, because an object was taken from one that may not be waiting.
    pub(crate) fn notify_outranked(&self) {
        self.notify();
        self.outranked.send_modify(|count| *count += 1);
    }

    /// Subscribes to every change. Every commit changes the row of each GitSync of its repository. A GitSync that does
    /// not wait for others uses [`Registry::listen_outranked`], otherwise a commit would wake all of them for each
    /// change.
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Subscribes to objects that are taken from GitSyncs.
    pub(crate) fn listen_outranked(&self) -> watch::Receiver<u64> {
        self.outranked.subscribe()
    }

    /// Removes a GitSync, if it has a row.
    pub(super) fn forget(&self, own: &Owner) {
        if self.rows.lock().owners.contains_key(own) {
            self.remove(own);
        }
    }

    /// Whether no GitSync has a row.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.lock().owners.is_empty()
    }

    /// Removes a GitSync.
    pub fn remove(&self, own: &Owner) {
        self.rows.lock().remove(own);
        self.notify();
    }
}

impl View<'_> {
    /// Returns the row of this view's GitSync.
    pub fn own(&mut self) -> &mut Row {
        self.rows.owners.entry(self.own.clone()).or_default()
    }

    /// Returns the key of this view's GitSync.
    pub(super) fn key(&self) -> Key {
        self.own.key()
    }

    /// Reserves objects for the GitSync of this view, even if a GitSync that it outranks manages them. Returns whether
    /// such a GitSync manages one of them and does not know yet that it has lost it.
    pub(super) fn reserve(&mut self, keys: impl Iterator<Item = Key>) -> bool {
        let keys = keys.collect::<Vec<_>>();
        if keys.is_empty() {
            return false;
        }
        let row = self.own();
        let mut managed: HashSet<_> = row.managed.as_deref().cloned().unwrap_or_default();
        let before = managed.len();
        managed.extend(keys.iter().cloned());
        if managed.len() != before {
            row.managed = Some(Arc::new(managed));
        }
        self.keep_outranked(keys.iter())
    }

    fn own_row(&self) -> Option<&Row> {
        self.rows.owners.get(self.own)
    }

    /// Returns the other GitSyncs whose rows contain an object.
    fn others(&self, key: &Key) -> impl Iterator<Item = (&Owner, &Row)> {
        self.rows_of(self.rows.naming(key))
    }

    /// Returns the peers whose rows contain an object.
    fn peers(&self, key: &Key) -> impl Iterator<Item = (&Owner, &Row)> {
        let own = self.own_row();
        self.others(key).filter(move |(_, row)| row.is_peer_of(own))
    }

    /// Returns all peers of this view's GitSync.
    fn all_peers(&self) -> impl Iterator<Item = (&Owner, &Row)> {
        let own = self.own_row();
        self.rows_of(self.rows.owners.keys()).filter(move |(_, row)| row.is_peer_of(own))
    }

    fn rows_of<'o>(&'o self, owners: impl Iterator<Item = &'o Owner>) -> impl Iterator<Item = (&'o Owner, &'o Row)> {
        let rows = owners.filter(|owner| *owner != self.own).filter_map(|owner| self.rows.owners.get_key_value(owner));
        rows.inspect(|_| self.looked_at.update(|count| count + 1))
    }

    /// Returns the claim of another GitSync on an object that carries `label` and that this view's GitSync wants at
    /// `commit`.
    pub fn claim(&self, key: &Key, label: Option<&str>, branch: &str, commit: &str) -> Claim {
        let claim = |owner: &Owner, row: &Row| {
            let Some(managed) = &row.managed else {
                return match label {
                    Some(label) if *label == *row.label && !row.is_of_other_agent => {
                        Claim::Undecided(owner.to_string())
                    }
                    _ => Claim::Free,
                };
            };
            if !managed.contains(key) {
                return Claim::Free;
            }
            if row.branch.as_deref() == Some(branch) && row.planned.as_deref() != Some(commit) && !row.suspended {
                return Claim::Undecided(owner.to_string());
            }
            match &row.desired {
                // The other GitSync gives the object up, and keeps it in its inventory until this GitSync has applied
                // it.
                Some(desired) if !desired.contains(key) => Claim::Free,
                _ => Claim::Held(owner.to_string()),
            }
        };
        // A GitSync whose inventory is unknown has no objects in its row. It is found by its label.
        let own = self.own_row();
        let unread = self.rows_of(label.into_iter().flat_map(|label| self.rows.labelled(label)));
        let unread = unread.filter(|(_, row)| row.managed.is_none() && row.is_peer_of(own));
        // The first by name, so that equal rows give equal claims.
        let rows = self.peers(key).chain(unread).filter(|(_, row)| row.covers(key));
        let of_peers = rows.map(|(owner, row)| claim(owner, row)).min().unwrap_or(Claim::Free);
        if of_peers != Claim::Free || own.is_none_or(|own| own.confined_to.is_none()) {
            return of_peers;
        }
        let tenants = self.others(key).filter(|(_, row)| !row.is_peer_of(own) && row.has_labelled(key, label));
        tenants.map(|(owner, _)| Claim::Held(owner.to_string())).min().unwrap_or(Claim::Free)
    }

    /// Whether another GitSync wants an object, or may want it.
    pub(crate) fn desired_elsewhere(&self, key: &Key) -> Elsewhere {
        let may_want = |row: &Row| match &row.desired {
            Some(desired) => desired.contains(key),
            None => row.managed.as_ref().is_some_and(|managed| managed.contains(key)),
        };
        let mut peers = self.peers(key).filter(|(_, row)| row.covers(key));
        if peers.any(|(_, row)| may_want(row) || row.can_read_of_its_commit(key)) {
            Elsewhere::Peer
        } else if self.others(key).any(|(_, row)| row.takes(key)) {
            Elsewhere::Tenant
        } else {
            Elsewhere::Nobody
        }
    }

    /// Returns the GitSync that should take an object over and cannot read its commit.
    pub(super) fn taker_that_cannot_read(&self, key: &Key) -> Option<String> {
        let mut takers = self.peers(key).filter(|(_, row)| row.covers(key) && row.can_read_of_its_commit(key));
        takers.next().map(|(owner, _)| owner.to_string())
    }

    /// Returns the GitSync of another agent that manages an object with this label. Agents do not take objects from each
    /// other, so confinement does not matter.
    pub(super) fn holder_of_other_agent(&self, key: &Key, label: &str) -> Option<String> {
        let others = self.rows.labelled(label).filter(|owner| *owner != self.own);
        let holders =
            others.filter(|owner| self.rows.owners.get(*owner).is_some_and(|row| row.holds_elsewhere(key, label)));
        holders.map(ToString::to_string).min()
    }

    /// Returns the GitSync of another agent that manages an object with this label and gives it up, as far as the watch
    /// shows.
    pub(super) fn offers_of_other_agent(&self, key: &Key, label: &str) -> Option<Owner> {
        let mut others = self.rows.labelled(label).filter(|owner| *owner != self.own);
        let is_offered =
            |owner: &&Owner| self.rows.owners.get(*owner).is_some_and(|row| row.offers_elsewhere(key, label));
        others.find(is_offered).cloned()
    }

    /// Returns the GitSync of another agent that should take an object over, whether it cannot apply it, and whether it
    /// is a confined one that is no peer. Those that can apply it come first, then peers.
    pub(super) fn taker_of_other_agent(&self, key: &Key) -> Option<Taker> {
        let own = self.own_row();
        let wants = |row: &Row| row.is_of_other_agent && row.desired.as_ref().is_some_and(|keys| keys.contains(key));
        let takers = self.others(key).filter(|(_, row)| wants(row));
        let taker = |(owner, row): (&Owner, &Row)| Taker {
            is_failing: row.failing.contains(key),
            is_tenant: !row.is_peer_of(own),
            name: owner.to_string(),
            planned: row.planned.clone(),
        };
        takers.map(taker).min()
    }

    /// Whether only GitSyncs of other agents want an object.
    pub(super) fn goes_to_other_agents(&self, key: &Key) -> bool {
        let wants = |row: &Row| row.desired.as_ref().is_some_and(|keys| keys.contains(key));
        let mut takers = self.others(key).filter(|(_, row)| wants(row) || row.can_read_of_its_commit(key)).peekable();
        takers.peek().is_some() && takers.all(|(_, row)| row.is_of_other_agent)
    }

    /// Returns a peer that has not made an attempt yet. A suspended one of another agent is not waited for.
    pub(crate) fn others_untried(&self) -> Option<Pending> {
        self.first_pending(UNTRIED, |row| !(row.tried || row.is_of_other_agent && row.suspended))
    }

    /// Returns a peer of another agent that wants more objects than its status lists. A suspended one is not waited for.
    pub(crate) fn others_want_more(&self) -> Option<Pending> {
        self.first_pending(WANTS_MORE, |row| row.wants_more && !row.suspended)
    }

    /// Returns the first such peer by name, so that equal rows give equal messages.
    fn first_pending(&self, why: &'static str, is_pending: impl Fn(&Row) -> bool) -> Option<Pending> {
        let pending = self.all_peers().filter(|(_, row)| is_pending(row)).map(|(owner, _)| owner.to_string());
        pending.min().map(|name| Pending { name, why })
    }

    /// Returns the GitSync, this view's or a peer, that needs an object to read its repository. GitSyncs in `going` are
    /// ignored, unless they are kept because their objects would be deleted with them.
    pub(crate) fn reader_of(&self, key: &Key, going: &HashSet<Key>) -> Option<String> {
        if !READ_WITH.iter().any(|(group, kind)| key.is(group, kind)) {
            return None;
        }
        let own = self.own_row();
        let counts = |owner: &Owner, row: &Row| *owner == *self.own || row.is_peer_of(own);
        let stays =
            |owner: &Owner, row: &Row| !going.contains(&owner.key()) || (row.takes_objects && *owner != *self.own);
        let readers = self.rows.naming(key).filter_map(|owner| self.rows.owners.get_key_value(owner));
        let readers = readers.filter(|(_, row)| row.reads_by.contains(key));
        let readers = readers.filter(|(owner, row)| counts(owner, row) && stays(owner, row));
        // The first by name, so that equal rows give equal messages.
        readers.map(|(owner, _)| owner.to_string()).min()
    }

    /// Whether the inventory of another GitSync lists an object as applied.
    pub(crate) fn taken_elsewhere(&self, key: &Key) -> bool {
        self.others(key).any(|(_, row)| row.taken.as_ref().is_some_and(|taken| taken.contains(key)))
    }

    /// Returns a peer that has made no attempt yet, or that follows the same branch and has yet to plan this commit. A
    /// GitSync that cannot read the commit is not waited for; its objects and the readable ones of the commit are kept.
    /// Confined GitSyncs are not waited for, unless this view's GitSync is confined to the same namespace: otherwise a
    /// tenant could block pruning for all.
    pub(crate) fn sibling_pending(&self, branch: &str, commit: &str) -> Option<Pending> {
        let why = |row: &Row| {
            let is_behind = row.branch.as_deref() == Some(branch) && row.planned.as_deref() != Some(commit);
            if !row.tried {
                Some(UNTRIED)
            } else if row.is_of_other_agent && row.branch.is_none() {
                Some("follows a source that is not known yet (suspend that GitSync to continue without it)")
            } else if row.wants_more {
                Some(WANTS_MORE)
            } else if !is_behind {
                None
            } else if !row.is_done_reading(commit) {
                let is_away = row.cannot_read.as_ref().is_some_and(|one| one.commit.is_none());
                Some(if row.is_of_other_agent {
                    "follows the same branch and has not planned this commit yet (if it cannot, suspend that GitSync to \
                     continue without it)"
                } else if is_away {
                    "follows the same branch and cannot read the repository (suspend that GitSync to continue without it)"
                } else {
                    "follows the same branch and has not planned this commit yet"
                })
            } else if row.managed.is_none() {
                Some("follows the same branch and can read neither the commit nor its own inventory")
            } else {
                None
            }
        };
        let peers = self.all_peers().filter(|(_, row)| !row.suspended);
        let peers = peers.filter_map(|(owner, row)| Some((owner, why(row)?)));
        let pending = peers.chain(self.changed_syncs_pending(branch, commit));
        // The first by name, so that equal rows give equal messages.
        pending.min_by_key(|(owner, _)| *owner).map(|(owner, why)| Pending { name: owner.to_string(), why })
    }

    /// Records objects that the plan of this view's GitSync does not apply, because they are paused or belong to another owner.
    /// Returns whether a GitSync that others await is among them.
    pub(super) fn leave_syncs(&mut self, keys: &HashSet<&Key>) -> bool {
        let changed = &mut self.own().changed_syncs;
        if changed.is_empty() {
            return false;
        }
        let mut is_new = false;
        for (owner, state) in changed.iter_mut().filter(|(_, state)| **state == ChangedSync::Unapplied) {
            if keys.contains(&owner.key()) {
                (*state, is_new) = (ChangedSync::Left, true);
            }
        }
        is_new
    }

    /// Returns the GitSyncs whose spec a commit of this view's GitSync or of a peer changes, and that have made no attempt with
    /// that spec yet. They may want objects that leave the commit. A tenant among them is awaited until its first attempt only.
    fn changed_syncs_pending<'v>(
        &'v self,
        branch: &'v str,
        commit: &'v str,
    ) -> impl Iterator<Item = (&'v Owner, &'static str)> {
        let peers = self.all_peers().map(|(_, row)| row).filter(|row| !row.suspended && !row.is_of_other_agent);
        let rows = peers.chain(self.own_row());
        let rows = rows.filter(|row| row.branch.as_deref() == Some(branch) && row.planned.as_deref() == Some(commit));
        rows.flat_map(|row| &row.changed_syncs).filter_map(|(owner, changed)| match changed {
            ChangedSync::Unapplied => Some((owner, UNAPPLIED)),
            ChangedSync::Applied(spec) => {
                let has_tried = self.rows.owners.get(owner).is_some_and(|row| row.has_tried(spec));
                (!has_tried).then_some((owner, UNTRIED))
            }
            ChangedSync::Left => None,
        })
    }
}

#[cfg(test)]
mod tests;
