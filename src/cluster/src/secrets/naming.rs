//! The Secrets that each kind of object names, and what for: an object with a new field that names one lists it here.

use super::Purpose;
use mainstay_api::FunctionSpec;
use mainstay_api::git_repository::GitRepositorySpec;
use mainstay_api::git_sync::{GitSyncSpec, SubstituteSourceKind};
use mainstay_api::receiver::ReceiverSpec;

/// Longest name of a Secret, in bytes.
const LONGEST_NAME: usize = 253;

/// The Secrets that an object names, each with its purpose.
pub type Named = Vec<(String, Purpose)>;

/// An object that names Secrets of its namespace.
pub trait Names {
    /// The Secrets that it names, and what for.
    fn secrets(&self) -> Named;
}

impl Names for GitRepositorySpec {
    /// Public keys (`spec.verify`) are no secret.
    fn secrets(&self) -> Named {
        let auth = self.auth.iter().map(|auth| (&*auth.secret_name, Purpose::Repository));
        let proxy = self.proxy_secret_ref.iter().map(|proxy| (&*proxy.name, Purpose::Proxy));
        named(auth.chain(proxy))
    }
}

impl Names for GitSyncSpec {
    fn secrets(&self) -> Named {
        let kube_config = self.kube_config.iter().map(|config| (&*config.secret_ref.name, Purpose::KubeConfig));
        let keys = self.decryption.iter().map(|keys| (&*keys.secret_ref.name, Purpose::Decryption));
        let values = self.substitute_from.iter().filter(|source| source.kind == SubstituteSourceKind::Secret);
        named(kube_config.chain(keys).chain(values.map(|source| (&*source.name, Purpose::Values))))
    }
}

impl Names for ReceiverSpec {
    fn secrets(&self) -> Named {
        named([(&*self.secret_ref.name, Purpose::Receiver)])
    }
}

impl Names for FunctionSpec {
    /// What its code reads is not among them: code gets only Secrets that have no purpose.
    fn secrets(&self) -> Named {
        named(self.own_secret().map(|name| (name, Purpose::FunctionRepository)))
    }
}

fn named<'n>(all: impl IntoIterator<Item = (&'n str, Purpose)>) -> Named {
    let possible = all.into_iter().filter(|(name, _)| !name.is_empty() && name.len() <= LONGEST_NAME);
    possible.map(|(name, purpose)| (name.to_owned(), purpose)).collect()
}
