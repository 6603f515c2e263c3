//! Creates the demonstration repository: the files of `examples/gitops` in a Git repository with one commit.
//!
//! Invariant: an existing repository is not changed, so that the user's changes are kept.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::git;

/// Paths in the repository, with the contents of the files.
const FILES: &[(&str, &str)] = &[
    ("README.md", include_str!("../../../../examples/gitops/README.md")),
    ("api/deployment.yaml", include_str!("../../../../examples/gitops/api/deployment.yaml")),
    ("api/service.yaml", include_str!("../../../../examples/gitops/api/service.yaml")),
    ("cache/cache.yaml", include_str!("../../../../examples/gitops/cache/cache.yaml")),
    ("cache/secret.yaml", include_str!("../../../../examples/gitops/cache/secret.yaml")),
    ("namespace.yaml", include_str!("../../../../examples/gitops/namespace.yaml")),
    ("web/configmap.yaml", include_str!("../../../../examples/gitops/web/configmap.yaml")),
    ("web/deployment.yaml", include_str!("../../../../examples/gitops/web/deployment.yaml")),
    ("web/service.yaml", include_str!("../../../../examples/gitops/web/service.yaml")),
];

/// Why the demonstration repository could not be created.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Error {
    #[error("could not write {path}", path = .0.display())]
    Write(PathBuf, #[source] io::Error),
    #[error("could not make the first commit in {path}", path = .0.display())]
    Commit(PathBuf, #[source] git2::Error),
}

/// Returns whether the repository exists. A link in place of its Git directory does not count as a repository.
pub(super) fn is_there(directory: &Path) -> bool {
    fs::symlink_metadata(directory.join(".git")).is_ok_and(|found| found.is_dir())
}

/// Creates the repository at `directory` unless it exists. Blocks on files.
pub(super) fn prepare(directory: &Path) -> Result<(), Error> {
    if is_there(directory) {
        return Ok(());
    }
    for (name, text) in FILES {
        let path = directory.join(name);
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        folder.and_then(|()| fs::write(&path, text)).map_err(|error| Error::Write(path, error))?;
    }
    let committed = git::init(directory).and_then(|()| git::commit_all(directory, "shop: web, API and cache"));
    committed.map_err(|error| Error::Commit(directory.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files_below(directory: &Path, prefix: &str, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
            if path.is_dir() {
                files_below(&path, &format!("{name}/"), found);
            } else {
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }

    #[test]
    fn holds_every_file_of_the_example() {
        let mut found = Vec::new();
        files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/gitops"), "", &mut found);
        found.sort();
        let held: Vec<_> = FILES.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        assert_eq!(held, found);
    }

    #[test]
    fn makes_a_commit_once_and_keeps_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("demo");
        prepare(&directory).unwrap();
        let head = |directory: &Path| {
            let repository = git2::Repository::open(directory).unwrap();
            let head = repository.head().unwrap();
            (head.name().unwrap().to_owned(), head.target().unwrap())
        };
        let first = head(&directory);
        assert_eq!(first.0, "refs/heads/main");
        fs::write(directory.join("namespace.yaml"), "changed").unwrap();
        prepare(&directory).unwrap();
        assert_eq!(head(&directory), first);
        assert_eq!(fs::read_to_string(directory.join("namespace.yaml")).unwrap(), "changed");
    }
}
