//! The handling of documents that are encrypted with SOPS.
//!
//! Not here: verification and decryption (`verified`, `decrypted`).

use std::sync::Arc;

use crate::sops::{KeyId, Keys};

/// The handling of documents that are encrypted with SOPS.
#[derive(Clone, Debug, Default)]
pub enum Decryption {
    /// Encrypted documents are problems.
    #[default]
    NotConfigured,
    /// The files of encrypted documents are verified with these keys. The documents become encrypted objects, which are
    /// decrypted after all other changes.
    Keys(Arc<Keys>),
    /// The documents are output of a chart, so encrypted documents are problems.
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
