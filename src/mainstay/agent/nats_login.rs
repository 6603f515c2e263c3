//! Creates the login and the certificate of the NATS that `mainstay install --nats embedded` installs, for the Secret
//! [`NATS`] with the label [`GENERATE`].
//!
//! Invariant: an existing login is kept, and data are added only if the Secret is unchanged since it was read.
//! Invariant: a certificate is replaced only after clients have had the CA of the new certificate for
//! [`LIFETIMES`]`.announced`. Invariant: no part of a login or a key is logged.
//!
//! Not here: NATS itself, whose objects are in `manifests/eventing/nats-server.yaml`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use mainstay_api::names::{EVENTING_NAMESPACE, GENERATE, NATS, NATS_LOGIN};
use mainstay_cluster::certificate::{Certificates, KEYS, Lifetimes, Usage};
use mainstay_cluster::reflector::Change;
use mainstay_cluster::{Cluster, Error, Kind, Part, Scope, Selection};
use mainstay_object::failure::{Class, chain};

/// Delay after a write, because another client may undo it.
const AGAIN: Duration = Duration::from_secs(5);
/// Maximum time between checks of a certificate's end, in case the clock is changed.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// NATS reads its certificate at its start only, so the times are long: a pod that is restarted once a year always has
/// a valid one.
const LIFETIMES: Lifetimes = Lifetimes {
    valid: Duration::from_secs(10 * YEAR),
    renew_before: Duration::from_secs(5 * YEAR),
    announced: Duration::from_secs(YEAR),
};
const YEAR: u64 = 365 * 24 * 3600;
/// Maximum number of servers.
const SERVERS: usize = 3;
/// Number of random bytes of a password.
const SEED_BYTES: usize = 32;
const USERNAME: &str = "username";
const PASSWORD: &str = "password";
/// The CAs that clients and other servers trust.
const AUTHORITIES: &str = "authorities.crt";
/// User name of a new login.
const USER: &str = "mainstay";

/// Watches the Secret until `stop`, and completes it.
pub(super) async fn make(cluster: Cluster, stop: CancellationToken) {
    let kind = Arc::new(Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced));
    let mut states = cluster.states(&kind, Selection::named(Some(EVENTING_NAMESPACE), NATS));
    let (mut secret, mut due, mut failures) = (None, None, 0);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            change = states.next() => match change {
                Change::Changed { live, .. } => secret = Some(live),
                Change::Gone { .. } => secret = None,
                _ => continue,
            },
            () = is_due(due) => {}
        }
        let asking = secret.as_ref().filter(|secret| {
            let metadata: &Value = &secret["metadata"];
            metadata["labels"][GENERATE] == NATS_LOGIN && metadata["deletionTimestamp"].is_null()
        });
        let Some(asking) = asking else {
            due = None;
            continue;
        };
        let delay = match complete(&cluster, &kind, asking).await {
            Ok(next) => {
                (due, failures) = (Some(next), 0);
                AGAIN
            }
            // Another client has written; the watch shows the change.
            Err(Failure::Write(error)) if error.is_conflict() || error.is_not_found() => AGAIN,
            Err(error) => {
                tracing::warn!(why = chain(&error), "the login or the certificate of NATS could not be made");
                (due, failures) = (Some(Timestamp::now()), failures + 1);
                error.delay(failures)
            }
        };
        if stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_none() {
            return;
        }
    }
}

/// Why the Secret is not complete.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("Secret {EVENTING_NAMESPACE}/{NATS} could not be written")]
    Write(#[source] Error),
    #[error("Secret {EVENTING_NAMESPACE}/{NATS}: {0}")]
    Make(String),
}

impl Failure {
    /// Returns the delay after this many consecutive failures.
    fn delay(&self, failures: u32) -> Duration {
        let (class, retry_after) = match self {
            Self::Write(error) => (error.class(), error.retry_after()),
            Self::Make(_) => (Class::NotReady, None),
        };
        class.status_delay(failures, retry_after, fastrand::f64())
    }
}

/// Waits until a certificate is due.
async fn is_due(due: Option<Timestamp>) {
    let Some(due) = due else { return std::future::pending().await };
    let wait = Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default();
    tokio::time::sleep(wait.clamp(AGAIN, LOOK_EVERY)).await;
}

/// Writes the missing data. Returns the time of the next change.
async fn complete(cluster: &Cluster, kind: &Kind, secret: &Value) -> Result<Timestamp, Failure> {
    let data = match &secret["data"] {
        Value::Null => BTreeMap::new(),
        data => serde_json::from_value(data.clone())
            .map_err(|_| Failure::Make("its data cannot be read; delete the Secret and install again".to_owned()))?,
    };
    let mut seed = [0; SEED_BYTES];
    SystemRandom::new()
        .fill(&mut seed)
        .map_err(|_| Failure::Make("the system provides no random numbers".to_owned()))?;
    let (missing, due) = missing(&data, &seed, Timestamp::now()).map_err(Failure::Make)?;
    if missing.is_empty() {
        return Ok(due);
    }
    let patch = json!({"metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]}, "data": missing});
    let patched = cluster.patch_merge(kind, Some(EVENTING_NAMESPACE), NATS, Part::Main, &patch).await;
    patched.map_err(Failure::Write)?;
    tracing::info!(secret = NATS, "made the login or a certificate of NATS");
    Ok(due)
}

/// Returns the changes to the data of the Secret, and the time of the next change. Null removes a key.
fn missing(
    data: &BTreeMap<String, ByteString>,
    seed: &[u8; SEED_BYTES],
    now: Timestamp,
) -> Result<(BTreeMap<&'static str, Value>, Timestamp), String> {
    let mut wanted = BTreeMap::new();
    let has = |key: &str| data.get(key).is_some_and(|value| !value.0.is_empty());
    match (has(USERNAME), has(PASSWORD)) {
        (true, true) => {}
        (false, false) => {
            // The configuration of NATS reads a value that begins with a letter as text.
            let password = format!("p{}", BASE64_URL_SAFE_NO_PAD.encode(seed));
            wanted.extend([(USERNAME, USER.to_owned()), (PASSWORD, password)]);
        }
        _ => return Err(format!("it needs both {USERNAME} and {PASSWORD}; remove the other, and a new login is made")),
    }
    let stored = data.iter().map(|(key, value)| (key.clone(), value.0.clone())).collect();
    let kept = Certificates::read(&stored);
    let (certificates, due) = kept.renewed("mainstay nats", &names(), Usage::Peer, LIFETIMES, now)?;
    wanted.insert(AUTHORITIES, certificates.bundle(now));
    wanted.extend(certificates.write().into_iter().map(|(key, text)| (key, text.expose().clone())));
    let mut changes: BTreeMap<_, _> = KEYS.into_iter().filter(|key| data.contains_key(*key)).map(null).collect();
    changes.extend(wanted.iter().map(|(key, text)| (*key, json!(BASE64_STANDARD.encode(text)))));
    changes.retain(|key, _| wanted.get(key).map(String::as_bytes) != data.get(*key).map(|value| &*value.0));
    Ok((changes, due))
}

fn null(key: &'static str) -> (&'static str, Value) {
    (key, Value::Null)
}

/// Returns the names of the servers. The address of the loopback is for `kubectl port-forward`.
fn names() -> Vec<String> {
    let service = format!("{NATS}.{EVENTING_NAMESPACE}.svc");
    let pods = (0..SERVERS).map(|number| format!("{NATS}-{number}.{service}"));
    pods.chain([service.clone(), "127.0.0.1".to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Data = BTreeMap<String, ByteString>;

    /// Applies changes as the API server does.
    fn changed(data: &Data, changes: &BTreeMap<&'static str, Value>) -> Data {
        let mut data = data.clone();
        for (key, value) in changes {
            match value.as_str() {
                Some(text) => _ = data.insert((*key).to_owned(), ByteString(BASE64_STANDARD.decode(text).unwrap())),
                None => _ = data.remove(*key),
            }
        }
        data
    }

    #[test]
    fn a_login_and_a_certificate_are_made_once_and_renewed_in_time() {
        let begin: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |years: u32| begin + Duration::from_secs(YEAR) * years;
        let step = |data: &Data, at: Timestamp| missing(data, &[0xff; SEED_BYTES], at).unwrap();
        let (changes, due) = step(&Data::new(), begin);
        let first = changed(&Data::new(), &changes);
        let text = |data: &Data, key: &str| String::from_utf8(data[key].0.clone()).unwrap();
        assert_eq!((text(&first, USERNAME), due), (USER.to_owned(), at(5)));
        assert!(text(&first, PASSWORD).len() > 40 && text(&first, PASSWORD).starts_with('p'));
        assert_eq!(step(&first, at(1)), (BTreeMap::new(), at(5)), "nothing is missing");
        let announced = changed(&first, &step(&first, at(5)).0);
        assert_eq!(announced["tls.crt"], first["tls.crt"], "still served");
        assert_eq!(text(&announced, AUTHORITIES).matches("BEGIN CERTIFICATE").count(), 2);
        let served = changed(&announced, &step(&announced, at(6)).0);
        assert_eq!(served["tls.crt"], announced["next-tls.crt"]);
        assert_eq!(text(&served, AUTHORITIES).matches("BEGIN CERTIFICATE").count(), 2);
        assert!(!served.contains_key("next-tls.key"), "no old key is kept");
        assert_eq!(served[PASSWORD], first[PASSWORD]);
    }

    #[test]
    fn a_login_of_a_user_is_kept_and_half_of_one_is_reported() {
        let data = |texts: &[(&str, &str)]| -> Data {
            texts.iter().map(|(key, text)| ((*key).to_owned(), ByteString((*text).into()))).collect()
        };
        let chosen = data(&[(USERNAME, "me"), (PASSWORD, "hunter2")]);
        let (changes, _) = missing(&chosen, &[0; SEED_BYTES], Timestamp::now()).unwrap();
        assert!(!changes.contains_key(PASSWORD) && changes.contains_key("tls.key"));
        let half = missing(&data(&[(PASSWORD, "hunter2")]), &[0; SEED_BYTES], Timestamp::now()).unwrap_err();
        assert!(half.contains("both") && !half.contains("hunter2"), "{half}");
    }
}
