//! Memory that the sessions of a group of users share.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// The memory of each group of users with a session. Clones share the same memory.
#[derive(Clone)]
pub(super) struct Groups {
    /// The memory of a group.
    most: usize,
    memory: Arc<Mutex<HashMap<String, Weak<Semaphore>>>>,
}

impl Groups {
    /// Returns groups with so much memory each.
    pub(super) fn new(most: usize) -> Self {
        Self { most, memory: Arc::default() }
    }

    /// Returns the memory that the sessions of a group share.
    pub(super) fn of(&self, group: &str) -> Arc<Semaphore> {
        let mut groups = self.memory.lock();
        groups.retain(|_, memory| memory.strong_count() > 0);
        if let Some(memory) = groups.get(group).and_then(Weak::upgrade) {
            return memory;
        }
        let memory = Arc::new(Semaphore::new(self.most));
        groups.insert(group.to_owned(), Arc::downgrade(&memory));
        memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_without_sessions_is_forgotten() {
        let groups = Groups::new(2);
        let (first, again) = (groups.of("a"), groups.of("a"));
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &groups.of("b")));
        drop((first, again));
        drop(groups.of("c"));
        assert_eq!(groups.memory.lock().len(), 1);
    }
}
