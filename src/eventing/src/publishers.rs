//! Who may publish events for a namespace: its own ServiceAccounts, by a token that the API server checks, and others by the operator's
//! word.
//!
//! Kyma's endpoints name no namespace and ask for no token. Their events reach only those whom the operator grants them (`grants`).
//!
//! Invariant: a token for another audience is refused, so no client sends one that the API server itself accepts.
//! Invariant: an answer of the API server is valid for at most a minute. Only the digest of a token is kept.

use std::collections::HashMap;
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderMap};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::grants::{Grant, may_receive};
use mainstay_cluster::Cluster;
use mainstay_object::failure::chain;

/// The audience of tokens for publishing.
const AUDIENCE: &str = "mainstay-eventing";
/// How long an answer about a token counts.
const VALID: Duration = Duration::from_secs(60);
const INVALID: Duration = Duration::from_secs(10);
/// Answers that are kept.
const KNOWN: usize = 1024;
/// Tokens that are checked at the same time, and how long one may wait for its turn and its answer.
const AT_ONCE: usize = 8;
const DEADLINE: Duration = Duration::from_secs(5);
/// The longest token, in bytes.
const LONGEST: usize = 8192;

/// Who may publish at the endpoints that name a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublisherAuth {
    /// Every client, for every namespace.
    Anyone,
    /// The ServiceAccounts of the namespace, and those of namespaces that are granted it.
    Accounts(Vec<Grant>),
}

/// Checks who publishes.
pub(super) struct Publishers {
    auth: PublisherAuth,
    cluster: Cluster,
    known: Mutex<HashMap<[u8; 32], Known>>,
    permits: Semaphore,
}

/// The answer of the API server about a token.
struct Known {
    /// The namespace of its ServiceAccount.
    namespace: Option<String>,
    until: Instant,
}

/// Why a client may not publish for a namespace.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    /// It has sent no token, or an invalid one.
    #[error(
        "events for the namespace {namespace} need a valid token of one of its ServiceAccounts, as `Authorization: Bearer TOKEN`: \
         project one with the audience {AUDIENCE} into the pod"
    )]
    NoToken {
        /// For which.
        namespace: String,
    },
    /// The token is that of another namespace.
    #[error(
        "ServiceAccounts of the namespace {of} may not publish for {namespace}; the operator permits it with \
         --allow-publishers={of}={namespace}"
    )]
    Elsewhere {
        /// Whose token it is.
        of: String,
        /// For which.
        namespace: String,
    },
    /// The API server has not answered.
    #[error("the token cannot be checked now; send the event again")]
    Unchecked,
}

impl Publishers {
    pub(super) fn new(auth: PublisherAuth, cluster: Cluster) -> Self {
        Self { auth, cluster, known: Mutex::default(), permits: Semaphore::new(AT_ONCE) }
    }

    /// Whether a client may publish for a namespace.
    pub(super) async fn check(&self, headers: &HeaderMap, namespace: &str) -> Result<(), Denied> {
        let PublisherAuth::Accounts(grants) = &self.auth else { return Ok(()) };
        let no_token = || Denied::NoToken { namespace: namespace.to_owned() };
        let token = bearer(headers).ok_or_else(no_token)?;
        let of = self.namespace_of(token).await?.ok_or_else(no_token)?;
        if may_receive(grants, &of, namespace) {
            return Ok(());
        }
        Err(Denied::Elsewhere { of, namespace: namespace.to_owned() })
    }

    /// The namespace of the ServiceAccount that a token is of; `None` if it is not valid.
    async fn namespace_of(&self, token: &str) -> Result<Option<String>, Denied> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.known.lock().get(&digest).filter(|known| known.until > Instant::now()) {
            return Ok(known.namespace.clone());
        }
        let asked = async {
            let _permit = self.permits.acquire().await;
            self.cluster.account_of_token(token, AUDIENCE).await
        };
        let account = match tokio::time::timeout(DEADLINE, asked).await {
            Ok(Ok(account)) => account,
            Ok(Err(error)) => {
                tracing::warn!(why = chain(&error), "the token of a publisher cannot be checked");
                return Err(Denied::Unchecked);
            }
            Err(_) => return Err(Denied::Unchecked),
        };
        let namespace = account.map(|(namespace, _)| namespace);
        let until = Instant::now() + if namespace.is_some() { VALID } else { INVALID };
        self.remember(digest, Known { namespace: namespace.clone(), until });
        Ok(namespace)
    }

    /// Keeps an answer. A full cache drops expired answers first, then those about invalid tokens, so senders of invalid tokens
    /// take no room of valid ones.
    fn remember(&self, digest: [u8; 32], answer: Known) {
        let (mut known, now) = (self.known.lock(), Instant::now());
        if known.len() >= KNOWN {
            known.retain(|_, known| known.until > now);
        }
        if known.len() >= KNOWN {
            known.retain(|_, known| known.namespace.is_some());
        }
        if known.len() < KNOWN {
            known.insert(digest, answer);
        }
    }
}

/// The token that a client sends, if it is one and may be of a ServiceAccount.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (first, None) = (all.next()?, all.next()) else { return None };
    let (scheme, token) = first.to_str().ok()?.split_once(' ')?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_whole = token.len() <= LONGEST && token.split('.').count() == 3 && token.bytes().all(is_token);
    (scheme.eq_ignore_ascii_case("Bearer") && is_whole).then_some(token)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_token_is_read_strictly() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            }
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(read(&["Bearer a.b-_.c"]).as_deref(), Some("a.b-_.c"));
        assert_eq!(read(&["bearer a.b.c"]).as_deref(), Some("a.b.c"));
        let long = format!("Bearer a.b.{}", "c".repeat(LONGEST));
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer a",
            "Bearer a.b",
            "Bearer a.b.c.d",
            "Bearer  a.b.c",
            "Bearer a.b.c d",
            "Basic a.b.c",
            &long,
        ] {
            assert_eq!(read(&[bad]), None, "{bad}");
        }
        assert_eq!(read(&["Bearer a.b.c", "Bearer a.b.c"]), None, "which of them counts is not said");
        assert_eq!(read(&[]), None);
    }
}
