//! Counts written copies, for one message per base instead of one per namespace.

use std::collections::BTreeMap;

use super::state::Place;

/// Results since the last message.
#[derive(Debug, Default)]
pub(super) struct Tally {
    done: BTreeMap<(String, &'static str), usize>,
    /// Number of failures by base, and the first cause.
    failed: BTreeMap<String, (usize, String)>,
}

impl Tally {
    /// Counts a written copy.
    pub(super) fn add(&mut self, place: Place, change: &'static str) {
        *self.done.entry((place.1, change)).or_default() += 1;
    }

    /// Counts a copy that could not be written.
    pub(super) fn add_failure(&mut self, place: Place, why: impl FnOnce() -> String) {
        self.failed.entry(place.1).or_insert_with(|| (0, format!("{}: {}", place.0, why()))).0 += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.done.is_empty() && self.failed.is_empty()
    }

    /// Takes the messages about changes by base.
    pub(super) fn take_done(&mut self) -> Vec<(String, String)> {
        let done = std::mem::take(&mut self.done).into_iter();
        done.map(|((name, change), copies)| (name, format!("copies {change} in {copies} namespaces"))).collect()
    }

    /// Takes the messages about failures by base.
    pub(super) fn take_failed(&mut self) -> Vec<(String, String)> {
        let failed = std::mem::take(&mut self.failed).into_iter();
        failed
            .map(|(name, (count, first))| (name, format!("not copied as configured to {count} namespaces; {first}")))
            .collect()
    }
}
