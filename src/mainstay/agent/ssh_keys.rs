//! Creates SSH keys for Secrets of the agent's namespace with the label [`GENERATE`].
//!
//! Invariant: a key is added only to a Secret without a key, and only if the Secret is unchanged since it was read. So
//! only one of two agents creates the key, and a user's key is never replaced. Invariant: only the public fingerprint
//! of a key is logged. Invariant: after a refused write, the next one of the same Secret waits, regardless of the number
//! of changes. It delays no other Secret, and a request without a response delays others for at most [`LONGEST`]. Invariant:
//! refused Secrets are read one by one, and the list is not repeated for them.
//!
//! Not here: Secrets of other namespaces. A user with access to a tenant's Secrets must not be able to read a key of
//! the agent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use k8s_openapi::ByteString;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::kept::Name;
use super::status_write::{Refusals, first};
use mainstay_api::names::{GENERATE, SSH_KEY};
use mainstay_cluster::reflector::{Change, name_of};
use mainstay_cluster::{Cluster, Error, Kind, Part, Scope, Selection};
use mainstay_git::{PRIVATE_FIELD, PUBLIC_FIELD};
use mainstay_object::Secret;
use mainstay_object::failure::{Class, chain};

/// Maximum duration of a request about one Secret.
const LONGEST: Duration = Duration::from_secs(10);

/// Watches the Secrets that request a key until `stop`, and creates these keys.
pub(super) async fn make(cluster: Cluster, namespace: String, stop: CancellationToken) {
    let kind = Arc::new(Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced));
    let mut reflector = cluster.states(&kind, Selection::labelled(GENERATE, SSH_KEY).within(&namespace));
    let mut refused: BTreeMap<Name, Refusals> = BTreeMap::new();
    loop {
        let change = tokio::select! {
            () = stop.cancelled() => return,
            () = first(&refused).passed() => None,
            change = reflector.next() => Some(change),
        };
        match change {
            None => {
                let Some((name, refusals)) = take_first(&mut refused) else { continue };
                let kept = retry(&cluster, &kind, &name, refusals).await;
                // A Secret that the watch does not show any more requests no key.
                if let Some(refusals) = kept.filter(|_| reflector.cache().get(&name.0, &name.1).is_some()) {
                    refused.insert(name, refusals);
                }
            }
            Some(Change::Changed { name, live: secret, .. }) => {
                let refusals = refused.remove(&name).unwrap_or_default();
                if let Some(refusals) = complete(&cluster, &kind, &name, &secret, refusals).await {
                    refused.insert(name, refusals);
                }
            }
            Some(Change::Gone { name, .. }) => {
                refused.remove(&name);
            }
            Some(_) => {}
        }
    }
}

/// Takes the Secret whose delay ends first.
fn take_first(refused: &mut BTreeMap<Name, Refusals>) -> Option<(Name, Refusals)> {
    let (name, _) = refused.iter().min_by_key(|(_, refusals)| refusals.until())?;
    let name = name.clone();
    refused.remove_entry(&name)
}

/// Waits for the response to a request for at most [`LONGEST`]. After that, returns `None`, and the request counts as refused,
/// because a write may have been carried out: the next attempt reads the Secret again.
async fn limited<T>(name: &Name, refusals: &mut Refusals, request: impl Future<Output = T>) -> Option<T> {
    let response = tokio::time::timeout(LONGEST, request).await.ok();
    if response.is_none() {
        let seconds = LONGEST.as_secs();
        tracing::warn!(namespace = name.0, name = name.1, "no response about a new SSH key within {seconds} s");
        refusals.delay(Class::Unavailable, None);
    }
    response
}

/// Reads a refused Secret again, and creates its key. Returns the refusals if the next attempt has to wait.
async fn retry(cluster: &Cluster, kind: &Kind, name: &Name, mut refusals: Refusals) -> Option<Refusals> {
    let read = cluster.get(kind, Some(&name.0), &name.1);
    let Some(read) = limited(name, &mut refusals, read).await else { return Some(refusals) };
    match read {
        Ok(Some(secret)) if secret["metadata"]["labels"][GENERATE] == SSH_KEY => {
            complete(cluster, kind, name, &secret, refusals).await
        }
        // The watch has not shown this yet, or the response is older than the watch.
        Ok(_) => {
            refusals.delay(Class::NotReady, None);
            Some(refusals)
        }
        Err(error) => {
            tracing::warn!(why = chain(&error), "the Secret of a new SSH key could not be read");
            refusals.record(&error);
            Some(refusals)
        }
    }
}

/// Creates the key of a Secret, unless an earlier refusal delays it. Returns the refusals if the next attempt has to
/// wait.
async fn complete(
    cluster: &Cluster,
    kind: &Kind,
    name: &Name,
    secret: &Value,
    mut refusals: Refusals,
) -> Option<Refusals> {
    if refusals.waits() {
        return Some(refusals);
    }
    // This is one request.
    let Some(stored) = limited(name, &mut refusals, store(cluster, kind, secret)).await else { return Some(refusals) };
    match stored {
        Ok(None) => None,
        Ok(Some(public)) => {
            tracing::info!(key = public.shown, "made an SSH key: `mainstay identity` prints its public half");
            None
        }
        // Another client has written; the watch shows the change.
        Err(error) if error.is_conflict() || error.is_not_found() => None,
        Err(error) => {
            tracing::warn!(why = chain(&error), "a new SSH key could not be stored");
            refusals.record(&error);
            Some(refusals)
        }
    }
}

/// Stores a new key in a Secret without one.
async fn store(cluster: &Cluster, kind: &Kind, secret: &Value) -> Result<Option<mainstay_git::PublicHalf>, Error> {
    let (Some((namespace, name)), Some(data)) = (name_of(secret), data_of(secret)) else { return Ok(None) };
    if mainstay_git::holds_key(&data) || !secret["metadata"]["deletionTimestamp"].is_null() {
        return Ok(None);
    }
    let mut seed = [0; mainstay_git::SEED_BYTES];
    if SystemRandom::new().fill(&mut seed).is_err() {
        tracing::error!("the system provides no random numbers: no SSH key is made");
        return Ok(None);
    }
    let Some(made) = mainstay_git::key_pair(&Secret::new(seed), &format!("mainstay/{namespace}/{name}")) else {
        return Ok(None);
    };
    let patch = json!({
        "metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]},
        "data": {
            PRIVATE_FIELD: BASE64_STANDARD.encode(made.private.expose()),
            PUBLIC_FIELD: BASE64_STANDARD.encode(format!("{}\n", made.public)),
        },
    });
    let stored = cluster.patch_merge(kind, Some(&namespace), &name, Part::Main, &patch).await?;
    Ok(data_of(&stored).and_then(|data| mainstay_git::public_half(&data).ok()))
}

/// Returns the data of a Secret; `None` if the data cannot be decoded, so that an existing key is not overlooked.
fn data_of(secret: &Value) -> Option<BTreeMap<String, ByteString>> {
    match &secret["data"] {
        Value::Null => Some(BTreeMap::new()),
        data => serde_json::from_value(data.clone()).ok(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_response_ends_and_counts_as_refused() {
        let (name, begun, mut refusals) = (("shop".to_owned(), "key".to_owned()), Instant::now(), Refusals::default());
        assert_eq!(limited(&name, &mut refusals, std::future::ready(1)).await, Some(1));
        assert!(!refusals.waits());
        assert_eq!(limited(&name, &mut refusals, std::future::pending::<()>()).await, None);
        assert!(refusals.waits());
        assert!((LONGEST..LONGEST * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }
}
