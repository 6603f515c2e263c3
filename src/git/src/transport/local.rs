//! A repository in the local file system, read in place without a copy or mirror.
//!
//! A fetch by libgit2 would copy a local repository's whole history, but reading the objects in place copies nothing.
//! Only `mainstay dev` allows this, for repositories of its user.

use std::path::{Path, PathBuf};

use git2::{Repository, RepositoryOpenFlags};

use crate::error::Fault;
use crate::id::Id;
use crate::ref_list::{At, RefNames, Refs, branch_of_head};

/// Opens the repository with this root or `.git` directory.
pub(crate) fn open(path: &Path) -> Result<Repository, Fault> {
    let nothing: [&Path; 0] = [];
    Repository::open_ext(path, RepositoryOpenFlags::NO_SEARCH, nothing).map_err(|error| match error.code() {
        git2::ErrorCode::NotFound => Fault::LocalUnusable { why: "there is no Git repository" },
        git2::ErrorCode::Owner => Fault::LocalUnusable { why: "the repository belongs to another user" },
        _ => Fault::git(error),
    })
}

/// Returns the repository's object directory.
pub(crate) fn objects(path: &Path) -> Result<PathBuf, Fault> {
    Ok(open(path)?.commondir().join("objects"))
}

/// Returns the requested references that the repository has.
pub(crate) fn list_refs(path: &Path, wanted: &RefNames) -> Result<Refs, Fault> {
    let repository = open(path)?;
    let mut refs = Refs::default();
    let mut names = Vec::new();
    for name in wanted.names() {
        if name.ends_with('/') {
            let all = repository.references_glob(&format!("{name}*")).map_err(Fault::git)?;
            // References whose names are not valid UTF-8 are skipped.
            names.extend(all.filter_map(|reference| Some(reference.ok()?.name().ok()?.to_owned())));
        } else {
            names.push(name.to_owned());
        }
    }
    for name in names {
        let Ok(reference) = repository.find_reference(&name) else { continue };
        let symbolic = reference.symbolic_target().ok().flatten().and_then(branch_of_head).filter(|_| name == "HEAD");
        // HEAD of an empty repository does not resolve.
        let Some(id) = reference.resolve().ok().and_then(|direct| direct.target()) else { continue };
        let peeled = reference.peel(git2::ObjectType::Any).ok().map(|object| Id::from(object.id()));
        let id = Id::from(id);
        refs.add(name, At { id, peeled: peeled.filter(|peeled| *peeled != id), symbolic }, wanted);
    }
    Ok(refs)
}
