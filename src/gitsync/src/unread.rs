//! The objects that a GitSync needs to read its repository: itself, its GitRepository, and the Secrets of the
//! GitRepository. If the GitSync manages one of them, a mistake in the repository can prevent it from reading the
//! correction. Manual repairs of the live object must then not be reverted.
//!
//! Invariant: such objects are reverted again only after the repository was read while the live object matched the
//! repository. A successful read is not enough: after a manual repair, the newest commit may still contain the mistake.
//! Invariant: while the repository can be read, manual changes are reverted, including those that prevent reading it.
//!
//! Not here: reading the objects, and the reaction to drift (`managed`).

use std::collections::BTreeMap;

use jiff::Timestamp;

use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::Unread;
use mainstay_api::{GitRepository, GitSync};
use mainstay_object::{Key, Owner};

/// The objects that prevented a repository from being read, with the time.
pub(super) type UnreadObjects = BTreeMap<Key, Timestamp>;

/// Whether this reason means that the GitSync could not read its repository, possibly because of these objects. Invalid
/// manifests are not such a reason, because they were read.
pub(super) fn is_of_reading(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::SourceInvalid
            | Reason::SourceUnavailable
            | Reason::GitAuthorizationFailed
            | Reason::VerificationFailed
            | Reason::SpecInvalid
            | Reason::SecretNotFound
            | Reason::SourceNotFound
    )
}

/// Returns the objects that a GitSync needs to read its repository.
pub(super) fn reads_by(owner: &Owner, sync: &GitSync, repository: Option<&GitRepository>) -> Vec<Key> {
    let namespace = Some(owner.resource().namespace());
    let (kind, name) = sync.spec.source();
    let group = if sync.spec.source_ref.is_some() { "mainstay.dev" } else { "serverless.kyma-project.io" };
    let named = Key::new(group, kind, namespace, name);
    let spec = repository.map(|repository| &repository.spec);
    let secrets = [
        spec.and_then(|spec| Some(&spec.auth.as_ref()?.secret_name)),
        spec.and_then(|spec| Some(&spec.verify.as_ref()?.secret_ref.name)),
        spec.and_then(|spec| Some(&spec.proxy_secret_ref.as_ref()?.name)),
        sync.spec.decryption.as_ref().map(|decryption| &decryption.secret_ref.name),
    ];
    let secrets = secrets.into_iter().flatten().map(|name| Key::new("", "Secret", namespace, name.as_str()));
    [owner.key(), named].into_iter().chain(secrets).collect()
}

/// Restores, from the status, the objects that prevented an earlier agent from reading the repository.
pub(super) fn recalled(said: &[Unread], reads_by: &[Key]) -> UnreadObjects {
    let since = |key: &Key| said.iter().find(|unread| unread.object == key.to_string()).map(|unread| unread.since.0);
    reads_by.iter().filter_map(|key| Some((key.clone(), since(key)?))).collect()
}

/// Returns the addition to the message that the repository cannot be read: which manual repairs stay.
pub(super) fn advice(unread: &UnreadObjects) -> Option<String> {
    let names = unread.keys().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    let it = if unread.len() == 1 { "it is" } else { "they are" };
    (!unread.is_empty()).then(|| {
        format!(
            "; this GitSync manages {names} itself: correct it with kubectl ({it} not reverted until then), then in \
             the repository"
        )
    })
}
