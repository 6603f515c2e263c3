//! The demands of GitSyncs for prevention, and their states. GitSyncs write the demands, and `keep` writes the states.
//!
//! Invariant: the demand of a GitSync is unknown from `enter` to its first `want`.
//!
//! Not here: requests and waits.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::policy::{Protection, name_of};
use mainstay_object::Owner;

/// The demand of a GitSync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The GitSync has not been reconciled yet.
    Unknown,
    /// Manual changes are not prevented.
    Nothing,
    /// Manual changes are prevented.
    Prevented(Arc<Protection>),
}

/// The state of a demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The objects are not in place yet.
    Pending,
    /// Policy and binding are in place. If the user name of the agent may be that of a person, it is set: changes by
    /// that person are not prevented.
    Prevented(Option<String>),
    /// The API server does not serve the kinds.
    NotServed,
    /// The objects are in a remote cluster, where policies are not supported.
    Elsewhere,
    /// An object of this kind and name belongs to another client.
    NameTaken(String),
    /// A request failed with this cause and is retried.
    Failed(String),
}

/// The demands of all GitSyncs, and their states.
#[derive(Debug, Default)]
pub struct Prevention {
    table: Mutex<Table>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Table {
    rows: HashMap<Owner, Row>,
    /// Whether all existing GitSyncs were entered.
    complete: bool,
}

#[derive(Debug)]
struct Row {
    wanted: Wanted,
    state: State,
    notify: Arc<Notify>,
}

impl Default for Row {
    fn default() -> Self {
        Self { wanted: Wanted::Unknown, state: State::Pending, notify: Arc::default() }
    }
}

impl Prevention {
    /// Adds an existing GitSync.
    pub fn enter(&self, owner: &Owner) {
        self.table.lock().rows.entry(owner.clone()).or_default();
    }

    /// Sets the demand of a GitSync.
    pub fn want(&self, owner: &Owner, wanted: Wanted) {
        let mut table = self.table.lock();
        let row = table.rows.entry(owner.clone()).or_default();
        if row.wanted == wanted {
            return;
        }
        if !matches!((&row.wanted, &wanted), (Wanted::Prevented(_), Wanted::Prevented(_))) {
            row.state = State::Pending;
        }
        row.wanted = wanted;
        drop(table);
        self.notify();
    }

    /// Removes a deleted GitSync.
    pub fn remove(&self, owner: &Owner) {
        if self.table.lock().rows.remove(owner).is_some() {
            self.notify();
        }
    }

    /// Records that all existing GitSyncs were entered.
    pub fn set_complete(&self) {
        self.table.lock().complete = true;
        self.notify();
    }

    /// Returns a notifier that fires when the [`state`](Self::state) of a GitSync changes.
    pub fn listen(&self, owner: &Owner) -> Arc<Notify> {
        Arc::clone(&self.table.lock().rows.entry(owner.clone()).or_default().notify)
    }

    /// Returns the state of a GitSync's demand; `None` if the GitSync demands no prevention.
    pub fn state(&self, owner: &Owner) -> Option<State> {
        let table = self.table.lock();
        let row = table.rows.get(owner)?;
        matches!(row.wanted, Wanted::Prevented(_)).then(|| row.state.clone())
    }

    fn notify(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns a receiver that changes with any demand.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.table.lock().complete
    }

    /// Returns all demands, sorted by owner.
    pub(super) fn protections(&self) -> Vec<Arc<Protection>> {
        let table = self.table.lock();
        let prevented = table.rows.values().filter_map(|row| match &row.wanted {
            Wanted::Prevented(protection) => Some(Arc::clone(protection)),
            Wanted::Unknown | Wanted::Nothing => None,
        });
        let mut protections = prevented.collect::<Vec<_>>();
        protections.sort_by(|a, b| a.owner.cmp(&b.owner));
        protections
    }

    /// Returns the object names of GitSyncs whose demand is unknown.
    pub(super) fn undecided(&self) -> BTreeSet<String> {
        let table = self.table.lock();
        let unknown = table.rows.iter().filter(|(_, row)| row.wanted == Wanted::Unknown);
        unknown.map(|(owner, _)| name_of(owner)).collect()
    }

    pub(super) fn set_state(&self, owner: &Owner, state: State) {
        let mut table = self.table.lock();
        if let Some(row) = table.rows.get_mut(owner).filter(|row| row.state != state) {
            row.state = state;
            row.notify.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prevention::policy::Limit;

    fn protection(owner: &Owner) -> Arc<Protection> {
        Arc::new(Protection {
            owner: owner.clone(),
            label: "shop.web".to_owned(),
            repository: "app".to_owned(),
            reference: "main".to_owned(),
            base_dir: "/".to_owned(),
            account: None,
            limit: Limit::None,
        })
    }

    #[test]
    fn the_demand_of_a_git_sync_is_unknown_until_its_first_reconcile() {
        let (prevention, owner) = (Prevention::default(), Owner::git_sync("shop", "web"));
        prevention.enter(&owner);
        assert_eq!(prevention.undecided(), BTreeSet::from(["mainstay-shop.web".to_owned()]));
        prevention.want(&owner, Wanted::Prevented(protection(&owner)));
        prevention.enter(&owner);
        assert_eq!((prevention.undecided(), prevention.protections().len()), (BTreeSet::new(), 1));
        prevention.remove(&owner);
        assert_eq!((prevention.undecided(), prevention.protections().len()), (BTreeSet::new(), 0));
    }

    #[test]
    fn a_repeated_demand_wakes_no_worker_and_no_demand_has_no_state() {
        let (prevention, owner) = (Prevention::default(), Owner::git_sync("shop", "web"));
        prevention.want(&owner, Wanted::Prevented(protection(&owner)));
        let mut changes = prevention.changes();
        changes.mark_unchanged();
        prevention.want(&owner, Wanted::Prevented(protection(&owner)));
        assert!(!changes.has_changed().unwrap());
        prevention.set_state(&owner, State::Prevented(None));
        assert_eq!(prevention.state(&owner), Some(State::Prevented(None)));
        prevention.want(&owner, Wanted::Nothing);
        assert!(changes.has_changed().unwrap());
        assert_eq!(prevention.state(&owner), None);
    }
}
