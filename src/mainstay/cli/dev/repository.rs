//! The repository that the embedded cluster follows: a local repository, a remote repository, or the demonstration.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::cli::overlays;
use mainstay_api::names::IGNORE_FILE;
use mainstay_git::{
    BaseDir, Credentials, Entry, MissingDirectory, Reference, Remote, RemoteUrl, Snapshot, Source, thread_time,
};
use mainstay_manifest::Limits;

/// Maximum size of a kustomization, in bytes, and maximum number of kustomizations that are read to find bases.
const LARGEST: u64 = 1 << 20;
const MOST_KUSTOMIZATIONS: usize = 2_000;

/// A repository to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FollowedRepository {
    /// Name of the GitRepository and the GitSync.
    pub name: String,
    /// URL in the GitRepository.
    pub url: String,
    /// The URL without credentials, for messages.
    pub shown: String,
    /// The repository's directory, if it is local.
    pub local: Option<PathBuf>,
    /// The directory in the repository.
    pub base_dir: String,
}

/// Why there is no repository to follow.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Error {
    #[error("could not find {path}", path = .0.display())]
    Find(PathBuf, #[source] io::Error),
    #[error("{path} is not a Git repository", path = .0.display())]
    NotARepository(PathBuf, #[source] git2::Error),
    #[error("could not read the address of the repository")]
    Address(#[source] mainstay_git::Error),
}

/// Parses a repository: a URL with a scheme, or a path in or below a repository.
pub(super) fn followed(text: &str) -> Result<FollowedRepository, Error> {
    if text.contains("://") && !text.starts_with("file://") {
        let url = RemoteUrl::parse(text).map_err(Error::Address)?;
        let last = text.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        return Ok(FollowedRepository {
            name: object_name(last),
            url: text.to_owned(),
            shown: url.to_string(),
            local: None,
            base_dir: "/".to_owned(),
        });
    }
    local(Path::new(text.strip_prefix("file://").unwrap_or(text)))
}

/// Returns a local repository with a directory in it. The directory determines the name.
pub(super) fn local(path: &Path) -> Result<FollowedRepository, Error> {
    let path = fs::canonicalize(path).map_err(|error| Error::Find(path.to_owned(), error))?;
    let repository = git2::Repository::discover(&path).map_err(|error| Error::NotARepository(path.clone(), error))?;
    let directory = repository.workdir().unwrap_or_else(|| repository.path());
    // libgit2 ends directories with a slash.
    let directory: PathBuf = directory.components().collect();
    let inside = path.strip_prefix(&directory).unwrap_or(Path::new("")).display().to_string();
    let named = if inside.is_empty() { &directory } else { &path };
    let last = named.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (name, url, shown) = (object_name(last), directory.display().to_string(), named.display().to_string());
    Ok(FollowedRepository { name, url, shown, local: Some(directory), base_dir: format!("/{inside}") })
}

/// Returns a directory outside of a repository. The directory is followed as a work tree.
pub(super) fn plain(path: PathBuf) -> FollowedRepository {
    let last = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let shown = path.display().to_string();
    FollowedRepository {
        name: object_name(last),
        url: String::new(),
        shown,
        local: Some(path),
        base_dir: "/".to_owned(),
    }
}

/// Returns the directory to follow if the commit does not contain it. The agent reports other problems of the
/// repository.
pub(super) async fn missing_directory(
    followed: &FollowedRepository,
    reference: &str,
    settings: &mainstay_git::Settings,
) -> Result<Option<MissingDirectory>, mainstay_git::Error> {
    let base_dir = BaseDir::parse(&followed.base_dir)?;
    let look = async {
        let source = Source::new(settings.clone());
        let remote = Remote::new(RemoteUrl::parse(&followed.url)?, Credentials::Anonymous);
        let found = source.lookup(&remote, &Reference::parse(reference)?, Duration::ZERO).await?;
        let snapshot = source.fetch(&remote, &found).await?;
        match snapshot.tree(&base_dir).await? {
            Some(_) => Ok::<_, mainstay_git::Error>(None),
            None => snapshot.missing_directory(&base_dir).await.map(Some),
        }
    };
    Ok(look.await.unwrap_or_default())
}

/// Returns the kustomization files below the directory, with contents. The agent reports problems of the repository.
pub(super) async fn kustomizations(
    followed: &FollowedRepository,
    reference: &str,
    settings: &mainstay_git::Settings,
) -> BTreeMap<String, Vec<u8>> {
    let look = async {
        let source = Source::new(settings.clone());
        let remote = Remote::new(RemoteUrl::parse(&followed.url)?, Credentials::Anonymous);
        let found = source.lookup(&remote, &Reference::parse(reference)?, Duration::ZERO).await?;
        let snapshot = source.fetch(&remote, &found).await?;
        let base_dir = BaseDir::parse(&followed.base_dir)?;
        snapshot.blocking(move |snapshot| kustomizations_in(snapshot, &base_dir)).await?
    };
    look.await.unwrap_or_default()
}

fn kustomizations_in(
    snapshot: &Snapshot,
    base_dir: &BaseDir,
) -> Result<BTreeMap<String, Vec<u8>>, mainstay_git::Error> {
    let mut listing = snapshot.above(base_dir, IGNORE_FILE)?;
    listing.extend(snapshot.entries(base_dir)?);
    let limits = Limits::new(thread_time);
    let listing = mainstay_manifest::not_ignored(listing, base_dir.path(), &mut |entry| snapshot.read(entry), &limits)?;
    let is_one = |entry: &&Entry| overlays::is_kustomization(&entry.path);
    let files = listing.iter().filter(is_one).filter(|entry| entry.size <= LARGEST).take(MOST_KUSTOMIZATIONS);
    files.map(|entry| Ok((entry.path.clone(), snapshot.read(entry)?))).collect()
}

/// Converts any string to a DNS label.
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
    fn finds_the_repository_from_below_and_means_the_directory_that_was_named() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("Shop/apps");
        fs::create_dir_all(&inside).unwrap();
        assert!(matches!(local(&inside), Err(Error::NotARepository(..))));
        git2::Repository::init(folder.path().join("Shop")).unwrap();
        let found = local(&inside).unwrap();
        let root = inside.canonicalize().unwrap();
        assert_eq!((found.name.as_str(), found.local.as_deref()), ("apps", root.parent()));
        assert_eq!(found.base_dir, "/apps");
        let found = local(&folder.path().join("Shop")).unwrap();
        assert_eq!((found.name.as_str(), found.base_dir.as_str()), ("shop", "/"));
        assert!(matches!(local(&folder.path().join("nowhere")), Err(Error::Find(..))));
    }

    #[test]
    fn shows_an_address_without_its_credentials() {
        let found = followed("https://user:hunter2@example.org/a/shop.git").unwrap();
        assert_eq!(found.name, "shop");
        assert!(!found.shown.contains("hunter2"), "{}", found.shown);
    }
}
