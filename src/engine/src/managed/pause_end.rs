//! When a break glass ends.

use jiff::Timestamp;

/// What is said of a time that cannot be read.
const UNREADABLE: &str =
    "its mainstay.dev/until is not a time such as 2026-01-31T18:00:00Z, so it lasts until it is resumed";

/// When a break glass ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseEnd {
    /// When somebody ends it.
    Open,
    /// By itself.
    At(Timestamp),
    /// When somebody ends it, although a time was meant that cannot be read.
    Unreadable,
}

impl PauseEnd {
    /// By the annotation, if there is one.
    pub fn read(annotation: Option<&str>) -> Self {
        match annotation.map(str::parse) {
            None => Self::Open,
            Some(Ok(time)) => Self::At(time),
            Some(Err(_)) => Self::Unreadable,
        }
    }

    /// When it ends by itself, if it does.
    pub fn time(self) -> Option<Timestamp> {
        match self {
            Self::At(time) => Some(time),
            Self::Open | Self::Unreadable => None,
        }
    }

    /// What is wrong with it.
    pub fn problem(self) -> Option<&'static str> {
        (self == Self::Unreadable).then_some(UNREADABLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_cannot_be_read_is_said_and_is_no_end() {
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
