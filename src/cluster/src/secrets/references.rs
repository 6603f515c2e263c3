//! The Secrets that each kind of object references, with their purposes. A new field that references a Secret must be
//! added here.

use super::Purpose;
use mainstay_api::FunctionSpec;
use mainstay_api::git_repository::GitRepositorySpec;
use mainstay_api::git_sync::{GitSyncSpec, SubstituteSourceKind};
use mainstay_api::oci_repository::OciSecretRef;
use mainstay_api::receiver::ReceiverSpec;
use mainstay_api::{HelmChartSpec, ImageRepositorySpec, ImageUpdateAutomationSpec, OciRepositorySpec, ProviderSpec};

/// Maximum length of a Secret's name in bytes.
const LONGEST_NAME: usize = 253;

/// Names of Secrets with their purposes.
type References = Vec<(String, Purpose)>;

/// An object that references Secrets of its namespace.
pub trait SecretReferences {
    /// Returns the names of the Secrets, each with its purpose.
    fn secret_references(&self) -> References;
}

impl SecretReferences for GitRepositorySpec {
    /// Public keys (`spec.verify`) are not secret, so they are not listed.
    fn secret_references(&self) -> References {
        let auth = self.auth.iter().map(|auth| (&*auth.secret_name, Purpose::Repository));
        let proxy = self.proxy_secret_ref.iter().map(|proxy| (&*proxy.name, Purpose::Proxy));
        references(auth.chain(proxy))
    }
}

impl SecretReferences for GitSyncSpec {
    fn secret_references(&self) -> References {
        let kube_config = self.kube_config.iter().map(|config| (&*config.secret_ref.name, Purpose::KubeConfig));
        let keys = self.decryption.iter().map(|keys| (&*keys.secret_ref.name, Purpose::Decryption));
        let values = self.substitute_from.iter().map(|source| (source.kind, &*source.name));
        let helm = self.render.iter().flat_map(|render| &render.helm);
        let of_charts = helm.flat_map(|helm| &helm.values_from).map(|source| (source.kind, &*source.name));
        let values = values.chain(of_charts).filter(|(kind, _)| *kind == SubstituteSourceKind::Secret);
        references(kube_config.chain(keys).chain(values.map(|(_, name)| (name, Purpose::Values))))
    }
}

impl SecretReferences for ReceiverSpec {
    fn secret_references(&self) -> References {
        references(self.secret_ref.iter().map(|secret| (&*secret.name, Purpose::Receiver)))
    }
}

impl SecretReferences for ProviderSpec {
    /// Secrets with certificates may contain a private key, so they are listed, too.
    fn secret_references(&self) -> References {
        let all = [&self.secret_ref, &self.cert_secret_ref, &self.proxy_secret_ref];
        references(all.into_iter().flatten().map(|secret| (&*secret.name, Purpose::Provider)))
    }
}

impl SecretReferences for OciRepositorySpec {
    /// Secrets with certificates may contain a private key, so they are listed, too.
    fn secret_references(&self) -> References {
        of_artifact([&self.secret_ref, &self.cert_secret_ref], self.proxy_secret_ref.as_ref())
    }
}

impl SecretReferences for HelmChartSpec {
    fn secret_references(&self) -> References {
        of_artifact([&self.secret_ref, &self.cert_secret_ref], self.proxy_secret_ref.as_ref())
    }
}

impl SecretReferences for ImageRepositorySpec {
    /// Secrets with certificates may contain a private key, so they are listed, too.
    fn secret_references(&self) -> References {
        of_artifact([&self.secret_ref, &self.cert_secret_ref], self.proxy_secret_ref.as_ref())
    }
}

impl SecretReferences for ImageUpdateAutomationSpec {
    /// The Secret with write access, which may be that of the GitRepository, and the Secret with the key that signs.
    fn secret_references(&self) -> References {
        let push = self.git.iter().filter_map(|git| git.push.as_ref()?.secret_ref.as_ref());
        let key = self.git.iter().filter_map(|git| git.commit.signing_key.as_ref());
        let key = key.map(|key| (&*key.secret_ref.name, Purpose::Signing));
        references(push.map(|secret| (&*secret.name, Purpose::Repository)).chain(key))
    }
}

/// Certificates may hold a private key, so they are listed, too.
fn of_artifact(sent: [&Option<OciSecretRef>; 2], proxy: Option<&OciSecretRef>) -> References {
    let sent = sent.into_iter().flatten().map(|secret| (&*secret.name, Purpose::Artifact));
    references(sent.chain(proxy.map(|proxy| (&*proxy.name, Purpose::Proxy))))
}

impl SecretReferences for FunctionSpec {
    /// Secrets for the code are not listed, because code gets only Secrets without a purpose.
    fn secret_references(&self) -> References {
        references(self.own_secret().map(|name| (name, Purpose::FunctionRepository)))
    }
}

fn references<'n>(all: impl IntoIterator<Item = (&'n str, Purpose)>) -> References {
    let possible = all.into_iter().filter(|(name, _)| !name.is_empty() && name.len() <= LONGEST_NAME);
    possible.map(|(name, purpose)| (name.to_owned(), purpose)).collect()
}
