//! The two remotes of an ImageUpdateAutomation: the GitRepository with its own credentials, to read, and the same address
//! with the Secret of the ImageUpdateAutomation, to push. And the key that signs its commits.
//!
//! Invariant: the credentials of one are never used for the other. Invariant: a commit is signed upon a verified commit
//! only, if the GitRepository requires signatures.

use std::sync::Arc;

use jiff::Timestamp;

use super::context::Context;
use crate::agent::own_kinds::State;
use mainstay_api::conditions::Reason;
use mainstay_api::git_repository::{AuthType, GitRepository, RepositoryAuth};
use mainstay_api::image_update_automation::UpdateSigningKey;
use mainstay_cluster::secrets::{Followed, Known, Purpose, RepositoryData, RepositorySecrets};
use mainstay_git::{Access, CommitSigner, Credentials, Remote, RemoteUrl, Verification, access, supported};
use mainstay_object::failure::chain;

/// The Secrets of an ImageUpdateAutomation.
#[derive(Debug, Default)]
pub(super) struct UpdateSecrets {
    repository: RepositorySecrets,
    write: Option<Followed>,
    signing: Option<Followed>,
    /// The last signer, which knows whether its passphrase opens its key.
    signer: Option<Arc<CommitSigner>>,
}

/// The remotes of an ImageUpdateAutomation.
#[derive(Debug)]
pub(super) struct Remotes {
    pub(super) read: Remote,
    pub(super) write: Remote,
}

impl UpdateSecrets {
    /// Waits until one of the Secrets changes.
    pub(super) async fn changed(&mut self) {
        Followed::any_changed(self.repository.iter_mut().chain(&mut self.write).chain(&mut self.signing)).await;
    }

    /// Returns the key that signs the commits, if the ImageUpdateAutomation names one.
    ///
    /// # Errors
    /// Fails with the Secret that is missing or unusable.
    pub(super) async fn signer(
        &mut self,
        context: &Context,
        namespace: &str,
        key: Option<&UpdateSigningKey>,
    ) -> Result<Option<Arc<CommitSigner>>, State> {
        const FIELD: &str = "spec.git.commit.signingKey.secretRef";
        let name = key.map(|key| key.secret_ref.name.as_str());
        if self.signing.as_ref().map(Followed::of) != name.map(|name| (namespace, name)) {
            self.signing = name.map(|name| context.secrets.follow(namespace, name, Purpose::Signing));
            self.signer = None;
        }
        let (Some(key), Some(followed)) = (key, &mut self.signing) else { return Ok(None) };
        let name = &key.secret_ref.name;
        let known = followed.known().await;
        is_usable(FIELD, name, &known)?;
        let Some(data) = known.data() else { return Ok(None) };
        let signer = CommitSigner::read(name, key.kind, data, Timestamp::now());
        let signer = signer.map_err(|fault| State::not_ready(Reason::SpecInvalid, format!("{FIELD}: {fault}")))?;
        let last = self.signer.take().filter(|last| last.has_key_of(&signer));
        self.signer = Some(last.unwrap_or_else(|| Arc::new(signer)));
        Ok(self.signer.clone())
    }

    /// Returns the remotes of a GitRepository. `secret` has the credentials to push.
    ///
    /// # Errors
    /// Fails with the Secret that is missing or unusable, or with the unsupported address.
    pub(super) async fn remotes(
        &mut self,
        context: &Context,
        namespace: &str,
        repository: &GitRepository,
        secret: &str,
    ) -> Result<Remotes, State> {
        let spec = &repository.spec;
        let name = repository.metadata.name.as_deref().unwrap_or_default();
        let invalid = |why: String| State::not_ready(Reason::SpecInvalid, why);
        let of_repository = |error: mainstay_git::Error| invalid(format!("GitRepository {name}: {}", chain(&error)));
        let url = RemoteUrl::parse(&spec.url).map_err(of_repository)?;
        supported(&url, spec).map_err(of_repository)?;
        let known = self.repository.of(&context.secrets, namespace, spec, Purpose::Repository).await;
        if let (Some(auth), Some(known)) = (&spec.auth, &known.auth) {
            is_usable(&format!("GitRepository {name}"), &auth.secret_name, known)?;
        }
        let proxy = match (&spec.proxy_secret_ref, &known.proxy) {
            (Some(proxy), Some(known)) => {
                is_usable(&format!("GitRepository {name}"), &proxy.name, known)?;
                known.data()
            }
            _ => None,
        };
        let remote = |access: Access| {
            let access = access.with_pins(repository, &url);
            let access = match proxy {
                Some(data) => access.through_proxy(data).map_err(of_repository)?,
                None => access,
            };
            let connection = access.connection.within(context.source.egress(namespace));
            Ok(Remote { connection, ..Remote::new(url.clone(), access.credentials) })
        };
        let data = known.auth.as_ref().and_then(Known::data);
        let opened = access(spec.auth.as_ref(), data).map_err(of_repository)?;
        let mut read = remote(opened.with_identity(spec, namespace, &url).map_err(of_repository)?)?;
        read.verification = verification(repository, &known)?;
        if self.write.as_ref().map(Followed::of) != Some((namespace, secret)) {
            self.write = Some(context.secrets.follow(namespace, secret, Purpose::Repository));
        }
        let Some(followed) = &mut self.write else { return Err(invalid("the Secret is unknown".to_owned())) };
        let known = followed.known().await;
        is_usable("spec.git.push.secretRef", secret, &known)?;
        let kind = if url.scheme() == "ssh" { AuthType::Key } else { AuthType::Basic };
        let auth = RepositoryAuth { kind, secret_name: secret.to_owned() };
        let of_push = |error: mainstay_git::Error| {
            invalid(format!("spec.git.push.secretRef: the Secret {secret}: {}", chain(&error)))
        };
        let write = access(Some(&auth), known.data()).map_err(of_push)?;
        if write.credentials == Credentials::Anonymous {
            let why =
                format!("spec.git.push.secretRef: the Secret {secret} has no user name with password, token or key");
            return Err(invalid(why));
        }
        Ok(Remotes { read, write: remote(write)? })
    }
}

/// Returns how the commits of the GitRepository must be signed.
fn verification(repository: &GitRepository, known: &RepositoryData) -> Result<Option<Arc<Verification>>, State> {
    let (Some(verify), Some(known)) = (&repository.spec.verify, &known.verify) else { return Ok(None) };
    let name = repository.metadata.name.as_deref().unwrap_or_default();
    is_usable(&format!("GitRepository {name}"), &verify.secret_ref.name, known)?;
    Verification::new(Some(verify), known.data())
        .map_err(|error| State::not_ready(Reason::SpecInvalid, format!("GitRepository {name}: {}", chain(&error))))
}

fn is_usable(at: &str, secret: &str, known: &Known) -> Result<(), State> {
    let Some((_, why)) = known.problem() else { return Ok(()) };
    let reason = if *known == Known::Absent { Reason::SecretNotFound } else { Reason::SpecInvalid };
    Err(State::not_ready(reason, format!("{at}: the Secret {secret} {why}")))
}
