//! The repository that a Function has itself, instead of the name of a GitRepository.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::git_repository::{GitRepositorySpec, RepositoryAuth};

/// The repository of a Function that names no GitRepository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OwnRepository {
    /// Address of the repository: `https://…`, `http://…`, `ssh://user@host:port/path` or `user@host:path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// How to authenticate; without it the repository is read anonymously.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<RepositoryAuth>,
}

impl OwnRepository {
    /// The same as a GitRepository that says nothing else.
    pub fn spec(&self) -> GitRepositorySpec {
        let url = self.url.as_deref().unwrap_or_default().trim().to_owned();
        GitRepositorySpec { url, auth: self.auth.clone(), ..GitRepositorySpec::default() }
    }
}
