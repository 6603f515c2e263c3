//! The memory of trees.

use parking_lot::Mutex;

/// The memory that the objects of trees may take.
pub(super) struct Budget {
    /// The maximum in bytes.
    most: usize,
    state: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    bytes: usize,
    /// Whether an object was left out.
    is_cut: bool,
}

impl Budget {
    /// Returns a budget of so many bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { most, state: Mutex::default() }
    }

    /// Takes memory for an object. Returns false if the object has to be left out.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let mut taken = self.state.lock();
        let sum = taken.bytes.saturating_add(bytes);
        if sum > self.most {
            taken.is_cut = true;
            return false;
        }
        taken.bytes = sum;
        true
    }

    /// Returns a note if an object was left out.
    pub(super) fn note(&self) -> Option<String> {
        let is_cut = self.state.lock().is_cut;
        let most = self.most >> 20;
        is_cut.then(|| {
            format!("not all objects and children are shown, because they take more than {most} MiB of memory")
        })
    }
}
