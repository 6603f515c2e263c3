//! What Mainstay does about an object, and whether it is being written.
//!
//! Invariant: a state that waits to be acted on is part of the write that will look at it.

use std::mem;

use jiff::Timestamp;

use super::seen::Seen;

/// A break glass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// When it ends by itself, if it does.
    pub(crate) until: Option<Timestamp>,
}

/// What Mainstay does about an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is kept as desired.
    #[default]
    Kept,
    /// It is left alone, because it is under break glass.
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
    pub(crate) fn begin_pause(&mut self, until: Option<Timestamp>) -> bool {
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

/// Whether an object is being written.
#[derive(Debug, Default)]
pub(crate) enum Write {
    /// It is not.
    #[default]
    Idle,
    /// A revert or a report waits for its permit, because of what was seen.
    Queued(Option<Box<Seen>>),
    /// A write is under way. What is seen meanwhile is looked at when it ends.
    InFlight(Option<Box<Seen>>),
}

impl Write {
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self, Self::Queued(_))
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        matches!(self, Self::InFlight(_))
    }

    /// What waits to be acted on.
    pub(crate) fn pending(&self) -> Option<&Seen> {
        match self {
            Self::Idle => None,
            Self::Queued(seen) | Self::InFlight(seen) => seen.as_deref(),
        }
    }

    pub(crate) fn pending_mut(&mut self) -> Option<&mut Seen> {
        match self {
            Self::Idle => None,
            Self::Queued(seen) | Self::InFlight(seen) => seen.as_deref_mut(),
        }
    }

    /// What waits to be acted on does not count any more.
    pub(crate) fn clear_pending(&mut self) {
        if let Self::Queued(seen) | Self::InFlight(seen) = self {
            *seen = None;
        }
    }

    /// A write that is under way failed: this counts again, unless something was seen since. It is looked at when the
    /// write ends, which is also so if the object was inserted anew meanwhile.
    pub(crate) fn restore_pending(&mut self, seen: Box<Seen>) {
        match self {
            Self::Idle => *self = Self::InFlight(Some(seen)),
            Self::Queued(pending) | Self::InFlight(pending) => _ = pending.get_or_insert(seen),
        }
    }

    /// A write begins. What waited for it.
    pub(crate) fn begin(&mut self) -> Option<Box<Seen>> {
        mem::replace(self, Self::InFlight(None)).into_pending()
    }

    /// The write has ended. What waits to be looked at.
    pub(crate) fn end(&mut self) -> Option<Box<Seen>> {
        mem::take(self).into_pending()
    }

    fn into_pending(self) -> Option<Box<Seen>> {
        match self {
            Self::Idle => None,
            Self::Queued(seen) | Self::InFlight(seen) => seen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_glass_outlasts_that_the_object_leaves_and_comes_back() {
        let mut phase = Phase::default();
        assert!(phase.begin_pause(None));
        phase.leave();
        assert_eq!(phase, Phase::Leaving(Some(Pause { until: None })));
        assert!(phase.stay() && !phase.stay());
        assert_eq!(phase, Phase::Paused(Pause { until: None }));
        assert!(phase.end_pause() && !phase.end_pause());
        assert_eq!(phase, Phase::Kept);
    }

    #[test]
    fn a_break_glass_is_new_again_when_its_end_changes() {
        let mut phase = Phase::default();
        assert!(phase.begin_pause(None) && !phase.begin_pause(None));
        assert!(phase.begin_pause(Some(Timestamp::UNIX_EPOCH)));
    }
}
