//! The handovers of objects to GitSyncs of other agents. The label of an object shows when its new owner has applied it.
//!
//! Not here: handovers between GitSyncs of one agent (`inventory`).

use std::collections::HashSet;
use std::sync::Arc;

use super::attempt::Attempt;
use super::outcome::Refused;
use super::plan::{DesiredState, Plan};
use super::prune::HANDOVER;
use super::shared_plan::given_up;
use mainstay_engine::managed::inventory::Entry;
use mainstay_engine::managed::{Desired, SHOWN};
use mainstay_object::Key;

impl Attempt<'_> {
    /// Removes objects from the inventory that GitSyncs of other agents have taken over. Such objects must not count as
    /// deletions, which a guard may hold.
    pub(super) async fn settle_handovers(&mut self, desired: &DesiredState) -> Result<(), Refused> {
        if !self.context.is_shared() {
            return Ok(());
        }
        let status = self.sync.status.as_ref();
        let before = || status.map(|status| given_up(&status.held)).unwrap_or_default();
        let mut given = self.state.given.take().unwrap_or_else(before);
        let Some(inventory) = self.inventory().filter(|_| !given.is_empty()) else {
            self.state.given = Some(given);
            return Ok(());
        };
        let wanted: HashSet<&Key> = desired.objects.iter().map(|one| &one.key).collect();
        // An object that was applied again since has a digest, which a handover removes.
        let is_back = |key: &Key, entry: &Entry| wanted.contains(key) && entry.digest.is_some();
        given.retain(|key| inventory.0.get(key).is_some_and(|entry| !is_back(key, entry)) && self.reaches(key));
        let given: Vec<Key> = given.into_iter().collect();
        let ours = self.acting()?.still_labelled(self.label, &inventory, &given).await;
        drop(inventory);
        for key in given.iter().filter(|key| !ours.contains(*key)) {
            self.context.writer.remove(self.owner, key);
        }
        self.state.given = Some(ours);
        Ok(())
    }

    /// Returns the desired objects that this GitSync has given up for GitSyncs of other agents: those that the written
    /// status may still show, and the others.
    pub(super) fn wanted_again(&self, desired: &[Arc<Desired>]) -> (HashSet<Key>, HashSet<Key>) {
        let Some(given) = self.state.given.as_ref().filter(|given| !given.is_empty()) else {
            return (HashSet::new(), HashSet::new());
        };
        let of_status = || self.sync.status.as_ref().map(|status| given_up(&status.held)).unwrap_or_default();
        let shown = self.state.offered.clone().unwrap_or_else(of_status);
        let again = desired.iter().map(|one| &one.key).filter(|key| given.contains(*key)).cloned();
        again.partition(|key| shown.contains(key))
    }

    /// Returns the pending handovers for `status.held`, to GitSyncs of other agents and to those that cannot read the
    /// commit.
    pub(super) fn pending_handovers(&mut self, plan: &Plan) -> Vec<String> {
        let (context, given) = (self.context, self.state.given.get_or_insert_default());
        context.registry.with(self.owner, |view| {
            let line = |key: &Key| {
                if let Some(taker) = view.taker_that_cannot_read(key) {
                    return Some(format!("{key}{HANDOVER}{taker} is pending: it cannot read the commit"));
                }
                let taker = view.taker_of_other_agent(key)?;
                // The status shows no more, so no more are taken over in one step.
                if given.len() < SHOWN {
                    given.insert(key.clone());
                }
                Some(format!("{key}{HANDOVER}{taker} is pending: another agent applies it"))
            };
            plan.leaving.handed_over.iter().filter_map(line).collect()
        })
    }
}
