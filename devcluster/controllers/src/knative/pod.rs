//! The Deployment that runs a Revision.

use serde_json::{Value, json};

use super::settings::Settings;
use super::{children, names};
use devcluster_apiserver::object::text;

/// The name of the port of the code.
pub(super) const PORT: &str = "user-port";
/// What the code listens on unless it says so.
const DEFAULT_PORT: u64 = 8080;
/// How long a request may take, in seconds.
const TIMEOUT: u64 = 300;

/// The name of a Revision's Deployment.
pub(super) fn deployment_name(revision: &Value) -> String {
    names::child(text(revision, "/metadata/name"), "-deployment")
}

/// The Deployment of a Revision, with so many pods to begin with.
pub(super) fn deployment(revision: &Value, replicas: i64, settings: &Settings) -> Value {
    let labels = names::of_revision(revision);
    let annotations = names::annotations(revision);
    let mut object = children::built(revision, "apps/v1", "Deployment", &deployment_name(revision));
    object["metadata"]["labels"] = labels.clone().into();
    object["metadata"]["annotations"] = annotations.clone().into();
    let mut of_pod = annotations;
    of_pod.insert("kubectl.kubernetes.io/default-container".to_owned(), container_name(revision).into());
    object["spec"] = json!({
        "replicas": replicas,
        "selector": {"matchLabels": {names::REVISION_UID: revision["metadata"]["uid"]}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}},
        "progressDeadlineSeconds": settings.progress_deadline.as_secs(),
        "revisionHistoryLimit": 0,
        "template": {"metadata": {"labels": labels, "annotations": of_pod}, "spec": pod(revision)},
    });
    object
}

/// The name of the container with the code.
pub(super) fn container_name(revision: &Value) -> &str {
    match text(revision, "/spec/containers/0/name") {
        "" => "user-container",
        name => name,
    }
}

fn pod(revision: &Value) -> Value {
    let mut spec = revision["spec"].clone();
    let timeout = spec["timeoutSeconds"].as_u64().unwrap_or(TIMEOUT);
    if let Some(fields) = spec.as_object_mut() {
        for of_knative in
            ["timeoutSeconds", "containerConcurrency", "responseStartTimeoutSeconds", "idleTimeoutSeconds"]
        {
            fields.remove(of_knative);
        }
    }
    spec["terminationGracePeriodSeconds"] = timeout.into();
    spec["containers"] = json!([user(revision)]);
    spec
}

/// The container with the code.
fn user(revision: &Value) -> Value {
    let mut container = revision["spec"]["containers"][0].clone();
    let port = container["ports"][0]["containerPort"].as_u64().unwrap_or(DEFAULT_PORT);
    container["name"] = container_name(revision).into();
    container["ports"] = json!([{"name": PORT, "containerPort": port, "protocol": "TCP"}]);
    let mut env = container["env"].as_array().cloned().unwrap_or_default();
    let own = [
        ("PORT", port.to_string()),
        ("K_REVISION", text(revision, "/metadata/name").to_owned()),
        ("K_CONFIGURATION", label(revision, names::CONFIGURATION)),
        ("K_SERVICE", label(revision, names::SERVICE)),
    ];
    env.extend(own.map(|(name, value)| json!({"name": name, "value": value})));
    container["env"] = env.into();
    container["terminationMessagePolicy"] = "FallbackToLogsOnError".into();
    for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
        if container[probe].is_object() {
            container[probe] = with_port(&container[probe], port);
        }
    }
    container
}

fn label(revision: &Value, name: &str) -> String {
    revision["metadata"]["labels"][name].as_str().unwrap_or_default().to_owned()
}

/// A probe of port 0 is one of the port of the code.
fn with_port(probe: &Value, port: u64) -> Value {
    let mut probe = probe.clone();
    for action in ["tcpSocket", "httpGet", "grpc"] {
        let unset = probe[action]["port"].is_null() || probe[action]["port"] == 0;
        if probe[action].is_object() && unset {
            probe[action]["port"] = port.into();
        }
    }
    probe
}
