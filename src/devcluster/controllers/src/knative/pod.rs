//! The Deployment that runs a Revision.

use serde_json::{Value, json};

use super::settings::Settings;
use super::{children, names};
use devcluster_apiserver::object::{count, text};
use devcluster_apiserver::requests::QUEUE_PROXY;

/// Names of the ports of the code and of the queue proxy.
const PORT: &str = "user-port";
pub(super) const PROXY_PORT: &str = "queue-port";
/// Ports of the queue proxy for requests and for the notification of their end.
const TRAFFIC: u16 = 8012;
const ADMIN: u16 = 8022;
/// Default port of the code.
const DEFAULT_PORT: u64 = 8080;
/// Default maximum duration of a request in seconds.
const TIMEOUT: u64 = 300;

/// The name of a Revision's Deployment.
pub(super) fn deployment_name(revision: &Value) -> String {
    names::child(text(revision, "/metadata/name"), "-deployment")
}

/// Builds the Deployment of a Revision with its initial size.
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
    spec["containers"] = json!([user(revision), proxy(revision, timeout)]);
    spec
}

/// The container with the code.
fn user(revision: &Value) -> Value {
    let mut container = revision["spec"]["containers"][0].clone();
    let port = port(revision);
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
    container["lifecycle"] =
        json!({"preStop": {"httpGet": {"path": "/wait-for-drain", "port": ADMIN, "scheme": "HTTP"}}});
    for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
        if container[probe].is_object() {
            container[probe] = with_port(&container[probe], port);
        }
    }
    if is_asked_by_proxy(&container["readinessProbe"])
        && let Some(container) = container.as_object_mut()
    {
        container.remove("readinessProbe");
    }
    container
}

fn port(revision: &Value) -> u64 {
    revision["spec"]["containers"][0]["ports"][0]["containerPort"].as_u64().unwrap_or(DEFAULT_PORT)
}

/// Whether the queue proxy executes this probe.
fn is_asked_by_proxy(probe: &Value) -> bool {
    probe["httpGet"].is_object() || probe["tcpSocket"].is_object()
}

/// The queue proxy's container.
fn proxy(revision: &Value, timeout: u64) -> Value {
    let (port, probe) = (port(revision), &revision["spec"]["containers"][0]["readinessProbe"]);
    let probe = if is_asked_by_proxy(probe) { with_port(probe, port).to_string() } else { String::new() };
    let env = [
        ("SERVING_NAMESPACE", text(revision, "/metadata/namespace").to_owned()),
        ("SERVING_SERVICE", label(revision, names::SERVICE)),
        ("SERVING_CONFIGURATION", label(revision, names::CONFIGURATION)),
        ("SERVING_REVISION", text(revision, "/metadata/name").to_owned()),
        ("QUEUE_SERVING_PORT", TRAFFIC.to_string()),
        ("CONTAINER_CONCURRENCY", count(revision, "/spec/containerConcurrency").to_string()),
        ("REVISION_TIMEOUT_SECONDS", timeout.to_string()),
        ("USER_PORT", port.to_string()),
        ("SERVING_READINESS_PROBE", probe),
    ];
    let env = env.map(|(name, value)| json!({"name": name, "value": value}));
    let ports = [("http-queueadm", ADMIN), ("http-autometric", 9090), ("http-usermetric", 9091), (PROXY_PORT, TRAFFIC)];
    let ports = ports.map(|(name, port)| json!({"name": name, "containerPort": port, "protocol": "TCP"}));
    let header = json!({"name": "K-Network-Probe", "value": "queue"});
    json!({
        "name": "queue-proxy", "image": QUEUE_PROXY, "resources": {"requests": {"cpu": "25m"}}, "env": env, "ports": ports,
        "readinessProbe": {"httpGet": {"port": TRAFFIC, "httpHeaders": [header]}},
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
        },
    })
}

fn label(revision: &Value, name: &str) -> String {
    revision["metadata"]["labels"][name].as_str().unwrap_or_default().to_owned()
}

/// Sets the port of a probe that has no port, or port 0, to the port of the code.
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
