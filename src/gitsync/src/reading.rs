//! The commit that an attempt reads, and the reasons why it cannot be read.
//!
//! Not here: the read (`observe`), and the consequences for managed objects (`readable`).

use std::collections::HashSet;
use std::sync::Arc;

use super::no_memory::{NoMemory, Room};
use super::outcome::Refused;
use super::registry::CannotRead;
use super::unread::UnreadObjects;
use mainstay_git::Commit;
use mainstay_object::Key;

/// The commit of the running attempt, and what is known about an unreadable commit.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The commit that is being read; `None` until it is known.
    commit: Option<Commit>,
    /// The keys of the readable objects of a commit that has problems. Each object has two keys: with its namespace,
    /// and as if its kind were cluster-scoped.
    readable: HashSet<Key>,
    /// The commit that did not fit into memory.
    no_memory: Option<Box<NoMemory>>,
    /// Notified when there may be memory for that commit.
    room: Room,
    /// The managed objects that may be why the repository cannot be read; `None` until they are restored from the
    /// status.
    unread: Option<UnreadObjects>,
}

impl Reading {
    /// Returns a reading that notifies the same waiter.
    pub(super) fn with_room(room: Room) -> Self {
        Self { room, ..Self::default() }
    }

    /// Begins an attempt, whose commit is unknown.
    pub(super) fn begin(&mut self) {
        (self.commit, self.readable) = (None, HashSet::new());
    }

    /// Records the commit that the attempt reads.
    pub(super) fn found(&mut self, commit: Commit) {
        self.commit = Some(commit);
    }

    /// Records the keys of the readable objects of a commit that has problems.
    pub(super) fn set_readable(&mut self, keys: HashSet<Key>) {
        self.readable = keys;
    }

    /// Returns the unreadable commit for other GitSyncs.
    pub(super) fn cannot_read(&self) -> CannotRead {
        let commit = self.commit.map(|commit| commit.to_string());
        CannotRead { commit, readable: Arc::new(self.readable.clone()) }
    }

    /// Returns the signal that there may be memory.
    pub(super) fn room(&self) -> Room {
        Arc::clone(&self.room)
    }

    /// Records a commit that did not fit into memory. Returns its error.
    pub(super) fn lacks_memory(&mut self, commit: NoMemory) -> Refused {
        let refused = commit.refused();
        self.no_memory = Some(Box::new(commit));
        refused
    }

    /// Records that the last commit fitted into memory, or was refused for another reason.
    pub(super) fn has_memory(&mut self) {
        self.no_memory = None;
    }

    /// Returns the commit that did not fit into memory.
    pub(super) fn no_memory(&self) -> Option<&NoMemory> {
        self.no_memory.as_deref()
    }

    /// Returns the managed objects that may be why the repository cannot be read; `None` until they are restored.
    pub(super) fn unread(&self) -> Option<&UnreadObjects> {
        self.unread.as_ref()
    }

    /// Sets the managed objects that may be why the repository cannot be read. Returns whether they changed.
    pub(super) fn set_unread(&mut self, unread: &UnreadObjects) -> bool {
        let has_changed = self.unread.as_ref() != Some(unread);
        if has_changed {
            self.unread = Some(unread.clone());
        }
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_begins_without_a_commit_and_keeps_the_objects_that_prevent_reads() {
        let mut reading = Reading::default();
        assert!(reading.set_unread(&UnreadObjects::default()), "they were not restored yet");
        assert!(!reading.set_unread(&UnreadObjects::default()));
        let (key, commit) = (Key::new("", "ConfigMap", Some("shop"), "a"), "1".repeat(40));
        reading.found(commit.parse().unwrap());
        reading.set_readable(HashSet::from([key.clone()]));
        let readable = Arc::new(HashSet::from([key]));
        assert_eq!(reading.cannot_read(), CannotRead { commit: Some(commit), readable });
        reading.begin();
        assert_eq!(reading.cannot_read(), CannotRead { commit: None, readable: Arc::default() });
        assert_eq!(reading.unread(), Some(&UnreadObjects::default()));
    }
}
