//! The Knative Service that runs a Function's image, instead of a Deployment, a Service and an autoscaler.
//!
//! It has what Kyma's Functions had on Knative, and what Pod Security `restricted` wants. There are no probes and no ports: Knative
//! adds its own. `spec.traffic` is never ours.
//!
//! Invariant: a Function is never published: of the two labels that say so, each is ignored by some releases of Knative.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::deployment::{TMP_SIZE, secret_volumes, volume_mounts};
use super::metadata;
use super::pod::container_security;
use crate::{ResolvedFunction, Settings};
use mainstay_api::names;

/// Name of the container that runs the code.
const CONTAINER: &str = "lambda";
/// Labels by which a Knative Service has no address outside of the cluster: until Knative 0.20, and from 0.18 on.
const VISIBILITY: [&str; 2] = ["serving.knative.dev/visibility", "networking.knative.dev/visibility"];
const CLUSTER_LOCAL: &str = "cluster-local";

/// The Knative Service. `image` is pulled as given, `repository:tag@sha256:…`, with the Secret `pull_secret`; the digest keeps
/// Knative from asking the registry. `has_address`: whether no Service of ours has its name.
pub(crate) fn build(
    function: &ResolvedFunction,
    image: &str,
    pull_secret: &str,
    has_address: bool,
    settings: &Settings,
) -> Value {
    let mut metadata = metadata(function, &function.name);
    for label in VISIBILITY {
        metadata["labels"][label] = CLUSTER_LOCAL.into();
    }
    if has_address {
        metadata["annotations"] = json!({ names::ADDRESS: "knative" });
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
    // To Knative, 0 is no limit.
    let max = function.replicas.set.unwrap_or(max).max(min).max(1);
    // The spelling that every release understands.
    let mut annotations = json!({
        "autoscaling.knative.dev/minScale": min.to_string(),
        "autoscaling.knative.dev/maxScale": max.to_string()
    });
    for (key, value) in &function.pod_annotations {
        if annotations.get(key).is_none() {
            annotations[key] = value.as_str().into();
        }
    }
    // Another value is a new Revision: pods read Secrets only once.
    if let Some(digest) = &function.secrets_digest {
        annotations[names::SECRETS_DIGEST] = digest.as_str().into();
    }
    json!({
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": { "template": { "metadata": { "annotations": annotations, "labels": labels(function) }, "spec": pod } }
    })
}

/// Those of the serving pods, without the one by which our own Service would find them, past Knative's proxy.
fn labels(function: &ResolvedFunction) -> BTreeMap<&String, &String> {
    function.pod_labels.iter().filter(|(key, _)| *key != names::RESOURCE).collect()
}

/// Knative has no security context of pods: all of it is the container's.
fn security() -> Value {
    let mut security = container_security();
    security["seccompProfile"] = json!({ "type": "RuntimeDefault" });
    if let Some(fields) = security.as_object_mut() {
        // Knative knows no such field.
        fields.remove("privileged");
    }
    security
}
