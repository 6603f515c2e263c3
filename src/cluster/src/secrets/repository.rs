//! The Secrets of one GitRepository.

use super::{Followed, Known, Purpose, Secrets};
use mainstay_api::git_repository::GitRepositorySpec;

/// The followed Secrets of one GitRepository; by default none.
#[derive(Debug, Default)]
pub struct RepositorySecrets {
    auth: Option<Followed>,
    proxy: Option<Followed>,
    verify: Option<Followed>,
}

/// The states of the Secrets; `None` for a Secret that the repository does not reference.
#[derive(Clone, Debug)]
pub struct RepositoryData {
    /// The credentials.
    pub auth: Option<Known>,
    /// The proxy.
    pub proxy: Option<Known>,
    /// The keys of trusted signers.
    pub verify: Option<Known>,
}

impl RepositorySecrets {
    /// Follows the Secrets of this repository instead of the previous ones, and returns their states. `of` is the
    /// purpose of the repository's credentials.
    pub async fn of(
        &mut self,
        secrets: &Secrets,
        namespace: &str,
        spec: &GitRepositorySpec,
        of: Purpose,
    ) -> RepositoryData {
        let auth = spec.auth.as_ref().map(|auth| &*auth.secret_name);
        let proxy = spec.proxy_secret_ref.as_ref().map(|proxy| &*proxy.name);
        let verify = spec.verify.as_ref().map(|verify| &*verify.secret_ref.name);
        let all = [
            (&mut self.auth, auth, of),
            (&mut self.proxy, proxy, Purpose::Proxy),
            (&mut self.verify, verify, Purpose::SignatureKeys),
        ];
        for (followed, wanted, used_for) in all {
            if followed.as_ref().map(Followed::of) != wanted.map(|name| (namespace, name)) {
                *followed = wanted.map(|name| secrets.follow(namespace, name, used_for));
            }
        }
        RepositoryData {
            auth: known(&mut self.auth).await,
            proxy: known(&mut self.proxy).await,
            verify: known(&mut self.verify).await,
        }
    }

    /// The followed Secrets.
    pub fn iter(&self) -> impl Iterator<Item = &Followed> {
        self.auth.iter().chain(&self.proxy).chain(&self.verify)
    }

    /// The followed Secrets, to wait for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Followed> {
        self.auth.iter_mut().chain(&mut self.proxy).chain(&mut self.verify)
    }

    /// Whether no state is pending.
    pub fn are_settled(&self) -> bool {
        self.iter().all(|secret| secret.taken().is_settled())
    }
}

async fn known(followed: &mut Option<Followed>) -> Option<Known> {
    match followed {
        Some(followed) => Some(followed.known().await),
        None => None,
    }
}
