//! The class of a failure, and the backoff for it.
//!
//! Invariant: every error of a module that acts has a [`Class`]. Controllers choose conditions and the time of the next
//! attempt by the class, never by the text of an error.

mod backoff;
mod panicked;

use std::time::Duration;

pub use backoff::{Backoff, jitter};
pub use panicked::{Panicked, caught, caught_now};

/// The class of a failure, which determines who can correct the cause, and when to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Another client wrote first. Retry almost immediately.
    Conflict,
    /// A dependency does not exist yet. Retry when it appears.
    NotReady,
    /// A network error, a 5xx status or a timeout. Retry with exponential backoff.
    Unavailable,
    /// 401 or 403 from Git or the API server. Retry slowly, or when the Secret changes.
    Denied,
    /// Only the user can correct the cause. Retry when the input changes.
    Invalid,
    /// An invariant of Mainstay is broken. Retry slowly.
    Bug,
}

/// Maximum accepted `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Smaller numbers in headers of rate limits are not times.
const FIRST_TIME: u64 = 1_000_000_000;

/// Minimum delay before a status is written again.
const MIN_STATUS_DELAY: Duration = Duration::from_secs(5);
const MAX_STATUS_DELAY: Duration = Duration::from_secs(60);
/// Backoff for a status that the server rejects as invalid. It may be valid with a different version of the CRD.
const INVALID_STATUS: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_secs(600));

/// Returns the delay for a `Retry-After` of this many seconds, at most an hour.
pub fn retry_after(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(MAX_RETRY_AFTER)
}

/// Parses a `Retry-After` header at `now`: seconds or a date, at most an hour; `None` if the header is neither.
pub fn retry_after_header(text: &str, now: jiff::Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(retry_after(seconds));
    }
    let until = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(retry_after(u64::try_from(until.as_second().saturating_sub(now.as_second())).unwrap_or(0)))
}

/// Returns the delay until a rate limit ends, by its headers at `now`: the number of requests that remain, and the end,
/// which is a time in seconds since 1970 or a number of seconds. At most an hour; `None` if requests remain.
pub fn rate_limit_headers(remaining: &str, reset: &str, now: jiff::Timestamp) -> Option<Duration> {
    if remaining.trim() != "0" {
        return None;
    }
    let reset: u64 = reset.trim().parse().ok()?;
    let passed = if reset < FIRST_TIME { 0 } else { u64::try_from(now.as_second()).unwrap_or(0) };
    Some(retry_after(reset.saturating_sub(passed)))
}

impl Class {
    /// Returns the backoff between attempts; `None` if only a change of the input helps.
    pub const fn backoff(self) -> Option<Backoff> {
        let (base, cap) = match self {
            Self::Invalid => return None,
            Self::Conflict => (Duration::from_millis(50), Duration::from_secs(5)),
            Self::NotReady | Self::Unavailable => (Duration::from_secs(1), Duration::from_secs(120)),
            Self::Denied => (Duration::from_secs(10), Duration::from_secs(300)),
            Self::Bug => (Duration::from_secs(30), Duration::from_secs(600)),
        };
        Some(Backoff::new(base, cap))
    }

    /// Returns the delay before a status is written again, after this many consecutive failures (from 1). The delay is
    /// the class's backoff, or for `Invalid` a fixed one, so that a correction takes effect soon. It is at least 5 s,
    /// and at most 60 s for `Invalid`, `Denied` and `Bug` or 30 s for other classes. A longer `Retry-After` of the
    /// server takes precedence.
    pub fn status_delay(self, failures: u32, retry_after: Option<Duration>, chance: f64) -> Duration {
        let backoff = self.backoff().unwrap_or(INVALID_STATUS);
        let most = match self {
            Self::Invalid | Self::Denied | Self::Bug => MAX_STATUS_DELAY,
            Self::NotReady | Self::Unavailable | Self::Conflict => MAX_STATUS_DELAY / 2,
        };
        backoff.jittered(failures, chance).clamp(MIN_STATUS_DELAY, most).max(retry_after.unwrap_or_default())
    }
}

/// Returns an error and its causes on one line: `error: cause: cause`.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// Describes a network error by its innermost cause. The address is omitted, because it may contain credentials.
pub fn network_error(error: &reqwest::Error) -> String {
    let first = std::error::Error::source(error);
    let last = std::iter::successors(first, |cause| cause.source()).last();
    match last {
        _ if error.is_connect() && error.is_timeout() => "no connection: timed out".to_owned(),
        None => "the request failed".to_owned(),
        Some(last) if error.is_connect() => format!("no connection: {last}"),
        Some(last) => format!("the connection broke: {last}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_limited_to_an_hour() {
        assert_eq!(retry_after(7), Duration::from_secs(7));
        assert_eq!(retry_after(u64::MAX), MAX_RETRY_AFTER);
    }

    #[test]
    fn a_status_that_is_refused_again_and_again_is_written_less_and_less_often() {
        let delays = |class: Class| [1, 2, 3, 4, 5, 6, 7, 8, 20].map(|n| class.status_delay(n, None, 0.5).as_secs());
        assert_eq!(delays(Class::Unavailable), [5, 5, 5, 8, 16, 30, 30, 30, 30]);
        assert_eq!(delays(Class::Denied), [10, 20, 40, 60, 60, 60, 60, 60, 60]);
        assert_eq!(delays(Class::Invalid), [30, 60, 60, 60, 60, 60, 60, 60, 60]);
        assert_eq!(delays(Class::Conflict), [5; 9]);
        let asked = Some(Duration::from_secs(50));
        assert_eq!(Class::Unavailable.status_delay(1, asked, 0.0), Duration::from_secs(50), "the server says so");
    }

    #[test]
    fn a_rate_limit_ends_at_a_time_or_after_seconds() {
        let now = jiff::Timestamp::from_second(1_700_000_000).unwrap();
        let seconds = |remaining, reset| rate_limit_headers(remaining, reset, now).map(|length| length.as_secs());
        assert_eq!(seconds("0", "1700000090"), Some(90));
        assert_eq!(seconds(" 0 ", "1600000000"), Some(0));
        assert_eq!(seconds("0", "45"), Some(45));
        assert_eq!(seconds("0", "1800000000"), Some(MAX_RETRY_AFTER.as_secs()));
        for (remaining, reset) in [("1", "1700000090"), ("", "45"), ("0", "soon"), ("0", "-1")] {
            assert_eq!(seconds(remaining, reset), None, "{remaining} {reset}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = "2015-10-21T07:27:00Z".parse().unwrap();
        let seconds = |text| retry_after_header(text, now).map(|length| length.as_secs());
        assert_eq!(seconds("7"), Some(7));
        assert_eq!(seconds("Wed, 21 Oct 2015 07:28:00 GMT"), Some(60));
        assert_eq!(seconds("Wed, 21 Oct 2015 07:00:00 GMT"), Some(0), "it is over");
        assert_eq!(seconds("Sat, 21 Oct 2090 07:28:00 GMT"), Some(3600));
        assert_eq!(seconds("soon"), None);
    }

    #[test]
    fn invalid_input_is_not_retried_and_everything_else_is() {
        let delays = |class: Class| class.backoff().map(|backoff| [1, 3, u32::MAX].map(|n| backoff.delay(n).as_secs()));
        assert_eq!(delays(Class::Invalid), None);
        assert_eq!(delays(Class::Unavailable), Some([1, 4, 120]));
        assert_eq!(delays(Class::Denied), Some([10, 40, 300]));
    }
}
