//! Pods and pod templates: their defaults, and the fields that admission adds to a Pod.

use serde_json::{Value, json};

use super::fill::{Fill, Object, at, items};
use super::quantity;

pub(super) fn default_template(spec: &mut Object) {
    let Some(template) = spec.object("template") else { return };
    template.value("metadata", json!({}));
    if let Some(metadata) = template.inner("metadata") {
        metadata.drop_zero(&["labels", "annotations", "creationTimestamp", "name"]);
    }
    if let Some(spec) = template.object("spec") {
        default_spec(spec);
    }
}

/// Sets the defaults of a pod spec in a template or Pod.
pub(super) fn default_spec(spec: &mut Object) {
    spec.text("restartPolicy", "Always");
    spec.text("dnsPolicy", "ClusterFirst");
    spec.text("schedulerName", "default-scheduler");
    spec.value("terminationGracePeriodSeconds", 30);
    spec.value("securityContext", json!({}));
    account_twin(spec);
    spec.drop_zero(&[
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "nodeName",
        "hostname",
        "subdomain",
        "priorityClassName",
        "serviceAccountName",
        "serviceAccount",
        "nodeSelector",
        "tolerations",
        "imagePullSecrets",
        "volumes",
        "initContainers",
        "hostAliases",
        "topologySpreadConstraints",
        "readinessGates",
    ]);
    quantity::normalise(spec.inner("overhead"));
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in spec.each(list) {
            default_container(container);
        }
    }
    for volume in spec.each("volumes") {
        default_volume(volume);
    }
}

/// Stores both `serviceAccountName` and its deprecated name `serviceAccount`.
fn account_twin(spec: &mut Object) {
    let name = [spec.str("serviceAccountName"), spec.str("serviceAccount")].into_iter().find(|n| !n.is_empty());
    if let Some(name) = name.map(str::to_owned) {
        spec.insert("serviceAccountName".into(), name.clone().into());
        spec.insert("serviceAccount".into(), name.into());
    }
}

fn default_container(container: &mut Object) {
    container.text("terminationMessagePath", "/dev/termination-log");
    container.text("terminationMessagePolicy", "File");
    container.value("resources", json!({}));
    let policy = if is_latest(container.str("image")) { "Always" } else { "IfNotPresent" };
    container.text("imagePullPolicy", policy);
    container.drop_zero(&[
        "stdin",
        "stdinOnce",
        "tty",
        "workingDir",
        "args",
        "command",
        "env",
        "envFrom",
        "ports",
        "volumeMounts",
        "volumeDevices",
    ]);
    if let Some(resources) = container.inner("resources") {
        for list in ["limits", "requests"] {
            quantity::normalise(resources.inner(list));
        }
        resources.drop_zero(&["limits", "requests", "claims"]);
    }
    for port in container.each("ports") {
        port.text("protocol", "TCP");
        port.drop_zero(&["hostPort", "hostIP", "name"]);
    }
    for mount in container.each("volumeMounts") {
        mount.drop_zero(&["readOnly", "subPath", "subPathExpr"]);
    }
    for variable in container.each("env") {
        variable.drop_zero(&["value"]);
        if let Some(source) = variable.inner("valueFrom") {
            default_field_source(source);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.inner(probe) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = container.inner("lifecycle") {
        for hook in ["postStart", "preStop"] {
            lifecycle.inner(hook).and_then(|hook| hook.inner("httpGet")).into_iter().for_each(default_http_get);
        }
    }
}

/// Returns whether an image reference means the tag `latest`, explicitly or by default.
fn is_latest(image: &str) -> bool {
    let (name, digest) = image.split_once('@').map_or((image, None), |(n, d)| (n, Some(d)));
    let last = name.rsplit('/').next().unwrap_or(name);
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => digest.is_none() && !name.is_empty(),
    }
}

fn default_probe(probe: &mut Object) {
    for (field, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        probe.drop_zero(&[field]);
        probe.value(field, value);
    }
    probe.drop_zero(&["initialDelaySeconds"]);
    probe.inner("httpGet").into_iter().for_each(default_http_get);
    if let Some(grpc) = probe.inner("grpc") {
        grpc.value("service", "");
    }
}

fn default_http_get(get: &mut Object) {
    get.text("path", "/");
    get.text("scheme", "HTTP");
}

fn default_field_source(source: &mut Object) {
    if let Some(field) = source.inner("fieldRef") {
        field.text("apiVersion", "v1");
    }
    if let Some(resource) = source.inner("resourceFieldRef") {
        resource.value("divisor", "0");
    }
}

fn default_volume(volume: &mut Object) {
    if volume.len() <= 1 {
        volume.value("emptyDir", json!({}));
    }
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = volume.inner(source) {
            source.value("defaultMode", 420);
        }
    }
    if let Some(path) = volume.inner("hostPath") {
        path.value("type", "");
    }
    if let Some(claim) = volume.inner("persistentVolumeClaim") {
        claim.drop_zero(&["readOnly"]);
    }
    for item in volume.inner("downwardAPI").into_iter().flat_map(|v| v.each("items")) {
        default_field_source(item);
    }
    for source in volume.inner("projected").into_iter().flat_map(|v| v.each("sources")) {
        if let Some(token) = source.inner("serviceAccountToken") {
            token.value("expirationSeconds", 3600);
        }
        for item in source.inner("downwardAPI").into_iter().flat_map(|v| v.each("items")) {
            default_field_source(item);
        }
    }
    if let Some(spec) = volume.inner("ephemeral").and_then(|e| e.inner("volumeClaimTemplate")) {
        spec.inner("spec").into_iter().for_each(|spec| spec.text("volumeMode", "Filesystem"));
    }
}

/// Sets the defaults of a Pod, including some that templates lack.
pub(super) fn default_pod(pod: &mut Object) {
    let Some(spec) = pod.object("spec") else { return };
    default_spec(spec);
    spec.value("enableServiceLinks", true);
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["containers", "initContainers"] {
        for port in spec.each(list).flat_map(|container| container.each("ports")).filter(|_| host_network) {
            if let Some(number) = port.get("containerPort").cloned() {
                port.value("hostPort", number);
            }
        }
        for resources in spec.each(list).filter_map(|c| c.inner("resources")) {
            let Some(limits) = resources.inner("limits").cloned() else { continue };
            if let Some(requests) = resources.object("requests") {
                limits.into_iter().for_each(|(name, value)| requests.value(&name, value));
            }
        }
    }
}

/// Sets the status of a new Pod and the fields that admission adds.
pub(super) fn prepare(pod: &mut Object) {
    let class = quality_of_service(pod.get("spec").unwrap_or(&Value::Null));
    let mut status = json!({"phase": "Pending", "qosClass": class});
    if !items(pod.get("spec").unwrap_or(&Value::Null), &["schedulingGates"]).is_empty() {
        let since = pod.get("metadata").map(|metadata| metadata["creationTimestamp"].clone());
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null,
            "lastTransitionTime": since, "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    pod.insert("status".into(), status);
    let Some(spec) = pod.object("spec") else { return };
    spec.text("serviceAccountName", "default");
    account_twin(spec);
    spec.value("priority", 0);
    spec.text("preemptionPolicy", "PreemptLowerPriority");
    spec.value("tolerations", json!([]));
    if let Some(Value::Array(tolerations)) = spec.get_mut("tolerations") {
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            let tolerated = tolerations.iter().any(|t| {
                (t["key"] == key || (t["key"].is_null() && t["operator"] == "Exists"))
                    && (t["effect"].is_null() || t["effect"] == "NoExecute")
            });
            if !tolerated {
                tolerations
                    .push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
            }
        }
    }
}

/// Returns the QoS class of a pod with this spec.
pub(super) fn quality_of_service(spec: &Value) -> &'static str {
    let containers = || items(spec, &["containers"]).iter().chain(items(spec, &["initContainers"]));
    let set = |c: &Value, list: &str, name: &str| !at(c, &["resources", list, name]).is_null();
    let none =
        containers().all(|c| ["limits", "requests"].iter().all(|l| ["cpu", "memory"].iter().all(|n| !set(c, l, n))));
    if none {
        return "BestEffort";
    }
    let full = containers().all(|c| {
        ["cpu", "memory"].iter().all(|name| {
            set(c, "limits", name)
                && (!set(c, "requests", name)
                    || at(c, &["resources", "requests", name]) == at(c, &["resources", "limits", name]))
        })
    });
    if full { "Guaranteed" } else { "Burstable" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulls_always_what_is_latest() {
        for (image, latest) in [
            ("busybox", true),
            ("busybox:latest", true),
            ("busybox:1.36", false),
            ("localhost:5000/a/b", true),
            ("localhost:5000/a/b:v1", false),
            ("a@sha256:0", false),
            ("a:latest@sha256:0", true),
            ("", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }
}
