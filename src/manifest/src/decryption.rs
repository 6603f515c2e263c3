//! What is done about documents that SOPS has encrypted.
//!
//! Deliberately absent: doing it (`verified`, `decrypted`).

use std::sync::Arc;

use crate::sops::{KeyId, Keys};

/// What is done about documents that SOPS has encrypted.
#[derive(Clone, Debug, Default)]
pub enum Decryption {
    /// They are problems.
    #[default]
    NotConfigured,
    /// Their files are verified with these keys, and they become objects as they stand, to be decrypted once nothing else
    /// changes them.
    Keys(Arc<Keys>),
    /// A chart was rendered to them, and they are problems for that.
    InChart,
}

impl Decryption {
    /// The keys, if there are any.
    pub fn keys(&self) -> Option<&Arc<Keys>> {
        match self {
            Self::Keys(keys) => Some(keys),
            Self::NotConfigured | Self::InChart => None,
        }
    }

    /// The same for what a chart was rendered to.
    #[must_use]
    pub fn in_chart(&self) -> Self {
        match self {
            Self::NotConfigured => Self::NotConfigured,
            Self::Keys(_) | Self::InChart => Self::InChart,
        }
    }

    /// Tells the keys from other ones, if there are any.
    pub fn key_id(&self) -> Option<KeyId> {
        self.keys().map(|keys| keys.id())
    }
}
