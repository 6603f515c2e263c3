//! The last apply of an object, and whether it has the desired state.

use super::verdict::LastApplied;

/// The last apply of an object.
#[derive(Debug, Default)]
pub(crate) enum ApplyState {
    /// No apply yet.
    #[default]
    Nothing,
    /// The desired state was applied.
    Desired(LastApplied),
    /// The applied state may differ from the desired one, so the object is applied again. Causes: `desired` changed
    /// without a new document, a pause prevented the apply of a new document, or the outcome of an apply is unknown.
    Outdated(LastApplied),
}

impl ApplyState {
    /// Returns the state after the last apply of an earlier agent, as far as it is known.
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

    /// Records that the applied state may differ from the desired one.
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
