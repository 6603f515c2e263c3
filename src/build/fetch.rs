//! The container `fetch`: a Function's source becomes the files of its image and a script that installs what it needs.
//!
//! ```text
//! <workspace>/begun          nothing; it is as old as the build
//! <workspace>/src            what goes to /kubeless
//! <workspace>/inputs         what the package manager may read, nothing when there is nothing to install
//! <workspace>/install.sh     what the next container runs; it leaves dependencies in <workspace>/deps
//! <workspace>/dependencies   digest of what is installed from, in hexadecimal digits; empty when nothing is
//! <workspace>/deps.reused    only when the previous image has these dependencies: the same digest
//! ```
//!
//! Invariant: nothing is written outside of the workspace, and nothing in `src` leads out of it.
//! Invariant: no credential is written anywhere.
//! Deliberately absent: running anything that came with the source.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::api::git_repository::AuthType;
use crate::runtimes::{Language, Runtime};
use crate::source::{BaseDir, Commit, Reference, RemoteUrl, TreeId};

use super::install::{self, Platform};

mod error;
mod git;
mod inline;
mod tree;

pub use error::{Error, Finding};
pub use tree::{Node, Place, Tree};

/// Directory of the image's own files.
pub const SRC: &str = "src";
/// Directory of the installed dependencies.
pub const DEPS: &str = "deps";
/// File with the digest of what the dependencies are installed from.
pub const DEPENDENCIES: &str = "dependencies";
/// File that says that the previous image has the dependencies.
pub const REUSED: &str = "deps.reused";
/// File that is as old as the build.
pub const BEGUN: &str = "begun";
const INPUTS: &str = "inputs";
const SCRIPT: &str = "install.sh";
/// Where the mirror is, as long as the source is fetched.
const MIRROR: &str = "git";

/// What a source may cost.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files and directories.
    pub entries: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { file_bytes: 64 << 20, bytes: 256 << 20, entries: 50_000 }
    }
}

/// What to fetch and how to prepare it.
#[derive(Clone, Debug)]
pub struct Request {
    /// The runtime that the Function runs on.
    pub runtime: &'static Runtime,
    /// Directory that the containers of the Job share.
    pub workspace: PathBuf,
    /// Where the source is.
    pub source: SourceOf,
    /// What the dependencies are installed for.
    pub on: Platform,
    /// Digest of what the previous image's dependencies were installed from.
    pub known_dependencies: Option<String>,
    /// What the source may cost.
    pub bounds: Bounds,
}

/// Where a source is.
#[derive(Clone, Debug)]
pub enum SourceOf {
    /// In a directory with the files `source` and, perhaps, `dependencies`: a mounted ConfigMap.
    Inline(PathBuf),
    /// In a Git repository.
    Git(Box<InGit>),
}

/// A source in a Git repository.
#[derive(Clone, Debug)]
pub struct InGit {
    /// The repository.
    pub url: RemoteUrl,
    /// The commit that was recorded.
    pub commit: Commit,
    /// What the directory held at that commit.
    pub tree: TreeId,
    /// The reference that the commit was found by.
    pub reference: Reference,
    /// The directory.
    pub base_dir: BaseDir,
    /// How to authenticate, and the directory with the keys of the Secret.
    pub auth: Option<(AuthType, PathBuf)>,
    /// Whether a path on this machine is a repository, too.
    pub allow_local: bool,
}

/// What was prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The commit whose files were taken; not the recorded one when the directory is the same in a later one.
    pub commit: Option<Commit>,
    /// Files and links of the source.
    pub files: usize,
    /// Digest of what the dependencies are installed from; empty when there are none.
    pub dependencies: String,
    /// Whether the previous image has them.
    pub reused: bool,
}

/// Prepares the workspace; what an earlier attempt left there goes first.
pub async fn fetch(request: &Request) -> Result<Fetched, Error> {
    let workspace = &request.workspace;
    let src = clear(workspace)?;
    write(&workspace.join(BEGUN), b"")?;
    let (tree, commit) = match &request.source {
        SourceOf::Inline(directory) => (inline::write(request.runtime, directory, &src)?, None),
        SourceOf::Git(wanted) => {
            let mirror = workspace.join(MIRROR);
            let fetched = git::write(wanted, &mirror, &src, request.bounds).await;
            remove(&mirror)?;
            let (tree, commit) = fetched?;
            (tree, Some(commit))
        }
    };
    let (dependencies, reused) = prepare(request, &tree, &src)?;
    let files = tree.iter().filter(|(_, node)| **node != Node::Directory).count();
    Ok(Fetched { commit, files, dependencies, reused })
}

/// Checks the two files that every Function has, and writes what the next container needs.
fn prepare(request: &Request, tree: &Tree, src: &Path) -> Result<(String, bool), Error> {
    let (workspace, runtime) = (&request.workspace, request.runtime);
    required(tree, src, runtime.handler_file(), runtime)?;
    let dependency_file = required(tree, src, runtime.dependency_file(), runtime)?;
    let plan = install::plan(runtime, tree, src, &dependency_file)?;
    let digest = plan.digest(runtime, &request.on, src)?;
    let reused = !digest.is_empty() && request.known_dependencies.as_ref() == Some(&digest);
    let script = if reused {
        write(&workspace.join(REUSED), digest.as_bytes())?;
        install::no_script(runtime, "the dependencies of the previous image are used again")
    } else {
        plan.copy_inputs(src, &workspace.join(INPUTS))?;
        plan.script(runtime)
    };
    write(&workspace.join(SCRIPT), script.as_bytes())?;
    write(&workspace.join(DEPENDENCIES), digest.as_bytes())?;
    if runtime.language == Language::NodeJs {
        // It is for installing and may hold a token: it does not belong into an image.
        remove(&src.join(".npmrc"))?;
    }
    Ok((digest, reused))
}

/// The path of a file that every Function has, links followed.
fn required(tree: &Tree, src: &Path, name: &str, runtime: &Runtime) -> Result<String, Error> {
    let at = match tree.resolve(name) {
        Place::At(at) if matches!(tree.get(&at), Some(Node::File { .. })) => at,
        Place::At(_) => return Err(Finding::source(format!("`{name}` is a directory, not a file")).into()),
        _ => {
            let text = format!(
                "there is no `{name}`, which a Function with the runtime {} needs; {}",
                runtime.name,
                listing("its directory", &tree.names(""))
            );
            return Err(Finding::source(text).into());
        }
    };
    if is_lfs_pointer(&src.join(&at))? {
        let text = format!("`{name}` is kept in Git LFS, which is not fetched; commit the file itself");
        return Err(Finding::source(text).into());
    }
    Ok(at)
}

/// What a directory holds, for people.
fn listing(directory: &str, names: &[&str]) -> String {
    const SHOWN: usize = 20;
    let more = if names.len() > SHOWN { ", …" } else { "" };
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| name.chars().take(80).collect()).collect();
    if shown.is_empty() {
        format!("{directory} is empty")
    } else {
        format!("{directory} holds {}{more}", shown.join(", "))
    }
}

fn is_lfs_pointer(path: &Path) -> Result<bool, Error> {
    use std::io::Read as _;
    let mut start = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(64).read_to_end(&mut start));
    read.map_err(|cause| Error::Read { path: path.to_owned(), cause })?;
    Ok(start.starts_with(b"version https://git-lfs.github.com/spec/"))
}

/// Empties the workspace of what this container writes; the path of the directory for the source.
fn clear(workspace: &Path) -> Result<PathBuf, Error> {
    for name in [BEGUN, SRC, DEPS, INPUTS, SCRIPT, DEPENDENCIES, REUSED, MIRROR] {
        remove(&workspace.join(name))?;
    }
    for name in [SRC, DEPS, INPUTS] {
        let path = workspace.join(name);
        fs::create_dir_all(&path).map_err(|cause| Error::Write { path, cause })?;
    }
    Ok(workspace.join(SRC))
}

fn remove(path: &Path) -> Result<(), Error> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(Error::Write { path: path.to_owned(), cause }),
        _ => Ok(()),
    }
}

fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    fs::write(path, content).map_err(|cause| Error::Write { path: path.to_owned(), cause })
}
