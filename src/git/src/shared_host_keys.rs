//! The host keys for all repositories, from the agent's ConfigMap or built into this program.
//!
//! Invariant: before it is known whether the ConfigMap exists, no host key counts as known.

use std::sync::Arc;

use russh::keys::PublicKey;

use super::known_hosts::{HostKeys, PUBLISHED, lines, text};
use super::pinning::Pinning;
use super::ssh_key::SshIdentity;

/// Lines in the format of `known_hosts` that apply to all repositories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedHostKeys {
    /// Not known yet, with the reason if there is one.
    Unknown(Option<String>),
    /// There is no ConfigMap, so the published keys of large hosts apply.
    Published,
    /// Only these lines apply.
    Lines(Arc<str>),
}

/// The origin of a host's known keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Secret,
    ConfigMap,
    Published,
    /// The key was pinned at first use.
    Pinned(Pinning),
    /// No key is known. The presented key will be pinned.
    FirstUse,
}

impl SharedHostKeys {
    /// Returns the keys of a host, by its name in `known_hosts`: those in the Secret, else those for all repositories,
    /// else the pinned key. Keys that are revoked for all repositories are removed. The error says why the keys are
    /// unknown.
    pub(super) fn keys_of(&self, name: &str, identity: &SshIdentity) -> Result<(HostKeys, Origin), String> {
        let (text, origin) = match self {
            Self::Unknown(why) => return Err(unknown(why.as_deref())),
            Self::Published => (PUBLISHED, Origin::Published),
            Self::Lines(text) => (&**text, Origin::ConfigMap),
        };
        let for_all = HostKeys::read(text, name);
        Ok(match (&identity.known_hosts, &identity.pinning) {
            (Some(text), _) => (HostKeys::read(text, name).without_revoked_in(for_all), Origin::Secret),
            (None, Some(pinning)) if !for_all.are_known() => match &pinning.pin {
                Some(pin) => (for_all.with(&pin.key), Origin::Pinned(pinning.clone())),
                None => (for_all, Origin::FirstUse),
            },
            (None, _) => (for_all, origin),
        })
    }

    /// Returns whether the keys for all repositories include a host, by its name in `known_hosts`.
    pub(super) fn know(&self, name: &str) -> bool {
        match self {
            Self::Unknown(_) => false,
            Self::Published => HostKeys::read(PUBLISHED, name).are_known(),
            Self::Lines(text) => HostKeys::read(text, name).are_known(),
        }
    }

    /// Returns whether the keys for all repositories are known.
    pub(super) fn are_known(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }

    /// Returns the lines that apply to a host, for the owner of the Secret, or `None` if the built-in lines apply. The
    /// error says why the lines are unknown.
    pub(super) fn lines_about(
        &self,
        name: &str,
        identity: Option<&SshIdentity>,
    ) -> Result<Option<Vec<String>>, String> {
        let pin = match identity.map(|identity| self.keys_of(name, identity)).transpose()? {
            // A pin that cannot be parsed could inject another line.
            Some((_, Origin::Pinned(Pinning { pin: Some(pin), .. }))) => {
                let key = PublicKey::from_openssh(&pin.key).ok().and_then(|key| text(&key));
                key.map(|key| format!("{name} {key}"))
            }
            _ => None,
        };
        let known = match self {
            Self::Lines(text) => text,
            Self::Published if pin.is_some() => PUBLISHED,
            Self::Published => return Ok(None),
            Self::Unknown(why) => return Err(unknown(why.as_deref())),
        };
        Ok(Some(lines(known, name).map(str::to_owned).chain(pin).collect()))
    }
}

fn unknown(why: Option<&str>) -> String {
    why.unwrap_or("they have not been listed yet").to_owned()
}
