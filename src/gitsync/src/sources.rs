//! The objects that a GitSync names as sources of its inputs: Secrets, and ConfigMaps with values.
//!
//! Invariant: exactly the named objects are watched.
//!
//! Not here: the meaning of their contents (`values`, `chart_values`, `decryption`, `whereabouts`).

use std::sync::Arc;

use super::chart_values::{self, ChartValues};
use super::clusters::SecretKey;
use super::decryption::DecryptionSecret;
use super::inputs::InputValues;
use super::outcome::Refused;
use super::values::Values;
use super::whereabouts::FollowedKubeconfig;
use mainstay_api::{GitRepository, GitSync};
use mainstay_cluster::secrets::{Followed, Purpose, RepositoryData, RepositorySecrets, Secrets, ValueSources};
use mainstay_cluster::{Kubeconfig, PlainHttp};
use mainstay_manifest::{Decryption, Limits};

/// The watched sources of one GitSync; none by default.
#[derive(Default)]
pub(super) struct Sources {
    /// The Secrets of the repository.
    repository: RepositorySecrets,
    /// The sources of variables.
    values: ValueSources,
    /// The sources of the chart's values.
    chart_values: ValueSources,
    /// The Secret with the decryption keys.
    decryption: DecryptionSecret,
    /// The Secret with the kubeconfig of a remote cluster.
    kubeconfig: Box<FollowedKubeconfig>,
}

impl Sources {
    /// Returns the Secrets that the repository names.
    pub(super) async fn repository(
        &mut self,
        secrets: &Secrets,
        namespace: &str,
        repository: &GitRepository,
    ) -> RepositoryData {
        self.repository.of(secrets, namespace, &repository.spec, Purpose::Repository).await
    }

    /// Whether no Secret of the repository is being read.
    pub(super) fn is_repository_settled(&self) -> bool {
        self.repository.are_settled()
    }

    /// Reads the values of variables and of the chart.
    ///
    /// # Errors
    ///
    /// A source does not exist, cannot be read, or is invalid.
    pub(super) async fn values(
        &mut self,
        secrets: &Secrets,
        sync: &GitSync,
        limits: &Limits,
    ) -> Result<InputValues, Refused> {
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        let known = self.values.of(secrets, namespace, &sync.spec.substitute_from).await;
        let variables = Values::of(&sync.spec, &known);
        let sources = chart_values::sources(&sync.spec);
        let known = self.chart_values.of(secrets, namespace, &sources).await;
        let chart = ChartValues::of(&sync.spec, &known, limits);
        Ok(InputValues::new(variables?, chart?))
    }

    /// Reads the decryption keys.
    ///
    /// # Errors
    ///
    /// The Secret does not exist, cannot be read, or has no usable keys.
    pub(super) async fn decryption(&mut self, secrets: &Secrets, sync: &GitSync) -> Result<Decryption, Refused> {
        self.decryption.of(secrets, sync).await
    }

    /// Reads the kubeconfig; `None` if the GitSync names none.
    ///
    /// # Errors
    ///
    /// The Secret does not exist, cannot be read, or has no usable kubeconfig.
    pub(super) async fn kubeconfig(
        &mut self,
        secrets: &Secrets,
        sync: &GitSync,
        plain: PlainHttp,
    ) -> Result<Option<(SecretKey, Arc<Kubeconfig>)>, Refused> {
        self.kubeconfig.of(secrets, sync, plain).await
    }

    /// Waits for a change of any source. Waits forever if there are none.
    pub(super) async fn changed(&mut self) {
        let of_remote = self.repository.iter_mut().chain(self.kubeconfig.iter_mut());
        let of_inputs = self.values.iter_mut().chain(self.chart_values.iter_mut()).chain(self.decryption.iter_mut());
        Followed::any_changed(of_remote.chain(of_inputs)).await;
    }
}
