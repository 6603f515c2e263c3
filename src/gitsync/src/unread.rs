//! What a GitSync reads by: itself, its GitRepository, and the Secrets that this names. Where it manages one of them itself,
//! a mistake in the repository keeps it from reading the correction, and whoever repairs the live object must not be
//! reverted.
//!
//! Invariant: what the repository could not be read with is not reverted before the repository was read while the object was
//! as the repository wants it. That reading succeeds is not enough: after a repair by hand the newest commit that is read
//! may be the very one with the mistake.
//! Invariant: a change by hand while the repository can be read is reverted, also one that keeps it from being read.
//!
//! Deliberately absent: looking at the objects, and what is done about drift (`managed`).

use std::collections::BTreeMap;

use jiff::Timestamp;

use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::Unread;
use mainstay_api::{GitRepository, GitSync};
use mainstay_object::{Key, Owner};

/// The objects with which a repository could not be read, and since when.
pub(super) type UnreadObjects = BTreeMap<Key, Timestamp>;

/// Whether a GitSync that was refused for this reason could not read, perhaps for what it reads by. Manifests that are
/// wrong are no such reason: they are read.
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

/// What a GitSync reads by.
pub(super) fn reads_by(owner: &Owner, sync: &GitSync, repository: Option<&GitRepository>) -> Vec<Key> {
    let namespace = Some(owner.resource().namespace());
    let named = Key::new("serverless.kyma-project.io", "GitRepository", namespace, sync.spec.git_repository.as_str());
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

/// What an earlier agent could not read with, as the status names it.
pub(super) fn recalled(said: &[Unread], reads_by: &[Key]) -> UnreadObjects {
    let since = |key: &Key| said.iter().find(|unread| unread.object == key.to_string()).map(|unread| unread.since.0);
    reads_by.iter().filter_map(|key| Some((key.clone(), since(key)?))).collect()
}

/// What is added to the message that the repository cannot be read.
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
