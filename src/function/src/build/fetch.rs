//! The container `fetch`. The container writes the files of a Function's image and a script that installs the
//! dependencies.
//!
//! ```text
//!     <workspace>/begun          empty; its age is the duration of the build so far
//!     <workspace>/src            the files for /kubeless
//!     <workspace>/inputs         the files that the package manager may read; empty if there is nothing to install
//!     <workspace>/install.sh     the script of the next container, which leaves dependencies in <workspace>/deps
//!     <workspace>/dependencies   digest of the inputs of the dependencies, in hexadecimal digits; empty without any
//!     <workspace>/deps.reused    the same digest, only if the previous image has these dependencies
//! ```
//!
//! For Kaniko, the workspace is the build context ([`super::context`]), and Kaniko runs the script.
//!
//! Invariant: no file is written outside of the workspace, and no link in `src` points outside of `src`. Invariant: no
//! credential is written to a file. Not here: running anything from the source.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::runtimes::{Language, Runtime};
use mainstay_api::git_repository::AuthType;
use mainstay_git::{BaseDir, Commit, Reference, RemoteUrl, TreeId};

use super::context;
use super::install::{self, Platform};

mod error;
mod git;
mod inline;
mod tree;

pub use error::{Error, Finding};
pub use tree::{Node, Place, Tree};

/// Directory of the source.
pub(crate) const SRC: &str = "src";
/// Directory of the installed dependencies.
pub const DEPS: &str = "deps";
/// File with the digest of the inputs of the dependencies.
pub const DEPENDENCIES: &str = "dependencies";
/// File that exists if the previous image has the same dependencies.
pub(crate) const REUSED: &str = "deps.reused";
/// File whose modification time is the start of the build.
pub const BEGUN: &str = "begun";
const INPUTS: &str = "inputs";
const SCRIPT: &str = "install.sh";
/// Temporary directory of the mirror.
const MIRROR: &str = "git";

/// Limits of a source.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum size of one file in bytes.
    pub file_bytes: u64,
    /// Maximum size of all files in bytes.
    pub bytes: u64,
    /// Maximum number of files and directories.
    pub entries: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { file_bytes: 64 << 20, bytes: 256 << 20, entries: 50_000 }
    }
}

/// Settings of a fetch.
#[derive(Clone, Debug)]
pub struct Request {
    /// The runtime that the Function runs on.
    pub runtime: &'static Runtime,
    /// The workspace that the containers of the Job share.
    pub workspace: PathBuf,
    /// The source.
    pub source: SourceOf,
    /// The base image and platform for which the dependencies are installed.
    pub on: Platform,
    /// Digest of the inputs of the previous image's dependencies.
    pub known_dependencies: Option<String>,
    /// Whether the dependencies are installed already and stay in the workspace.
    pub is_installed: bool,
    /// Directory of the packages of the runtime servers, if Kaniko builds.
    pub for_kaniko: Option<PathBuf>,
    /// Limits of the source.
    pub bounds: Bounds,
}

/// A source.
#[derive(Clone, Debug)]
pub enum SourceOf {
    /// A directory with the file `source` and optionally `dependencies`: a mounted ConfigMap.
    Inline(PathBuf),
    /// A directory in a Git repository.
    Git(Box<InGit>),
}

/// A source in a Git repository.
#[derive(Clone, Debug)]
pub struct InGit {
    /// The repository.
    pub url: RemoteUrl,
    /// The recorded commit.
    pub commit: Commit,
    /// The tree of the directory at that commit.
    pub tree: TreeId,
    /// The reference that was resolved to the commit.
    pub reference: Reference,
    /// The directory.
    pub base_dir: BaseDir,
    /// The type of authentication, and the directory with the keys of the Secret.
    pub auth: Option<(AuthType, PathBuf)>,
    /// The directory with the keys of the proxy's Secret.
    pub proxy: Option<PathBuf>,
    /// Host keys for all repositories, in the format of `known_hosts`; `None` selects the built-in host keys.
    pub known_hosts: Option<String>,
    /// Whether submodules are fetched too.
    pub submodules: bool,
    /// Whether files in Git LFS are fetched.
    pub lfs: bool,
    /// Whether local repositories are allowed.
    pub allow_local: bool,
}

/// The result of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The commit of the files. The commit may be newer than the recorded commit if the directory is unchanged.
    pub commit: Option<Commit>,
    /// Number of files and links of the source.
    pub files: usize,
    /// Digest of the inputs of the dependencies; empty without dependencies.
    pub dependencies: String,
    /// Whether the previous image has the same dependencies.
    pub reused: bool,
}

/// Empties and fills the workspace.
pub async fn fetch(request: &Request) -> Result<Fetched, Error> {
    let workspace = &request.workspace;
    let src = clear(workspace, request.is_installed)?;
    write(&workspace.join(BEGUN), b"")?;
    let (tree, commit) = match &request.source {
        SourceOf::Inline(directory) => (inline::write(request.runtime, directory, &src)?, None),
        SourceOf::Git(in_git) => {
            let mirror = workspace.join(MIRROR);
            let fetched = git::write(in_git, &mirror, &src, request.bounds).await;
            remove(&mirror)?;
            let (tree, commit) = fetched?;
            (tree, Some(commit))
        }
    };
    let (dependencies, reused) = prepare(request, &tree, &src)?;
    if let Some(libraries) = &request.for_kaniko {
        context::write(workspace, request.runtime, &request.on.base, &dependencies, libraries)?;
    }
    let files = tree.iter().filter(|(_, node)| **node != Node::Directory).count();
    Ok(Fetched { commit, files, dependencies, reused })
}

/// Checks the handler and dependency files, and writes the inputs of the container `install`.
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
        // Only the installation needs this file. It may contain a token, so it must not be in the image.
        remove(&src.join(".npmrc"))?;
    }
    Ok((digest, reused))
}

/// Returns the path of a required file, after following links.
fn required(tree: &Tree, src: &Path, name: &str, runtime: &Runtime) -> Result<String, Error> {
    let at = match tree.resolve(name) {
        Place::At(at) if matches!(tree.get(&at), Some(Node::File { .. })) => at,
        Place::At(_) => return Err(Finding::source(format!("`{name}` is a directory, not a file")).into()),
        _ => {
            let text = format!(
                "there is no `{name}`, which a Function with the runtime {} needs; {}",
                runtime.name,
                listing("the source directory", &tree.names(""))
            );
            return Err(Finding::source(text).into());
        }
    };
    if is_lfs_pointer(&src.join(&at))? {
        let text = format!("`{name}` is kept in Git LFS, which is not fetched; set `lfs: true` in the GitRepository");
        return Err(Finding::source(text).into());
    }
    Ok(at)
}

/// Formats the names in a directory for messages.
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

/// Empties the workspace, except installed dependencies. Returns the directory for the source.
fn clear(workspace: &Path, is_installed: bool) -> Result<PathBuf, Error> {
    let own = [BEGUN, SRC, DEPS, INPUTS, SCRIPT, DEPENDENCIES, REUSED, MIRROR];
    for name in own.into_iter().chain(context::NAMES).filter(|name| !is_installed || *name != DEPS) {
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
