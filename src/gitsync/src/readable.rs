//! Follows whether a GitSync can read its repository with what it manages itself: whoever repairs that is not reverted.
//!
//! Deliberately absent: which objects these are, and what is said about them (`unread`).

use jiff::Timestamp;

use super::outcome::Refused;
use super::reconcile::Task;
use super::unread::{self, UnreadObjects};
use mainstay_api::GitSync;
use mainstay_engine::managed::verdict;
use mainstay_object::Key;

impl Task {
    /// The repository could not be read. From now on whoever repairs what is managed here and is to blame is not reverted;
    /// the message says so.
    pub(super) async fn cannot_read(&mut self, sync: &GitSync, reads_by: &[Key], mut refused: Refused) -> Refused {
        if !unread::is_of_reading(refused.reason) {
            return refused;
        }
        let inventory = self.attempt(sync).inventory().unwrap_or_default();
        let mut unread = self.state.unread.clone().unwrap_or_default();
        let listed = reads_by.iter().filter(|key| inventory.0.contains_key(key) && !unread.contains_key(key));
        let listed = listed.cloned().collect::<Vec<_>>();
        let mut are_as_wanted = true;
        for key in &listed {
            are_as_wanted &= self.context.writer.is_in_sync(&self.owner, key).await;
        }
        // Else it may be a change by hand that is to blame, and that is reverted.
        if are_as_wanted {
            unread.extend(listed.into_iter().map(|key| (key, Timestamp::now())));
        }
        refused.message.extend(unread::advice(&unread));
        self.set_unread(unread);
        refused
    }

    /// A GitSync that manages itself is suspended. Where its own repository says so it reads no commit that ends that: from now on
    /// whoever resumes it by hand is not reverted.
    pub(super) fn let_itself_resume(&mut self, sync: &GitSync) {
        let (own, inventory) = (self.owner.key(), self.attempt(sync).inventory().unwrap_or_default());
        let applied = self.context.writer.desired(&own).map(|desired| desired.object.value());
        // What the last agent applied may not be known.
        let by_commit = applied.is_none_or(|document| verdict::is_suspended(&document, Timestamp::now()));
        let mut unread = self.state.unread.clone().unwrap_or_default();
        if by_commit && inventory.0.contains_key(&own) && !unread.contains_key(&own) {
            unread.insert(own, Timestamp::now());
            self.set_unread(unread);
        }
    }

    /// The repository was read. What it could not be read with, and is as wanted now, is kept like any other object.
    pub(super) async fn can_read(&mut self, sync: &GitSync) {
        let mut unread = self.state.unread.clone().unwrap_or_default();
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
        if self.state.unread.as_ref() != Some(&unread) {
            self.context.writer.set_unread(&self.owner, unread.clone());
            self.state.unread = Some(unread);
        }
    }
}
