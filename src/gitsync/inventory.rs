//! The inventory of a GitSync: read, written, and shown to the other GitSyncs.
//!
//! Invariant: what is about to be created is written down before; an object leaves only when it is gone, or when another
//! GitSync has written down that it took it.

use std::collections::HashSet;
use std::sync::Arc;

use super::attempt::Attempt;
use super::inventory_maps::{self, Found};
use super::observe;
use super::plan::Plan;
use super::refused::Refused;
use crate::managed::inventory::Inventory;
use crate::object::{Digest, Key};

impl Attempt<'_> {
    /// Reads the inventory, once.
    pub(super) async fn load_inventory(&mut self) -> Result<(), Refused> {
        if self.inventory().is_some() {
            return Ok(());
        }
        let cluster = self.context.writer.cluster();
        let status = self.sync.status.as_ref();
        // A commit without objects, or one that could not be decoded, leaves no inventory behind.
        let applied_before = status.is_some_and(|s| s.objects > 0 || !s.held.is_empty());
        let inventory = match inventory_maps::read(cluster, &self.inventory_owner()).await? {
            Found::Whole(inventory) => {
                self.state.written =
                    inventory.encode().into_iter().map(|s| (s.index, Digest::of(&s.content))).collect();
                inventory
            }
            Found::Missing if !applied_before => Inventory::default(),
            Found::Missing | Found::Damaged => {
                self.state.rebuilt = true;
                observe::labelled(cluster, self.label).await?
            }
        };
        self.publish_managed(self.managed(&inventory));
        self.publish_taken(taken(&inventory));
        self.context.writer.set_inventory(self.owner, inventory);
        Ok(())
    }

    /// The inventory, once it was read.
    pub(super) fn inventory(&self) -> Option<Arc<Inventory>> {
        self.context.writer.inventory(self.owner)
    }

    /// What it lists, as far as this GitSync may touch it.
    fn managed(&self, inventory: &Inventory) -> HashSet<Key> {
        inventory.0.keys().filter(|key| self.reaches(key)).cloned().collect()
    }

    /// These objects count as ours for the other GitSyncs.
    fn publish_managed(&self, managed: HashSet<Key>) {
        self.context.registry.update(self.owner, |row| row.managed = Some(Arc::new(managed)));
    }

    /// The inventory says in the cluster that these were applied: what another GitSync handed over is ours now.
    fn publish_taken(&self, taken: HashSet<Key>) {
        self.context.registry.update(self.owner, |row| row.taken = Some(Arc::new(taken)));
    }

    /// Writes the inventory with everything that is about to be created.
    pub(super) async fn write_intentions(&mut self, plan: &Plan) -> Result<(), Refused> {
        let steps = plan.stages.values().flatten().map(|step| &step.desired);
        let grew = self.context.writer.intend(self.owner, steps);
        // A write that failed before may have been the one that lists what is about to be applied.
        let is_unwritten = self.state.written.is_empty() || self.context.writer.is_unsaved(self.owner);
        if grew || (is_unwritten && plan.applies() > 0) { self.save_inventory().await } else { Ok(()) }
    }

    /// Forgets what others have taken over by now. Whether anything still waits to be taken: until then it stays in our
    /// inventory, or it would be nobody's if they came to want it no longer.
    pub(super) async fn hand_over(&mut self, leaving: &[Key]) -> bool {
        let (taken, mut left): (Vec<_>, Vec<_>) = self
            .context
            .registry
            .with(self.owner, |view| leaving.iter().cloned().partition(|key| view.taken_elsewhere(key)));
        // Another inventory may list it from the time before it came to us, of which the last agent forgot nothing.
        let ours = match self.inventory() {
            Some(inventory) => self.context.writer.still_labelled(self.label, &inventory, &taken).await,
            None => HashSet::new(),
        };
        self.state.still_labelled = !ours.is_empty();
        for key in taken {
            if ours.contains(&key) { left.push(key) } else { self.context.writer.remove(self.owner, &key) }
        }
        self.context.writer.give_up(self.owner, &left);
        !left.is_empty()
    }

    pub(super) async fn save_inventory(&mut self) -> Result<(), Refused> {
        let Some(inventory) = self.context.writer.save(self.owner) else { return Ok(()) };
        let nothing = inventory.0.is_empty() && self.state.written.is_empty();
        let shards = if nothing { Vec::new() } else { inventory.encode() };
        let (managed, taken) = (self.managed(&inventory), taken(&inventory));
        // Not held while it is written: until then it would be copied with the next change.
        drop(inventory);
        let cluster = self.context.writer.cluster();
        let mut written = std::mem::take(&mut self.state.written);
        let saved = inventory_maps::write(cluster, &self.inventory_owner(), &shards, &mut written).await;
        self.state.written = written;
        self.publish_managed(managed);
        if let Err(error) = saved {
            self.context.writer.not_saved(self.owner);
            return Err(error.into());
        }
        self.publish_taken(taken);
        Ok(())
    }

    /// Writes the inventory if what was last applied to an object has changed since (one that was created again has
    /// another UID).
    pub(super) async fn save_changes(&mut self) -> Result<(), Refused> {
        if self.context.writer.is_unsaved(self.owner) { self.save_inventory().await } else { Ok(()) }
    }
}

/// What an inventory says was applied.
fn taken(inventory: &Inventory) -> HashSet<Key> {
    inventory.0.iter().filter(|(_, entry)| entry.uid.is_some()).map(|(key, _)| key.clone()).collect()
}
