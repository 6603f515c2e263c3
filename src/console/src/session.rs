//! Tokens of links and sessions, and the end of sessions.
//!
//! Invariant: the server keeps digests of tokens only, and compares digests.
//! Invariant: a link opens one session.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

/// A session ends after this time without a request, and after this time at all.
const IDLE: SignedDuration = SignedDuration::from_hours(2);
const WHOLE: SignedDuration = SignedDuration::from_hours(12);

/// The digest of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Returns the digest of a token.
    pub(crate) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

/// The sessions of a server. `T` is what a session has.
pub(crate) struct Sessions<T> {
    links: Vec<TokenDigest>,
    open: HashMap<TokenDigest, Open<T>>,
}

struct Open<T> {
    opened: Timestamp,
    used: Timestamp,
    kept: T,
}

impl<T> Default for Sessions<T> {
    fn default() -> Self {
        Self { links: Vec::new(), open: HashMap::new() }
    }
}

impl<T: Clone> Sessions<T> {
    /// Adds a link.
    pub(crate) fn add_link(&mut self, token: TokenDigest) {
        self.links.push(token);
    }

    /// Uses a link up. Returns whether it existed.
    pub(crate) fn take_link(&mut self, token: TokenDigest) -> bool {
        let before = self.links.len();
        self.links.retain(|link| *link != token);
        self.links.len() < before
    }

    /// Opens a session.
    pub(crate) fn open(&mut self, token: TokenDigest, kept: T, now: Timestamp) {
        self.open.insert(token, Open { opened: now, used: now, kept });
    }

    /// Returns the session of a request, if it has not ended. Ended sessions are removed.
    pub(crate) fn of(&mut self, token: TokenDigest, now: Timestamp) -> Option<T> {
        self.open.retain(|_, open| now.duration_since(open.used) < IDLE && now.duration_since(open.opened) < WHOLE);
        let open = self.open.get_mut(&token)?;
        open.used = now;
        Some(open.kept.clone())
    }
}

/// Returns the value of a cookie.
pub(crate) fn cookie<'h>(header: &'h str, name: &str) -> Option<&'h str> {
    header.split(';').find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours)
    }

    #[test]
    fn a_link_opens_one_session() {
        let mut sessions = Sessions::<()>::default();
        sessions.add_link(TokenDigest::of("a"));
        assert!(!sessions.take_link(TokenDigest::of("b")));
        assert!(sessions.take_link(TokenDigest::of("a")));
        assert!(!sessions.take_link(TokenDigest::of("a")));
    }

    #[test]
    fn a_session_ends_without_requests_and_at_the_latest_after_half_a_day() {
        let mut sessions = Sessions::default();
        let token = TokenDigest::of("a");
        sessions.open(token, 1, at(0));
        assert_eq!(sessions.of(TokenDigest::of("b"), at(0)), None);
        assert_eq!((0..12).map(|hour| sessions.of(token, at(hour))).filter(|found| *found == Some(1)).count(), 12);
        assert_eq!(sessions.of(token, at(12)), None);
        sessions.open(token, 1, at(0));
        assert_eq!(sessions.of(token, at(2)), None);
        assert_eq!(sessions.of(token, at(0)), None);
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        assert_eq!(cookie("a=1; ui_80=x; b=2", "ui_80"), Some("x"));
        assert_eq!(cookie("xui_80=1; ui_801=2", "ui_80"), None);
        assert_eq!(cookie("", "ui_80"), None);
    }
}
