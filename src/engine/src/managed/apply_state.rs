//! What was last applied to an object, and whether that is what is desired.

use super::verdict::LastApplied;

/// What was last applied to an object.
#[derive(Debug, Default)]
pub(crate) enum ApplyState {
    /// Nothing yet.
    #[default]
    Nothing,
    /// What is desired.
    Desired(LastApplied),
    /// Not, or perhaps not, what is desired: `desired` has changed without a new document, a new document was held back by
    /// a break glass, or the outcome of an apply is not known. It is applied again whatever is seen of the object.
    Outdated(LastApplied),
}

impl ApplyState {
    /// What an earlier agent applied, as far as it is known.
    pub(crate) fn known(last: LastApplied) -> Self {
        let is_known = last.digest.is_some() || !last.resource_version.is_empty();
        if is_known { Self::Desired(last) } else { Self::Nothing }
    }

    pub(crate) fn last(&self) -> Option<&LastApplied> {
        match self {
            Self::Nothing => None,
            Self::Desired(last) | Self::Outdated(last) => Some(last),
        }
    }

    pub(crate) fn last_mut(&mut self) -> Option<&mut LastApplied> {
        match self {
            Self::Nothing => None,
            Self::Desired(last) | Self::Outdated(last) => Some(last),
        }
    }

    pub(crate) fn is_outdated(&self) -> bool {
        matches!(self, Self::Outdated(_))
    }

    /// What was applied is not, or perhaps not, what is desired now.
    pub(crate) fn mark_outdated(&mut self) {
        *self = match std::mem::take(self) {
            Self::Nothing => Self::Nothing,
            Self::Desired(last) | Self::Outdated(last) => Self::Outdated(last),
        };
    }

    /// Whether a state with this resource version is older than the last apply.
    pub(crate) fn is_newer_than(&self, version: &str) -> bool {
        self.last().is_some_and(|last| match (last.resource_version.parse::<u64>(), version.parse::<u64>()) {
            (Ok(known), Ok(seen)) => seen < known,
            _ => false,
        })
    }
}
