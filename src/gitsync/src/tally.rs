//! What was done for a commit, in numbers, over all of its rounds.
//!
//! Deliberately absent: who counts.

/// What the rounds for a commit did so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) created: usize,
    pub(super) changed: usize,
    pub(super) unchanged: usize,
    /// Objects whose deletion the server has accepted.
    pub(super) pruned: usize,
    /// Whether a Namespace or CustomResourceDefinition was created or changed in this round.
    pub(super) has_definitions: bool,
}

impl Tally {
    /// The tally with which the next round begins, where so many objects are as the commit wants them: those that were
    /// created or changed in an earlier round are among them.
    pub(super) fn next_round(self, unchanged: usize) -> Self {
        let unchanged = unchanged.saturating_sub(self.created + self.changed);
        Self { unchanged, has_definitions: false, ..self }
    }

    /// How many objects were written.
    pub(super) fn affected(&self) -> usize {
        self.created + self.changed + self.pruned
    }
}
