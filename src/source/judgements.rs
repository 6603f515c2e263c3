//! What was found to be signed.
//!
//! Invariant: only judgements in favour are kept, each for one object, one name and one set of keys.

use std::collections::VecDeque;

use super::id::Id;

/// Judgements that are remembered for a remote.
const REMEMBERED: usize = 64;
/// What was found to be signed: the object, the name that led to it, and the keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) tip: Id,
    pub(super) name: String,
    pub(super) keys: [u8; 32],
}

/// The last judgements in favour.
#[derive(Debug, Default)]
pub(super) struct Judgements(VecDeque<Judged>);

impl Judgements {
    /// Remembers one; the oldest one is forgotten.
    pub(super) fn add(&mut self, judged: Judged) {
        if !self.0.contains(&judged) {
            self.0.truncate(REMEMBERED - 1);
            self.0.push_front(judged);
        }
    }

    pub(super) fn has(&self, judged: &Judged) -> bool {
        self.0.contains(judged)
    }
}
