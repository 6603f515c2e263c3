//! The Secrets that one GitRepository names.

use super::{Followed, Known, Purpose, Secrets};
use mainstay_api::git_repository::GitRepositorySpec;

/// The followed Secrets of one GitRepository; of none by default.
#[derive(Debug, Default)]
pub struct RepositorySecrets {
    auth: Option<Followed>,
    proxy: Option<Followed>,
    verify: Option<Followed>,
}

/// Their known states; `None` for one that is not named.
#[derive(Clone, Debug)]
pub struct RepositoryData {
    /// The credentials.
    pub auth: Option<Known>,
    /// The proxy.
    pub proxy: Option<Known>,
    /// The keys that may sign.
    pub verify: Option<Known>,
}

impl RepositorySecrets {
    /// From now on the Secrets of this repository are followed, and no others; what is known of them. Its credentials are used
    /// for `of`.
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

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Followed> {
        self.auth.iter().chain(&self.proxy).chain(&self.verify)
    }

    /// All of them, to wait for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Followed> {
        self.auth.iter_mut().chain(&mut self.proxy).chain(&mut self.verify)
    }

    /// Whether waiting for their watches is useless.
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
