//! The Knative Service that runs a Function's image, instead of a Deployment, a Service and an autoscaler.
//!
//! The Knative Service has the fields that Kyma's Functions had on Knative, and those that Pod Security `restricted`
//! requires. Probes and ports are missing, because Knative adds its own. The agent does not own `spec.traffic`.
//!
//! Invariant: a Function is never public. Two labels ensure this, because some releases of Knative ignore one of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::deployment::{TMP_SIZE, secret_volumes, volume_mounts};
use super::pod::container_security;
use super::serving_metadata;
use crate::{ResolvedFunction, Settings};
use mainstay_api::names;

/// Name of the container that runs the code.
const CONTAINER: &str = "lambda";
/// Labels that make a Knative Service cluster-local: until Knative 0.20, and from 0.18 on.
const VISIBILITY: [&str; 2] = ["serving.knative.dev/visibility", "networking.knative.dev/visibility"];
const CLUSTER_LOCAL: &str = "cluster-local";

/// Returns the Knative Service. `image` is `repository:tag@sha256:…`, and `pull_secret` the Secret for pulling it. With
/// the digest, Knative sends no request to the registry. `has_address` means that the Function owns no Service with
/// this name.
pub(crate) fn build(
    function: &ResolvedFunction,
    image: &str,
    pull_secret: &str,
    has_address: bool,
    settings: &Settings,
) -> Value {
    let mut metadata = serving_metadata(function, &function.name);
    for label in VISIBILITY {
        metadata["labels"][label] = CLUSTER_LOCAL.into();
    }
    if has_address {
        metadata["annotations"][names::ADDRESS] = "knative".into();
    }
    let mut volumes = vec![json!({ "name": "tmp-dir", "emptyDir": { "sizeLimit": TMP_SIZE } })];
    volumes.extend(secret_volumes(function));
    let mut pod = json!({
        "automountServiceAccountToken": false,
        "containers": [{
            "name": CONTAINER,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "env": function.env,
            "resources": function.resources,
            "securityContext": security(),
            "volumeMounts": volume_mounts(function)
        }],
        "imagePullSecrets": [{ "name": pull_secret }],
        "volumes": volumes
    });
    if let Some(account) = &settings.service_account {
        pod["serviceAccountName"] = account.as_str().into();
    }
    let (min, max) = (function.replicas.set.unwrap_or(function.replicas.min), function.replicas.max);
    // In Knative, a maximum of 0 means no limit.
    let max = function.replicas.set.unwrap_or(max).max(min).max(1);
    // All releases of Knative support this spelling.
    let mut annotations = json!({
        "autoscaling.knative.dev/minScale": min.to_string(),
        "autoscaling.knative.dev/maxScale": max.to_string()
    });
    for (key, value) in &function.pod_annotations {
        if annotations.get(key).is_none() {
            annotations[key] = value.as_str().into();
        }
    }
    // Pods read Secrets only at their start, so a change of the digest creates a new Revision.
    if let Some(digest) = &function.secrets_digest {
        annotations[names::SECRETS_DIGEST] = digest.total.as_str().into();
    }
    json!({
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": { "template": { "metadata": { "annotations": annotations, "labels": labels(function) }, "spec": pod } }
    })
}

/// Returns the labels of the serving pods without the label that Mainstay's own Service selects. With that label, the
/// Service would bypass Knative's proxy.
fn labels(function: &ResolvedFunction) -> BTreeMap<&String, &String> {
    function.pod_labels.iter().filter(|(key, _)| *key != names::RESOURCE).collect()
}

/// Returns the container's security context. Knative does not support the security context of a pod.
fn security() -> Value {
    let mut security = container_security();
    security["seccompProfile"] = json!({ "type": "RuntimeDefault" });
    if let Some(fields) = security.as_object_mut() {
        // Knative does not support the field `privileged`.
        fields.remove("privileged");
    }
    security
}
