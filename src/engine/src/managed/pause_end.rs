//! The end of a pause, read from `mainstay.dev/until` of the live object.
//!
//! Without a valid time, a pause lasts until a user removes `mainstay.dev/reconcile: disabled`. The annotations belong
//! to the live object, so a deletion ends the pause, too. Unless its owner is suspended, or only reports or ignores
//! drift, the object is recreated.

use jiff::Timestamp;

/// The problem of an invalid time.
const UNREADABLE: &str =
    "its mainstay.dev/until is not a time such as 2026-01-31T18:00:00Z, so it lasts until it is resumed";

/// The end of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseEnd {
    /// The pause lasts until a user ends it.
    Open,
    /// The pause ends at this time.
    At(Timestamp),
    /// The time is invalid, so the pause lasts until a user ends it.
    Unreadable,
}

impl PauseEnd {
    /// Reads the value of the annotation.
    pub fn read(annotation: Option<&str>) -> Self {
        match annotation.map(str::parse) {
            None => Self::Open,
            Some(Ok(time)) => Self::At(time),
            Some(Err(_)) => Self::Unreadable,
        }
    }

    /// Returns the time at which the pause ends, if it has one.
    pub fn time(self) -> Option<Timestamp> {
        match self {
            Self::At(time) => Some(time),
            Self::Open | Self::Unreadable => None,
        }
    }

    /// Returns the problem of the annotation, if there is one.
    pub fn problem(self) -> Option<&'static str> {
        (self == Self::Unreadable).then_some(UNREADABLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_time_is_reported_and_ends_no_pause() {
        for text in ["tomorrow", "", "30m", "2026-01-31", "18:00"] {
            let end = PauseEnd::read(Some(text));
            assert_eq!((end, end.time(), end.problem()), (PauseEnd::Unreadable, None, Some(UNREADABLE)), "{text}");
        }
        for text in ["2026-01-31T18:00:00Z", "2026-01-31T18:00:00+01:00"] {
            let end = PauseEnd::read(Some(text));
            assert!(end.time().is_some() && end.problem().is_none(), "{text}");
        }
        assert_eq!(PauseEnd::read(None), PauseEnd::Open);
    }
}
