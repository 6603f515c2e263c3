//! The numbers of changed objects for a commit, over all rounds.
//!
//! Not here: counting.

/// The counts so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) created: usize,
    pub(super) changed: usize,
    pub(super) unchanged: usize,
    /// Deletions that the server has accepted.
    pub(super) pruned: usize,
    /// Whether this round created or changed a Namespace or CustomResourceDefinition.
    pub(super) has_definitions: bool,
}

impl Tally {
    /// Returns the tally at the start of the next round. Objects that an earlier round created or changed are
    /// `unchanged` in the next round, so they are subtracted.
    pub(super) fn next_round(self, unchanged: usize) -> Self {
        let unchanged = unchanged.saturating_sub(self.created + self.changed);
        Self { unchanged, has_definitions: false, ..self }
    }

    /// Returns the number of writes.
    pub(super) fn affected(&self) -> usize {
        self.created + self.changed + self.pruned
    }
}
