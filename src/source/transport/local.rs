//! A repository in this file system, read in place: no copy, no mirror.
//!
//! libgit2 copies a local repository's whole history when it fetches it; reading the objects where they are costs
//! nothing. Only `mainstay dev` allows it, for repositories of the person who runs it.

use std::path::{Path, PathBuf};

use git2::{Repository, RepositoryOpenFlags};

use crate::source::error::Fault;
use crate::source::id::Id;
use crate::source::reference::{At, Refs, Wanted};

/// Opens the repository whose root or `.git` directory `path` is.
pub(in crate::source) fn open(path: &Path) -> Result<Repository, Fault> {
    let nothing: [&Path; 0] = [];
    Repository::open_ext(path, RepositoryOpenFlags::NO_SEARCH, nothing).map_err(|error| match error.code() {
        git2::ErrorCode::NotFound => Fault::LocalUnusable { why: "there is no Git repository" },
        git2::ErrorCode::Owner => Fault::LocalUnusable { why: "the repository belongs to another user" },
        _ => Fault::git(error),
    })
}

/// Where the repository keeps its objects.
pub(in crate::source) fn objects(path: &Path) -> Result<PathBuf, Fault> {
    Ok(open(path)?.commondir().join("objects"))
}

/// The references named in `wanted`, as far as the repository has them.
pub(in crate::source) fn list_refs(path: &Path, wanted: &Wanted) -> Result<Refs, Fault> {
    let repository = open(path)?;
    let mut refs = Refs::default();
    for name in wanted.names() {
        let Ok(reference) = repository.find_reference(name) else { continue };
        let symbolic = reference.symbolic_target().ok().flatten().map(str::to_owned);
        // A HEAD whose branch has no commit yet resolves to nothing.
        let Some(id) = reference.resolve().ok().and_then(|direct| direct.target()) else { continue };
        let peeled = reference.peel(git2::ObjectType::Any).ok().map(|object| Id::from(object.id()));
        let id = Id::from(id);
        refs.0.insert(name.to_owned(), At { id, peeled: peeled.filter(|peeled| *peeled != id), symbolic });
    }
    Ok(refs)
}
