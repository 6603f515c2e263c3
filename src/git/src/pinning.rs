//! Host keys that are pinned at first use, for GitRepositories that ask for it.
//!
//! A host of which nothing is known presents a key: the connection ends there, the key is written to the status of the
//! GitRepository, and from then on it is a known key like any other. So a key is never used before it is written.
//!
//! Invariant: a pin counts only for the host and port for which it was made, and only for the GitRepository that has it.
//! Invariant: what the Secret or the keys for all repositories say of a host is stronger than a pin.
//!
//! Deliberately absent: what the status says of pins (`pins`).

use std::collections::BTreeSet;

use russh::keys::PublicKey;
use tokio::sync::oneshot;

use super::known_hosts::shown;
use mainstay_api::GitRepository;
use mainstay_api::git_repository::HostKeyPolicy;

/// Superseded pins that are remembered.
const SUPERSEDED: usize = 10_000;

/// What a GitRepository that pins host keys knows of its host's key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Pinning {
    namespace: String,
    name: String,
    pub(super) pin: Option<Pin>,
}

/// A pinned key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Pin {
    /// Its type and its base64 text.
    pub(super) key: String,
    /// When it was pinned.
    pub(super) since: String,
    /// Fingerprint and type of that key, whatever the status says; empty if it cannot be read.
    pub(super) fingerprint: String,
}

/// The key of a host of which nothing was known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstUse {
    /// Namespace of the GitRepository.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The host as in `known_hosts`.
    pub host: String,
    /// Type and base64 text of the key.
    pub key: String,
    /// Fingerprint and type of the key.
    pub fingerprint: String,
}

/// A [`FirstUse`] that is to be pinned, and where the answer is awaited.
#[derive(Debug)]
pub struct PinRequest {
    /// What is to be pinned.
    pub first_use: FirstUse,
    /// `Ok` once it is pinned, or why it is not.
    pub answer: oneshot::Sender<Result<(), String>>,
}

/// Pins that are in force no longer because the Secret of their GitRepository has host keys: namespace, name and key of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SupersededPins(BTreeSet<(String, String, String)>);

impl SupersededPins {
    /// Adds what an identity pins beside its own host keys. Returns whether that is new.
    pub(super) fn add(&mut self, pinning: &Pinning) -> bool {
        if self.0.len() >= SUPERSEDED {
            // Those that still are come again with the next look at them.
            self.0.clear();
        }
        let Pinning { namespace, name, pin } = pinning;
        pin.as_ref().is_some_and(|pin| self.0.insert((namespace.clone(), name.clone(), pin.key.clone())))
    }

    /// Whether the key that a GitRepository pins is one of them.
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
    /// What a GitRepository knows of a host, by its name in `known_hosts`; `None` if it does not pin keys.
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

    /// The parts that distinguish them. No two GitRepositories have the same, so they share neither connections nor answers.
    pub(super) fn parts(&self) -> [&str; 4] {
        ["pinned host keys", &self.namespace, &self.name, self.pin.as_ref().map_or("", |pin| &pin.key)]
    }

    /// The key that a host has presented.
    pub(super) fn first_use(&self, host: &str, key: &str, fingerprint: &str) -> FirstUse {
        FirstUse {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            host: host.to_owned(),
            key: key.to_owned(),
            fingerprint: fingerprint.to_owned(),
        }
    }

    /// The command that removes the pins.
    pub(super) fn forget(&self) -> String {
        let Self { namespace, name, .. } = self;
        format!(
            "kubectl -n {namespace} patch gitrepositories.serverless.kyma-project.io {name} --subresource status --type \
             merge -p '{{\"status\":{{\"pinnedHostKeys\":null}}}}'"
        )
    }
}
