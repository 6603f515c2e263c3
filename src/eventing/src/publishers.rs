//! Who may publish events for a namespace: its own ServiceAccounts, with a token that the API server checks, and other
//! ServiceAccounts with a grant of the operator.
//!
//! Kyma's endpoints contain no namespace and require no token. Events from these endpoints reach only subscribers with
//! a grant of the operator (`grants`).
//!
//! Invariant: a token for a different audience is refused, so that clients do not send tokens that the API server
//! itself accepts. Invariant: a response of the API server is cached for at most a minute. Only the digest of a token
//! is kept.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::FutureExt as _;
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
/// How long a response about a valid token and about an invalid token is cached.
const VALID: Duration = Duration::from_secs(60);
const INVALID: Duration = Duration::from_secs(10);
/// Maximum number of cached responses.
const KNOWN: usize = 1024;
/// Maximum number of tokens that are checked concurrently, and maximum time that a check may wait for its turn and its
/// response.
const AT_ONCE: usize = 8;
const DEADLINE: Duration = Duration::from_secs(5);
/// Maximum length of a token in bytes.
const LONGEST: usize = 8192;

/// Who may publish at the endpoints for a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublisherAuth {
    /// Every client, for every namespace.
    Anyone,
    /// The ServiceAccounts of the namespace, and ServiceAccounts of namespaces with a grant to publish for it.
    Accounts(Vec<Grant>),
}

/// Checks who publishes.
pub(super) struct Publishers {
    auth: PublisherAuth,
    cluster: Cluster,
    known: Mutex<HashMap<[u8; 32], Known>>,
    permits: Semaphore,
}

/// A cached response of the API server about a token.
struct Known {
    /// The namespace of the token's ServiceAccount; `None` if the token is not valid.
    namespace: Option<String>,
    until: Instant,
}

/// Why a client may not publish for a namespace.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    /// The client has sent no token, or an invalid token.
    #[error(
        "events for the namespace {namespace} need a valid token of one of its ServiceAccounts, as `Authorization: Bearer TOKEN`: \
         project one with the audience {AUDIENCE} into the pod"
    )]
    NoToken {
        /// The namespace for which the client wants to publish.
        namespace: String,
    },
    /// The token belongs to a ServiceAccount of a different namespace, which has no grant.
    #[error(
        "ServiceAccounts of the namespace {of} may not publish for {namespace}; the operator permits it with \
         --allow-publishers={of}={namespace}"
    )]
    Elsewhere {
        /// The namespace of the ServiceAccount.
        of: String,
        /// The namespace for which the client wants to publish.
        namespace: String,
    },
    /// The API server has not responded.
    #[error("the token cannot be checked now; send the event again")]
    Unchecked,
}

impl Publishers {
    pub(super) fn new(auth: PublisherAuth, cluster: Cluster) -> Self {
        Self { auth, cluster, known: Mutex::default(), permits: Semaphore::new(AT_ONCE) }
    }

    /// Checks that a client may publish for a namespace.
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

    /// Returns the namespace of the ServiceAccount to which a token belongs; `None` if the token is not valid.
    async fn namespace_of(&self, token: &str) -> Result<Option<String>, Denied> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.known.lock().get(&digest).filter(|known| known.until > Instant::now()) {
            return Ok(known.namespace.clone());
        }
        let asked = async {
            let _permit = self.permits.acquire().await;
            self.cluster.account_of_token(token, AUDIENCE).await
        };
        // Most responses are cached, so the future of a request is not part of that of each event.
        let account = match tokio::time::timeout(DEADLINE, asked.boxed()).await {
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

    /// Caches a response. A full cache drops expired responses first, then responses about invalid tokens. So senders
    /// of invalid tokens do not displace valid tokens.
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

/// Returns the token that a client sends, if there is exactly one and it may belong to a ServiceAccount.
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
