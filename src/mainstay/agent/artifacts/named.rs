//! The kinds that name artifacts: OCIRepository and HelmChart.

use serde::de::DeserializeOwned;

use super::wanted::{Wanted, of_chart, of_repository};
use mainstay_api::git_sync::SourceKind;
use mainstay_api::{HelmChart, HelmChartSpec, OciRepository, OciRepositorySpec};
use mainstay_cluster::Kind;
use mainstay_cluster::secrets::{Referrer, SecretReferences};
use mainstay_git::ConsumerKind;
use mainstay_object::Owner;

/// The spec of a kind that names artifacts.
pub(in crate::agent) trait Named:
    SecretReferences + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static
{
    /// The kind as a source of GitSyncs.
    const SOURCE: SourceKind;
    const REFERRER: Referrer;
    const CONSUMER: ConsumerKind;

    /// Returns the kind.
    fn kind() -> Kind;

    /// Returns the object as the subject of messages.
    fn owner(namespace: &str, name: &str) -> Owner;

    /// Returns the URL for messages.
    fn address(&self) -> String;

    fn is_suspended(&self) -> bool;

    /// Whether only signed artifacts are stored.
    fn requires_signature(&self) -> bool;

    /// Returns the names of the Secrets: login, certificates, proxy, keys of signers, trusted root.
    fn secrets(&self) -> [Option<&str>; 5];

    /// Returns the artifact that the spec of an object in this namespace requests.
    ///
    /// # Errors
    /// Fails with the invalid fields.
    fn wanted(&self, namespace: &str) -> Result<Wanted, Vec<String>>;
}

impl Named for OciRepositorySpec {
    const SOURCE: SourceKind = SourceKind::OciRepository;
    const REFERRER: Referrer = Referrer::OciRepository;
    const CONSUMER: ConsumerKind = ConsumerKind::OciRepository;

    fn kind() -> Kind {
        Kind::of::<OciRepository>()
    }

    fn owner(namespace: &str, name: &str) -> Owner {
        Owner::oci_repository(namespace, name)
    }

    fn address(&self) -> String {
        self.url.clone()
    }

    fn is_suspended(&self) -> bool {
        self.suspend
    }

    fn requires_signature(&self) -> bool {
        self.verify.is_some()
    }

    fn secrets(&self) -> [Option<&str>; 5] {
        let keys = self.verify.as_ref().and_then(|verify| verify.secret_ref.as_ref());
        let root = self.verify.as_ref().and_then(|verify| verify.trusted_root_secret_ref.as_ref());
        [self.secret_ref.as_ref(), self.cert_secret_ref.as_ref(), self.proxy_secret_ref.as_ref(), keys, root]
            .map(|named| named.map(|named| &*named.name))
    }

    fn wanted(&self, namespace: &str) -> Result<Wanted, Vec<String>> {
        of_repository(self, namespace)
    }
}

impl Named for HelmChartSpec {
    const SOURCE: SourceKind = SourceKind::HelmChart;
    const REFERRER: Referrer = Referrer::HelmChart;
    const CONSUMER: ConsumerKind = ConsumerKind::HelmChart;

    fn kind() -> Kind {
        Kind::of::<HelmChart>()
    }

    fn owner(namespace: &str, name: &str) -> Owner {
        Owner::helm_chart(namespace, name)
    }

    fn address(&self) -> String {
        format!("{}/{}", self.repository.trim_end_matches('/'), self.name)
    }

    fn is_suspended(&self) -> bool {
        self.suspend
    }

    fn requires_signature(&self) -> bool {
        self.verify.is_some()
    }

    fn secrets(&self) -> [Option<&str>; 5] {
        let keys = self.verify.as_ref().and_then(|verify| verify.secret_ref.as_ref());
        let root = self.verify.as_ref().and_then(|verify| verify.trusted_root_secret_ref.as_ref());
        [self.secret_ref.as_ref(), self.cert_secret_ref.as_ref(), self.proxy_secret_ref.as_ref(), keys, root]
            .map(|named| named.map(|named| &*named.name))
    }

    fn wanted(&self, namespace: &str) -> Result<Wanted, Vec<String>> {
        of_chart(self, namespace)
    }
}
