//! What the embedded cluster is to be kept on: a local repository, a remote one, or the demonstration.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::source::RemoteUrl;

/// A repository to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    /// Name of the GitRepository and the GitSync.
    pub name: String,
    /// Address in the GitRepository.
    pub url: String,
    /// The address for people, without credentials.
    pub shown: String,
    /// Its directory, when it is local.
    pub local: Option<PathBuf>,
}

/// Why there is nothing to follow.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Error {
    #[error("could not find {path}", path = .0.display())]
    Find(PathBuf, #[source] io::Error),
    #[error("{path} is not a Git repository", path = .0.display())]
    NotARepository(PathBuf, #[source] git2::Error),
    #[error("could not read the address of the repository")]
    Address(#[source] crate::source::Error),
}

/// The repository that `text` means: an address with a scheme, or a path in or below a repository.
pub(super) fn subject(text: &str) -> Result<Subject, Error> {
    if text.contains("://") && !text.starts_with("file://") {
        let url = RemoteUrl::parse(text).map_err(Error::Address)?;
        let last = text.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        return Ok(Subject { name: object_name(last), url: text.to_owned(), shown: url.to_string(), local: None });
    }
    local(Path::new(text.strip_prefix("file://").unwrap_or(text)))
}

/// A repository of this file system.
pub(super) fn local(path: &Path) -> Result<Subject, Error> {
    let path = fs::canonicalize(path).map_err(|error| Error::Find(path.to_owned(), error))?;
    let repository = git2::Repository::discover(&path).map_err(|error| Error::NotARepository(path, error))?;
    let directory = repository.workdir().unwrap_or_else(|| repository.path());
    // libgit2 ends directories with a slash.
    let directory: PathBuf = directory.components().collect();
    let last = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let shown = directory.display().to_string();
    Ok(Subject { name: object_name(last), url: shown.clone(), shown, local: Some(directory) })
}

/// A DNS label made from any text.
fn object_name(text: &str) -> String {
    let text = text.strip_suffix(".git").unwrap_or(text).to_lowercase();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect::<Vec<_>>();
    let name = words.join("-").chars().take(50).collect::<String>();
    let name = name.trim_matches('-');
    if name.is_empty() { "repository".into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makes_object_names_from_anything() {
        for (text, name) in
            [("My_App.git", "my-app"), ("..", "repository"), ("été", "t"), ("a--b", "a-b"), ("", "repository")]
        {
            assert_eq!(object_name(text), name, "{text}");
        }
    }

    #[test]
    fn finds_the_repository_from_below_and_says_when_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("Shop/apps");
        fs::create_dir_all(&inside).unwrap();
        assert!(matches!(local(&inside), Err(Error::NotARepository(..))));
        git2::Repository::init(folder.path().join("Shop")).unwrap();
        let found = local(&inside).unwrap();
        assert_eq!((found.name.as_str(), found.local.as_deref()), ("shop", inside.canonicalize().unwrap().parent()));
        assert!(matches!(local(&folder.path().join("nowhere")), Err(Error::Find(..))));
    }

    #[test]
    fn shows_an_address_without_its_credentials() {
        let found = subject("https://user:hunter2@example.org/a/shop.git").unwrap();
        assert_eq!(found.name, "shop");
        assert!(!found.shown.contains("hunter2"), "{}", found.shown);
    }
}
