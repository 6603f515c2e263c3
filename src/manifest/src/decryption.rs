//! How documents that are encrypted with SOPS are handled.
//!
//! Not here: verification and decryption (`verified`, `decrypted`).

use std::sync::Arc;

use crate::sops::{KeyId, Keys};

/// How documents that are encrypted with SOPS are handled.
#[derive(Clone, Debug, Default)]
pub enum Decryption {
    /// They are problems.
    #[default]
    NotConfigured,
    /// Their files are verified with these keys. They become encrypted objects, and are decrypted after all other
    /// changes.
    Keys(Arc<Keys>),
    /// They are part of a chart's output, and therefore problems.
    InChart,
}

impl Decryption {
    /// Returns the keys, if any.
    pub fn keys(&self) -> Option<&Arc<Keys>> {
        match self {
            Self::Keys(keys) => Some(keys),
            Self::NotConfigured | Self::InChart => None,
        }
    }

    /// Returns the handling for the output of a chart.
    #[must_use]
    pub fn in_chart(&self) -> Self {
        match self {
            Self::NotConfigured => Self::NotConfigured,
            Self::Keys(_) | Self::InChart => Self::InChart,
        }
    }

    /// Returns an id that distinguishes the keys, if any.
    pub fn key_id(&self) -> Option<KeyId> {
        self.keys().map(|keys| keys.id())
    }
}
