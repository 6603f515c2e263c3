//! Outputs of the tools, stored on the agent's disk. After a restart, and for GitSyncs with the same inputs, stored
//! outputs are used and the tools do not run again.
//!
//! Invariant: an output is returned only for the same inputs, options, tool and release of the agent, and only if it is
//! unchanged. Each output is verified, because a full or damaged volume can truncate a file.
//! Invariant: only the agent can access the directory. The renderer, which runs tools on the input of tenants, cannot.
//! Invariant: an error of the disk only causes a render.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use mainstay_object::Digest;
use parking_lot::Mutex;

use super::program::{Program, Purpose};

/// Maximum total size of the outputs, in bytes. If it is exceeded, the least recently used outputs are removed.
const TOTAL: u64 = 64 << 20;
/// Size of a block of the disk. A file counts as whole blocks, which also bounds the number of files.
const BLOCK: u64 = 4 << 10;
/// Maximum size of an output, in bytes. Larger outputs are not stored.
const OUTPUT: usize = 4 << 20;
/// Size of a digest in a file.
const DIGEST: usize = 16;

/// The stored outputs.
#[derive(Debug)]
pub(super) struct Kept {
    directory: PathBuf,
    /// Digest of the agent's release and of the tools' programs.
    tools: Digest,
    total: u64,
    index: Mutex<Index>,
}

/// The stored files, with their sizes and last uses.
#[derive(Debug, Default)]
struct Index {
    is_loaded: bool,
    files: HashMap<Digest, File>,
    bytes: u64,
    uses: u64,
}

#[derive(Clone, Copy, Debug)]
struct File {
    bytes: u64,
    used: u64,
}

impl Kept {
    /// Stores outputs of the tools on `path` in a directory.
    pub(super) fn new(directory: PathBuf, path: Option<&OsStr>) -> Self {
        let tool = |purpose| path.and_then(|path| Program::find(path, purpose)).map(|program| program.identity());
        let tools = [tool(Purpose::Kustomize), tool(Purpose::Helm)];
        let tools = Digest::of(format!("{} {tools:?}", env!("CARGO_PKG_VERSION")).as_bytes());
        Self { directory, tools, total: TOTAL, index: Mutex::default() }
    }

    /// Returns the output for these inputs, if it was stored with a suitable tag.
    pub(super) fn get(
        &self,
        inputs: &str,
        suits: impl Fn(Option<Digest>) -> bool,
    ) -> Option<(Vec<u8>, Option<Digest>)> {
        let name = self.name(inputs);
        self.index().files.contains_key(&name).then_some(())?;
        let mut content = std::fs::read(self.file(name)).ok().unwrap_or_default();
        let digest = (content.len() >= 2 * DIGEST).then(|| content.drain(..DIGEST).collect::<Vec<u8>>());
        if digest.is_none_or(|digest| digest != Digest::of(&content).as_bytes()) {
            self.remove(name);
            return None;
        }
        let tag: [u8; DIGEST] = content.drain(..DIGEST).collect::<Vec<u8>>().try_into().ok()?;
        let tag = (tag != [0; DIGEST]).then(|| Digest::from_bytes(tag));
        suits(tag).then_some(())?;
        let mut index = self.index();
        index.uses += 1;
        let used = index.uses;
        if let Some(file) = index.files.get_mut(&name) {
            file.used = used;
        }
        drop(index);
        Some((content, tag))
    }

    /// Stores the output for these inputs, with a tag.
    pub(super) fn put(&self, inputs: &str, tag: Option<Digest>, output: &[u8]) {
        if output.len() > OUTPUT {
            return;
        }
        let name = self.name(inputs);
        let mut content = tag.map_or([0; DIGEST], |tag| *tag.as_bytes()).to_vec();
        content.extend(output);
        let bytes = blocks((DIGEST + content.len()) as u64);
        self.make_room(name, bytes);
        if self.write(name, &content).is_err() {
            return self.remove(name);
        }
        let mut index = self.index();
        index.uses += 1;
        let file = File { bytes, used: index.uses };
        let before = index.files.insert(name, file).map_or(0, |file| file.bytes);
        index.bytes = index.bytes.saturating_sub(before) + bytes;
    }

    fn write(&self, name: Digest, content: &[u8]) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        // A temporary file is readable only by its owner.
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(Digest::of(content).as_bytes())?;
        file.write_all(content)?;
        file.persist(self.file(name)).map(drop).map_err(|error| error.error)
    }

    /// Removes the least recently used files until a file of this many bytes fits.
    fn make_room(&self, name: Digest, bytes: u64) {
        loop {
            let oldest = {
                let index = self.index();
                let own = index.files.get(&name).map_or(0, |file| file.bytes);
                if index.bytes - own + bytes <= self.total {
                    return;
                }
                let others = index.files.iter().filter(|(other, _)| **other != name);
                others.min_by_key(|(_, file)| file.used).map(|(name, _)| *name)
            };
            let Some(oldest) = oldest else { return };
            self.remove(oldest);
        }
    }

    fn remove(&self, name: Digest) {
        // If the removal fails, the file is found by the next start.
        _ = std::fs::remove_file(self.file(name));
        let mut index = self.index();
        let bytes = index.files.remove(&name).map_or(0, |file| file.bytes);
        index.bytes = index.bytes.saturating_sub(bytes);
    }

    fn name(&self, inputs: &str) -> Digest {
        Digest::of(format!("{} {inputs}", self.tools).as_bytes())
    }

    fn file(&self, name: Digest) -> PathBuf {
        self.directory.join(name.to_string())
    }

    /// Returns the index. The first call reads the directory.
    fn index(&self) -> parking_lot::MutexGuard<'_, Index> {
        let mut index = self.index.lock();
        if !std::mem::replace(&mut index.is_loaded, true) {
            index.load(&self.directory);
        }
        index
    }
}

/// Returns the space that a file occupies, in bytes.
fn blocks(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK).max(BLOCK)
}

impl Index {
    /// Adds the existing files in the order in which they were written. Removes incomplete files.
    fn load(&mut self, directory: &Path) {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_str().and_then(|name| name.parse::<Digest>().ok());
            match (name, entry.metadata()) {
                (Some(name), Ok(metadata)) => found.push((metadata.modified().ok(), name, blocks(metadata.len()))),
                _ => _ = std::fs::remove_file(entry.path()),
            }
        }
        found.sort_unstable();
        for ((_, name, bytes), used) in found.into_iter().zip(1..) {
            self.files.insert(name, File { bytes, used });
            (self.bytes, self.uses) = (self.bytes + bytes, used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(directory: &Path, total: u64) -> Kept {
        Kept { total, ..Kept::new(directory.to_owned(), None) }
    }

    /// Returns the number of files and their total size.
    fn count(kept: &Kept) -> (usize, u64) {
        let index = kept.index();
        (index.files.len(), index.bytes)
    }

    #[test]
    fn outputs_survive_a_restart_and_are_of_their_inputs_and_tag() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("kept");
        let tag = Digest::of(b"cluster");
        let first = kept(&place, TOTAL);
        assert_eq!(first.get("a", |_| true), None);
        first.put("a", None, b"of a");
        first.put("b", Some(tag), b"");
        let second = kept(&place, TOTAL);
        assert_eq!(second.get("a", |tag| tag.is_none()), Some((b"of a".to_vec(), None)));
        assert_eq!(second.get("b", |_| true), Some((Vec::new(), Some(tag))));
        assert_eq!(second.get("b", |tag| tag.is_none()), None);
        assert_eq!(second.get("c", |_| true), None);
        let other = Kept { tools: Digest::of(b"another tool"), ..kept(&place, TOTAL) };
        assert_eq!(other.get("a", |_| true), None);
        second.put("a", None, b"new");
        assert_eq!(kept(&place, TOTAL).get("a", |_| true).unwrap().0, b"new");
    }

    #[test]
    fn damaged_files_are_rendered_again() {
        let directory = tempfile::tempdir().unwrap();
        let kept = kept(directory.path(), TOTAL);
        for damaged in [&b""[..], b"short", &[0; 32], &[7; 90]] {
            kept.put("a", None, b"a longer output of the tool");
            std::fs::write(kept.file(kept.name("a")), damaged).unwrap();
            assert_eq!(kept.get("a", |_| true), None);
            assert!(!kept.file(kept.name("a")).exists());
        }
        kept.put("a", None, b"x");
        std::fs::remove_file(kept.file(kept.name("a"))).unwrap();
        assert_eq!(kept.get("a", |_| true), None);
    }

    #[test]
    fn least_recently_used_outputs_make_room() {
        let directory = tempfile::tempdir().unwrap();
        let (one, each) = ([1; 100], BLOCK);
        let first = kept(directory.path(), 3 * each);
        for inputs in ["a", "b", "c"] {
            first.put(inputs, None, &one);
        }
        assert!(first.get("a", |_| true).is_some());
        first.put("d", None, &one);
        let is_kept = |kept: &Kept, inputs| kept.get(inputs, |_| true).is_some();
        assert_eq!(["a", "b", "c", "d"].map(|inputs| is_kept(&first, inputs)), [true, false, true, true]);
        first.put("a", None, &one);
        first.put("e", None, &vec![1; OUTPUT + 1]);
        assert_eq!(count(&first), (3, 3 * each));
        std::fs::write(directory.path().join(".tmpx"), "half").unwrap();
        let second = kept(directory.path(), 2 * each);
        second.put("f", None, &one);
        assert_eq!(count(&second), (2, 2 * each));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_place_that_cannot_be_written_keeps_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let kept = kept(&file.join("below"), TOTAL);
        kept.put("a", None, b"x");
        assert_eq!((kept.get("a", |_| true), kept.index().bytes), (None, 0));
    }
}
