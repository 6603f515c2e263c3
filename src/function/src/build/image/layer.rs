//! Writes files as a layer: a tar archive, compressed with gzip, in a temporary file.
//!
//! Invariant: the same files result in the same bytes. Entries are sorted, times are 0, the owner is 1000:1000, and
//! modes are 0644 or 0755. Invariant: memory use does not depend on the size of the files.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder, write::GzEncoder};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};
use tempfile::NamedTempFile;

use super::tree::{self, Entry, Kind, Unfit};
use super::{Descriptor, LAYER, LayerOf};
use crate::registry::Digest;
use crate::runtimes::ServerFile;

/// Owner and group of all files.
const OWNER: u64 = 1000;
/// Compression level. This level takes four fifths of the time of the default level and produces slightly more bytes.
const LEVEL: u32 = 4;

/// Limits of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum total size of all files in bytes; by default 2 GiB.
    pub bytes: u64,
    /// Maximum number of files, directories and links; by default 300 000.
    pub entries: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { bytes: 2 << 30, entries: 300_000 }
    }
}

/// A layer built by this program.
#[derive(Debug)]
pub(in crate::build) struct Made {
    pub(in crate::build) layer: LayerOf,
    pub(in crate::build) file: NamedTempFile,
}

/// Why a layer could not be built.
#[derive(Debug, thiserror::Error)]
pub(in crate::build) enum Error {
    #[error(transparent)]
    Unfit(#[from] Unfit),
    #[error("{path} changed while it was read", path = .path.display())]
    Changed { path: PathBuf },
    #[error("there are more than {limit} {what}")]
    TooLarge { what: &'static str, limit: u64 },
    #[error("could not write a layer to the directory for temporary files")]
    Write(#[source] io::Error),
}

/// Returns a directory as a layer with its contents at `at`, a relative path. Returns `None` if the directory is empty,
/// missing, or a link. A link is not followed, because third-party code wrote to the directory and the link may point
/// to a secret.
pub(in crate::build) fn of_folder(root: &Path, at: &str, bounds: Bounds) -> Result<Option<Made>, Error> {
    if !root.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(None);
    }
    let mut archive: Option<Archive> = None;
    let mut left = bounds;
    tree::walk(root, &mut |on_disk: &Path, entry: Entry| {
        left.entries = left.entries.checked_sub(1).ok_or(Error::TooLarge { what: "files", limit: bounds.entries })?;
        if let Kind::File(size, _) = entry.kind {
            left.bytes = left.bytes.checked_sub(size).ok_or(Error::TooLarge { what: "bytes", limit: bounds.bytes })?;
        }
        if archive.is_none() {
            archive = Some(Archive::begin(at)?);
        }
        match &mut archive {
            Some(archive) => archive.add(on_disk, &Path::new(at).join(&entry.path), &entry.kind),
            None => Ok(()),
        }
    })?;
    archive.map(Archive::finish).transpose()
}

/// Returns the bytecode of modules as a layer, from directories named after the directories of the modules. Each file
/// is placed in the `__pycache__` beside its module. The layer contains no entries for directories, so the base's
/// directories keep their owners and modes. Returns `None` without bytecode.
pub(in crate::build) fn of_bytecode(root: &Path, bounds: Bounds) -> Result<Option<Made>, Error> {
    let mut archive: Option<Archive> = None;
    let mut left = bounds;
    tree::walk(root, &mut |on_disk: &Path, entry: Entry| {
        let Kind::File(size, _) = entry.kind else { return Ok(()) };
        let (Some(folder), Some(name)) = (entry.path.parent(), entry.path.file_name()) else { return Ok(()) };
        if entry.path.extension().is_none_or(|extension| extension != "pyc") {
            return Ok(());
        }
        left.bytes = left.bytes.checked_sub(size).ok_or(Error::TooLarge { what: "bytes", limit: bounds.bytes })?;
        let path = folder.join("__pycache__").join(name);
        let archive = match &mut archive {
            Some(archive) => archive,
            None => archive.insert(Archive::begin("")?),
        };
        archive.add(on_disk, &path, &Kind::File(size, false))
    })?;
    archive.map(Archive::finish).transpose()
}

/// Returns the files of a runtime server and its packages as a layer with its contents at `at`. `packages` is the
/// directory of the packages and its name in the layer.
pub(in crate::build) fn of_server(files: &[ServerFile], packages: (&Path, &str), at: &str) -> Result<Made, Error> {
    let mut archive = Archive::begin(at)?;
    let mut folders = std::collections::BTreeSet::new();
    for file in files {
        let path = Path::new(at).join(file.path);
        let above: Vec<&Path> = path.ancestors().skip(1).take_while(|above| *above != Path::new(at)).collect();
        for folder in above.into_iter().rev() {
            if folders.insert(folder.to_owned()) {
                archive.entry(folder, EntryType::Directory, 0o755, 0, io::empty())?;
            }
        }
        archive.entry(&path, EntryType::Regular, 0o644, file.contents.len() as u64, file.contents)?;
    }
    let (packages, name) = packages;
    let at = Path::new(at).join(name);
    archive.entry(&at, EntryType::Directory, 0o755, 0, io::empty())?;
    tree::walk(packages, &mut |on_disk: &Path, entry: Entry| archive.add(on_disk, &at.join(&entry.path), &entry.kind))?;
    archive.finish()
}

struct Archive {
    builder: Builder<Hashing<GzEncoder<Hashing<io::BufWriter<NamedTempFile>>>>>,
}

impl Archive {
    /// Starts an archive with the parent directories of `at`.
    fn begin(at: &str) -> Result<Self, Error> {
        let file = NamedTempFile::new().map_err(Error::Write)?;
        let compressed = Hashing::new(io::BufWriter::new(file));
        let plain = Hashing::new(GzBuilder::new().mtime(0).write(compressed, Compression::new(LEVEL)));
        let mut archive = Self { builder: Builder::new(plain) };
        let mut folders: Vec<&Path> = Path::new(at).ancestors().filter(|p| !p.as_os_str().is_empty()).collect();
        folders.reverse();
        for folder in folders {
            archive.entry(folder, EntryType::Directory, 0o755, 0, io::empty())?;
        }
        Ok(archive)
    }

    fn add(&mut self, on_disk: &Path, path: &Path, kind: &Kind) -> Result<(), Error> {
        match kind {
            Kind::Folder => self.entry(path, EntryType::Directory, 0o755, 0, io::empty()),
            Kind::Link(target) => {
                let mut header = header(EntryType::Symlink, 0o777, 0);
                self.builder.append_link(&mut header, path, target).map_err(Error::Write)
            }
            Kind::File(size, executable) => {
                let unread = |cause| Error::Unfit(Unfit::Read { path: path.to_owned(), cause });
                let file = File::open(on_disk).map_err(unread)?;
                // The opened file is checked, not the path, because a link may have replaced it.
                let metadata = file.metadata().map_err(unread)?;
                if !metadata.is_file() || metadata.len() != *size {
                    return Err(Error::Changed { path: path.to_owned() });
                }
                let mode = if *executable { 0o755 } else { 0o644 };
                let mut content = Counting { inner: file.take(*size), read: 0, failed: None };
                let written = self.entry(path, EntryType::Regular, mode, *size, &mut content);
                match content.failed.take() {
                    Some(cause) => Err(unread(cause)),
                    None if written.is_ok() && content.read != *size => Err(Error::Changed { path: path.to_owned() }),
                    None => written,
                }
            }
        }
    }

    fn entry(&mut self, path: &Path, what: EntryType, mode: u32, size: u64, content: impl Read) -> Result<(), Error> {
        let mut header = header(what, mode, size);
        self.builder.append_data(&mut header, path, content).map_err(Error::Write)
    }

    fn finish(self) -> Result<Made, Error> {
        let finished = || -> io::Result<Made> {
            let plain = self.builder.into_inner()?;
            let diff_id = Digest::finished(plain.hasher);
            let compressed = plain.inner.finish()?;
            let descriptor = Descriptor {
                media_type: LAYER.to_owned(),
                digest: Digest::finished(compressed.hasher),
                size: compressed.length,
                annotations: std::collections::BTreeMap::new(),
                urls: Vec::new(),
            };
            let file = compressed.inner.into_inner().map_err(io::IntoInnerError::into_error)?;
            Ok(Made { layer: LayerOf { descriptor, diff_id }, file })
        };
        finished().map_err(Error::Write)
    }
}

fn header(what: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(what);
    header.set_mode(mode);
    header.set_uid(OWNER);
    header.set_gid(OWNER);
    header.set_mtime(0);
    header.set_size(size);
    header
}

/// Hashes written bytes.
struct Hashing<W> {
    inner: W,
    hasher: Sha256,
    length: u64,
}

impl<W> Hashing<W> {
    fn new(inner: W) -> Self {
        Self { inner, hasher: Sha256::new(), length: 0 }
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Counts read bytes, and distinguishes errors of the file from errors of the archive.
struct Counting<R> {
    inner: R,
    read: u64,
    failed: Option<io::Error>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            Ok(length) => {
                self.read += length as u64;
                Ok(length)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let kind = error.kind();
                self.failed = Some(error);
                Err(kind.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn listing(made: &Made) -> Vec<String> {
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(made.file.reopen().unwrap()));
        let line = |entry: tar::Entry<'_, _>| {
            let header = entry.header();
            let [mode, uid, mtime] =
                [u64::from(header.mode().unwrap()), header.uid().unwrap(), header.mtime().unwrap()];
            format!("{} {mode:o} {uid} {mtime}", entry.path().unwrap().display())
        };
        archive.entries().unwrap().map(|entry| line(entry.unwrap())).collect()
    }

    #[test]
    fn bytecode_lies_beside_its_modules_and_names_no_directory_of_the_base() {
        let root = tempfile::tempdir().unwrap();
        assert!(of_bytecode(root.path(), Bounds::default()).unwrap().is_none());
        for name in
            ["usr/lib/python3/json/__init__.cpython-312.pyc", "usr/lib/python3/socket.cpython-312.pyc", "bin/sh"]
        {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, name).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        symlink("socket.cpython-312.pyc", root.path().join("usr/lib/python3/link.pyc")).unwrap();
        let expected = [
            "usr/lib/python3/json/__pycache__/__init__.cpython-312.pyc 644 1000 0",
            "usr/lib/python3/__pycache__/socket.cpython-312.pyc 644 1000 0",
        ];
        assert_eq!(listing(&of_bytecode(root.path(), Bounds::default()).unwrap().unwrap()), expected);
        let small = Bounds { bytes: 60, ..Bounds::default() };
        assert!(matches!(of_bytecode(root.path(), small), Err(Error::TooLarge { .. })));
        symlink("../../..", root.path().join("out")).unwrap();
        assert!(matches!(of_bytecode(root.path(), Bounds::default()), Err(Error::Unfit(Unfit::LeadsOut { .. }))));
    }

    #[test]
    fn the_same_files_give_the_same_bytes_wherever_and_whenever() {
        let make = |names: &[&str], mode: u32| {
            let root = tempfile::tempdir().unwrap();
            for name in names {
                let path = root.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, name).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            symlink("a", root.path().join("link")).unwrap();
            of_folder(root.path(), "kubeless/lib", Bounds::default()).unwrap().unwrap()
        };
        let (one, two) = (make(&["a", "d/b", "c"], 0o640), make(&["c", "d/b", "a"], 0o600));
        assert_eq!(one.layer, two.layer);
        assert_eq!(fs::read(one.file.path()).unwrap(), fs::read(two.file.path()).unwrap());
        assert_eq!(one.layer.descriptor.digest, Digest::of(&fs::read(one.file.path()).unwrap()));
        assert_ne!(one.layer, make(&["a", "d/b", "c"], 0o755).layer);
        let expected = [
            "kubeless 755 1000 0",
            "kubeless/lib 755 1000 0",
            "kubeless/lib/a 644 1000 0",
            "kubeless/lib/c 644 1000 0",
            "kubeless/lib/d 755 1000 0",
            "kubeless/lib/d/b 644 1000 0",
            "kubeless/lib/link 777 1000 0",
        ];
        assert_eq!(listing(&one), expected);
    }

    #[test]
    fn long_names_and_hard_links_are_plain_files() {
        let root = tempfile::tempdir().unwrap();
        let long = "n".repeat(150);
        fs::create_dir_all(root.path().join(&long)).unwrap();
        fs::write(root.path().join(&long).join(&long), "x").unwrap();
        fs::hard_link(root.path().join(&long).join(&long), root.path().join("other")).unwrap();
        let made = of_folder(root.path(), "k", Bounds::default()).unwrap().unwrap();
        let expected = format!("k/{long}/{long} 644 1000 0");
        assert!(listing(&made).contains(&expected), "{:?}", listing(&made));
        assert!(listing(&made).contains(&"k/other 644 1000 0".to_owned()));
    }

    #[test]
    fn is_bounded() {
        let root = tempfile::tempdir().unwrap();
        // A sparse file of 1 TiB.
        File::create(root.path().join("giant")).unwrap().set_len(1 << 40).unwrap();
        let error = of_folder(root.path(), "k", Bounds::default()).unwrap_err();
        assert_eq!(error.to_string(), "there are more than 2147483648 bytes");
        let error = of_folder(root.path(), "k", Bounds { bytes: u64::MAX, entries: 0 }).unwrap_err();
        assert_eq!(error.to_string(), "there are more than 0 files");
    }

    #[test]
    fn an_empty_layer_is_no_layer() {
        let root = tempfile::tempdir().unwrap();
        assert!(of_folder(root.path(), "k", Bounds::default()).unwrap().is_none());
        assert!(of_folder(&root.path().join("missing"), "k", Bounds::default()).unwrap().is_none());
    }

    #[test]
    fn a_server_is_a_layer() {
        let files = [
            ServerFile { path: "lib/a.js", contents: b"a" },
            ServerFile { path: "lib/deep/b.js", contents: b"b" },
            ServerFile { path: "server.js", contents: b"s" },
        ];
        let packages = tempfile::tempdir().unwrap();
        std::fs::create_dir(packages.path().join("express")).unwrap();
        std::fs::write(packages.path().join("express/index.js"), "e").unwrap();
        let made = of_server(&files, (packages.path(), "node_modules"), "kubeless_rt").unwrap();
        let names: Vec<_> = listing(&made).iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
        let expected = ["kubeless_rt", "kubeless_rt/lib", "kubeless_rt/lib/a.js", "kubeless_rt/lib/deep"];
        assert_eq!(names[..4], expected);
        assert_eq!(names.last().unwrap(), "kubeless_rt/node_modules/express/index.js");
        let again = of_server(&files, (packages.path(), "node_modules"), "kubeless_rt").unwrap();
        assert_eq!(made.layer, again.layer);
    }
}
