//! The length and the end of a pause or a suspension.

use std::time::Duration;

use jiff::Timestamp;

use mainstay_api::{NotADuration, Span};

/// Parses a length. A shorter one would end before it has an effect.
pub(super) fn at_least_a_second(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error: NotADuration| error.to_string())?;
    if span.0 < Duration::from_secs(1) { Err("at least 1s".to_owned()) } else { Ok(span) }
}

/// Returns the end of a length of time, rounded up to whole seconds.
pub(super) fn end(now: Timestamp, length: Duration) -> String {
    let end = now.saturating_add(length).and_then(|end| end.saturating_add(Duration::from_nanos(999_999_999)));
    end.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_in_whole_seconds_and_not_sooner() {
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        assert_eq!(end(at(0), Duration::from_secs(60)), "1970-01-01T00:01:00Z");
        assert_eq!(end(at(900), Duration::from_secs(1)), "1970-01-01T00:00:02Z");
    }

    #[test]
    fn a_length_of_nothing_is_refused() {
        for text in ["0s", "0h0m", "999ms", "", "tomorrow"] {
            assert!(at_least_a_second(text).is_err(), "{text}");
        }
        assert_eq!(at_least_a_second("1h30m").map(|span| span.0.as_secs()), Ok(5400));
    }
}
