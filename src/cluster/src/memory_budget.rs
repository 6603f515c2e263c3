//! The memory of the objects that a page or a command keeps of its lists.

use parking_lot::Mutex;

/// The memory that objects may take.
#[derive(Debug)]
pub struct MemoryBudget {
    /// The maximum in bytes.
    most: usize,
    state: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    bytes: usize,
    /// Whether an object was left out.
    is_cut: bool,
}

impl MemoryBudget {
    /// Returns a budget of so many bytes.
    pub fn new(most: usize) -> Self {
        Self { most, state: Mutex::default() }
    }

    /// Takes memory for an object. Returns false if the object has to be left out.
    pub fn take(&self, bytes: usize) -> bool {
        let mut taken = self.state.lock();
        let sum = taken.bytes.saturating_add(bytes);
        if sum > self.most {
            taken.is_cut = true;
            return false;
        }
        taken.bytes = sum;
        true
    }

    /// Returns memory that was taken for objects that are dropped.
    pub fn give_back(&self, bytes: usize) {
        let mut taken = self.state.lock();
        taken.bytes = taken.bytes.saturating_sub(bytes);
    }

    /// Whether an object was left out.
    pub fn is_cut(&self) -> bool {
        self.state.lock().is_cut
    }

    /// Returns a note if an object was left out: `shown`, and the reason.
    pub fn note(&self, shown: &str) -> Option<String> {
        let most = self.most >> 20;
        self.is_cut().then(|| format!("{shown}, because they take more than {most} MiB of memory"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 2 << 20;

    #[test]
    fn objects_beyond_the_budget_are_left_out_with_a_note() {
        let budget = MemoryBudget::new(MOST);
        assert!(budget.take(MOST - 10) && budget.note("Not all are shown").is_none());
        assert!(!budget.take(11) && !budget.take(usize::MAX));
        let note = "Not all are shown, because they take more than 2 MiB of memory";
        assert_eq!(budget.note("Not all are shown").as_deref(), Some(note));
        assert!(budget.take(10), "a smaller object has memory");
    }
}
