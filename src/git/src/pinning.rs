//! Host keys that are pinned at first use, for GitRepositories that opt in.
//!
//! When an unknown host presents a key, the connection is closed and the key is written to the GitRepository's status.
//! From then on, the key is known. So a key is never used before it is stored.
//!
//! Invariant: a pin is valid only for its host and port, and only for its GitRepository.
//! Invariant: host keys in the Secret, or for all repositories, take precedence over a pin.
//!
//! Not here: the status of pins (`pins`).

use std::collections::BTreeSet;

use russh::keys::PublicKey;
use tokio::sync::oneshot;

use super::known_hosts::shown;
use mainstay_api::GitRepository;
use mainstay_api::git_repository::HostKeyPolicy;

/// Maximum number of remembered superseded pins.
const SUPERSEDED: usize = 10_000;

/// The pinned host key of a GitRepository that pins keys.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Pinning {
    namespace: String,
    name: String,
    pub(super) pin: Option<Pin>,
}

/// A pinned key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Pin {
    /// Type and base64 string of the key.
    pub(super) key: String,
    /// When the key was pinned.
    pub(super) since: String,
    /// Fingerprint and type, computed from the key; empty if the key cannot be parsed.
    pub(super) fingerprint: String,
}

/// The key of a host without known keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstUse {
    /// Namespace of the GitRepository.
    pub namespace: String,
    /// Name of the GitRepository.
    pub name: String,
    /// The host as in `known_hosts`.
    pub host: String,
    /// Type and base64 string of the key.
    pub key: String,
    /// Fingerprint and type of the key.
    pub fingerprint: String,
}

/// A request to pin a key.
#[derive(Debug)]
pub struct PinRequest {
    /// The key to pin.
    pub first_use: FirstUse,
    /// Receives `Ok` once the key is pinned, or the reason why it is not.
    pub answer: oneshot::Sender<Result<(), String>>,
}

/// Pins that are superseded, because the Secret of their GitRepository has host keys. Each entry is namespace, name and
/// key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SupersededPins(BTreeSet<(String, String, String)>);

impl SupersededPins {
    /// Adds the pin of an identity with its own host keys. Returns whether it is new.
    pub(super) fn add(&mut self, pinning: &Pinning) -> bool {
        if self.0.len() >= SUPERSEDED {
            // Pins that are still superseded are added again at their next use.
            self.0.clear();
        }
        let Pinning { namespace, name, pin } = pinning;
        pin.as_ref().is_some_and(|pin| self.0.insert((namespace.clone(), name.clone(), pin.key.clone())))
    }

    /// Returns whether the pinned key of a GitRepository is superseded.
    pub(super) fn contains(&self, repository: &GitRepository) -> bool {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (metadata, status) = (&repository.metadata, repository.status.as_ref());
        status
            .into_iter()
            .flat_map(|status| &status.pinned_host_keys)
            .any(|pin| self.0.contains(&(text(&metadata.namespace), text(&metadata.name), pin.key.clone())))
    }
}

impl Pinning {
    /// Returns the pinning of a host, by its name in `known_hosts`; `None` if the GitRepository does not pin keys.
    pub(super) fn of(repository: &GitRepository, host: &str) -> Option<Self> {
        if repository.spec.host_keys != HostKeyPolicy::PinAtFirstUse {
            return None;
        }
        let pinned = repository.status.as_ref().map_or(&[][..], |status| &status.pinned_host_keys);
        let pin = pinned.iter().find(|pin| pin.host == host);
        let pin = pin.map(|pin| Pin {
            key: pin.key.clone(),
            since: pin.pinned_at.0.to_string(),
            fingerprint: PublicKey::from_openssh(&pin.key).map(|key| shown(&key)).unwrap_or_default(),
        });
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let metadata = &repository.metadata;
        Some(Self { namespace: text(&metadata.namespace), name: text(&metadata.name), pin })
    }

    /// Returns the parts that distinguish pinnings. They differ between GitRepositories, which thus share no
    /// connections or responses.
    pub(super) fn parts(&self) -> [&str; 4] {
        ["pinned host keys", &self.namespace, &self.name, self.pin.as_ref().map_or("", |pin| &pin.key)]
    }

    /// Returns the first use of a key that a host has presented.
    pub(super) fn first_use(&self, host: &str, key: &str, fingerprint: &str) -> FirstUse {
        FirstUse {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            host: host.to_owned(),
            key: key.to_owned(),
            fingerprint: fingerprint.to_owned(),
        }
    }

    /// Returns the command that removes the pins.
    pub(super) fn forget(&self) -> String {
        let Self { namespace, name, .. } = self;
        format!(
            "kubectl -n {namespace} patch gitrepositories.serverless.kyma-project.io {name} --subresource status --type \
             merge -p '{{\"status\":{{\"pinnedHostKeys\":null}}}}'"
        )
    }
}
