//! Reads the objects that a GitSync names: its repository with the Secrets, or the artifact that it follows, and the
//! sources of its values and decryption keys.
//!
//! Not here: the lookup of the reference (`observe`).

use super::outcome::{Refused, is_usable};
use super::reconcile::Task;
use mainstay_api::conditions::Reason;
use mainstay_api::{GitRepository, GitSync};
use mainstay_cluster::secrets::{Known, RepositoryData, SecretData};
use mainstay_git::{Credentials, Remote, RemoteUrl, Verification};
use mainstay_object::egress::Egress;
use mainstay_object::failure::Class;

impl Task {
    /// Returns the remote of the GitRepository, and whether the keys for its signatures are known. Watches only the
    /// Secrets that the GitRepository references.
    pub(super) async fn remote(
        &mut self,
        sync: &GitSync,
        repository: Option<&GitRepository>,
    ) -> Result<(Remote, Result<(), Refused>), Refused> {
        if let Some(artifact) = self.artifact(sync) {
            let url = artifact.ok().flatten().ok_or_else(|| self.without_repository(sync))?;
            return Ok((Remote::new(url, Credentials::Anonymous), Ok(())));
        }
        let repository = repository.ok_or_else(|| self.without_repository(sync))?;
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        let known = self.sources.repository(&self.context.secrets, namespace, repository).await;
        remote_of(repository, &known, self.context.source.egress(namespace))
    }

    /// Returns the artifact that the GitSync follows, or why the OCIRepositories are unknown; `None` if the GitSync
    /// follows a GitRepository.
    pub(super) fn artifact(&self, sync: &GitSync) -> Option<Result<Option<RemoteUrl>, &'static str>> {
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        let source = sync.spec.source_ref.as_ref()?;
        Some(self.context.repositories.artifact(namespace, source))
    }

    /// Looks up the artifact that a GitSync follows, in addition to the interval of its OCIRepository or HelmChart.
    pub(super) async fn look_up_artifact(&self, sync: &GitSync) {
        if let Some(Ok(Some(url))) = self.artifact(sync) {
            self.context.source.look_up_artifact(&Remote::new(url, Credentials::Anonymous)).await;
        }
    }

    /// Reads the values of variables and of the chart. Watches only the sources that the GitSync names.
    pub(super) async fn values(&mut self, sync: &GitSync) -> Result<(), Refused> {
        let read = self.sources.values(&self.context.secrets, sync, &self.context.limits).await;
        self.state.inputs.set_values(read)
    }

    /// Reads the decryption keys. Watches only the Secret that the GitSync names.
    pub(super) async fn keys(&mut self, sync: &GitSync) -> Result<(), Refused> {
        let read = self.sources.decryption(&self.context.secrets, sync).await;
        self.state.inputs.set_decryption(read)
    }

    fn without_repository(&self, sync: &GitSync) -> Refused {
        let (repositories, (kind, name)) = (&self.context.repositories, sync.spec.source());
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        let (problem, is_listed) = match self.artifact(sync) {
            Some(artifact) => (artifact.err().map(str::to_owned), false),
            None => (repositories.problem(namespace, name), repositories.unknown().is_none()),
        };
        let (reason, message) = match problem {
            Some(why) if is_listed => (Reason::SpecInvalid, format!("{kind} {name} cannot be read; correct it: {why}")),
            Some(why) => (Reason::ClusterUnavailable, format!("{kind} {name} cannot be read: {why}")),
            None => (Reason::SourceNotFound, format!("{kind} {name} does not exist in this namespace")),
        };
        Refused { class: Class::NotReady, reason, message, retry_after: None }
    }
}

/// Returns the remote of a repository with the known Secrets, and whether the keys for its signatures are known.
pub(super) fn remote_of(
    repository: &GitRepository,
    known: &RepositoryData,
    egress: Egress,
) -> Result<(Remote, Result<(), Refused>), Refused> {
    let spec = &repository.spec;
    // Errors that no Secret can fix are reported first.
    let url = RemoteUrl::parse(&spec.url)?;
    mainstay_git::supported(&url, spec)?;
    if let (Some(auth), Some(known)) = (&spec.auth, &known.auth) {
        is_usable(&auth.secret_name, "credentials", known)?;
    }
    let access = mainstay_git::access(spec.auth.as_ref(), known.auth.as_ref().and_then(Known::data))?;
    let namespace = repository.metadata.namespace.as_deref().unwrap_or_default();
    let access = access.with_identity(spec, namespace, &url)?;
    let mut access = access.with_pins(repository, &url);
    if let (Some(proxy), Some(known)) = (&spec.proxy_secret_ref, &known.proxy) {
        is_usable(&proxy.name, "proxy", known)?;
        access = access.through_proxy(known.data().unwrap_or(&SecretData::new()))?;
    }
    let mainstay_git::Access { credentials, connection } = access;
    let connection = connection.within(egress);
    let mut remote =
        Remote { url, credentials, connection, verification: None, submodules: spec.submodules, lfs: spec.lfs };
    let verification = match (&spec.verify, &known.verify) {
        (Some(verify), Some(known)) => {
            is_usable(&verify.secret_ref.name, "public keys for signature verification", known)
                .and_then(|()| Ok(Verification::new(Some(verify), known.data())?))
        }
        _ => Ok(None),
    };
    let trusted = verification.map(|verification| remote.verification = verification);
    Ok((remote, trusted))
}
