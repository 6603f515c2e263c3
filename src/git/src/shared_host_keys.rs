//! The host keys that hold for all repositories: those of the agent's ConfigMap, or of what this program brings along.
//!
//! Invariant: until it is known whether there is such a ConfigMap, no host key is known.

use std::sync::Arc;

use russh::keys::PublicKey;

use super::known_hosts::{HostKeys, PUBLISHED, lines, text};
use super::pinning::Pinning;
use super::ssh_key::SshIdentity;

/// The lines in the format of `known_hosts` that hold for all repositories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedHostKeys {
    /// It is not known yet; why, if there is a reason.
    Unknown(Option<String>),
    /// There are none, so those that large hosts publish hold.
    Published,
    /// These lines, and no others.
    Lines(Arc<str>),
}

/// Where the known keys of a host come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Secret,
    ConfigMap,
    Published,
    /// A key was pinned at first use.
    Pinned(Pinning),
    /// No key is known, and the one that is presented is to be pinned.
    FirstUse,
}

impl SharedHostKeys {
    /// The keys of a host, by its name in `known_hosts`: those of the Secret if it has any, or those for all, or the one that
    /// is pinned, without what is revoked for all; or why they are not known.
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

    /// Whether a host, by its name in `known_hosts`, is known to all.
    pub(super) fn know(&self, name: &str) -> bool {
        match self {
            Self::Unknown(_) => false,
            Self::Published => HostKeys::read(PUBLISHED, name).are_known(),
            Self::Lines(text) => HostKeys::read(text, name).are_known(),
        }
    }

    /// Whether waiting for them is useless.
    pub(super) fn are_known(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }

    /// The lines about a host for somebody who has the Secret, if they are others than this program brings along; or why they
    /// are not known.
    pub(super) fn lines_about(
        &self,
        name: &str,
        identity: Option<&SshIdentity>,
    ) -> Result<Option<Vec<String>>, String> {
        let pin = match identity.map(|identity| self.keys_of(name, identity)).transpose()? {
            // What cannot be read as a key might be another line.
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
