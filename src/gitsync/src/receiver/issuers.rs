//! Authenticates deliveries by tokens: reads the keys of their issuers, and keeps them.
//!
//! Invariant: while its keys are kept, an issuer is asked for them at most once a minute because of a token, and at most every
//! 5 seconds while it fails; keys are used for at most an hour.
//! Invariant: requests obey the egress rules of the Receiver's namespace, go to URLs of HTTPS, and follow no redirect.
//! Invariant: a namespace uses only keys that were read for it, so that it learns nothing about hosts that it may not reach.
//! Invariant: number and size of the kept keys are bounded, and so is the number of simultaneous requests.
//! Invariant: a client that closes its connection ends no request that others wait for.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bounded_json::Bounds;
use http::{HeaderMap, Request, header};
use jiff::Timestamp;
use openidconnect::core::CoreJsonWebKeySet;
use parking_lot::Mutex;
use reqwest::Url;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::id_token::{Token, TokenFlaw, bearer};
use super::providers::{GOOGLE_KEYS, KeysAt, Provider, keys_url};
use mainstay_git::{Fault, Outbound, Source};
use mainstay_object::egress::METADATA_REFUSED;
use mainstay_object::expression::Budget;

const CONFINED: &str = "the host is not found, or has an address of the cluster, of the machine or of a private network, which \
                        Receivers of this namespace may not reach; the operator of the agent allows networks with \
                        --allow-network";

/// Maximum time for which keys are used.
const KEPT: Duration = Duration::from_secs(3600);
/// Minimum time between two requests because of tokens with unknown keys, and between two because of failures.
const BETWEEN: Duration = Duration::from_secs(60);
const BETWEEN_FAILURES: Duration = Duration::from_secs(5);
/// Maximum time for reading keys, which a delivery waits for.
const WITHIN: Duration = Duration::from_secs(5);
/// Bounds of a response. Issuers with certificates in their keys send 20 KiB.
const BOUNDS: Bounds = Bounds { bytes: 128 << 10, values: 16 << 10, depth: 16 };
/// Maximum number of keys of an issuer.
const MOST_KEYS: usize = 100;
/// Maximum number of issuers whose keys are kept, and of those of one namespace.
const MOST: usize = 128;
const MOST_OF_NAMESPACE: usize = 16;
/// Maximum number of issuers whose keys are being read.
const MOST_READ: usize = 64;
const BUSY: &str = "the keys of too many issuers are being read";

/// The keys of one issuer, and the last attempt to read them.
#[derive(Default)]
struct Keys {
    known: Option<(Instant, Arc<CoreJsonWebKeySet>)>,
    tried: Option<Instant>,
    /// Why the last attempt failed.
    failed: Option<String>,
}

/// How to get keys for a token.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Use(Arc<CoreJsonWebKeySet>),
    Fail(String),
    Read,
}

/// The keys of one issuer for one namespace.
struct Place {
    keys: Arc<tokio::sync::Mutex<Keys>>,
    /// Time of the last use.
    used: Instant,
}

type Places = BTreeMap<(String, KeysAt), Place>;

/// The issuers of all Receivers.
pub(super) struct Issuers {
    source: Source,
    places: Mutex<Places>,
    /// Permits for requests.
    reading: Arc<Semaphore>,
}

/// Why a delivery is not authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// The token is refused.
    Refused(TokenFlaw),
    /// The keys cannot be read now. The text is for the owner of the Receiver.
    Away(String),
}

impl From<TokenFlaw> for Denied {
    fn from(flaw: TokenFlaw) -> Self {
        Self::Refused(flaw)
    }
}

impl Issuers {
    /// Creates an empty collection.
    pub(super) fn new(source: Source) -> Self {
        Self { source, places: Mutex::default(), reading: Arc::new(Semaphore::new(MOST_READ)) }
    }

    /// Checks the token in the headers of a delivery, with steps of its budget. Takes at most about [`WITHIN`].
    pub(super) async fn check(
        &self,
        namespace: &str,
        providers: &[Provider],
        headers: &HeaderMap,
        budget: &mut Budget,
    ) -> Result<(), Denied> {
        let token = Token::parse(bearer(headers)?)?;
        let issuer = token.issuer().ok_or(TokenFlaw::Malformed)?;
        let provider = providers.iter().find(|provider| provider.issuer == issuer).ok_or(TokenFlaw::Issuer)?;
        token.check(&provider.audience, Timestamp::now())?;
        let keys = self.keys(namespace, &provider.keys, &token).await.map_err(|why| {
            Denied::Away(format!("the keys of the issuer at {} cannot be read: {why}", provider.keys.host()))
        })?;
        Ok(provider.accept(token.verify(&keys)?, budget)?)
    }

    /// Returns the keys of an issuer, from memory or by a request.
    async fn keys(&self, namespace: &str, at: &KeysAt, token: &Token<'_>) -> Result<Arc<CoreJsonWebKeySet>, String> {
        let place = self.place(namespace, at, Instant::now()).ok_or(BUSY)?;
        let late = || format!("there was no response within {} s", WITHIN.as_secs());
        let Ok(mut keys) = timeout(WITHIN, place.lock_owned()).await else { return Err(late()) };
        match keys.next(|keys| token.has_key(keys), Instant::now()) {
            Next::Use(keys) => return Ok(keys),
            Next::Fail(why) => return Err(why),
            Next::Read => {}
        }
        let permit = Arc::clone(&self.reading).try_acquire_owned().map_err(|_| BUSY)?;
        keys.tried = Some(Instant::now());
        let (source, namespace, at) = (self.source.clone(), namespace.to_owned(), at.clone());
        let reading = tokio::spawn(async move {
            let read = timeout(WITHIN, Box::pin(read(&source, &namespace, &at))).await;
            drop(permit);
            keys.set(read.unwrap_or_else(|_| Err(late())), Instant::now())
        });
        reading.await.unwrap_or_else(|_| Err("the request was interrupted".to_owned()))
    }

    /// Returns the place of an issuer's keys; `None` without room.
    fn place(&self, namespace: &str, at: &KeysAt, now: Instant) -> Option<Arc<tokio::sync::Mutex<Keys>>> {
        let mut places = self.places.lock();
        let key = (namespace.to_owned(), at.clone());
        if !places.contains_key(&key) && !make_room(&mut places, namespace) {
            return None;
        }
        let place = places.entry(key).or_insert_with(|| Place { keys: Arc::default(), used: now });
        place.used = now;
        Some(Arc::clone(&place.keys))
    }
}

/// Makes room for the keys of an issuer. A namespace with [`MOST_OF_NAMESPACE`] issuers loses its own keys; otherwise the one
/// with most issuers loses some, so that no namespace takes those of others. The least recently used keys go first, and keys
/// in use stay. Returns whether there is room.
fn make_room(places: &mut Places, namespace: &str) -> bool {
    let mut counts = BTreeMap::<&str, usize>::new();
    for (of, _) in places.keys() {
        *counts.entry(of).or_default() += 1;
    }
    let is_full = counts.get(namespace).is_some_and(|count| *count >= MOST_OF_NAMESPACE);
    if !is_full && places.len() < MOST {
        return true;
    }
    let droppable = places
        .iter()
        .filter(|((of, _), place)| Arc::strong_count(&place.keys) == 1 && (!is_full || of.as_str() == namespace));
    let first = droppable.min_by_key(|((of, _), place)| (Reverse(counts.get(of.as_str())), place.used));
    let first = first.map(|(key, _)| key.clone());
    first.is_some_and(|key| places.remove(&key).is_some())
}

impl Keys {
    /// Decides how to get keys. `fits` returns whether keys may have that of the token.
    fn next(&self, fits: impl Fn(&CoreJsonWebKeySet) -> bool, now: Instant) -> Next {
        let is_past = |at: Instant, time: Duration| now.saturating_duration_since(at) >= time;
        let is_tried_within = |time: Duration| self.tried.is_some_and(|at| !is_past(at, time));
        if let Some((since, keys)) = &self.known
            && !is_past(*since, KEPT)
            && (fits(keys) || is_tried_within(BETWEEN))
        {
            return Next::Use(Arc::clone(keys));
        }
        match &self.failed {
            Some(why) if is_tried_within(BETWEEN_FAILURES) => Next::Fail(why.clone()),
            _ => Next::Read,
        }
    }

    /// Sets the result of an attempt, and returns it.
    fn set(&mut self, read: Result<CoreJsonWebKeySet, String>, now: Instant) -> Result<Arc<CoreJsonWebKeySet>, String> {
        let read = read.map(Arc::new);
        match &read {
            Ok(keys) => (self.known, self.failed) = (Some((now, Arc::clone(keys))), None),
            // A request that hangs ends long after its beginning.
            Err(why) => (self.tried, self.failed) = (Some(now), Some(why.clone())),
        }
        read
    }
}

/// Reads the keys of an issuer.
async fn read(source: &Source, namespace: &str, at: &KeysAt) -> Result<CoreJsonWebKeySet, String> {
    let client = source.cloud_outbound(namespace, None).map_err(|fault| shown(&fault))?;
    let url = match at {
        KeysAt::Discovered { issuer, configuration } => {
            keys_of(issuer, &get::<Configuration>(&client, configuration).await?)?
        }
        KeysAt::Google => keys_url(GOOGLE_KEYS).ok_or("the address of Google's keys is not a URL")?,
    };
    bounded(get(&client, &url).await?)
}

/// The configuration of an issuer. Other fields are ignored.
#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    jwks_uri: String,
}

/// Returns the URL of an issuer's keys.
fn keys_of(issuer: &str, configuration: &Configuration) -> Result<Url, String> {
    if configuration.issuer != issuer {
        return Err("its configuration names a different issuer; correct issuerURL".to_owned());
    }
    let url = keys_url(&configuration.jwks_uri);
    url.ok_or_else(|| "the address of its keys (jwks_uri) must be a plain URL of HTTPS".to_owned())
}

fn bounded(keys: CoreJsonWebKeySet) -> Result<CoreJsonWebKeySet, String> {
    match keys.keys().len() {
        0 => Err("it has no key that can be used".to_owned()),
        1..=MOST_KEYS => Ok(keys),
        _ => Err(format!("it has more than {MOST_KEYS} keys")),
    }
}

/// Reads a JSON document.
async fn get<T: DeserializeOwned>(client: &Outbound, url: &Url) -> Result<T, String> {
    let request = Request::get(url.as_str()).header(header::ACCEPT, "application/json").body(Vec::new());
    let request = request.map_err(|_| "the request cannot be built from its address".to_owned())?;
    // One byte more than allowed shows that a response is too large.
    let sent = client.send(request, WITHIN, BOUNDS.bytes + 1).await;
    let answer = sent.map_err(|fault| shown(&fault))?;
    parsed(answer.status, &answer.body)
}

fn shown(fault: &Fault) -> String {
    match fault {
        Fault::Confined { why } if *why != METADATA_REFUSED => CONFINED.to_owned(),
        fault => fault.to_string(),
    }
}

fn parsed<T: DeserializeOwned>(status: u16, body: &[u8]) -> Result<T, String> {
    match status {
        200 => BOUNDS.read(body).map_err(|unreadable| unreadable.to_string()),
        300..=399 => Err(format!("it redirects ({status}), which is not followed")),
        _ => Err(format!("it responds with status {status}")),
    }
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
    use serde_json::json;

    use super::*;

    fn keys(names: &[&str]) -> CoreJsonWebKeySet {
        let keys = names.iter().map(|name| json!({"kty": "EC", "kid": name}));
        serde_json::from_value(json!({"keys": keys.collect::<Vec<_>>()})).unwrap()
    }

    /// Returns the next step for a token with the key of this name.
    fn next(of: &Keys, name: &str, now: Instant) -> String {
        let header = BASE64_URL_SAFE_NO_PAD.encode(json!({"alg": "ES256", "kid": name}).to_string());
        let text = format!("{header}.{}.AA", BASE64_URL_SAFE_NO_PAD.encode("{}"));
        let token = Token::parse(&text).unwrap();
        match of.next(|keys| token.has_key(keys), now) {
            Next::Use(keys) => format!("use {}", keys.keys().len()),
            Next::Fail(why) => format!("fail: {why}"),
            Next::Read => "read".to_owned(),
        }
    }

    #[test]
    fn keys_are_kept_for_an_hour_and_read_again_for_an_unknown_key_once_a_minute() {
        let (mut of, start) = (Keys::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(next(&of, "a", at(0)), "read");
        of.tried = Some(at(0));
        of.set(Ok(keys(&["a"])), at(1)).unwrap();
        assert_eq!(next(&of, "a", at(3600)), "use 1");
        assert_eq!(next(&of, "a", at(3601)), "read");
        assert_eq!(next(&of, "b", at(59)), "use 1", "it is tried in vain");
        assert_eq!(next(&of, "b", at(60)), "read");
        of.tried = Some(at(60));
        assert_eq!(of.set(Err("away".into()), at(61)), Err("away".into()));
        assert_eq!(next(&of, "a", at(61)), "use 1", "the keys are still new enough");
        assert_eq!(next(&of, "b", at(120)), "use 1");
        assert_eq!(next(&of, "b", at(121)), "read");
        of.tried = Some(at(121));
        of.set(Ok(keys(&["a", "b"])), at(122)).unwrap();
        assert_eq!(next(&of, "b", at(123)), "use 2");
    }

    #[test]
    fn an_issuer_that_fails_is_left_alone_for_five_seconds() {
        let (mut of, start) = (Keys::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        of.tried = Some(at(0));
        assert_eq!(next(&of, "a", at(1)), "read", "an attempt that was interrupted does not count");
        of.set(Err("away".into()), at(2)).unwrap_err();
        assert_eq!(next(&of, "a", at(6)), "fail: away");
        assert_eq!(next(&of, "a", at(7)), "read");
        of.set(Ok(keys(&["a"])), at(8)).unwrap();
        of.tried = Some(at(4000));
        of.set(Err("away".into()), at(4000)).unwrap_err();
        assert_eq!(next(&of, "a", at(4001)), "fail: away", "old keys are not used");
    }

    #[test]
    fn a_namespace_with_many_issuers_loses_its_own_keys_first() {
        let (mut places, now) = (Places::new(), Instant::now());
        let at = |name: &str| KeysAt::Discovered {
            issuer: name.to_owned(),
            configuration: format!("https://{name}.example.com").parse().unwrap(),
        };
        let add = |places: &mut Places, namespace: &str, name: &str, second: u64| {
            let used = now + Duration::from_secs(second);
            places.insert((namespace.to_owned(), at(name)), Place { keys: Arc::default(), used });
        };
        let has = |places: &Places, namespace: &str, name: &str| places.contains_key(&(namespace.to_owned(), at(name)));
        add(&mut places, "shop", "old", 0);
        for number in 1..=MOST_OF_NAMESPACE as u64 {
            add(&mut places, "bank", &format!("b{number}"), number);
        }
        assert!(make_room(&mut places, "bank") && !has(&places, "bank", "b1") && has(&places, "shop", "old"));
        assert!(make_room(&mut places, "bank") && has(&places, "bank", "b2"), "there is room");
        add(&mut places, "bank", "b17", 17);
        let in_use: Vec<_> = places.values().map(|place| Arc::clone(&place.keys)).collect();
        assert!(!make_room(&mut places, "bank"), "its keys are in use");
        drop(in_use);

        for number in places.len()..MOST {
            add(&mut places, &format!("n{number}"), "own", 0);
        }
        assert!(make_room(&mut places, "new") && !has(&places, "bank", "b2"), "the largest namespace loses");
        assert_eq!(places.len(), MOST - 1);
    }

    #[test]
    fn a_response_that_is_not_keys_is_refused() {
        let read = |status, body: &str| parsed::<CoreJsonWebKeySet>(status, body.as_bytes()).and_then(bounded);
        let of = |count: usize| {
            let keys =
                (0..count).map(|number| json!({"kty": "RSA", "kid": number.to_string(), "n": "AA", "e": "AQAB"}));
            json!({"keys": keys.collect::<Vec<_>>()}).to_string()
        };
        assert_eq!(read(200, &of(100)).map(|keys| keys.keys().len()), Ok(100));
        let why = |status, body: &str| read(status, body).unwrap_err();
        assert_eq!(why(200, &of(101)), "it has more than 100 keys");
        assert_eq!(why(200, &of(1000)), "the JSON has more than 16384 values");
        assert_eq!(why(200, &" ".repeat(BOUNDS.bytes + 1)), "the JSON has more than 131072 bytes");
        assert_eq!(why(200, "<html>"), "the JSON cannot be read");
        assert_eq!(why(200, r#"{"keys": [{"kty": "new"}]}"#), "it has no key that can be used");
        assert_eq!(why(302, &of(1)), "it redirects (302), which is not followed");
        assert_eq!(why(404, &of(1)), "it responds with status 404");
    }

    #[test]
    fn a_configuration_names_its_issuer_and_a_url_of_https() {
        let check = |issuer: &str, jwks_uri: &str, expected: Result<&str, &str>| {
            let configuration = Configuration { issuer: issuer.to_owned(), jwks_uri: jwks_uri.to_owned() };
            let found = keys_of("https://ci.example.com", &configuration).map(String::from);
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(found, expected, "{issuer} {jwks_uri}");
        };
        let keys = "https://keys.example.com/keys?a=b";
        check("https://ci.example.com", keys, Ok(keys));
        let other = Err("its configuration names a different issuer; correct issuerURL");
        check("https://ci.example.com/", keys, other);
        check("https://evil.example.com", keys, other);
        let plain = Err("the address of its keys (jwks_uri) must be a plain URL of HTTPS");
        for hostile in
            ["http://ci.example.com/keys", "file:///etc/passwd", "keys", "", "https://a:b@ci.example.com/keys"]
        {
            check("https://ci.example.com", hostile, plain);
        }
    }
}
