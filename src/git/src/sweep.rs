//! Removes mirrors that lost their last consumer while no agent ran, and mirrors that exceed a lowered budget.
//!
//! Invariant: a mirror is removed only if all consumers have set their remotes, and neither a consumer nor a submodule
//! uses it.
//! Invariant: a new consumer of the remote finds its mirror either complete or absent.
//! Not here: mirrors that lose their last consumer while the agent runs. `remotes` removes them immediately.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::budget::UNREAD;
use super::mirror;
use super::remotes::Source;
use super::storage::mirrors;

impl Source {
    /// Waits until the remotes of all consumers are known, then removes unused mirrors and those that exceed the
    /// budget. Returns how many mirrors were removed. After a failure, the next process tries again.
    pub async fn sweep(&self) -> usize {
        // The sender lives as long as the source, so this cannot fail.
        let _ = self.inner.consumers_known.subscribe().wait_for(|known| *known).await;
        let directory = self.inner.settings.directory.clone();
        let Ok(Ok(mirrors)) = self.own().run(move || mirrors(&directory)).await else { return 0 };
        let source = self.clone();
        let Ok(Ok(submodules)) = self.own().run(move || source.noted_submodules()).await else { return 0 };
        let (mut removed, storage, directory) = (0, self.inner.storage.clone(), self.inner.settings.directory.clone());
        for mirror in mirrors.into_iter().filter(|mirror| !submodules.contains(mirror)) {
            let source = self.clone();
            let went = self.own().run(move || source.remove_unread(&mirror)).await;
            removed += usize::from(matches!(went, Ok(Ok(true))));
        }
        let source = self.clone();
        let shrunk = self.own().run(move || storage.load(&directory).map(|()| source.shrink())).await;
        removed + shrunk.ok().and_then(Result::ok).unwrap_or(0)
    }

    /// Removes a mirror unless it has a consumer. Returns whether it was removed.
    fn remove_unread(&self, mirror: &Path) -> io::Result<bool> {
        let _removing = self.inner.storage.removing();
        let mut leaving = mirror.to_owned();
        if mirror.extension().is_none_or(|end| end != UNREAD) {
            let salt = mirror::salt(&self.inner.settings.directory)?;
            // The locks are held until the mirror is renamed: a new consumer of the remote starts with an empty
            // mirror.
            let consumers = self.inner.consumers.lock();
            let remotes = self.inner.remotes.lock();
            let is_this = |identity| mirror.ends_with(mirror::name(&salt, identity));
            // A remote that is only looked up has no mirror.
            let in_use = remotes.iter().filter(|(_, state)| state.root.get().is_some() || Arc::strong_count(state) > 1);
            if consumers.remotes().chain(in_use.map(|(remote, _)| remote)).any(is_this) {
                return Ok(false);
            }
            let Some(unread) = self.inner.storage.set_unread(mirror, None)? else { return Ok(false) };
            leaving = unread;
        }
        self.inner.storage.remove_unread(&leaving).map(|()| true)
    }
}
