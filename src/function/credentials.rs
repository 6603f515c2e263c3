//! The Secrets that no Function's code may read: those of its builds and of Git repositories.
//!
//! Who may create a Function can already run code in its namespace; who may change the code of one, in a repository, cannot
//! read the Secrets there, unless the Function hands them over. These are worth more than the namespace: with them images are
//! pushed and repositories read.
//!
//! Deliberately absent: which GitRepositories there are.

use std::collections::BTreeMap;

use super::Settings;
use crate::api::FunctionSpec;
use crate::api::git_repository::GitRepositorySpec;

/// Names of Secrets of one namespace, each with what it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials(BTreeMap<String, &'static str>);

impl Credentials {
    /// Those of builds, and of these GitRepositories of the Function's namespace.
    pub fn new<'r>(settings: &Settings, repositories: impl IntoIterator<Item = &'r GitRepositorySpec>) -> Self {
        let [external, default, packages] = settings.secrets();
        let mut all: BTreeMap<String, &'static str> = BTreeMap::new();
        for repository in repositories {
            let auth = repository.auth.iter().map(|auth| (&auth.secret_name, "a Git repository"));
            let proxy = repository.proxy_secret_ref.iter().map(|proxy| (&proxy.name, "a proxy of a Git repository"));
            all.extend(auth.chain(proxy).map(|(name, of)| (name.clone(), of)));
        }
        for (name, of) in
            [(external, "the image registry"), (default, "the image registry"), (packages, "the package registries")]
        {
            all.insert(name.to_owned(), of);
        }
        Self(all)
    }

    /// What a Secret is for, if it is one of them.
    pub fn purpose(&self, secret: &str) -> Option<&'static str> {
        self.0.get(secret).copied()
    }
}

/// The Secrets that a Function's code is to read.
pub(super) fn named(spec: &FunctionSpec) -> impl Iterator<Item = &str> {
    let sources = spec.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    sources.filter_map(|from| from.secret_key_ref.as_ref()).map(|secret| secret.name.as_str())
}
