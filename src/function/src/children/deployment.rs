//! The Deployment that runs a Function's image.
//!
//! The agent owns `replicas` only while the number is fixed; otherwise the autoscaler owns the field. The agent owns
//! only its own template annotations, so `kubectl rollout restart` works.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::pod::{container_security, security};
use super::{PORT, serving_metadata};
use crate::{BoundSecret, ResolvedFunction, Settings};
use mainstay_api::names::SECRETS_DIGEST;

/// Name of the container that runs the code.
pub const CONTAINER: &str = "function";
/// Maximum size of `/tmp`.
pub(super) const TMP_SIZE: &str = "100Mi";

/// Default deadline of a call, as in the runtime servers.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Maximum deadline of a call that the liveness probe allows for.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);
/// Termination grace period in seconds. The server accepts calls for another 5 s, because proxies learn late that the
/// pod terminates (`FUNC_DRAIN_DELAY`). Running calls then have Kubernetes' default of 30 s.
const GRACE: i64 = 5 + 30;
/// Seconds between two liveness probes.
const LIVENESS_PERIOD: u64 = 10;

/// Returns the Deployment. `image` is `repository:tag@sha256:…`, and `pull_secret` the Secret for pulling it.
pub fn build(function: &ResolvedFunction, name: &str, image: &str, pull_secret: &str, settings: &Settings) -> Value {
    let mut spec = Map::new();
    if let Some(replicas) = function.replicas.fixed() {
        spec.insert("replicas".into(), replicas.into());
    }
    spec.insert("selector".into(), json!({ "matchLabels": function.pod_selector() }));
    let mut pod = json!({
        "automountServiceAccountToken": false,
        "containers": [container(function, image)],
        "imagePullSecrets": [{ "name": pull_secret }],
        "securityContext": security(),
        "terminationGracePeriodSeconds": GRACE,
        "volumes": [{ "name": "tmp-dir", "emptyDir": { "sizeLimit": TMP_SIZE } }]
    });
    if let Some(all) = pod["volumes"].as_array_mut() {
        all.extend(secret_volumes(function));
    }
    if let Some(account) = &settings.service_account {
        pod["serviceAccountName"] = account.as_str().into();
    }
    // The code may send requests as soon as it starts.
    let mut annotations = json!({ "proxy.istio.io/config": "{ \"holdApplicationUntilProxyStarts\": true }" });
    for (key, value) in &function.pod_annotations {
        annotations[key] = value.as_str().into();
    }
    // The pods read the Secrets only at their start, so a change of the digest restarts them.
    if let Some(digest) = &function.secrets_digest {
        annotations[SECRETS_DIGEST] = digest.total.as_str().into();
    }
    let template = json!({
        "metadata": {
            "annotations": annotations,
            "labels": function.pod_labels
        },
        "spec": pod
    });
    spec.insert("template".into(), template);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": serving_metadata(function, name),
        "spec": spec
    })
}

/// Returns the volumes for mounted Secrets.
pub(super) fn secret_volumes(function: &ResolvedFunction) -> impl Iterator<Item = Value> {
    function.secret_mounts.iter().enumerate().map(|(number, mount)| {
        json!({ "name": secret_volume(number), "secret": { "secretName": mount.secret_name, "defaultMode": 0o444 } })
    })
}

fn secret_volume(number: usize) -> String {
    format!("secret-{number}")
}

fn container(function: &ResolvedFunction, image: &str) -> Value {
    let mut container = json!({
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": function.env,
        "resources": function.resources,
        "securityContext": container_security(),
        "volumeMounts": volume_mounts(function),
        // The startup probe allows 150 s and detects a start within one second. The other probes begin after the
        // startup probe succeeds.
        "startupProbe": probe(1, 150, 1),
        "readinessProbe": probe(5, 1, 2),
        "livenessProbe": probe(LIVENESS_PERIOD, patience(function), 4)
    });
    if !function.bound_secrets.is_empty() {
        let sources = function.bound_secrets.iter().map(|BoundSecret { prefix, secret }| {
            let mut source = json!({ "secretRef": { "name": secret } });
            if !prefix.is_empty() {
                source["prefix"] = prefix.as_str().into();
            }
            source
        });
        container["envFrom"] = sources.collect();
    }
    container
}

/// Returns the volume mounts of the container.
pub(super) fn volume_mounts(function: &ResolvedFunction) -> Vec<Value> {
    let secrets = function.secret_mounts.iter().enumerate().map(
        |(number, mount)| json!({ "name": secret_volume(number), "mountPath": mount.mount_path, "readOnly": true }),
    );
    [json!({ "name": "tmp-dir", "mountPath": "/tmp" })].into_iter().chain(secrets).collect()
}

/// Returns the failure threshold of the liveness probe. A function that computes blocks its server. The server itself
/// aborts calls that exceed their deadline; the probe detects servers that cannot do so.
fn patience(function: &ResolvedFunction) -> u64 {
    let given = function.env.iter().find(|variable| variable.name == "FUNC_TIMEOUT");
    let seconds = given.and_then(|variable| variable.value.as_deref()?.trim().parse().ok());
    let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(TIMEOUT);
    // Allows two more failures than fit into the deadline.
    timeout.clamp(TIMEOUT, MAX_TIMEOUT).as_secs().div_ceil(LIVENESS_PERIOD) + 2
}

fn probe(period: u64, failures: u64, timeout: u64) -> Value {
    json!({
        "httpGet": { "path": "/healthz", "port": PORT, "scheme": "HTTP" },
        "periodSeconds": period,
        "failureThreshold": failures,
        "successThreshold": 1,
        "timeoutSeconds": timeout
    })
}
