//! Tokens of links and sessions, and the end of sessions.
//!
//! Invariant: the server stores only digests of tokens, and compares digests. Invariant: a link opens only one session.
//! Invariant: the number of sessions is limited for a user and for the server. Invariant: at its limit, the server
//! closes a session of the group with the most sessions. So no group can lock out users of another group. Invariant: the work
//! of a session is stopped when the session is closed, even if a request still has its content.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Idle timeout of a session, and its maximum lifetime.
const IDLE: SignedDuration = SignedDuration::from_hours(2);
const WHOLE: SignedDuration = SignedDuration::from_hours(12);
/// Maximum number of sessions of one user. A further session closes the session that was used least recently.
const OF_USER: usize = 5;
/// Maximum number of all sessions. A further session closes a session of the group with the most sessions. A session takes
/// half a MiB of the pod's memory if its watches have read large objects.
pub(crate) const ALL: usize = 100;

/// The group of owners without a name, and the beginning of their shares. Shares of others begin with `user ` or `namespace `.
const UNKNOWN: &str = "unknown";
const UNKNOWN_SHARE: &str = "token ";

/// The owner of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    user: String,
    /// A group of users that the same tenant can create: the ServiceAccounts of a namespace, or the user alone.
    group: String,
}

impl Owner {
    /// Returns the owner with this name.
    pub(crate) fn of(user: &str) -> Self {
        let account = user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
        let group = account.map_or_else(|| format!("user {user}"), |(namespace, _)| format!("namespace {namespace}"));
        Self { user: user.to_owned(), group }
    }

    /// Returns the group whose limits of requests and of memory apply to the owner. Owners without a name share none.
    pub(crate) fn share(&self) -> &str {
        if self.group == UNKNOWN { &self.user } else { &self.group }
    }

    /// Returns an owner whose name the API server does not report. Tokens of unknown owners are not treated as those of
    /// one user.
    pub(crate) fn unknown(token: &str) -> Self {
        let TokenDigest(digest) = TokenDigest::of(token);
        Self { user: format!("{UNKNOWN_SHARE}{}", hex::encode(digest)), group: UNKNOWN.to_owned() }
    }
}

/// Returns whether it is the share of an owner without a name.
pub(crate) fn is_unknown(share: &str) -> bool {
    share.starts_with(UNKNOWN_SHARE)
}

/// The digest of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Returns the digest of a token.
    pub(crate) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

/// The sessions of a server. `T` is the content of a session.
pub(crate) struct Sessions<T> {
    links: Vec<TokenDigest>,
    open: HashMap<TokenDigest, Open<T>>,
}

struct Open<T> {
    owner: Owner,
    end: Timestamp,
    used: Timestamp,
    kept: T,
    /// Stops the work of the session when it is closed.
    _stop: DropGuard,
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

    /// Removes a link, so that it cannot be used again. Returns whether it existed.
    pub(crate) fn take_link(&mut self, token: TokenDigest) -> bool {
        let before = self.links.len();
        self.links.retain(|link| *link != token);
        self.links.len() < before
    }

    /// Opens a session of an owner, until `expiry` at the latest. Returns the session of this token. If a session with
    /// this token already exists, that session is returned. Closes another session if the owner or the server has too
    /// many sessions. `stop` is cancelled when the session is closed.
    pub(crate) fn open(
        &mut self,
        token: TokenDigest,
        owner: Owner,
        (kept, stop): (T, CancellationToken),
        expiry: Option<Timestamp>,
        now: Timestamp,
    ) -> T {
        if let Some(earlier) = self.of(token, now) {
            return earlier;
        }
        if self.open.values().filter(|open| open.owner == owner).count() >= OF_USER {
            self.end_oldest(|open| open.owner == owner);
        }
        if self.open.len() >= ALL {
            // The new session is counted, so that a group with the most sessions closes a session of its own.
            let own = HashMap::from([(owner.group.as_str(), 1)]);
            if let Some(group) = self.largest(own, |_| 1) {
                self.end_oldest(|open| open.owner.group == group);
            }
        }
        let open = Open { owner, end: end(expiry, now), used: now, kept: kept.clone(), _stop: stop.drop_guard() };
        self.open.insert(token, open);
        kept
    }

    /// Closes the least recently used session of the group with the largest weight, unless that weight is zero. Returns
    /// whether a session was closed.
    pub(crate) fn end_heaviest(&mut self, weight: impl Fn(&T) -> usize) -> bool {
        let group = self.largest(HashMap::new(), |open| weight(&open.kept));
        group.is_some_and(|group| self.end_oldest(|open| open.owner.group == group && weight(&open.kept) > 0))
    }

    /// Returns the group with the largest sum. Among groups with equal sums, returns the group whose session was used
    /// least recently.
    fn largest<'s>(&'s self, mut sums: HashMap<&'s str, usize>, of: impl Fn(&Open<T>) -> usize) -> Option<String> {
        for open in self.open.values() {
            *sums.entry(&open.owner.group).or_default() += of(open);
        }
        let most = sums.values().copied().max()?;
        let among = self.open.values().filter(|open| sums.get(open.owner.group.as_str()) == Some(&most));
        among.min_by_key(|open| open.used).map(|open| open.owner.group.clone())
    }

    /// Closes the least recently used of the matching sessions. Returns whether a session was closed.
    fn end_oldest(&mut self, is_meant: impl Fn(&Open<T>) -> bool) -> bool {
        let meant = self.open.iter().filter(|(_, open)| is_meant(open));
        let oldest = meant.min_by_key(|(_, open)| open.used).map(|(token, _)| *token);
        oldest.is_some_and(|oldest| self.open.remove(&oldest).is_some())
    }

    /// Returns the session of a request, if it has not expired. Expired sessions are removed.
    pub(crate) fn of(&mut self, token: TokenDigest, now: Timestamp) -> Option<T> {
        self.remove_ended(now);
        let open = self.open.get_mut(&token)?;
        open.used = now;
        Some(open.kept.clone())
    }

    /// Closes a session.
    pub(crate) fn end(&mut self, token: TokenDigest) {
        self.open.remove(&token);
    }

    /// Removes the sessions that have expired.
    pub(crate) fn remove_ended(&mut self, now: Timestamp) {
        self.open.retain(|_, open| now.duration_since(open.used) < IDLE && now < open.end);
    }
}

/// Returns the end of a session that begins now, whose token has this expiry.
pub(crate) fn end(expiry: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let whole = now + WHOLE;
    expiry.map_or(whole, |expiry| expiry.min(whole))
}

/// Returns the values of the cookies with a name in a header, in the order of the header. Others may set cookies that are
/// no text.
pub(crate) fn cookies<'h>(header: &'h [u8], name: &'h str) -> impl Iterator<Item = &'h str> {
    let pairs = header.split(|byte| *byte == b';').filter_map(|pair| std::str::from_utf8(pair).ok());
    pairs.filter_map(move |pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours)
    }

    fn content<T>(content: T) -> (T, CancellationToken) {
        (content, CancellationToken::new())
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
        sessions.open(token, Owner::of("alice"), content(1), None, at(0));
        assert_eq!(sessions.of(TokenDigest::of("b"), at(0)), None);
        assert_eq!((0..12).map(|hour| sessions.of(token, at(hour))).filter(|found| *found == Some(1)).count(), 12);
        assert_eq!(sessions.of(token, at(12)), None);
        sessions.open(token, Owner::of("alice"), content(1), None, at(0));
        assert_eq!(sessions.of(token, at(2)), None);
        assert_eq!(sessions.of(token, at(0)), None);
    }

    #[test]
    fn a_session_ends_with_its_token_and_when_its_user_says_so() {
        let mut sessions = Sessions::default();
        let token = TokenDigest::of("a");
        sessions.open(token, Owner::of("alice"), content(1), Some(at(1)), at(0));
        assert_eq!(sessions.of(token, at(0)), Some(1));
        assert_eq!(sessions.of(token, at(1)), None);
        sessions.open(token, Owner::of("alice"), content(1), Some(at(100)), at(0));
        sessions.end(token);
        assert_eq!(sessions.of(token, at(0)), None);
    }

    #[test]
    fn the_work_of_a_session_stops_however_the_session_is_closed() {
        let opened = |sessions: &mut Sessions<usize>, number: usize, user: &str| {
            let (token, stop) = (TokenDigest::of(&number.to_string()), CancellationToken::new());
            sessions.open(token, Owner::of(user), (number, stop.clone()), None, second(number));
            (token, stop)
        };
        let ends: [fn(&mut Sessions<usize>, TokenDigest); 4] = [
            |sessions, token| sessions.end(token),
            |sessions, _| sessions.remove_ended(at(3)),
            |sessions, _| assert!(sessions.end_heaviest(|_| 1)),
            |sessions, _| (1..=OF_USER).for_each(|number| open(sessions, number, "alice")),
        ];
        for end in ends {
            let mut sessions = Sessions::default();
            let (token, stop) = opened(&mut sessions, 0, "alice");
            assert!(!stop.is_cancelled());
            end(&mut sessions, token);
            assert!(stop.is_cancelled());
        }
    }

    #[test]
    fn owners_without_a_name_share_no_limits() {
        let share = |owner: Owner| owner.share().to_owned();
        assert_ne!(share(Owner::unknown("1")), share(Owner::unknown("2")));
        assert_eq!(share(Owner::unknown("1")), share(Owner::unknown("1")));
        assert!(is_unknown(&share(Owner::unknown("1"))));
        assert_eq!(share(Owner::of(&account(1))), share(Owner::of(&account(2))));
        assert!(!is_unknown(&share(Owner::of("token 1"))));
    }

    #[test]
    fn a_user_ends_own_sessions_only_and_one_token_has_one_session() {
        let mut sessions = Sessions::default();
        let other = TokenDigest::of("other");
        sessions.open(other, Owner::of("bob"), content(99), None, at(0));
        let tokens: Vec<TokenDigest> = (0..=OF_USER).map(|at| TokenDigest::of(&at.to_string())).collect();
        for (kept, token) in tokens.iter().enumerate() {
            let now = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(i64::try_from(kept).unwrap());
            assert_eq!(sessions.open(*token, Owner::of("alice"), content(kept), None, now), kept);
        }
        assert_eq!(sessions.of(tokens[0], at(0)), None);
        assert_eq!(sessions.of(tokens[1], at(0)), Some(1));
        assert_eq!(sessions.of(other, at(0)), Some(99));
        assert_eq!(sessions.open(other, Owner::of("bob"), content(100), None, at(0)), 99);
    }

    fn second(seconds: usize) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(i64::try_from(seconds).unwrap())
    }

    /// Opens a session whose token and value are this number.
    fn open(sessions: &mut Sessions<usize>, number: usize, user: &str) {
        let token = TokenDigest::of(&number.to_string());
        assert_eq!(sessions.open(token, Owner::of(user), content(number), None, second(number)), number);
    }

    fn account(number: usize) -> String {
        format!("system:serviceaccount:tenant:account-{number}")
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let mut sessions = Sessions::default();
        for number in 0..3 * ALL {
            open(&mut sessions, number, &account(number));
            assert!(sessions.open.len() <= ALL);
        }
        assert_eq!(sessions.open.len(), ALL);
        sessions.remove_ended(at(3));
        assert!(sessions.open.is_empty());
    }

    #[test]
    fn a_namespace_with_very_many_accounts_ends_no_session_of_others_and_keeps_no_one_out() {
        let mut sessions = Sessions::default();
        let of = |sessions: &mut Sessions<usize>, number: usize| {
            sessions.open.contains_key(&TokenDigest::of(&number.to_string()))
        };
        open(&mut sessions, 0, "administrator");
        open(&mut sessions, 1, "system:serviceaccount:other:reader");
        for number in 2..2 * ALL {
            open(&mut sessions, number, &account(number));
        }
        assert!(of(&mut sessions, 0) && of(&mut sessions, 1));
        open(&mut sessions, 1000, "late");
        assert!(of(&mut sessions, 1000) && sessions.open.len() == ALL);
        // Users whose names the server does not report form one group.
        for number in 0..ALL {
            let (token, owner) = (TokenDigest::of(&format!("u{number}")), Owner::unknown(&number.to_string()));
            sessions.open(token, owner, content(number), None, second(2000));
        }
        assert!(of(&mut sessions, 0) && of(&mut sessions, 1) && of(&mut sessions, 1000));
    }

    #[test]
    fn a_full_server_ends_the_least_used_session_of_the_group_that_has_most() {
        let mut sessions = Sessions::default();
        for number in 0..ALL {
            open(&mut sessions, number, &format!("user-{number}"));
        }
        // All groups have one session. The second session of a user closes the user's first session.
        open(&mut sessions, ALL, "user-7");
        assert_eq!(sessions.of(TokenDigest::of("7"), second(ALL)), None);
        assert_eq!(sessions.of(TokenDigest::of("0"), second(ALL)), Some(0));
        open(&mut sessions, ALL + 1, "late");
        assert_eq!(sessions.of(TokenDigest::of("1"), second(ALL)), None);
    }

    #[test]
    fn the_group_with_the_most_memory_ends_a_session_first() {
        let mut sessions = Sessions::default();
        for (number, user) in [(10, "administrator"), (9, &*account(1)), (8, &*account(2)), (0, &*account(3))] {
            open(&mut sessions, number, user);
        }
        assert!(sessions.end_heaviest(|bytes| *bytes));
        assert_eq!(sessions.of(TokenDigest::of("8"), second(20)), None);
        assert!(sessions.end_heaviest(|bytes| *bytes));
        assert_eq!(sessions.of(TokenDigest::of("10"), second(20)), None);
        assert!(sessions.end_heaviest(|bytes| *bytes));
        assert_eq!(sessions.of(TokenDigest::of("9"), second(20)), None);
        assert!(!sessions.end_heaviest(|bytes| *bytes), "a session without rows frees no memory");
        assert_eq!(sessions.of(TokenDigest::of("0"), second(20)), Some(0));
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let found = |header: &[u8]| cookies(header, "ui_80").map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(found(b"a=1; ui_80=x; b=2; ui_80=y"), ["x", "y"]);
        assert_eq!(found(b"a=\xff; ui_80=x"), ["x"]);
        assert!(found(b"xui_80=1; ui_801=2").is_empty());
        assert!(found(b"").is_empty());
    }
}
