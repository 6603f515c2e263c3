//! The Deployment that runs a Function's image.
//!
//! `replicas` is ours only while the number is fixed; else it is the autoscaler's. Annotations of the template are ours
//! only as far as we set them, so that `kubectl rollout restart` works.

use serde_json::{Map, Value, json};

use super::pod::{container_security, security};
use super::{PORT, metadata};
use crate::function::{ResolvedFunction, Settings};

/// Name of the container that runs the code.
pub const CONTAINER: &str = "function";
/// Most that the code may write to `/tmp`.
const TMP_SIZE: &str = "100Mi";

/// The Deployment. `image` is pulled as it is: `repository:tag@sha256:…`, with the Secret `pull_secret`.
pub fn build(function: &ResolvedFunction, name: &str, image: &str, pull_secret: &str, settings: &Settings) -> Value {
    let mut spec = Map::new();
    if !function.replicas.are_scaled() {
        spec.insert("replicas".into(), function.replicas.min.into());
    }
    spec.insert("selector".into(), json!({ "matchLabels": function.pod_selector() }));
    let mut pod = json!({
        "automountServiceAccountToken": false,
        "containers": [container(function, image)],
        "imagePullSecrets": [{ "name": pull_secret }],
        "securityContext": security(),
        "volumes": [{ "name": "tmp-dir", "emptyDir": { "sizeLimit": TMP_SIZE } }]
    });
    if let Some(account) = &settings.service_account {
        pod["serviceAccountName"] = account.as_str().into();
    }
    let template = json!({
        "metadata": {
            // The code may call others as soon as it starts.
            "annotations": { "proxy.istio.io/config": "{ \"holdApplicationUntilProxyStarts\": true }" },
            "labels": function.pod_labels
        },
        "spec": pod
    });
    spec.insert("template".into(), template);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(function, name),
        "spec": spec
    })
}

fn container(function: &ResolvedFunction, image: &str) -> Value {
    json!({
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": function.env,
        "resources": function.resources,
        "securityContext": container_security(),
        "volumeMounts": [{ "name": "tmp-dir", "mountPath": "/tmp" }],
        // Slow starts have 150 seconds; a start is seen within one. Both later probes begin after it.
        "startupProbe": probe(1, 150, 1),
        "readinessProbe": probe(5, 1, 2),
        "livenessProbe": probe(5, 3, 4)
    })
}

fn probe(period: u32, failures: u32, timeout: u32) -> Value {
    json!({
        "httpGet": { "path": "/healthz", "port": PORT, "scheme": "HTTP" },
        "periodSeconds": period,
        "failureThreshold": failures,
        "successThreshold": 1,
        "timeoutSeconds": timeout
    })
}
