//! Tracks whether a GitSync that manages its own repository access can read its repository. While it cannot, manual
//! repairs of the objects for that access are not reverted.
//!
//! Not here: the set of these objects, and the messages about them (`unread`).

use jiff::Timestamp;

use super::outcome::Refused;
use super::reconcile::Task;
use super::unread::{self, UnreadObjects};
use mainstay_api::GitSync;
use mainstay_engine::managed::verdict;
use mainstay_object::Key;

impl Task {
    /// Handles a failure to read the repository. From now on, manual repairs of the responsible managed objects are not
    /// reverted, and the message says so.
    pub(super) async fn cannot_read(&mut self, sync: &GitSync, reads_by: &[Key], mut refused: Refused) -> Refused {
        if !unread::is_of_reading(refused.reason) {
            return refused;
        }
        let inventory = self.attempt(sync).inventory().unwrap_or_default();
        let mut unread = self.state.reading.unread().cloned().unwrap_or_default();
        let listed = reads_by.iter().filter(|key| inventory.0.contains_key(key) && !unread.contains_key(key));
        let listed = listed.cloned().collect::<Vec<_>>();
        let mut are_as_wanted = true;
        for key in &listed {
            are_as_wanted &= self.context.writer.is_in_sync(&self.owner, key).await;
        }
        // If they differ, a manual change may be the cause, and that change is reverted.
        if are_as_wanted {
            unread.extend(listed.into_iter().map(|key| (key, Timestamp::now())));
        }
        refused.message.extend(unread::advice(&unread));
        self.set_unread(unread);
        refused
    }

    /// Handles the suspension of a GitSync that manages itself. If its repository suspends it, no commit can resume it.
    /// From now on, a manual resume is not reverted.
    pub(super) fn let_itself_resume(&mut self, sync: &GitSync) {
        let (own, inventory) = (self.owner.key(), self.attempt(sync).inventory().unwrap_or_default());
        let applied = self.context.writer.desired(&own).map(|desired| desired.object.value());
        // The objects that the last agent applied may be unknown.
        let by_commit = applied.is_none_or(|document| verdict::is_suspended(&document, Timestamp::now()));
        let mut unread = self.state.reading.unread().cloned().unwrap_or_default();
        if by_commit && inventory.0.contains_key(&own) && !unread.contains_key(&own) {
            unread.insert(own, Timestamp::now());
            self.set_unread(unread);
        }
    }

    /// Handles a successful read of the repository. The objects that prevented reading are reverted like any other
    /// object again, if they now match the commit.
    pub(super) async fn can_read(&mut self, sync: &GitSync) {
        let mut unread = self.state.reading.unread().cloned().unwrap_or_default();
        if unread.is_empty() {
            return;
        }
        let inventory = self.attempt(sync).inventory().unwrap_or_default();
        for key in unread.keys().cloned().collect::<Vec<_>>() {
            if !inventory.0.contains_key(&key) || self.context.writer.is_in_sync(&self.owner, &key).await {
                unread.remove(&key);
            }
        }
        self.set_unread(unread);
    }

    pub(super) fn set_unread(&mut self, unread: UnreadObjects) {
        if self.state.reading.set_unread(&unread) {
            self.context.writer.set_unread(&self.owner, unread);
        }
    }
}
