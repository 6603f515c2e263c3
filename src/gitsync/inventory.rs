//! The inventory of a GitSync: read, written, and shown to the other GitSyncs.
//!
//! Invariant: what is about to be created is written down before; an object leaves only when it is gone, or when another
//! GitSync has written down that it took it.

use std::collections::HashSet;
use std::sync::Arc;

use super::apply;
use super::attempt::{Attempt, Refused};
use super::observe;
use super::plan::Plan;
use crate::managed::inventory::{Entry, Inventory};
use crate::object::{Digest, Key};

impl Attempt<'_> {
    /// Reads the inventory, once.
    pub(super) async fn load_inventory(&mut self) -> Result<(), Refused> {
        if self.state.inventory.is_some() {
            return Ok(());
        }
        let cluster = self.context.drift.cluster();
        let status = self.sync.status.as_ref();
        // A commit without objects, or one that could not be decoded, leaves no inventory behind.
        let applied_before = status.is_some_and(|s| s.objects > 0 || !s.held.is_empty());
        let inventory = match observe::inventory(cluster, &self.inventory_owner()).await? {
            observe::Found::Whole(inventory) => {
                self.state.written =
                    inventory.encode().into_iter().map(|s| (s.index, Digest::of(&s.content))).collect();
                inventory
            }
            observe::Found::Missing if !applied_before => Inventory::default(),
            observe::Found::Missing | observe::Found::Damaged => {
                self.state.rebuilt = true;
                observe::labelled(cluster, self.label).await?
            }
        };
        self.state.inventory = Some(inventory);
        self.publish_managed();
        self.publish_taken();
        Ok(())
    }

    pub(super) fn publish_managed(&self) {
        let listed = self.state.inventory.iter().flat_map(|i| i.0.keys());
        let keys = listed.filter(|key| self.reaches(key)).cloned().collect::<HashSet<_>>();
        self.context.registry.update(self.owner, |row| row.managed = Some(Arc::new(keys)));
    }

    /// The inventory says so in the cluster: what another GitSync handed over is ours now.
    pub(super) fn publish_taken(&self) {
        let entries = self.state.inventory.iter().flat_map(|inventory| &inventory.0);
        let keys = entries.filter(|(_, entry)| entry.uid.is_some()).map(|(key, _)| key.clone()).collect::<HashSet<_>>();
        self.context.registry.update(self.owner, |row| row.taken = Some(Arc::new(keys)));
    }

    /// Writes the inventory with everything that is about to be created.
    pub(super) async fn write_intentions(&mut self, plan: &Plan) -> Result<(), Refused> {
        let mut inventory = self.state.inventory.take().unwrap_or_default();
        let mut grew = self.state.written.is_empty() && plan.applies() > 0;
        for step in plan.stages.values().flatten() {
            let version = &step.desired.kind.version;
            inventory.0.entry(step.desired.key.clone()).or_insert_with(|| {
                grew = true;
                Entry { version: Arc::clone(version), ..Entry::default() }
            });
        }
        self.state.inventory = Some(inventory);
        if grew { self.save_inventory().await } else { Ok(()) }
    }

    /// Forgets what others have taken over by now. Whether anything still waits to be taken: until then it stays in our
    /// inventory, or it would be nobody's if they came to want it no longer.
    pub(super) async fn hand_over(&mut self, leaving: &[Key]) -> bool {
        let (taken, mut left): (Vec<_>, Vec<_>) = self
            .context
            .registry
            .with(self.owner, |view| leaving.iter().cloned().partition(|key| view.taken_elsewhere(key)));
        // Another inventory may list it from the time before it came to us, of which the last agent forgot nothing.
        let ours = match &self.state.inventory {
            Some(inventory) => apply::still_ours(&self.context.drift, self.label, inventory, &taken).await,
            None => HashSet::new(),
        };
        self.state.still_labelled = !ours.is_empty();
        for key in taken {
            if ours.contains(&key) { left.push(key) } else { self.forget(&key) }
        }
        if let Some(inventory) = &mut self.state.inventory {
            // What is known of it is no longer true once it is taken: if it comes back to us, it is applied anew.
            for key in &left {
                if let Some(entry) = inventory.0.get_mut(key) {
                    *entry = Entry { version: Arc::clone(&entry.version), ..Entry::default() };
                }
            }
        }
        !left.is_empty()
    }

    pub(super) async fn save_inventory(&mut self) -> Result<(), Refused> {
        let inventory = self.state.inventory.take().unwrap_or_default();
        let mut written = std::mem::take(&mut self.state.written);
        let nothing = inventory.0.is_empty() && written.is_empty();
        let cluster = self.context.drift.cluster();
        let saved = if nothing {
            Ok(())
        } else {
            apply::write_inventory(cluster, &self.inventory_owner(), &inventory, &mut written).await
        };
        self.state.written = written;
        self.state.inventory = Some(inventory);
        self.publish_managed();
        saved?;
        self.publish_taken();
        Ok(())
    }

    /// Writes what the backward loop verified since (objects that were created again have another UID).
    pub(super) async fn save_last_applied(&mut self) -> Result<(), Refused> {
        if self.note_last_applied() { self.save_inventory().await } else { Ok(()) }
    }

    pub(super) fn note_last_applied(&mut self) -> bool {
        let Some(inventory) = &mut self.state.inventory else { return false };
        let mut changed = false;
        self.context.drift.verified(self.owner, |key, known| {
            let Some(entry) = inventory.0.get_mut(key) else { return };
            let now = apply::entry(known.desired, known.uid, known.digest);
            changed |= *entry != now;
            *entry = now;
        });
        changed
    }

    pub(super) fn forget(&mut self, key: &Key) {
        if let Some(inventory) = &mut self.state.inventory {
            inventory.0.remove(key);
        }
        self.context.drift.forget(self.owner, key);
    }
}
