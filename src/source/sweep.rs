//! Mirrors whose last reader went while no agent ran: they go once it is known what all readers read.
//!
//! Invariant: a mirror goes only when all who read remotes have been heard and none of them reads it.
//! Invariant: whoever comes to read a remote meanwhile finds its mirror whole or not at all.
//! Deliberately not here: mirrors that lose their last reader while the agent runs; they go at once (`remote`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::mirror::{self, MIRROR};
use super::remote::{Source, lock};

/// Extension of a mirror that is on its way out.
const UNREAD: &str = "unread";
/// Letters of a mirror's name.
const NAME_LETTERS: usize = 32;

impl Source {
    /// Waits until it is known what all readers read, and removes the mirrors that none of them does. What cannot be
    /// removed is left for the next process. Returns how many were removed.
    pub async fn sweep(&self) -> usize {
        // The sender lives as long as the source does.
        let _ = self.inner.readers_known.subscribe().wait_for(|known| *known).await;
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

    /// Removes a mirror that nobody reads; whether it did.
    fn remove_unread(&self, mirror: &Path) -> io::Result<bool> {
        let leaving = mirror.with_extension(UNREAD);
        if leaving != mirror {
            let salt = mirror::salt(&self.inner.settings.directory)?;
            // Held until it has another name: who comes to read the remote after that begins anew.
            let readers = lock(&self.inner.readers);
            let remotes = lock(&self.inner.remotes);
            let is_this = |identity| mirror.ends_with(mirror::name(&salt, identity));
            if readers.remotes().chain(remotes.keys()).any(is_this) || self.inner.open.has_any_of(mirror) {
                return Ok(false);
            }
            fs::rename(mirror, &leaving)?;
        }
        fs::remove_dir_all(&leaving).map(|()| true)
    }
}

/// The mirrors in a directory; first those that were on their way out when a process ended, so that their names are free.
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

/// What else lies there is not ours.
fn is_name(stem: &str) -> bool {
    stem.len() == NAME_LETTERS && stem.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
