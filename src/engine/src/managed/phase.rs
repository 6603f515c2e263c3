//! What Mainstay does about an object.

use super::pause_end::PauseEnd;

/// A break glass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// When it ends.
    pub(crate) until: PauseEnd,
}

/// What Mainstay does about an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is kept as desired.
    #[default]
    Kept,
    /// It is left alone, because it is paused.
    Paused(Pause),
    /// It left the repository: it is not reverted any more. If it comes back, a break glass still counts.
    Leaving(Option<Pause>),
}

impl Phase {
    /// The break glass, also of an object that leaves.
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

    /// A break glass was seen. Whether that is new, or its end is.
    pub(crate) fn begin_pause(&mut self, until: PauseEnd) -> bool {
        let pause = Pause { until };
        let before = self.pause();
        *self = if self.is_leaving() { Self::Leaving(Some(pause)) } else { Self::Paused(pause) };
        before != Some(pause)
    }

    /// No break glass counts any more. Whether one did.
    pub(crate) fn end_pause(&mut self) -> bool {
        let before = self.pause();
        *self = if self.is_leaving() { Self::Leaving(None) } else { Self::Kept };
        before.is_some()
    }

    /// The object left the repository.
    pub(crate) fn leave(&mut self) {
        *self = Self::Leaving(self.pause());
    }

    /// The object is in the repository. Whether it had left.
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
    fn a_break_glass_outlasts_that_the_object_leaves_and_comes_back() {
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
    fn a_break_glass_is_new_again_when_its_end_changes() {
        let mut phase = Phase::default();
        assert!(phase.begin_pause(PauseEnd::Open) && !phase.begin_pause(PauseEnd::Open));
        assert!(phase.begin_pause(PauseEnd::At(jiff::Timestamp::UNIX_EPOCH)));
    }
}
