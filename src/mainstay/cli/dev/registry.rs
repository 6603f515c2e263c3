//! The registry Secret of the embedded cluster, in every namespace.
//!
//! Invariant: a registry Secret of the user, which has another name, takes precedence.

use std::net::SocketAddr;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cli::Error;
use mainstay_api::names;
use mainstay_cluster::reflector::Change;
use mainstay_cluster::{Apply, Cluster, Kind, Selection};
use mainstay_object::failure;

/// Creates the registry Secret in every namespace, also in new ones, until `stop`.
pub(super) async fn create_secrets(
    cluster: Cluster,
    registry: SocketAddr,
    token: String,
    stop: CancellationToken,
) -> Result<(), Error> {
    let kind = |name: &'static str| {
        let cluster = &cluster;
        async move { cluster.kind("v1", name).await?.ok_or_else(|| Error::UnknownKind(name.to_owned())) }
    };
    let (namespaces, secrets) = (kind("Namespace").await?, kind("Secret").await?);
    let body = secret(&registry.to_string(), &token);
    let mut reflector = cluster.states(&namespaces, Selection::default().metadata_only());
    while let Some(change) = stop.run_until_cancelled(reflector.next()).await {
        if let Change::Changed { live, .. } = change {
            apply_secret(&cluster, &secrets, &live, &body).await;
        }
    }
    Ok(())
}

async fn apply_secret(cluster: &Cluster, secrets: &Kind, namespace: &Value, body: &Value) {
    let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
    if !namespace["metadata"]["deletionTimestamp"].is_null() || name.starts_with("kube-") {
        return;
    }
    let mut body = body.clone();
    body["metadata"]["namespace"] = name.into();
    let secret = names::DEFAULT_REGISTRY_SECRET;
    let applied = cluster.apply(secrets, Some(name), secret, &body, Apply::forced(names::DEV_MANAGER)).await;
    if let Err(error) = applied {
        tracing::warn!(namespace = name, why = failure::chain(&error), "could not create the registry Secret");
    }
}

/// Returns the Secret for a registry at this address, with the token as its password.
pub(in crate::cli) fn secret(address: &str, token: &str) -> Value {
    let auth = BASE64_STANDARD.encode(format!("mainstay:{token}"));
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": { "name": names::DEFAULT_REGISTRY_SECRET },
        "stringData": {
            "username": "mainstay", "password": token, "isInternal": "true",
            "registryAddress": address, "serverAddress": address,
            ".dockerconfigjson": json!({ "auths": { address: { "auth": auth } } }).to_string(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leads_to_the_registry_with_the_token_as_the_password() {
        let secret = secret("127.0.0.1:5000", "t0ken");
        let data = &secret["stringData"];
        assert_eq!((&data["registryAddress"], &data["password"]), (&json!("127.0.0.1:5000"), &json!("t0ken")));
        let config: Value = serde_json::from_str(data[".dockerconfigjson"].as_str().unwrap()).unwrap();
        assert_eq!(config["auths"]["127.0.0.1:5000"]["auth"], BASE64_STANDARD.encode("mainstay:t0ken"));
    }
}
