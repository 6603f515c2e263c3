//! Tokens that a server has issued, cached until shortly before their expiry.
//!
//! Invariant: at most one request for a token runs at a time per key.
//! Invariant: a token that a server has rejected is not used again.
//! Invariant: a token is used only for the version of the identity for which it was issued.
//! Invariant: after a refusal, the server is not asked again for this version of the identity within a minute.
//! Invariant: the number of tokens is bounded. No part of an identity's key is cached.

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
/// Maximum number of tokens.
const MOST: usize = 4096;

/// A digest of an identity and of what it opens, or of the version of an identity.
pub(super) type Digest = [u8; 32];

struct Token<T> {
    /// The token, or why the server refused it.
    value: Result<T, CloudFault>,
    version: Digest,
    /// When the token was issued.
    since: Timestamp,
    /// When the token is replaced.
    until: Timestamp,
}

type Place<T> = Arc<tokio::sync::Mutex<Option<Token<T>>>>;

/// The tokens of all identities.
pub(super) struct Issued<T>(Mutex<HashMap<Digest, Place<T>>>);

impl<T> std::fmt::Debug for Issued<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Issued(…)")
    }
}

impl<T> Default for Issued<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Issued<T> {
    /// Returns the token with a key, from the cache or from the request `asked`. A token of another version of the
    /// identity is replaced.
    pub(super) async fn get(
        &self,
        key: Digest,
        version: Digest,
        asked: impl Future<Output = Result<(T, Timestamp), Fault>>,
    ) -> Result<T, Fault> {
        let place = self.place(key);
        let mut kept = place.lock().await;
        let now = Timestamp::now();
        if let Some(token) = kept.as_ref().filter(|token| now < token.until && token.version == version) {
            return token.value.clone().map_err(Fault::from);
        }
        *kept = None;
        let (value, ends) = match asked.await {
            Ok(issued) => issued,
            Err(fault) => {
                *kept = refusal(&fault).map(|why| {
                    let now = Timestamp::now();
                    let until = now.checked_add(REFUSED).unwrap_or(now);
                    Token { value: Err(why), version, since: now, until }
                });
                return Err(fault);
            }
        };
        let until = ends.checked_sub(BEFORE_END).unwrap_or(Timestamp::MIN);
        let until = now.checked_add(LONGEST).map_or(until, |longest| longest.min(until));
        *kept = Some(Token { value: Ok(value.clone()), version, since: now, until });
        Ok(value)
    }

    /// Drops the token with a key after a server has rejected it.
    pub(super) fn refused(&self, key: Digest) {
        self.0.lock().remove(&key);
    }

    /// Drops the token with a key after a use that failed, possibly because of the token. A new token stays.
    pub(super) fn doubted(&self, key: Digest) {
        let mut places = self.0.lock();
        let now = Timestamp::now();
        let is_old = |token: &Token<T>| token.since.checked_add(NEW).is_ok_and(|end| end < now);
        let is_doubtful = places
            .get(&key)
            .is_some_and(|place| place.try_lock().is_ok_and(|token| token.as_ref().is_some_and(is_old)));
        if is_doubtful {
            places.remove(&key);
        }
    }

    fn place(&self, key: Digest) -> Place<T> {
        let mut places = self.0.lock();
        if !places.contains_key(&key) {
            let now = Timestamp::now();
            // A locked entry is in use and stays.
            places.retain(|_, place| {
                place.try_lock().map_or(true, |token| token.as_ref().is_some_and(|token| now < token.until))
            });
            if places.len() >= MOST {
                let ends =
                    |place: &Place<T>| place.try_lock().ok().and_then(|token| token.as_ref().map(|token| token.until));
                let first = places.iter().filter_map(|(key, place)| Some((ends(place)?, *key))).min();
                first.map(|(_, key)| places.remove(&key));
            }
        }
        Arc::clone(places.entry(key).or_default())
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

    #[tokio::test]
    async fn a_token_is_kept_until_shortly_before_its_end_and_for_one_version() {
        let issued = Issued::default();
        let get = async |seconds, version, new: &'static str| {
            issued.get(key(1), key(version), async { Ok((new, in_seconds(seconds))) }).await.unwrap()
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
        let get = async |new| issued.get(key(1), key(1), async { Ok((new, in_seconds(3600))) }).await.unwrap();
        assert_eq!(get("first").await, "first");
        issued.doubted(key(1));
        assert_eq!(get("second").await, "first");
        let long_ago = Timestamp::now().checked_sub(NEW * 2).unwrap();
        issued.place(key(1)).lock().await.as_mut().unwrap().since = long_ago;
        issued.doubted(key(1));
        assert_eq!(get("third").await, "third");
    }

    #[tokio::test]
    async fn a_failure_is_not_kept() {
        let issued = Issued::default();
        let failed = issued.get(key(1), key(1), async { Err::<(u8, _), _>(Fault::Stopped) }).await;
        assert!(failed.is_err());
        assert_eq!(issued.get(key(1), key(1), async { Ok((7, in_seconds(3600))) }).await.unwrap(), 7);
    }

    fn refused(status: u16) -> Fault {
        let [host, identity, hint] = ["login.example", "the agent", "grant it"].map(str::to_owned);
        CloudFault::Refused { host, identity, asked: "an access token", status, code: None, hint }.into()
    }

    #[tokio::test]
    async fn a_refusal_of_a_cloud_is_kept_for_a_minute_and_for_one_version() {
        let issued = Issued::default();
        let get = async |version: usize, status: u16| {
            issued.get(key(1), key(version), async { Err::<(u8, Timestamp), _>(refused(status)) }).await
        };
        assert!(get(1, 401).await.unwrap_err().to_string().contains("(401)"));
        assert!(get(1, 400).await.unwrap_err().to_string().contains("(401)"), "the server is not asked again");
        assert!(get(2, 400).await.unwrap_err().to_string().contains("(400)"), "another version is asked for");
        let kept = issued.place(key(1)).lock().await.as_ref().map(|kept| kept.until.duration_since(kept.since));
        assert!(kept.is_some_and(|kept| kept.as_secs() <= 60), "{kept:?}");
        let long_ago = Timestamp::now().checked_sub(REFUSED).unwrap();
        issued.place(key(1)).lock().await.as_mut().unwrap().until = long_ago;
        let again = issued.get(key(1), key(2), async { Ok((7, in_seconds(3600))) }).await;
        assert_eq!(again.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_cloud_that_is_busy_is_asked_again() {
        let issued = Issued::default();
        for status in [429, 503] {
            assert!(issued.get(key(1), key(1), async { Err::<(u8, Timestamp), _>(refused(status)) }).await.is_err());
        }
        assert_eq!(issued.get(key(1), key(1), async { Ok((7, in_seconds(3600))) }).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn the_token_that_ends_first_makes_room_for_the_next_one() {
        let issued = Issued::default();
        for number in 0..MOST {
            let end = if number == 5 { 400 } else { 3000 };
            issued.get(key(number), key(0), async { Ok((number, in_seconds(end))) }).await.unwrap();
        }
        issued.get(key(MOST), key(0), async { Ok((MOST, in_seconds(3000))) }).await.unwrap();
        assert_eq!(issued.0.lock().len(), MOST);
        assert!(!issued.0.lock().contains_key(&key(5)));
    }
}
