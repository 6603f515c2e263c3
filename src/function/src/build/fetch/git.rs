//! Fetches a source from a Git repository: the recorded commit, or a later commit with the same directory.
//!
//! Invariant: files are written before links, into an empty directory, so no file is written through a link.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::ByteString;

use super::error::{Error, Finding};
use super::tree::{Node, Tree};
use super::{Bounds, InGit};
use mainstay_api::git_repository::RepositoryAuth;
use mainstay_git::{
    Access, BaseDir, Commit, EntryKind, Fault, Reference, Remote, ResolvedRef, Settings, SharedHostKeys, Snapshot,
    Source,
};

/// Maximum length of a link's target in bytes.
const TARGET_BYTES: u64 = 1024;
/// Maximum size of a Secret's value in bytes.
const KEY_BYTES: u64 = 1 << 20;

/// Fetches with a mirror in `mirror` and writes the files to the empty directory `src`.
pub(super) async fn write(in_git: &InGit, mirror: &Path, src: &Path, bounds: Bounds) -> Result<(Tree, Commit), Error> {
    let Access { credentials, connection } = access(in_git)?;
    // The agent verified the commit. The build uses that commit, or a different commit whose directory has the same
    // tree ID.
    let url = in_git.url.clone();
    let remote =
        Remote { url, credentials, connection, verification: None, submodules: in_git.submodules, lfs: in_git.lfs };
    let mut settings = Settings::new(mirror);
    settings.allow_local = in_git.allow_local;
    settings.limits.file_bytes = bounds.file_bytes;
    settings.limits.entries = bounds.entries;
    let source = Source::new(settings);
    if let Some(lines) = &in_git.known_hosts {
        source.set_host_keys(SharedHostKeys::Lines(lines.as_str().into()));
    }
    let snapshot = snapshot(&source, &remote, in_git).await?;
    let base_dir = in_git.base_dir.clone();
    let snapshot = source.fetch_large_files(&remote, snapshot, move |snapshot| snapshot.entries(&base_dir)).await?;
    let (base_dir, src) = (in_git.base_dir.clone(), src.to_owned());
    let tree = snapshot.blocking(move |snapshot| write_files(snapshot, &base_dir, &src, bounds)).await??;
    Ok((tree, snapshot.commit))
}

/// Returns the reference's newest commit if its directory is unchanged, which is the usual case. Otherwise returns the
/// recorded commit, which is more expensive if the server does not serve commits by ID.
async fn snapshot(source: &Source, remote: &Remote, in_git: &InGit) -> Result<Snapshot, Error> {
    let moved = |why| Error::BranchMoved { commit: in_git.commit, why };
    let is_pinned = in_git.reference.spells(in_git.commit);
    if !is_pinned && let Some(found) = tip(source, remote, &in_git.reference).await? {
        let snapshot = source.fetch(remote, &found).await?;
        if found.commit == in_git.commit {
            return checked(snapshot, in_git).await;
        }
        if snapshot.tree(&in_git.base_dir).await? == Some(in_git.tree) {
            return Ok(snapshot);
        }
    }
    let pinned = Reference::parse(&in_git.commit.to_string())?;
    let found = source.lookup(remote, &pinned, Duration::ZERO).await?;
    match source.fetch(remote, &found).await {
        Ok(snapshot) => checked(snapshot, in_git).await,
        Err(error) if is_pinned => Err(error.into()),
        Err(error) if matches!(error.fault(), Fault::MissingCommit | Fault::Refused { .. }) => {
            Err(moved("no branch holds it any more"))
        }
        Err(error) if matches!(error.fault(), Fault::TooLarge { .. }) => {
            Err(moved("the server gives it only with the whole history, which is too large"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the current commit of the reference; `None` if the reference is missing. In that case, another branch may
/// still contain the recorded commit.
async fn tip(source: &Source, remote: &Remote, reference: &Reference) -> Result<Option<ResolvedRef>, Error> {
    match source.lookup(remote, reference, Duration::ZERO).await {
        Ok(found) => Ok(Some(found)),
        Err(error) => match error.fault() {
            Fault::MissingReference { .. }
            | Fault::MissingAbbreviated { .. }
            | Fault::MissingVersion { .. }
            | Fault::AmbiguousCommit { .. }
            | Fault::HistoryTooLarge { .. } => Ok(None),
            _ => Err(error.into()),
        },
    }
}

/// Returns the snapshot if its directory has the recorded tree ID.
async fn checked(snapshot: Snapshot, in_git: &InGit) -> Result<Snapshot, Error> {
    let tree = snapshot.tree(&in_git.base_dir).await?;
    match tree {
        Some(tree) if tree == in_git.tree => Ok(snapshot),
        Some(_) => {
            Err(Error::BranchMoved { commit: in_git.commit, why: "its directory differs from the recorded one" })
        }
        None => Err(Finding::source(snapshot.missing_directory(&in_git.base_dir).await?.to_string()).into()),
    }
}

/// Writes the files of the directory. Blocks the thread.
fn write_files(snapshot: &Snapshot, base_dir: &BaseDir, src: &Path, bounds: Bounds) -> Result<Tree, Error> {
    let entries = snapshot.entries(base_dir)?;
    let prefix = if base_dir.path().is_empty() { 0 } else { base_dir.path().len() + 1 };
    let mut tree = Tree::default();
    let mut files = Vec::new();
    let mut bytes = 0_u64;
    for entry in &entries {
        let path = entry.path.get(prefix..).unwrap_or_default();
        if let Some(flaw) = entry.flaw {
            return Err(Finding::source(format!("the repository holds the path `{path}`: {}", flaw.what())).into());
        }
        bytes = bytes.saturating_add(entry.size);
        if entry.size > bounds.file_bytes {
            let text = format!("`{path}` has {} bytes; a file may have {}", entry.size, bounds.file_bytes);
            return Err(Finding::too_large(text).into());
        }
        let node = match entry.kind {
            EntryKind::File => {
                files.push((path, entry));
                Node::File { executable: entry.executable }
            }
            EntryKind::Symlink => Node::Symlink { target: target(snapshot, path, entry)? },
            EntryKind::Submodule => {
                let text = format!(
                    "`{path}` is a submodule that is not fetched; set `submodules: true` in the GitRepository and \
                     list the submodule in .gitmodules, or let `baseDir` name a directory without submodules"
                );
                return Err(Finding::source(text).into());
            }
        };
        tree.add(path, node)?;
    }
    if bytes > bounds.bytes {
        let text = format!("the Function's directory has {bytes} bytes; it may have {}", bounds.bytes);
        return Err(Finding::too_large(text).into());
    }
    tree.check_links()?;
    let written =
        |path: &str, result: std::io::Result<()>| result.map_err(|cause| Error::Write { path: src.join(path), cause });
    for (path, _) in tree.iter().filter(|(_, node)| **node == Node::Directory) {
        written(path, fs::create_dir(src.join(path)))?;
    }
    for (path, entry) in files {
        let mode = if entry.executable { 0o755 } else { 0o644 };
        let content = snapshot.read(entry)?;
        let created = OpenOptions::new().write(true).create_new(true).mode(mode).open(src.join(path));
        written(path, created.and_then(|mut file| file.write_all(&content)))?;
    }
    for (path, node) in tree.iter() {
        if let Node::Symlink { target } = node {
            written(path, symlink(target, src.join(path)))?;
        }
    }
    Ok(tree)
}

fn target(snapshot: &Snapshot, path: &str, entry: &mainstay_git::Entry) -> Result<String, Error> {
    let unusable = || Finding::source(format!("the symbolic link `{path}` has a target that is not a path"));
    if entry.size == 0 || entry.size > TARGET_BYTES {
        return Err(unusable().into());
    }
    let target = String::from_utf8(snapshot.read(entry)?).map_err(|_| unusable())?;
    if target.chars().any(char::is_control) { Err(unusable().into()) } else { Ok(target) }
}

/// Returns how to access the repository, from the mounted Secrets.
fn access(in_git: &InGit) -> Result<Access, Error> {
    let access = match &in_git.auth {
        None => mainstay_git::access(None, None)?,
        Some((kind, directory)) => {
            let auth = RepositoryAuth { kind: *kind, secret_name: String::new() };
            mainstay_git::access(Some(&auth), Some(&read_keys(directory, mainstay_git::fields(*kind))?))?
        }
    };
    match &in_git.proxy {
        None => Ok(access),
        Some(directory) => Ok(access.through_proxy(&read_keys(directory, mainstay_git::proxy_fields())?)?),
    }
}

/// Reads the needed keys of a mounted Secret.
fn read_keys(
    directory: &Path,
    keys: impl Iterator<Item = &'static str>,
) -> Result<BTreeMap<String, ByteString>, Error> {
    let mut data = BTreeMap::new();
    for key in keys {
        if let Some(value) = read_key(directory.join(key))? {
            data.insert(key.to_owned(), ByteString(value));
        }
    }
    Ok(data)
}

fn read_key(path: PathBuf) -> Result<Option<Vec<u8>>, Error> {
    let mut value = Vec::new();
    match File::open(&path).and_then(|file| file.take(KEY_BYTES).read_to_end(&mut value)) {
        Ok(_) => Ok(Some(value)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(Error::Read { path, cause }),
    }
}
