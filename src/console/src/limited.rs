//! Limits lines of a log that visitors without a session can cause.

use jiff::{SignedDuration, Timestamp};

/// Minimum time between two lines.
const EVERY: SignedDuration = SignedDuration::from_mins(1);

/// The last line, and the number of those that were omitted since.
#[derive(Debug, Default)]
pub(crate) struct LimitedLines {
    last: Option<Timestamp>,
    omitted: u64,
}

impl LimitedLines {
    /// Returns the number of lines that were omitted since the last one, if another one may be written now.
    pub(crate) fn next(&mut self, now: Timestamp) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last).abs() < EVERY) {
            self.omitted += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_a_minute_has_the_number_of_the_omitted_ones() {
        let mut lines = LimitedLines::default();
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        assert_eq!([1000, 1000, 1059, 1060].map(|now| lines.next(at(now))), [Some(0), None, None, Some(2)]);
        // The clock was set back.
        assert_eq!([1030, 500, 501].map(|now| lines.next(at(now))), [None, Some(1), None]);
    }
}
