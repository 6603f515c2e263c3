//! The host keys that hold for all repositories: those of the agent's ConfigMap, or of what this program brings along.
//!
//! Invariant: until it is known whether there is such a ConfigMap, no host key is known.

use std::sync::Arc;

use super::known_hosts::{HostKeys, PUBLISHED, lines};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Secret,
    ConfigMap,
    Published,
}

impl SharedHostKeys {
    /// The keys of a host, by its name in `known_hosts`: those of the Secret if it has any, without what is revoked for all;
    /// or why they are not known.
    pub(super) fn keys_of(&self, name: &str, secret: Option<&str>) -> Result<(HostKeys, Origin), String> {
        let (text, origin) = match self {
            Self::Unknown(why) => return Err(unknown(why.as_deref())),
            Self::Published => (PUBLISHED, Origin::Published),
            Self::Lines(text) => (&**text, Origin::ConfigMap),
        };
        let for_all = HostKeys::read(text, name);
        Ok(match secret {
            Some(text) => (HostKeys::read(text, name).without_revoked_in(for_all), Origin::Secret),
            None => (for_all, origin),
        })
    }

    /// Whether waiting for them is useless.
    pub(super) fn are_known(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }

    /// The lines about a host, if they are others than this program brings along; or why they are not known.
    pub(super) fn lines_about(&self, name: &str) -> Result<Option<Vec<String>>, String> {
        match self {
            Self::Lines(text) => Ok(Some(lines(text, name).map(str::to_owned).collect())),
            Self::Published => Ok(None),
            Self::Unknown(why) => Err(unknown(why.as_deref())),
        }
    }
}

fn unknown(why: Option<&str>) -> String {
    why.unwrap_or("they have not been listed yet").to_owned()
}
