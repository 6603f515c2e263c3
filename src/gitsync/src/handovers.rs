//! The handovers of objects to GitSyncs of other agents, those of other shards. The label of an object shows when its
//! new owner has applied it.
//!
//! Invariant: after a withdrawn offer, at most one of both GitSyncs applies the object. The former owner writes its status
//! without the offer, then reads the object, changes its version (`Expect::Withdrawn`), and applies it at that version.
//! The new owner reads the object, then the status with the offer, and applies the object at the version that it read
//! (`Expect::Offered`).
//! If that status shows the offer, the change of the version comes later, so it refuses one of both. The same holds for
//! an object that is offered again: an apply from before the withdrawal has the former version.
//!
//! Not here: handovers between GitSyncs of one agent (`inventory`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::attempt::Attempt;
use super::context::git_syncs;
use super::outcome::Refused;
use super::plan::{DesiredState, Live, Plan};
use super::prune::HANDOVER;
use super::registry::{Taker, View};
use super::shared_plan::{Handovers, NotTaken, OFFERED, given_up};
use mainstay_cluster::Error;
use mainstay_engine::managed::inventory::{Entry, Inventory};
use mainstay_engine::managed::{Desired, SHOWN};
use mainstay_object::{Key, Owner};

impl Attempt<'_> {
    /// Removes objects from the inventory that GitSyncs of other agents have taken over. Such objects must not count as
    /// deletions, which a guard may hold.
    pub(super) async fn settle_handovers(&mut self, desired: &DesiredState) -> Result<(), Refused> {
        if !self.context.is_shared() {
            return Ok(());
        }
        let acting = self.acting()?;
        let status = self.sync.status.as_ref();
        let before = || status.map(|status| given_up(&status.held)).unwrap_or_default();
        let mut given = self.state.removal.handovers.given.take().unwrap_or_else(before);
        let Some(inventory) = self.inventory().filter(|_| !given.is_empty()) else {
            self.state.removal.handovers.given = Some(given);
            return Ok(());
        };
        let wanted: HashSet<&Key> = desired.objects.iter().map(|one| &one.key).collect();
        // An object that was applied again since has a digest, which a handover removes.
        let is_back = |key: &Key, entry: &Entry| wanted.contains(key) && entry.digest.is_some();
        given.retain(|key| inventory.0.get(key).is_some_and(|entry| !is_back(key, entry)) && self.reaches(key));
        let given: Vec<Key> = given.into_iter().collect();
        let ours = acting.still_labelled(self.label, &inventory, &given).await;
        drop(inventory);
        for key in given.iter().filter(|key| !ours.contains(*key)) {
            self.context.writer.remove(self.owner, key);
        }
        self.state.removal.handovers.given = Some(ours);
        Ok(())
    }

    /// Returns the desired objects that this GitSync has given up for GitSyncs of other agents: those that the written
    /// status may still show, and the others.
    pub(super) fn wanted_again(&self, desired: &[Arc<Desired>]) -> (HashSet<Key>, HashSet<Key>) {
        let Some(given) = self.state.removal.handovers.given.as_ref().filter(|given| !given.is_empty()) else {
            return (HashSet::new(), HashSet::new());
        };
        let of_status = || self.sync.status.as_ref().map(|status| given_up(&status.held)).unwrap_or_default();
        let shown = self.state.removal.handovers.offered.clone().unwrap_or_else(of_status);
        let again = desired.iter().map(|one| &one.key).filter(|key| given.contains(*key)).cloned();
        again.partition(|key| shown.contains(key))
    }

    /// Returns the live objects whose offer an earlier agent may have withdrawn without an apply after that: a handover
    /// removes the digest of an entry, and the next apply adds it.
    pub(super) fn may_be_offered(&self, live: &HashMap<Key, Live>, inventory: &Inventory) -> HashSet<Key> {
        if !self.context.is_shared() {
            return HashSet::new();
        }
        let is_open = |key: &&Key| inventory.0.get(*key).is_some_and(|entry| entry.digest.is_none());
        live.keys().filter(is_open).cloned().collect()
    }

    /// Returns those of these live objects that a GitSync of another agent offers. The watch may be behind, so the
    /// statuses are read, after the objects.
    pub(super) async fn offers_of_others(&self, live: &HashMap<Key, Live>) -> Result<HashSet<Key>, Error> {
        let mut offered = HashSet::new();
        if !self.context.is_shared() {
            return Ok(offered);
        }
        let mut offers: HashMap<Owner, Vec<&Key>> = HashMap::new();
        self.context.registry.with(self.owner, |view| {
            for (key, live) in live.iter().filter(|(_, live)| live.applied && !live.controlled) {
                let other = live.label.as_deref().and_then(|label| view.offers_of_other_agent(key, label));
                if let Some(other) = other {
                    offers.entry(other).or_default().push(key);
                }
            }
        });
        for (other, keys) in offers {
            let (namespace, name) = (other.resource().namespace(), other.resource().name());
            let Some(sync) = self.context.home.get(&git_syncs(), Some(namespace), name).await? else { continue };
            let held = sync.pointer("/status/held").and_then(Value::as_array).into_iter().flatten();
            let held: Vec<String> = held.filter_map(Value::as_str).map(str::to_owned).collect();
            let given_up = given_up(&held);
            offered.extend(keys.into_iter().filter(|key| given_up.contains(*key)).cloned());
        }
        Ok(offered)
    }

    /// Returns the pending handovers for `status.held`, to GitSyncs of other agents and to those that cannot read the
    /// commit.
    pub(super) fn pending_handovers(&mut self, plan: &Plan) -> Vec<String> {
        let (keys, Handovers { given, failed, .. }) = (&plan.leaving.handed_over, &mut *self.state.removal.handovers);
        let handovers = self.context.registry.with(self.owner, |view| pending(view, keys, failed));
        // The status shows no more, so no more are taken over in one step.
        let shown = handovers.iter().take(SHOWN).filter(|handover| handover.order != Order::CannotRead);
        given.get_or_insert_default().extend(shown.map(|handover| handover.key.clone()));
        handovers.iter().map(Handover::text).collect()
    }
}

/// The order of handovers in the status, which shows the first ones. Handovers that go on come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    /// To a peer of another agent.
    Peer,
    /// To a confined GitSync of another agent, which may not be allowed to apply the object.
    Tenant,
    /// To a GitSync that cannot read the commit.
    CannotRead,
    /// To a GitSync of another agent that could not apply the object. Otherwise such objects would keep all others back.
    Failing,
}

/// The pending handover of an object.
#[derive(Debug)]
struct Handover<'a> {
    key: &'a Key,
    taker: String,
    /// The commit that the taker has planned, if it is a GitSync of another agent.
    planned: Option<String>,
    order: Order,
}

/// Returns the pending handovers of these objects in the order of the status. `failed` are the objects that their takers
/// could not apply, and is updated.
fn pending<'a>(view: &View<'_>, keys: &'a [Key], failed: &mut HashMap<Key, NotTaken>) -> Vec<Handover<'a>> {
    let mut all: Vec<Handover<'a>> = keys.iter().filter_map(|key| Handover::of(view, key, failed)).collect();
    let failing = all.iter().filter(|handover| handover.order == Order::Failing);
    *failed = failing.map(|handover| (handover.key.clone(), handover.not_taken())).collect();
    all.sort_by_key(|handover| handover.order);
    all
}

impl<'a> Handover<'a> {
    fn of(view: &View<'_>, key: &'a Key, failed: &HashMap<Key, NotTaken>) -> Option<Self> {
        if let Some(taker) = view.taker_that_cannot_read(key) {
            return Some(Self { key, taker, planned: None, order: Order::CannotRead });
        }
        let Taker { is_failing, is_tenant, name: taker, planned } = view.taker_of_other_agent(key)?;
        let has_failed = failed.get(key).is_some_and(|failed| failed.taker == taker && failed.planned == planned);
        let order = match (is_failing || has_failed, is_tenant) {
            (true, _) => Order::Failing,
            (false, true) => Order::Tenant,
            (false, false) => Order::Peer,
        };
        Some(Self { key, taker, planned, order })
    }

    fn not_taken(&self) -> NotTaken {
        NotTaken { taker: self.taker.clone(), planned: self.planned.clone() }
    }

    fn text(&self) -> String {
        let Self { key, taker, order, .. } = self;
        // Other agents do not act on a handover within this agent.
        let state = if *order == Order::CannotRead { " is pending: it cannot read the commit" } else { OFFERED };
        format!("{key}{HANDOVER}{taker}{state}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{CannotRead, Registry, Row};

    #[test]
    fn handovers_to_peers_of_other_agents_come_before_those_that_may_not_go_on() {
        let registry = Registry::default();
        let key = |name: &str| Key::new("", "ConfigMap", Some("a"), name);
        let set = |name: &str| Some(Arc::new(HashSet::from([key(name)])));
        let of_other_agent = |name: &str| Row { desired: set(name), is_of_other_agent: true, ..Row::default() };
        let cannot_read = set("unread").map(|readable| CannotRead { commit: None, readable });
        let failing = HashSet::from([key("failing")]);
        let rows = [
            ("failing", Row { failing, ..of_other_agent("failing") }),
            ("unread", Row { cannot_read, ..Row::default() }),
            ("tenant", Row { confined_to: Some("a".into()), ..of_other_agent("tenant") }),
            ("peer", of_other_agent("peer")),
        ];
        for (name, row) in rows {
            registry.update(&Owner::git_sync("x", name), |own| *own = row);
        }
        let keys = ["failing", "unread", "tenant", "peer", "other"].map(key);
        registry.with(&Owner::git_sync("x", "own"), |view| {
            let all = pending(view, &keys, &mut HashMap::new());
            let takers: Vec<&str> = all.iter().map(|handover| &*handover.taker).collect();
            assert_eq!(takers, ["x/peer", "x/tenant", "x/unread", "x/failing"]);
            assert!(view.goes_to_other_agents(&keys[0]) && view.goes_to_other_agents(&keys[3]));
            assert!(!view.goes_to_other_agents(&keys[1]) && !view.goes_to_other_agents(&keys[4]));
            let text = format!("{}{HANDOVER}x/peer is pending: another agent applies it", key("peer"));
            assert_eq!(all[0].text(), text);
            for handover in &all {
                let offered = given_up(&[handover.text()]).contains(handover.key);
                assert_eq!(offered, handover.order != Order::CannotRead, "{}", handover.text());
            }
        });
    }

    #[test]
    fn objects_that_could_not_be_taken_stay_last_until_their_taker_plans_another_commit() {
        let registry = Registry::default();
        let keys: Vec<Key> = (0..45).map(|at| Key::new("", "ConfigMap", Some("a"), format!("{at:02}"))).collect();
        let (movable, unmovable) = keys.split_at(25);
        let mut failed = HashMap::new();
        let mut pending = |planned: &str, failing: &[Key]| {
            let row = Row {
                desired: Some(Arc::new(keys.iter().cloned().collect())),
                planned: Some(planned.to_owned()),
                failing: failing.iter().cloned().collect(),
                is_of_other_agent: true,
                ..Row::default()
            };
            registry.update(&Owner::git_sync("x", "peer"), |own| *own = row);
            registry.with(&Owner::git_sync("x", "own"), |view| {
                pending(view, &keys, &mut failed).into_iter().map(|handover| handover.key.clone()).collect::<Vec<_>>()
            })
        };
        assert_eq!(pending("c2", &unmovable[..1])[44], unmovable[0]);
        assert_eq!(pending("c2", unmovable)[..25], *movable);
        assert_eq!(pending("c2", &[])[..25], *movable, "its status shows no failure of an object that is not offered");
        assert_eq!(pending("c3", &[]), keys);
    }
}
