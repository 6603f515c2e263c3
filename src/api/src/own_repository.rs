//! The repository in a Function's own spec, as an alternative to naming a GitRepository.

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
    /// Returns the equivalent GitRepository spec, with defaults for all other fields.
    pub fn spec(&self) -> GitRepositorySpec {
        let url = self.url.as_deref().unwrap_or_default().trim().to_owned();
        GitRepositorySpec { url, auth: self.auth.clone(), ..GitRepositorySpec::default() }
    }
}
