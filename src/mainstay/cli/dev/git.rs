//! Creates the demonstration's Git repository and commits to it.
//!
//! Not here: repositories of users, which are never written.

use std::path::Path;

/// Creates an empty repository with the branch `main`.
pub(super) fn init(directory: &Path) -> Result<(), git2::Error> {
    let mut options = git2::RepositoryInitOptions::new();
    git2::Repository::init_opts(directory, options.initial_head("main").external_template(false)).map(drop)
}

/// Commits every file of the work tree to the branch.
pub(super) fn commit_all(directory: &Path, message: &str) -> Result<(), git2::Error> {
    let repository = git2::Repository::open(directory)?;
    let mut index = repository.index()?;
    index.add_all(["."], git2::IndexAddOption::DEFAULT, None)?;
    index.write()?;
    let tree = repository.find_tree(index.write_tree()?)?;
    let author = git2::Signature::now("Mainstay", "mainstay@localhost")?;
    // The first commit has no parent commit.
    let parent = repository.head().ok().and_then(|head| head.peel_to_commit().ok());
    let parents: Vec<_> = parent.iter().collect();
    repository.commit(Some("HEAD"), &author, &author, message, &tree, &parents).map(drop)
}
