//! Removes the mirrors that lost their last consumer while no agent ran, once the remotes of all consumers are known.
//!
//! Invariant: a mirror is removed only if all consumers have set their remotes and none uses it.
//! Invariant: a new consumer of the remote finds its mirror complete or not at all.
//! Deliberately not here: mirrors that lose their last consumer while the agent runs; `remotes` removes them at once.

use std::io;
use std::path::Path;

use super::mirror;
use super::remotes::Source;
use super::storage::{UNREAD, mirrors};

impl Source {
    /// Waits until the remotes of all consumers are known, and removes the mirrors that none of them uses. Returns how
    /// many it removed. If a removal fails, the next process tries again.
    pub async fn sweep(&self) -> usize {
        // The sender lives as long as the source.
        let _ = self.inner.consumers_known.subscribe().wait_for(|known| *known).await;
        let directory = self.inner.settings.directory.clone();
        let Ok(Ok(mirrors)) = self.own().run(move || mirrors(&directory)).await else { return 0 };
        let mut removed = 0;
        for mirror in mirrors {
            let source = self.clone();
            let went = self.own().run(move || source.remove_unread(&mirror)).await;
            removed += usize::from(matches!(went, Ok(Ok(true))));
        }
        removed
    }

    /// Removes a mirror unless it has a consumer. Returns whether it did.
    fn remove_unread(&self, mirror: &Path) -> io::Result<bool> {
        let mut leaving = mirror.to_owned();
        if mirror.extension().is_none_or(|end| end != UNREAD) {
            let salt = mirror::salt(&self.inner.settings.directory)?;
            // Locked until it is renamed: a new consumer of the remote starts with an empty mirror.
            let consumers = self.inner.consumers.lock();
            let remotes = self.inner.remotes.lock();
            let is_this = |identity| mirror.ends_with(mirror::name(&salt, identity));
            if consumers.remotes().chain(remotes.keys()).any(is_this) || self.inner.storage.has_open(mirror, None) {
                return Ok(false);
            }
            leaving = self.inner.storage.set_unread(mirror)?;
        }
        self.inner.storage.remove_unread(&leaving).map(|()| true)
    }
}
