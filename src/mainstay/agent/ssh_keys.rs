//! Creates SSH keys for Secrets of the agent's namespace with the label [`GENERATE`].
//!
//! Invariant: a key is added only to a Secret without a key, and only if the Secret is unchanged since it was read. So
//! only one of two agents creates the key, and a user's key is never replaced. Invariant: only the public fingerprint
//! of a key is logged.
//!
//! Not here: Secrets of other namespaces. A user with access to a tenant's Secrets must not be able to read a key of
//! the agent.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use k8s_openapi::ByteString;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use mainstay_api::names::{GENERATE, SSH_KEY};
use mainstay_cluster::reflector::{Change, name_of};
use mainstay_cluster::{Cluster, Error, Kind, Part, Scope, Selection};
use mainstay_git::{PRIVATE_FIELD, PUBLIC_FIELD};
use mainstay_object::Secret;
use mainstay_object::failure::{Class, chain};

/// Watches the Secrets that request a key until `stop`, and creates these keys.
pub(super) async fn make(cluster: Cluster, namespace: String, stop: CancellationToken) {
    let kind = Arc::new(Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced));
    let selection = Selection::labelled(GENERATE, SSH_KEY).within(&namespace);
    let mut failures = 0;
    loop {
        let (mut class, mut retry_after) = (Class::NotReady, None);
        let mut reflector = cluster.states(&kind, selection.clone());
        while let Some(change) = stop.run_until_cancelled(reflector.next()).await {
            let Change::Changed { live: secret, .. } = change else { continue };
            match store(&cluster, &kind, &secret).await {
                Ok(None) => {}
                Ok(Some(public)) => {
                    failures = 0;
                    tracing::info!(key = public.shown, "made an SSH key: `mainstay identity` prints its public half");
                }
                // Another client has written; the watch shows the change.
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                Err(error) => {
                    tracing::warn!(why = chain(&error), "a new SSH key could not be stored");
                    (class, retry_after) = (error.class(), error.retry_after());
                    break;
                }
            }
        }
        failures += 1;
        let delay = class.status_delay(failures, retry_after, fastrand::f64());
        if stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_none() {
            return;
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
