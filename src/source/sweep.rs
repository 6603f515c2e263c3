//! Removes the mirrors that lost their last consumer while no agent ran, once the remotes of all consumers are known.
//!
//! Invariant: a mirror is removed only if all consumers have set their remotes and none uses it.
//! Invariant: a new consumer of the remote finds its mirror complete or not at all.
//! Deliberately not here: mirrors that lose their last consumer while the agent runs; `remotes` removes them at once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::mirror::{self, MIRROR};
use super::remotes::Source;

/// Extension of a mirror that is being removed.
const UNREAD: &str = "unread";
/// Length of a mirror's name.
const NAME_LETTERS: usize = 32;

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
        let leaving = mirror.with_extension(UNREAD);
        if leaving != mirror {
            let salt = mirror::salt(&self.inner.settings.directory)?;
            // Locked until it is renamed: a new consumer of the remote starts with an empty mirror.
            let consumers = self.inner.consumers.lock();
            let remotes = self.inner.remotes.lock();
            let is_this = |identity| mirror.ends_with(mirror::name(&salt, identity));
            if consumers.remotes().chain(remotes.keys()).any(is_this) || self.inner.open.has_any_of(mirror) {
                return Ok(false);
            }
            fs::rename(mirror, &leaving)?;
        }
        fs::remove_dir_all(&leaving).map(|()| true)
    }
}

/// The mirrors in a directory; first those whose removal was interrupted, so that their names are free.
fn mirrors(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_named_by_us = path.file_stem().and_then(|stem| stem.to_str()).is_some_and(is_name);
        if is_named_by_us && path.extension().is_some_and(|end| end == MIRROR || end == UNREAD) {
            found.push(path);
        }
    }
    found.sort_by_key(|path| path.extension().is_some_and(|end| end == MIRROR));
    Ok(found)
}

/// Other files are not ours.
fn is_name(stem: &str) -> bool {
    stem.len() == NAME_LETTERS && stem.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
