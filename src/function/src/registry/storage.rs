//! Reads and removes files of the in-cluster registry's storage while the registry is not running.
//!
//! ```text
//!     <root>/docker/registry/v2/repositories/<name>/_manifests/revisions/sha256/<hex>/link
//!                                                  /_manifests/tags/<tag>/current/link
//!                              /blobs/sha256/<two digits>/<hex>/data
//! ```
//!
//! Invariant: no symbolic link is followed, and no file outside of the root is read or removed. Invariant: all files
//! are read before the first one is removed. A read error ends the sweep before any file is removed. Invariant: a tag
//! is removed before its manifest, so an interrupted sweep leaves no dangling tag.
//!
//! Not here: removing blobs, which `registry garbage-collect` does afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::Digest;
use super::retention::{Content, Parsed, Policy, Removal, Report, Repository, Stored, decide, is_of_function};

/// Directory of the registry's filesystem driver.
const PLACE: [&str; 3] = ["docker", "registry", "v2"];
const ALGORITHM: &str = "sha256";
/// Maximum number of segments in a repository name.
const DEPTH: usize = 32;
/// Maximum number of directory entries that are read.
const ENTRIES: usize = 2_000_000;
/// Maximum size of a manifest or configuration in bytes. The registry has the same limit for manifests.
const DOCUMENT: u64 = 4 << 20;
/// Maximum size in bytes of a link, which contains a digest.
const LINK: u64 = 256;

/// Why a sweep failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory could not be read.
    #[error("could not read {}", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// A file or directory could not be removed.
    #[error("could not remove {}", path.display())]
    Remove {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// There are too many files.
    #[error("there are more than {ENTRIES} files")]
    TooMany,
}

/// The storage below a root directory.
#[derive(Debug)]
pub struct Storage {
    root: PathBuf,
    entries: usize,
}

impl Storage {
    /// Returns the storage of a registry with this `rootdirectory`.
    pub fn new(root: &Path) -> Self {
        Self { root: PLACE.iter().fold(root.to_owned(), |path, part| path.join(part)), entries: 0 }
    }

    /// Removes all images that a [checked](Policy::check) policy does not keep. The report is complete even after a
    /// failure.
    pub fn sweep(&mut self, policy: &Policy, now: Timestamp) -> Report {
        let mut report = Report { policy: policy.id.clone(), ..Report::default() };
        if let Err(error) = self.try_sweep(policy, now, &mut report) {
            report.problem = Some(mainstay_object::failure::chain(&error));
        }
        report
    }

    fn try_sweep(&mut self, policy: &Policy, now: Timestamp, report: &mut Report) -> Result<(), Error> {
        let repositories = self.repositories()?;
        let sweep = decide(&repositories, policy, now);
        report.next = sweep.next;
        if let Some(first) = sweep.not_understood.first() {
            let more = sweep.not_understood.len() - 1;
            let first = if first.is_empty() { "all of them" } else { first };
            report.problem = Some(format!("skipped repositories that cannot be decoded: {first} and {more} more"));
        } else {
            report.bytes = Some(self.unneeded(&repositories, &sweep.removals)?);
        }
        for removal in &sweep.removals {
            self.remove(removal, report)?;
        }
        Ok(())
    }

    /// Returns all repositories.
    pub fn repositories(&mut self) -> Result<Vec<Repository>, Error> {
        let mut found = Vec::new();
        let mut open = vec![(self.root.join("repositories"), String::new(), 0)];
        while let Some((directory, name, depth)) = open.pop() {
            let mut is_repository = false;
            let Some(entries) = self.directories(&directory)? else {
                found.push(Repository { name, manifests: None, tags: BTreeMap::new() });
                continue;
            };
            for (path, entry) in entries {
                match entry.as_str() {
                    "_manifests" => is_repository = true,
                    special if special.starts_with('_') => {}
                    // No image is so deep. The repository stays, and does not keep others from being cleaned.
                    _ if depth == DEPTH => {
                        found.push(Repository {
                            name: format!("{name}/{entry}"),
                            manifests: None,
                            tags: BTreeMap::new(),
                        });
                    }
                    part => {
                        let name = if name.is_empty() { part.to_owned() } else { format!("{name}/{part}") };
                        open.push((path, name, depth + 1));
                    }
                }
            }
            if is_repository {
                found.push(self.repository(&directory, name)?);
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn repository(&mut self, directory: &Path, name: String) -> Result<Repository, Error> {
        let manifests = directory.join("_manifests");
        let not_understood = |name| Ok(Repository { name, manifests: None, tags: BTreeMap::new() });
        let (mut tags, mut times) = (BTreeMap::new(), BTreeMap::<Digest, Timestamp>::new());
        let Some(entries) = self.directories(&manifests.join("tags"))? else { return not_understood(name) };
        for (path, tag) in entries {
            match link(&path.join("current").join("link"))? {
                Link::Missing => {}
                Link::Broken => return not_understood(name),
                Link::To(digest, time) => {
                    let newest = times.entry(digest.clone()).or_insert(time);
                    *newest = time.max(*newest);
                    tags.insert(tag, digest);
                }
            }
        }
        let revisions = manifests.join("revisions");
        let Some(algorithms) = self.directories(&revisions)? else { return not_understood(name) };
        if algorithms.iter().any(|(_, algorithm)| algorithm != ALGORITHM) {
            return not_understood(name);
        }
        let mut stored = Vec::new();
        let Some(entries) = self.directories(&revisions.join(ALGORITHM))? else { return not_understood(name) };
        for (path, hex) in entries {
            let (digest, time) = match link(&path.join("link"))? {
                Link::Missing => continue,
                Link::To(digest, time) if digest.hex() == hex => (digest, time),
                Link::Broken | Link::To(..) => return not_understood(name),
            };
            let pushed = times.get(&digest).map_or(time, |of_tag| time.max(*of_tag));
            let Some(one) = self.manifest(digest, pushed)? else { return not_understood(name) };
            stored.push(one);
        }
        Ok(Repository { name, manifests: Some(stored), tags })
    }

    fn manifest(&self, digest: Digest, pushed: Timestamp) -> Result<Option<Stored>, Error> {
        let Some(bytes) = file(&self.blob(&digest), DOCUMENT)? else { return Ok(None) };
        if Digest::of(&bytes) != digest {
            return Ok(None);
        }
        let Some(Parsed { mut content, mut needs, configuration }) = Parsed::read(&bytes) else { return Ok(None) };
        if let (Content::Image, Some(configuration)) = (content, &configuration)
            && let Some(bytes) = file(&self.blob(configuration), DOCUMENT)?
            && is_of_function(&bytes)
        {
            content = Content::Function;
        }
        needs.push(digest.clone());
        Ok(Some(Stored { digest, pushed, content, needs }))
    }

    fn blob(&self, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        self.root.join("blobs").join(ALGORITHM).join(&hex[..2]).join(hex).join("data")
    }

    /// Returns the total size in bytes of blobs that become unreferenced by these removals.
    fn unneeded(&mut self, repositories: &[Repository], removals: &[Removal]) -> Result<u64, Error> {
        let goes: BTreeMap<&str, BTreeSet<&Digest>> =
            removals.iter().map(|one| (one.repository.as_str(), one.manifests.iter().collect())).collect();
        let mut needed = BTreeSet::new();
        for repository in repositories {
            let goes = goes.get(repository.name.as_str());
            let stays = |stored: &&Stored| !goes.is_some_and(|goes| goes.contains(&stored.digest));
            let stays = repository.manifests.iter().flatten().filter(stays);
            needed.extend(stays.flat_map(|stored| stored.needs.iter().map(Digest::hex)));
        }
        let mut bytes = 0;
        for (directory, _) in self.directories(&self.root.join("blobs").join(ALGORITHM))?.unwrap_or_default() {
            for (path, hex) in self.directories(&directory)?.unwrap_or_default() {
                if !needed.contains(hex.as_str()) {
                    bytes += metadata(&path.join("data"))?.map_or(0, |metadata| metadata.len());
                }
            }
        }
        Ok(bytes)
    }

    fn remove(&self, removal: &Removal, report: &mut Report) -> Result<(), Error> {
        let directory =
            removal.repository.split('/').fold(self.root.join("repositories"), |path, part| path.join(part));
        let manifests = directory.join("_manifests");
        for tag in &removal.tags {
            // Without this file, the tag does not exist.
            remove(&manifests.join("tags").join(tag).join("current").join("link"), |path| fs::remove_file(path))?;
            remove(&manifests.join("tags").join(tag), |path| fs::remove_dir_all(path))?;
        }
        for digest in &removal.manifests {
            let revision = manifests.join("revisions").join(ALGORITHM).join(digest.hex());
            remove(&revision.join("link"), |path| fs::remove_file(path))?;
            report.manifests += 1;
            remove(&revision, |path| fs::remove_dir_all(path))?;
        }
        if removal.is_all {
            report.repositories += 1;
            for part in ["_layers", "_manifests"] {
                remove(&directory.join(part), |path| fs::remove_dir_all(path))?;
            }
            // A directory with contents, such as a started upload, stays.
            let _ = fs::remove_dir(directory.join("_uploads")).and_then(|()| fs::remove_dir(&directory));
        }
        Ok(())
    }

    /// Lists the subdirectories of a directory. Returns an empty list if the directory does not exist, and `None` if it
    /// contains files.
    fn directories(&mut self, path: &Path) -> Result<Option<Vec<(PathBuf, String)>>, Error> {
        let failed = |cause| Error::Read { path: path.to_owned(), cause };
        match metadata(path)? {
            None => return Ok(Some(Vec::new())),
            Some(metadata) if !metadata.is_dir() => return Ok(None),
            Some(_) => {}
        }
        let (mut found, mut is_pure) = (Vec::new(), true);
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            self.entries += 1;
            if self.entries > ENTRIES {
                return Err(Error::TooMany);
            }
            let name = entry.file_name();
            match OsStr::to_str(&name) {
                Some(name) if entry.file_type().map_err(failed)?.is_dir() => {
                    found.push((entry.path(), name.to_owned()));
                }
                _ => is_pure = false,
            }
        }
        Ok(is_pure.then_some(found))
    }
}

/// The target of a link.
enum Link {
    Missing,
    /// The link is empty, because a push was killed.
    Broken,
    To(Digest, Timestamp),
}

fn link(path: &Path) -> Result<Link, Error> {
    let Some(found) = metadata(path)? else { return Ok(Link::Missing) };
    let text = file(path, LINK)?.and_then(|bytes| String::from_utf8(bytes).ok());
    let time = found.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
    Ok(match (text.and_then(|text| text.trim().parse().ok()), time) {
        (Some(digest), Some(time)) => Link::To(digest, time),
        _ => Link::Broken,
    })
}

/// Returns the metadata of a path without following links; `None` if the path does not exist.
fn metadata(path: &Path) -> Result<Option<fs::Metadata>, Error> {
    match path.symlink_metadata() {
        Ok(metadata) => Ok(Some(metadata)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(Error::Read { path: path.to_owned(), cause }),
    }
}

/// Returns the bytes of a regular file; `None` if the file is missing or too long.
fn file(path: &Path, longest: u64) -> Result<Option<Vec<u8>>, Error> {
    let Some(found) = metadata(path)?.filter(|found| found.is_file() && found.len() <= longest) else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(found.len()).read_to_end(&mut bytes));
    read.map(|_| Some(bytes)).map_err(|cause| Error::Read { path: path.to_owned(), cause })
}

/// Removes a path that may already be gone.
fn remove(path: &Path, how: impl Fn(&Path) -> io::Result<()>) -> Result<(), Error> {
    match how(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(Error::Remove { path: path.to_owned(), cause }),
        _ => Ok(()),
    }
}
