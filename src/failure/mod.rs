//! What a failure means for the user and for us: one class, and one table from class to everything else.
//!
//! Invariant: every error of an acting module has a class; condition, retry, log level and exit code follow from it
//! and from nothing else.

use std::time::Duration;

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Someone else wrote first: again at once, bounded.
    Conflict,
    /// Something that is awaited is not there yet: again when it comes.
    NotReady,
    /// Network, 5xx, timeout: again with exponential backoff.
    Unavailable,
    /// 401 or 403 from Git or the API: again slowly, or when the Secret changes.
    Denied,
    /// Only the user can fix it: again when something changes.
    Invalid,
    /// An invariant of ours broke: again after a long while.
    Bug,
}

/// Longest wait that a server can ask for.
const LONGEST_WISH: Duration = Duration::from_secs(3600);

/// The wait that a server asks for with `Retry-After`, in seconds, bounded: servers can ask for anything.
pub fn wished(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(LONGEST_WISH)
}

impl Class {
    /// How long to wait before the attempt number `attempt` (from 1) is repeated, without jitter; `None`: only a
    /// change of the input helps.
    pub fn again(self, attempt: u32) -> Option<Duration> {
        let doubled = |first: Duration, most: Duration| {
            Some(first.saturating_mul(2u32.saturating_pow(attempt.saturating_sub(1).min(20))).min(most))
        };
        match self {
            Self::Invalid => None,
            Self::Conflict => doubled(Duration::from_millis(50), Duration::from_secs(5)),
            Self::NotReady | Self::Unavailable => doubled(Duration::from_secs(1), Duration::from_secs(120)),
            Self::Denied => doubled(Duration::from_secs(10), Duration::from_secs(300)),
            Self::Bug => doubled(Duration::from_secs(30), Duration::from_secs(600)),
        }
    }

    /// Log level of an attempt that failed this way.
    pub fn level(self) -> tracing::Level {
        match self {
            Self::Invalid => tracing::Level::INFO,
            Self::Denied | Self::Unavailable => tracing::Level::WARN,
            Self::NotReady | Self::Conflict => tracing::Level::DEBUG,
            Self::Bug => tracing::Level::ERROR,
        }
    }
}

/// An error and its causes as one line: `what: cause: cause`.
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

/// What went wrong on the way to a server, in the words of the innermost cause; without the address, which may hold
/// what nobody else should read.
pub fn on_the_way(error: &reqwest::Error) -> String {
    let first = std::error::Error::source(error);
    let last = std::iter::successors(first, |cause| cause.source()).last();
    match last {
        _ if error.is_connect() && error.is_timeout() => "no connection: it took too long".to_owned(),
        None => "the request failed".to_owned(),
        Some(last) if error.is_connect() => format!("no connection: {last}"),
        Some(last) => format!("the connection broke: {last}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_cannot_ask_to_be_left_alone_for_ever() {
        assert_eq!(wished(7), Duration::from_secs(7));
        assert_eq!(wished(u64::MAX), LONGEST_WISH);
    }

    #[test]
    fn backs_off_to_a_limit_and_never_for_the_user_alone() {
        assert_eq!(Class::Invalid.again(1), None);
        assert_eq!(Class::Unavailable.again(1), Some(Duration::from_secs(1)));
        assert_eq!(Class::Unavailable.again(3), Some(Duration::from_secs(4)));
        assert_eq!(Class::Unavailable.again(u32::MAX), Some(Duration::from_secs(120)));
    }
}
