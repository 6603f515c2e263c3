//! Tokens that a server has issued, cached until shortly before their expiry.
//!
//! Invariant: at most one request for a token runs at a time per key.
//! Invariant: a token that a server has rejected is not used again.
//! Invariant: a token is used only for the version of the identity for which it was issued.
//! Invariant: after a refusal, the server is not asked again over an equal connection for this version of the identity
//! within a minute. A refusal counts for its connection only, because a proxy of an object may have sent it.
//! Invariant: the number of tokens is bounded, also that of a namespace. No part of an identity's key is cached.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::cloud::CloudFault;
use crate::error::Fault;
use mainstay_object::failure::Class;

/// Time before its expiry at which a token is replaced.
const BEFORE_END: Duration = Duration::from_secs(300);
/// Maximum time for which a token is used. Some are valid for half a day, in which permissions change.
const LONGEST: Duration = Duration::from_secs(3600);
/// Age from which a token may be the cause of a failed use. Without it, a failure that lasts would request a token at each
/// attempt.
const NEW: Duration = Duration::from_secs(300);
/// Time for which a refusal is kept. A grant at the cloud takes effect after at most this time.
const REFUSED: Duration = Duration::from_secs(60);
/// Maximum number of tokens without another bound.
const MOST: usize = 4096;

/// A digest of an identity and of what it opens, of the version of an identity, or of a connection.
pub(super) type Digest = [u8; 32];

/// The token that is wanted.
#[derive(Clone, Copy, Default)]
pub(super) struct Wanted<'n> {
    /// The identity and what it opens.
    pub(super) key: Digest,
    /// The version of the identity.
    pub(super) version: Digest,
    /// The connection that requests the token.
    pub(super) connection: Digest,
    /// The namespace whose bound applies; empty for identities of the agent's settings and of ServiceAccounts.
    pub(super) namespace: &'n str,
}

struct Token<T> {
    /// The token, or why the server refused it.
    value: Result<T, CloudFault>,
    version: Digest,
    connection: Digest,
    /// When the token was issued.
    since: Timestamp,
    /// When the token is replaced.
    until: Timestamp,
}

type Place<T> = Arc<tokio::sync::Mutex<Option<Token<T>>>>;

struct Entry<T> {
    place: Place<T>,
    namespace: Box<str>,
}

/// The tokens of all identities.
pub(super) struct Issued<T> {
    entries: Mutex<HashMap<Digest, Entry<T>>>,
    /// Maximum number of tokens in all.
    most: usize,
    /// Maximum number of tokens of a namespace.
    most_of_one: usize,
}

impl<T> std::fmt::Debug for Issued<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Issued(…)")
    }
}

impl<T> Default for Issued<T> {
    fn default() -> Self {
        Self::bounded(MOST, MOST)
    }
}

impl<T> Issued<T> {
    /// Returns an empty cache of at most `most` tokens, and at most `most_of_one` of one namespace.
    pub(super) fn bounded(most: usize, most_of_one: usize) -> Self {
        Self { entries: Mutex::default(), most, most_of_one }
    }
}

impl<T: Clone> Issued<T> {
    /// Returns a token, from the cache or from the request `asked`. A token of another version of the identity is
    /// replaced.
    pub(super) async fn get(
        &self,
        wanted: Wanted<'_>,
        asked: impl Future<Output = Result<(T, Timestamp), Fault>>,
    ) -> Result<T, Fault> {
        let Wanted { version, connection, .. } = wanted;
        let place = self.place(wanted);
        let mut kept = place.lock().await;
        let now = Timestamp::now();
        let is_usable = |token: &&Token<T>| {
            let is_own = token.value.is_ok() || token.connection == connection;
            now < token.until && token.version == version && is_own
        };
        if let Some(token) = kept.as_ref().filter(is_usable) {
            return token.value.clone().map_err(Fault::from);
        }
        *kept = None;
        let (value, ends) = match asked.await {
            Ok(issued) => issued,
            Err(fault) => {
                *kept = refusal(&fault).map(|why| {
                    let now = Timestamp::now();
                    let until = now.checked_add(REFUSED).unwrap_or(now);
                    Token { value: Err(why), version, connection, since: now, until }
                });
                return Err(fault);
            }
        };
        let until = ends.checked_sub(BEFORE_END).unwrap_or(Timestamp::MIN);
        let until = now.checked_add(LONGEST).map_or(until, |longest| longest.min(until));
        *kept = Some(Token { value: Ok(value.clone()), version, connection, since: now, until });
        Ok(value)
    }

    /// Drops the token with a key after a server has rejected it.
    pub(super) fn refused(&self, key: Digest) {
        self.entries.lock().remove(&key);
    }

    /// Drops the token with a key after a use that failed, possibly because of the token. A new token stays.
    pub(super) fn doubted(&self, key: Digest) {
        let mut entries = self.entries.lock();
        let now = Timestamp::now();
        let is_old = |token: &Token<T>| token.since.checked_add(NEW).is_ok_and(|end| end < now);
        let is_doubtful = entries
            .get(&key)
            .is_some_and(|entry| entry.place.try_lock().is_ok_and(|token| token.as_ref().is_some_and(is_old)));
        if is_doubtful {
            entries.remove(&key);
        }
    }

    fn place(&self, wanted: Wanted<'_>) -> Place<T> {
        let Wanted { key, namespace, .. } = wanted;
        let mut entries = self.entries.lock();
        if !entries.contains_key(&key) {
            let now = Timestamp::now();
            // A locked entry is in use and stays.
            entries.retain(|_, entry| {
                entry.place.try_lock().map_or(true, |token| token.as_ref().is_some_and(|token| now < token.until))
            });
            let is_of_namespace = |entry: &Entry<T>| *entry.namespace == *namespace;
            if entries.values().filter(|entry| is_of_namespace(entry)).count() >= self.most_of_one {
                remove_first(&mut entries, is_of_namespace);
            }
            if entries.len() >= self.most {
                remove_first(&mut entries, |_| true);
            }
        }
        let entry =
            entries.entry(key).or_insert_with(|| Entry { place: Place::default(), namespace: namespace.into() });
        Arc::clone(&entry.place)
    }
}

/// Removes the token that ends first among those of the entries for which `is_of` is true.
fn remove_first<T>(entries: &mut HashMap<Digest, Entry<T>>, is_of: impl Fn(&Entry<T>) -> bool) {
    let ends = |entry: &Entry<T>| {
        let token = entry.place.try_lock().ok()?;
        token.as_ref().map(|token| token.until)
    };
    let of = entries.iter().filter(|(_, entry)| is_of(entry));
    let first = of.filter_map(|(key, entry)| Some((ends(entry)?, *key))).min();
    if let Some((_, key)) = first {
        entries.remove(&key);
    }
}

/// Returns the refusal of a cloud. Other failures may be over at the next attempt, or depend on the connection.
fn refusal(fault: &Fault) -> Option<CloudFault> {
    match fault {
        Fault::Cloud(refused @ CloudFault::Refused { .. }) if refused.class() == Class::Denied => Some(refused.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_seconds(seconds: u64) -> Timestamp {
        Timestamp::now().checked_add(Duration::from_secs(seconds)).unwrap()
    }

    fn key(number: usize) -> Digest {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        key
    }

    fn wanted(number: usize, version: usize) -> Wanted<'static> {
        Wanted { key: key(number), version: key(version), ..Wanted::default() }
    }

    #[tokio::test]
    async fn a_token_is_kept_until_shortly_before_its_end_and_for_one_version() {
        let issued = Issued::default();
        let get = async |seconds, version, new: &'static str| {
            issued.get(wanted(1, version), async { Ok((new, in_seconds(seconds))) }).await.unwrap()
        };
        assert_eq!(get(290, 1, "short").await, "short");
        assert_eq!(get(3600, 1, "long").await, "long");
        assert_eq!(get(3600, 1, "unused").await, "long");
        assert_eq!(get(3600, 2, "changed").await, "changed");
        issued.refused(key(1));
        assert_eq!(get(3600, 2, "again").await, "again");
    }

    #[tokio::test]
    async fn a_doubted_token_is_dropped_unless_it_is_new() {
        let issued = Issued::default();
        let get = async |new| issued.get(wanted(1, 1), async { Ok((new, in_seconds(3600))) }).await.unwrap();
        assert_eq!(get("first").await, "first");
        issued.doubted(key(1));
        assert_eq!(get("second").await, "first");
        let long_ago = Timestamp::now().checked_sub(NEW * 2).unwrap();
        issued.place(wanted(1, 1)).lock().await.as_mut().unwrap().since = long_ago;
        issued.doubted(key(1));
        assert_eq!(get("third").await, "third");
    }

    #[tokio::test]
    async fn a_failure_is_not_kept() {
        let issued = Issued::default();
        let failed = issued.get(wanted(1, 1), async { Err::<(u8, _), _>(Fault::Stopped) }).await;
        assert!(failed.is_err());
        assert_eq!(issued.get(wanted(1, 1), async { Ok((7, in_seconds(3600))) }).await.unwrap(), 7);
    }

    fn refused(status: u16) -> Fault {
        let [host, identity, hint] = ["login.example", "the agent", "grant it"].map(str::to_owned);
        CloudFault::Refused { host, identity, asked: "an access token", status, code: None, hint }.into()
    }

    #[tokio::test]
    async fn a_refusal_of_a_cloud_is_kept_for_a_minute_and_for_one_version() {
        let issued = Issued::default();
        let get = async |version: usize, status: u16| {
            issued.get(wanted(1, version), async { Err::<(u8, Timestamp), _>(refused(status)) }).await
        };
        assert!(get(1, 401).await.unwrap_err().to_string().contains("(401)"));
        assert!(get(1, 400).await.unwrap_err().to_string().contains("(401)"), "the server is not asked again");
        assert!(get(2, 400).await.unwrap_err().to_string().contains("(400)"), "another version is asked for");
        let kept = issued.place(wanted(1, 1)).lock().await.as_ref().map(|kept| kept.until.duration_since(kept.since));
        assert!(kept.is_some_and(|kept| kept.as_secs() <= 60), "{kept:?}");
        let long_ago = Timestamp::now().checked_sub(REFUSED).unwrap();
        issued.place(wanted(1, 1)).lock().await.as_mut().unwrap().until = long_ago;
        let again = issued.get(wanted(1, 2), async { Ok((7, in_seconds(3600))) }).await;
        assert_eq!(again.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_refusal_counts_for_its_connection_and_a_token_for_all() {
        let issued = Issued::default();
        let over = |connection: usize| Wanted { connection: key(connection), ..wanted(1, 1) };
        let refuse = async |connection: usize, status: u16| {
            issued.get(over(connection), async { Err::<(u8, Timestamp), _>(refused(status)) }).await.unwrap_err()
        };
        assert!(refuse(1, 401).await.to_string().contains("(401)"));
        assert!(refuse(1, 400).await.to_string().contains("(401)"), "the refusal is kept");
        assert!(refuse(2, 400).await.to_string().contains("(400)"), "another connection asks the server");
        let get = async |connection: usize, new: u8| {
            issued.get(over(connection), async { Ok((new, in_seconds(3600))) }).await.unwrap()
        };
        assert_eq!((get(3, 7).await, get(1, 8).await, get(2, 9).await), (7, 7, 7));
    }

    #[tokio::test]
    async fn a_namespace_replaces_its_own_tokens_beyond_its_bound() {
        let issued = Issued::bounded(5, 3);
        let get = async |number: usize, namespace: &'static str| {
            let wanted = Wanted { namespace, ..wanted(number, 0) };
            issued.get(wanted, async { Ok((number, in_seconds(1000 + number as u64))) }).await.unwrap()
        };
        let kept = || {
            let entries = issued.entries.lock();
            (0..10).filter(|number| entries.contains_key(&key(*number))).collect::<Vec<_>>()
        };
        get(0, "shop").await;
        for number in 1..6 {
            get(number, "tenant").await;
        }
        assert_eq!(kept(), [0, 3, 4, 5]);
        get(6, "shop").await;
        get(7, "shop").await;
        assert_eq!(kept(), [3, 4, 5, 6, 7], "in all there are at most five");
    }

    #[tokio::test]
    async fn a_cloud_that_is_busy_is_asked_again() {
        let issued = Issued::default();
        for status in [429, 503] {
            assert!(issued.get(wanted(1, 1), async { Err::<(u8, Timestamp), _>(refused(status)) }).await.is_err());
        }
        assert_eq!(issued.get(wanted(1, 1), async { Ok((7, in_seconds(3600))) }).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn the_token_that_ends_first_makes_room_for_the_next_one() {
        let issued = Issued::default();
        for number in 0..MOST {
            let end = if number == 5 { 400 } else { 3000 };
            issued.get(wanted(number, 0), async { Ok((number, in_seconds(end))) }).await.unwrap();
        }
        issued.get(wanted(MOST, 0), async { Ok((MOST, in_seconds(3000))) }).await.unwrap();
        assert_eq!(issued.entries.lock().len(), MOST);
        assert!(!issued.entries.lock().contains_key(&key(5)));
    }
}
