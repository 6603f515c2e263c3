//! Tracks the mirrors of a repository's submodules, which are kept while the repository has a consumer.
//!
//! Submodules become known only when a commit is read. For the next process, their mirrors are therefore listed in a
//! file beside the repository's mirror, one name per line.
//!
//! Invariant: a list contains only names of mirrors. Losing it costs only a fetch.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::consumers::Identity;
use super::mirror;
use super::remote::Remote;
use super::remotes::Source;

/// Extension of a list.
const LIST: &str = "submodules";
/// Maximum size of a list, in bytes.
const LIST_BYTES: u64 = 64 << 10;

impl Source {
    /// Records a submodule of a repository. State and mirror of the least recently used submodule may be evicted.
    pub(super) fn use_submodule(&self, root: Identity, submodule: &Remote) {
        let mut consumers = self.inner.consumers.lock();
        if let Some(unused) = consumers.add_submodule(root, submodule.identity()) {
            self.forget(&unused);
        }
    }

    /// Stores the list of a repository's submodule mirrors for the next process.
    pub(super) async fn note_submodules(&self, root: Identity) {
        let mut known = self.inner.consumers.lock().submodules(&root).to_vec();
        if known.is_empty() {
            return;
        }
        known.sort_unstable();
        let directory = self.inner.settings.directory.clone();
        let written = self.own().run(move || write(&directory, &root, &known)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "the mirrors of submodules are not known to the next process");
        }
    }

    /// Returns the listed submodule mirrors of all repositories with a consumer. Lists of other repositories are
    /// removed.
    pub(super) fn noted_submodules(&self) -> io::Result<BTreeSet<PathBuf>> {
        let directory = &self.inner.settings.directory;
        let salt = mirror::salt(directory)?;
        let mut noted = BTreeSet::new();
        for entry in fs::read_dir(directory)? {
            let list = entry?.path();
            if list.extension().is_none_or(|end| end != LIST) {
                continue;
            }
            let is_kept = {
                let consumers = self.inner.consumers.lock();
                consumers.remotes().any(|root| list == path(directory, &salt, root))
            };
            if is_kept {
                let text = fs::metadata(&list).is_ok_and(|file| file.len() <= LIST_BYTES);
                let text = if text { fs::read_to_string(&list)? } else { String::new() };
                noted.extend(text.lines().map(|name| directory.join(name)));
            } else {
                fs::remove_file(&list)?;
            }
        }
        Ok(noted)
    }
}

fn path(directory: &Path, salt: &[u8], root: &Identity) -> PathBuf {
    directory.join(mirror::name(salt, root)).with_extension(LIST)
}

fn write(directory: &Path, root: &Identity, submodules: &[Identity]) -> io::Result<()> {
    let salt = mirror::salt(directory)?;
    let text: String = submodules.iter().map(|submodule| mirror::name(&salt, submodule) + "\n").collect();
    let list = path(directory, &salt, root);
    if fs::read_to_string(&list).is_ok_and(|known| known == text) {
        return Ok(());
    }
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.persist(list)?;
    Ok(())
}
