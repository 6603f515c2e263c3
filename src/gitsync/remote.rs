//! Where the repository of a GitSync is, and how it is opened: its GitRepository and the Secrets that it names.

use super::reconcile::Task;
use super::refused::Refused;
use crate::api::conditions::Reason;
use crate::api::{GitRepository, GitSync};
use crate::failure::Class;
use crate::secrets::{Known, SecretData};
use crate::source::{self, Remote, RemoteUrl, Verification};

impl Task {
    /// The remote of the GitRepository, and whether it is known what its commits must be signed by. From now on the Secrets that it names are followed, and no others.
    pub(super) async fn remote(
        &mut self,
        sync: &GitSync,
        repository: Option<&GitRepository>,
    ) -> Result<(Remote, Result<(), Refused>), Refused> {
        let repository = repository.ok_or_else(|| self.without_repository(&sync.spec.git_repository))?;
        let spec = &repository.spec;
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        let known = self.secrets.of(&self.context.secrets, namespace, spec).await;
        // Errors that no Secret can fix are reported first.
        let url = RemoteUrl::parse(&spec.url)?;
        source::supported(&url, spec.auth.as_ref())?;
        if let (Some(auth), Some(known)) = (&spec.auth, &known.auth) {
            is_usable(&auth.secret_name, "credentials", known)?;
        }
        let mut access = source::access(spec.auth.as_ref(), known.auth.as_ref().and_then(Known::data))?;
        if let (Some(proxy), Some(known)) = (&spec.proxy_secret_ref, &known.proxy) {
            is_usable(&proxy.name, "proxy", known)?;
            access = access.through_proxy(known.data().unwrap_or(&SecretData::new()))?;
        }
        let source::Access { credentials, connection } = access;
        let mut remote = Remote { url, credentials, connection, verification: None };
        let verification = match (&spec.verify, &known.verify) {
            (Some(verify), Some(known)) => is_usable(&verify.secret_ref.name, "keys that may sign", known)
                .and_then(|()| Ok(Verification::new(Some(verify), known.data())?)),
            _ => Ok(None),
        };
        let trusted = verification.map(|verification| remote.verification = verification);
        Ok((remote, trusted))
    }

    fn without_repository(&self, name: &str) -> Refused {
        let (reason, message) = match self.context.repositories.unknown() {
            Some(why) => (Reason::ClusterUnavailable, format!("GitRepository {name} cannot be read: {why}")),
            None => (Reason::SpecInvalid, format!("GitRepository {name} does not exist in this namespace")),
        };
        Refused { class: Class::NotReady, reason, message, retry_after: None }
    }
}

/// Refuses if nothing is known of a Secret; `what` is what it holds.
fn is_usable(name: &str, what: &str, known: &Known) -> Result<(), Refused> {
    let Some((class, problem)) = known.problem() else { return Ok(()) };
    let reason = if class == Class::Unavailable { Reason::ClusterUnavailable } else { Reason::SpecInvalid };
    let message = format!("Secret {name} with the {what} {problem}");
    Err(Refused { class, reason, message, retry_after: None })
}
