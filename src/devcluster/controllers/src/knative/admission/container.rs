//! Validation of a Revision's pod.

use std::collections::BTreeSet;

use serde_json::Value;

use super::findings::Findings;
use devcluster_apiserver::object::text;

/// Environment variables that Knative sets.
const VARIABLES: [&str; 4] = ["K_CONFIGURATION", "K_REVISION", "K_SERVICE", "PORT"];
/// Ports that Knative uses in every pod.
const PORTS: [u64; 6] = [8008, 8012, 8013, 8022, 9090, 9091];
/// Allowed fields of the pod spec.
const OF_POD: [&str; 11] = [
    "containers",
    "containerConcurrency",
    "timeoutSeconds",
    "responseStartTimeoutSeconds",
    "idleTimeoutSeconds",
    "serviceAccountName",
    "imagePullSecrets",
    "volumes",
    "enableServiceLinks",
    "automountServiceAccountToken",
    "terminationGracePeriodSeconds",
];
/// Allowed fields of a container.
const OF_CONTAINER: [&str; 17] = [
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "imagePullPolicy",
    "livenessProbe",
    "name",
    "ports",
    "readinessProbe",
    "resources",
    "securityContext",
    "startupProbe",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "volumeMounts",
    "workingDir",
];

/// Checks the spec of a Revision. `at` is its path in the object.
pub(super) fn check(spec: &Value, at: &str, found: &mut Findings) {
    let mut disallowed = BTreeSet::new();
    for (field, value) in spec.as_object().into_iter().flatten() {
        if !OF_POD.contains(&field.as_str()) && !value.is_null() {
            disallowed.insert(format!("{at}.{field}"));
        }
    }
    if spec["automountServiceAccountToken"] == true {
        disallowed.insert(format!("{at}.automountServiceAccountToken"));
    }
    let between = |field: &str, most: i64, found: &mut Findings| {
        if let Some(value) = spec[field].as_i64().filter(|value| !(0..=most).contains(value)) {
            found.add(format!("expected 0 <= {value} <= {most}"), format!("{at}.{field}"));
        }
    };
    between("timeoutSeconds", 600, found);
    between("containerConcurrency", 1000, found);
    let containers = spec["containers"].as_array().map_or(&[][..], Vec::as_slice);
    if containers.is_empty() {
        found.add("missing field(s)", format!("{at}.containers"));
    }
    for (index, container) in containers.iter().enumerate() {
        one(container, &format!("{at}.containers[{index}]"), &mut disallowed, found);
    }
    if containers.len() > 1 {
        found.add("multiple containers are not supported here", format!("{at}.containers"));
    }
    if !disallowed.is_empty() {
        found.add("must not set the field(s)", Vec::from_iter(disallowed).join(", "));
    }
}

fn one(container: &Value, at: &str, disallowed: &mut BTreeSet<String>, found: &mut Findings) {
    for (field, value) in container.as_object().into_iter().flatten() {
        if !OF_CONTAINER.contains(&field.as_str()) && !value.is_null() {
            disallowed.insert(format!("{at}.{field}"));
        }
    }
    if text(container, "/image").is_empty() {
        found.add("missing field(s)", format!("{at}.image"));
    }
    for (index, variable) in container["env"].as_array().into_iter().flatten().enumerate() {
        let name = text(variable, "/name");
        if VARIABLES.contains(&name) {
            let what = format!("{name:?} is a reserved environment variable");
            found.add(what, format!("{at}.env[{index}].name"));
        }
        for source in ["fieldRef", "resourceFieldRef"] {
            if variable["valueFrom"][source].is_object() {
                disallowed.insert(format!("{at}.env[{index}].valueFrom.{source}"));
            }
        }
    }
    let ports = container["ports"].as_array().map_or(&[][..], Vec::as_slice);
    if ports.len() > 1 {
        found.add("More than one container port is set", format!("{at}.ports"));
    }
    for port in ports {
        let name = text(port, "/name");
        if !["", "h2c", "http1"].contains(&name) {
            let field = format!("{at}.ports\nName must be empty, or one of: 'h2c', 'http1'");
            found.add(format!("Port name {name} is not allowed"), field);
        }
        if let Some(number) = port["containerPort"].as_u64().filter(|number| PORTS.contains(number)) {
            found.add(format!("invalid value: {number} is a reserved port"), format!("{at}.ports.containerPort"));
        }
    }
}
