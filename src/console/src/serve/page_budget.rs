//! The memory of the rows that a page makes of the objects of its lists.

use parking_lot::Mutex;

/// The maximum for a page, in bytes.
const MOST: usize = 2 << 20;

/// The memory that the rows of a page may take.
#[derive(Default)]
pub(super) struct PageBudget(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    bytes: usize,
    /// Whether a row was left out.
    is_cut: bool,
}

impl PageBudget {
    /// Takes memory for a row. Returns false if the row has to be left out.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let mut taken = self.0.lock();
        let sum = taken.bytes.saturating_add(bytes);
        taken.is_cut |= sum > MOST;
        if sum <= MOST {
            taken.bytes = sum;
        }
        sum <= MOST
    }

    /// Returns a note if a row was left out.
    pub(super) fn note(&self) -> Option<String> {
        let most = MOST >> 20;
        let is_cut = self.0.lock().is_cut;
        is_cut.then(|| format!("Not all objects are shown, because they take more than {most} MiB of memory."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_beyond_the_budget_are_left_out_with_a_note() {
        let budget = PageBudget::default();
        assert!(budget.take(MOST - 10) && budget.note().is_none());
        assert!(!budget.take(11) && !budget.take(usize::MAX));
        assert!(budget.note().is_some_and(|note| note.contains("2 MiB")));
        assert!(budget.take(10), "a smaller row has memory");
    }
}
