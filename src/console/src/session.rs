//! Tokens of links and sessions, and the end of sessions.
//!
//! Invariant: the server keeps digests of tokens only, and compares digests.
//! Invariant: a link opens one session.
//! Invariant: a user has a bounded number of sessions, and so has the server.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

/// A session ends after this time without a request, and after this time at all.
const IDLE: SignedDuration = SignedDuration::from_hours(2);
const WHOLE: SignedDuration = SignedDuration::from_hours(12);
/// Maximum number of sessions of one user. A further one ends the one that was used least recently.
const OF_USER: usize = 5;
/// Maximum number of all sessions. A further one is refused.
const ALL: usize = 200;

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
    user: String,
    end: Timestamp,
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

    /// Opens a session of a user, until `expiry` at the latest. Returns the session of this token: an earlier one if
    /// there is one, and `None` if the server has too many.
    pub(crate) fn open(
        &mut self,
        token: TokenDigest,
        user: &str,
        kept: T,
        expiry: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<T> {
        if let Some(earlier) = self.of(token, now) {
            return Some(earlier);
        }
        let own = self.open.iter().filter(|(_, open)| open.user == user);
        let (count, oldest) =
            own.fold((0, None), |(count, oldest): (usize, Option<(Timestamp, TokenDigest)>), (token, open)| {
                let older = oldest.is_none_or(|(used, _)| open.used < used);
                (count + 1, if older { Some((open.used, *token)) } else { oldest })
            });
        if let (true, Some((_, oldest))) = (count >= OF_USER, oldest) {
            self.open.remove(&oldest);
        }
        if self.open.len() >= ALL {
            return None;
        }
        let whole = now + WHOLE;
        let end = expiry.map_or(whole, |expiry| expiry.min(whole));
        self.open.insert(token, Open { user: user.to_owned(), end, used: now, kept: kept.clone() });
        Some(kept)
    }

    /// Returns the session of a request, if it has not ended. Ended sessions are removed.
    pub(crate) fn of(&mut self, token: TokenDigest, now: Timestamp) -> Option<T> {
        self.remove_ended(now);
        let open = self.open.get_mut(&token)?;
        open.used = now;
        Some(open.kept.clone())
    }

    /// Ends a session.
    pub(crate) fn end(&mut self, token: TokenDigest) {
        self.open.remove(&token);
    }

    /// Removes the sessions that have ended.
    pub(crate) fn remove_ended(&mut self, now: Timestamp) {
        self.open.retain(|_, open| now.duration_since(open.used) < IDLE && now < open.end);
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
        sessions.open(token, "alice", 1, None, at(0));
        assert_eq!(sessions.of(TokenDigest::of("b"), at(0)), None);
        assert_eq!((0..12).map(|hour| sessions.of(token, at(hour))).filter(|found| *found == Some(1)).count(), 12);
        assert_eq!(sessions.of(token, at(12)), None);
        sessions.open(token, "alice", 1, None, at(0));
        assert_eq!(sessions.of(token, at(2)), None);
        assert_eq!(sessions.of(token, at(0)), None);
    }

    #[test]
    fn a_session_ends_with_its_token_and_when_its_user_says_so() {
        let mut sessions = Sessions::default();
        let token = TokenDigest::of("a");
        sessions.open(token, "alice", 1, Some(at(1)), at(0));
        assert_eq!(sessions.of(token, at(0)), Some(1));
        assert_eq!(sessions.of(token, at(1)), None);
        sessions.open(token, "alice", 1, Some(at(100)), at(0));
        sessions.end(token);
        assert_eq!(sessions.of(token, at(0)), None);
    }

    #[test]
    fn a_user_ends_own_sessions_only_and_one_token_has_one_session() {
        let mut sessions = Sessions::default();
        let other = TokenDigest::of("other");
        sessions.open(other, "bob", 99, None, at(0));
        let tokens: Vec<TokenDigest> = (0..=OF_USER).map(|at| TokenDigest::of(&at.to_string())).collect();
        for (kept, token) in tokens.iter().enumerate() {
            assert_eq!(
                sessions.open(
                    *token,
                    "alice",
                    kept,
                    None,
                    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(i64::try_from(kept).unwrap())
                ),
                Some(kept)
            );
        }
        assert_eq!(sessions.of(tokens[0], at(0)), None);
        assert_eq!(sessions.of(tokens[1], at(0)), Some(1));
        assert_eq!(sessions.of(other, at(0)), Some(99));
        assert_eq!(sessions.open(other, "bob", 100, None, at(0)), Some(99));
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let mut sessions = Sessions::default();
        let open = |sessions: &mut Sessions<usize>, user: usize| {
            sessions.open(TokenDigest::of(&user.to_string()), &user.to_string(), user, None, at(0))
        };
        assert!((0..ALL).all(|user| open(&mut sessions, user) == Some(user)));
        assert_eq!(open(&mut sessions, ALL), None);
        sessions.remove_ended(at(3));
        assert_eq!(open(&mut sessions, ALL), Some(ALL));
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        assert_eq!(cookie("a=1; ui_80=x; b=2", "ui_80"), Some("x"));
        assert_eq!(cookie("xui_80=1; ui_801=2", "ui_80"), None);
        assert_eq!(cookie("", "ui_80"), None);
    }
}
