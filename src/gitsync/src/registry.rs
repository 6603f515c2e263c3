//! What all GitSyncs of this agent manage and want, so that two of them never fight over an object, and an object that
//! moves from one to the other is handed over instead of deleted.
//!
//! Invariant: what another one has to say about an object is found by the object (`rows`): it costs nothing that there are others.
//! Invariant: a GitSync reserves the objects that it is about to apply in the same step in which it checks that nobody
//! else has them.
//! Invariant: a GitSync that is confined to a namespace has no claim on anything outside of it, and none against one that is
//! not confined: it neither delays nor outranks that one. What it wants of what that one gives up is handed to it.
//! Invariant: one that acts as a ServiceAccount is as one that is confined to its namespace, but that what it has applied
//! elsewhere, by the label that is on it, is not taken from it by other tenants.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

pub use self::row::{CannotRead, Row};
use self::rows::{Indexed, Rows};
use mainstay_git::RemoteUrl;
use mainstay_object::{Key, Owner};

mod row;
mod rows;

/// The kinds that repositories are read with.
const READ_WITH: [(&str, &str); 2] = [("serverless.kyma-project.io", "GitRepository"), ("", "Secret")];

/// Who wants an object besides the GitSync that manages it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// Nobody does.
    Nobody,
    /// Another GitSync does, or may.
    Peer,
    /// A GitSync does that is confined, as the one that manages it is not.
    Tenant,
}

/// A GitSync that has to say what it wants before anything is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its name.
    name: String,
    why: &'static str,
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitSync {}, which {}", self.name, self.why)
    }
}

/// Whether another GitSync has a claim on an object. Of several claims the first one counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// This one has it in its inventory and does not give it up.
    Held(String),
    /// This one follows the same branch and has not said yet whether it gives it up.
    Undecided(String),
    /// None has.
    Free,
}

/// What a GitSync follows, as one text: what follows the same is planned together.
pub(super) fn branch(url: &RemoteUrl, reference: &str) -> String {
    format!("{url} {reference}")
}

/// All of them.
#[derive(Debug, Default)]
pub struct Registry {
    rows: Mutex<Rows>,
    changed: watch::Sender<u64>,
    outranked: watch::Sender<u64>,
    complete: watch::Sender<bool>,
}

/// The rows, while nobody else changes them.
pub struct View<'a> {
    rows: &'a mut Rows,
    own: &'a Owner,
    looked_at: Cell<usize>,
}

impl Registry {
    /// Looks at the rows and changes the own one, as one step.
    pub fn with<T>(&self, own: &Owner, look: impl FnOnce(&mut View<'_>) -> T) -> T {
        let mut rows = self.rows.lock();
        let before = rows.owners.get(own).map(Indexed::of);
        let answer = look(&mut View { rows: &mut rows, own, looked_at: Cell::new(0) });
        rows.index(own, before);
        answer
    }

    /// Changes the own row and, if that made a difference, wakes the GitSyncs that wait for others.
    pub fn update(&self, own: &Owner, change: impl FnOnce(&mut Row)) {
        let changed = self.with(own, |view| {
            let row = view.own();
            let before = row.clone();
            change(row);
            *row != before
        });
        if changed {
            self.notify();
        }
    }

    /// A GitSync is there; its objects carry this label, and it may be confined to one namespace.
    pub fn enter(&self, own: &Owner, label: Arc<str>, confined_to: Option<Arc<str>>) {
        self.update(own, |row| {
            row.label = label;
            row.confined_to = confined_to;
        });
    }

    /// Every GitSync of the cluster has a row by now.
    pub fn set_complete(&self) {
        self.complete.send_replace(true);
    }

    /// Waits until every GitSync of the cluster has a row: before that nobody can know what another one wants.
    pub async fn completed(&self) {
        // The sender lives as long as the registry does.
        let _ = self.complete.subscribe().wait_for(|complete| *complete).await;
    }

    /// Wakes the GitSyncs that wait for others: something came that they may have waited for.
    pub fn notify(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Wakes all GitSyncs: something was taken from one that need not wait for anything.
    pub(crate) fn notify_outranked(&self) {
        self.notify();
        self.outranked.send_modify(|count| *count += 1);
    }

    /// Hears of every change. With each commit every GitSync of the repository makes one: whoever waits for none of the others
    /// listens to [`Registry::listen_outranked`] only, or a commit would wake all of them as often as there are GitSyncs.
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Hears of what is taken from GitSyncs.
    pub(crate) fn listen_outranked(&self) -> watch::Receiver<u64> {
        self.outranked.subscribe()
    }

    /// The GitSync is gone.
    pub fn remove(&self, own: &Owner) {
        self.rows.lock().remove(own);
        self.notify();
    }
}

impl View<'_> {
    /// The own row.
    pub fn own(&mut self) -> &mut Row {
        self.rows.owners.entry(self.own.clone()).or_default()
    }

    /// The GitSync whose view this is, as an object.
    pub(super) fn key(&self) -> Key {
        self.own.key()
    }

    /// These objects count as ours from now on, also where a GitSync manages them that we outrank. Whether one does.
    pub(super) fn reserve(&mut self, keys: impl Iterator<Item = Key>) -> bool {
        let keys = keys.collect::<Vec<_>>();
        if keys.is_empty() {
            return false;
        }
        let row = self.own();
        let is_confined = row.confined_to.is_some();
        let mut managed: HashSet<_> = row.managed.as_deref().cloned().unwrap_or_default();
        let before = managed.len();
        managed.extend(keys.iter().cloned());
        if managed.len() != before {
            row.managed = Some(Arc::new(managed));
        }
        let mut outranks = false;
        for key in keys.into_iter().filter(|_| !is_confined) {
            for owner in self.rows.naming(&key).filter(|owner| *owner != self.own).cloned().collect::<Vec<_>>() {
                let Some(row) = self.rows.owners.get_mut(&owner).filter(|row| row.confined_to.is_some()) else {
                    continue;
                };
                if row.covers(&key) && row.managed.as_ref().is_some_and(|keys| keys.contains(&key)) {
                    row.has_lost = true;
                    row.outranked.insert(key.clone());
                    outranks = true;
                }
            }
        }
        outranks
    }

    /// Whether a GitSync that outranks us took an object that we manage.
    pub(super) fn is_outranked(&self, key: &Key) -> bool {
        self.own_row().is_some_and(|row| row.outranked.contains(key))
    }

    /// What outranked us is planned for; this was given up by now.
    pub(super) fn regain(&mut self, keys: &[Key]) {
        let row = self.own();
        row.has_lost = false;
        for key in keys {
            row.outranked.remove(key);
        }
    }

    fn own_row(&self) -> Option<&Row> {
        self.rows.owners.get(self.own)
    }

    /// The others whose rows name an object.
    fn others(&self, key: &Key) -> impl Iterator<Item = (&Owner, &Row)> {
        self.rows_of(self.rows.naming(key))
    }

    /// Those of them that count for us.
    fn peers(&self, key: &Key) -> impl Iterator<Item = (&Owner, &Row)> {
        let own = self.own_row();
        self.others(key).filter(move |(_, row)| row.is_peer_of(own))
    }

    /// All others that count for us, whatever they name.
    fn all_peers(&self) -> impl Iterator<Item = (&Owner, &Row)> {
        let own = self.own_row();
        self.rows_of(self.rows.owners.keys()).filter(move |(_, row)| row.is_peer_of(own))
    }

    fn rows_of<'o>(&'o self, owners: impl Iterator<Item = &'o Owner>) -> impl Iterator<Item = (&'o Owner, &'o Row)> {
        let rows = owners.filter(|owner| *owner != self.own).filter_map(|owner| self.rows.owners.get_key_value(owner));
        rows.inspect(|_| self.looked_at.update(|count| count + 1))
    }

    /// Whether another GitSync has a claim on an object that carries `label` now and that we want at `commit`.
    pub fn claim(&self, key: &Key, label: Option<&str>, branch: &str, commit: &str) -> Claim {
        let claim = |owner: &Owner, row: &Row| {
            let Some(managed) = &row.managed else {
                return match label {
                    Some(label) if *label == *row.label => Claim::Undecided(owner.to_string()),
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
                // It gives it up, and keeps it in its inventory until we have taken it.
                Some(desired) if !desired.contains(key) => Claim::Free,
                _ => Claim::Held(owner.to_string()),
            }
        };
        // One of which it is not known what it manages names no object: its label does.
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

    /// The GitSync that is to take an object over and cannot read the commit with it.
    pub(super) fn taker_that_cannot_read(&self, key: &Key) -> Option<String> {
        let mut takers = self.peers(key).filter(|(_, row)| row.covers(key) && row.can_read_of_its_commit(key));
        takers.next().map(|(owner, _)| owner.to_string())
    }

    /// Whether another GitSync that counts for us has not said at all yet what it wants.
    pub(crate) fn others_untried(&self) -> bool {
        self.all_peers().any(|(_, row)| !row.tried)
    }

    /// The GitSync, ours or one that counts for us, that reads its repository with an object. Those that are `going` do so no
    /// longer, unless they are kept because their objects would go with them.
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

    /// Whether another GitSync has applied an object and says so in its inventory.
    pub(crate) fn taken_elsewhere(&self, key: &Key) -> bool {
        self.others(key).any(|(_, row)| row.taken.as_ref().is_some_and(|taken| taken.contains(key)))
    }

    /// The GitSync of the same branch that has yet to plan this commit, or any other one that has not said at all yet what
    /// it wants. One that cannot read the commit is not waited for: what it has, and what could be read of the commit,
    /// stays its own. Nor is one that is confined, unless we are, to the same namespace: whoever may create it could
    /// otherwise hold everyone's pruning.
    pub(crate) fn sibling_pending(&self, branch: &str, commit: &str) -> Option<Pending> {
        let why = |row: &Row| {
            let is_behind = row.branch.as_deref() == Some(branch) && row.planned.as_deref() != Some(commit);
            if !row.tried {
                Some("has not been read yet")
            } else if !is_behind {
                None
            } else if !row.is_done_reading(commit) {
                let is_away = row.cannot_read.as_ref().is_some_and(|one| one.commit.is_none());
                Some(if is_away {
                    "follows the same branch and cannot read the repository (suspend it if that may stay so)"
                } else {
                    "follows the same branch and has not planned this commit yet"
                })
            } else if row.managed.is_none() {
                Some("follows the same branch and cannot read it, nor its own inventory")
            } else {
                None
            }
        };
        let mut pending = self.all_peers().filter(|(_, row)| !row.suspended);
        // The first by name, so that equal rows give equal messages.
        let mut first: Option<Pending> = None;
        for (owner, why) in pending.by_ref().filter_map(|(owner, row)| Some((owner, why(row)?))) {
            let name = owner.to_string();
            if first.as_ref().is_none_or(|first| name < first.name) {
                first = Some(Pending { name, why });
            }
        }
        first
    }
}

#[cfg(test)]
mod tests;
