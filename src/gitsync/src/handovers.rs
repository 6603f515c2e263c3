//! The handovers of objects to GitSyncs of other agents. The label of an object shows when its new owner has applied it.
//!
//! Not here: handovers between GitSyncs of one agent (`inventory`).

use std::collections::HashSet;

use super::attempt::Attempt;
use super::outcome::Refused;
use super::plan::{DesiredState, Plan};
use super::prune::HANDOVER;
use super::shared_plan::given_up;
use mainstay_engine::managed::SHOWN;
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
        given.retain(|key| inventory.0.contains_key(key) && self.reaches(key) && !wanted.contains(key));
        let given: Vec<Key> = given.into_iter().collect();
        let ours = self.acting()?.still_labelled(self.label, &inventory, &given).await;
        drop(inventory);
        for key in given.iter().filter(|key| !ours.contains(*key)) {
            self.context.writer.remove(self.owner, key);
        }
        self.state.given = Some(ours);
        Ok(())
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
