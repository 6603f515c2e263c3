//! The phase of an object: kept, paused, or removed from the repository.
//!
//! A pause is `mainstay.dev/reconcile: disabled` on the live object: the object is neither applied, reverted nor
//! deleted. The phase remembers the pause that was last seen. A later state without a pause ends it, and so does an
//! apply that recreates the deleted object. The suspension of the owner is no phase: it is part of the owner's policy
//! (`account`).

use super::pause_end::PauseEnd;

/// A pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// The end of the pause.
    pub(crate) until: PauseEnd,
}

/// The phase of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The object is reconciled.
    #[default]
    Kept,
    /// The object is paused.
    Paused(Pause),
    /// The object was removed from the repository and is not reverted. If it is added again, its pause continues.
    Leaving(Option<Pause>),
}

impl Phase {
    /// Returns the pause, also that of a removed object.
    pub(crate) fn pause(self) -> Option<Pause> {
        match self {
            Self::Kept => None,
            Self::Paused(pause) => Some(pause),
            Self::Leaving(pause) => pause,
        }
    }

    pub(crate) fn is_leaving(self) -> bool {
        matches!(self, Self::Leaving(_))
    }

    /// Records a pause. Returns whether the pause or its end is new.
    pub(crate) fn begin_pause(&mut self, until: PauseEnd) -> bool {
        let pause = Pause { until };
        let before = self.pause();
        *self = if self.is_leaving() { Self::Leaving(Some(pause)) } else { Self::Paused(pause) };
        before != Some(pause)
    }

    /// Ends a pause. Returns whether there was one.
    pub(crate) fn end_pause(&mut self) -> bool {
        let before = self.pause();
        *self = if self.is_leaving() { Self::Leaving(None) } else { Self::Kept };
        before.is_some()
    }

    /// Records that the object was removed from the repository.
    pub(crate) fn leave(&mut self) {
        *self = Self::Leaving(self.pause());
    }

    /// Records that the object is in the repository. Returns whether it had been removed.
    pub(crate) fn stay(&mut self) -> bool {
        let before = *self;
        *self = self.pause().map_or(Self::Kept, Self::Paused);
        before.is_leaving()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_outlasts_a_removal_and_return_of_the_object() {
        let mut phase = Phase::default();
        assert!(phase.begin_pause(PauseEnd::Open));
        phase.leave();
        assert_eq!(phase, Phase::Leaving(Some(Pause { until: PauseEnd::Open })));
        assert!(phase.stay() && !phase.stay());
        assert_eq!(phase, Phase::Paused(Pause { until: PauseEnd::Open }));
        assert!(phase.end_pause() && !phase.end_pause());
        assert_eq!(phase, Phase::Kept);
    }

    #[test]
    fn a_pause_is_new_again_when_its_end_changes() {
        let mut phase = Phase::default();
        assert!(phase.begin_pause(PauseEnd::Open) && !phase.begin_pause(PauseEnd::Open));
        assert!(phase.begin_pause(PauseEnd::At(jiff::Timestamp::UNIX_EPOCH)));
    }
}
