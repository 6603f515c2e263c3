//! Validation of pods and pod templates.

use serde_json::Value;

use super::fill::{Fill, at, items, text};
use super::metadata::{annotations, label_fault, labels};
use super::quantity;
use crate::status::Cause;

/// The restart policies that an owner of pods allows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Restarts {
    /// For controllers that keep pods running: only `Always`.
    Always,
    /// For Jobs.
    Finishing,
    /// For standalone Pods.
    Any,
}

/// Validates the pod template at `path` (`spec.template`).
pub(super) fn validate_template(template: &Value, path: &str, restarts: Restarts, causes: &mut Vec<Cause>) {
    labels(&format!("{path}.labels"), at(template, &["metadata", "labels"]), causes);
    annotations(&format!("{path}.annotations"), at(template, &["metadata", "annotations"]), causes);
    validate_spec(&template["spec"], &format!("{path}.spec"), restarts, causes);
    if !items(template, &["spec", "ephemeralContainers"]).is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        causes.push(Cause::forbidden(format!("{path}.spec.ephemeralContainers"), why));
    }
}

pub(super) fn validate_new(pod: &Value, causes: &mut Vec<Cause>) {
    validate_spec(&pod["spec"], "spec", Restarts::Any, causes);
    if !items(pod, &["spec", "ephemeralContainers"]).is_empty() {
        causes.push(Cause::forbidden("spec.ephemeralContainers", "cannot be set on create"));
    }
}

/// Validates the pod spec at `path`.
pub(super) fn validate_spec(spec: &Value, path: &str, restarts: Restarts, causes: &mut Vec<Cause>) {
    let volumes = volume_names(spec, path, causes);
    if items(spec, &["containers"]).is_empty() {
        causes.push(Cause::required(format!("{path}.containers"), ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for list in ["initContainers", "containers"] {
        for (index, container) in items(spec, &[list]).iter().enumerate() {
            let here = format!("{path}.{list}[{index}]");
            names.push(new_name(container, &here, &names, causes));
            validate_container(container, &here, &volumes, causes);
            proc_mount(container, &here, spec["hostUsers"] != false, causes);
            resize_policies(container, &here, text(spec, &["restartPolicy"]), causes);
        }
    }
    let policy = text(spec, &["restartPolicy"]);
    let field = || format!("{path}.restartPolicy");
    match restarts {
        Restarts::Always if policy != "Always" => {
            causes.push(Cause::not_supported(field(), &policy.into(), &["Always"]));
        }
        Restarts::Finishing if !matches!(policy, "OnFailure" | "Never") => {
            causes.push(Cause::required(field(), "valid values: \"OnFailure\", \"Never\""));
        }
        Restarts::Any if !matches!(policy, "Always" | "OnFailure" | "Never") => {
            causes.push(Cause::not_supported(field(), &policy.into(), &["Always", "Never", "OnFailure"]));
        }
        _ => {}
    }
}

/// Validates `procMount`, which may be `Unmasked` only if the pod has its own user namespace.
fn proc_mount(container: &Value, path: &str, host_users: bool, causes: &mut Vec<Cause>) {
    let mount = at(container, &["securityContext", "procMount"]);
    let field = || format!("{path}.securityContext.procMount");
    match mount.as_str() {
        Some("Unmasked") if host_users => {
            causes.push(Cause::invalid(field(), mount, "`hostUsers` must be false to use `Unmasked`"));
        }
        None | Some("Default" | "Unmasked") => {}
        Some(_) => causes.push(Cause::not_supported(field(), mount, &["Default", "Unmasked"])),
    }
}

/// Validates the volumes of a spec. Returns their names.
pub(super) fn volume_names<'a>(spec: &'a Value, path: &str, causes: &mut Vec<Cause>) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (index, volume) in items(spec, &["volumes"]).iter().enumerate() {
        let here = format!("{path}.volumes[{index}]");
        names.push(new_name(volume, &here, &names, causes));
        let sources: Vec<&String> =
            volume.as_object().into_iter().flat_map(|v| v.keys()).filter(|k| *k != "name").collect();
        if let [_, second, ..] = sources.as_slice() {
            causes.push(Cause::forbidden(format!("{here}.{second}"), "may not specify more than 1 volume type"));
        }
    }
    names
}

/// Validates the name of a list item, which must be unique. Returns the name.
pub(super) fn new_name<'a>(item: &'a Value, path: &str, others: &[&str], causes: &mut Vec<Cause>) -> &'a str {
    let name = text(item, &["name"]);
    let field = || format!("{path}.name");
    if name.is_empty() {
        causes.push(Cause::required(field(), ""));
    } else if let Some(why) = label_fault(name) {
        causes.push(Cause::invalid(field(), &name.into(), &why));
    } else if others.contains(&name) {
        causes.push(duplicate(field(), &name.into()));
    }
    name
}

/// Validates a container, except for its name.
pub(super) fn validate_container(container: &Value, path: &str, volumes: &[&str], causes: &mut Vec<Cause>) {
    if text(container, &["image"]).trim().is_empty() {
        causes.push(Cause::required(format!("{path}.image"), ""));
    }
    let policy = text(container, &["imagePullPolicy"]);
    if !policy.is_empty() && !matches!(policy, "Always" | "IfNotPresent" | "Never") {
        let field = format!("{path}.imagePullPolicy");
        causes.push(Cause::not_supported(field, &policy.into(), &["Always", "IfNotPresent", "Never"]));
    }
    validate_ports(container, path, causes);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        validate_handler(&container[probe], &format!("{path}.{probe}"), causes);
    }
    for moment in ["postStart", "preStop"] {
        validate_handler(at(container, &["lifecycle", moment]), &format!("{path}.lifecycle.{moment}"), causes);
    }
    for (index, variable) in items(container, &["env"]).iter().enumerate() {
        let field = format!("{path}.env[{index}]");
        if text(variable, &["name"]).is_empty() {
            causes.push(Cause::required(format!("{field}.name"), ""));
        }
        if !text(variable, &["value"]).is_empty() && !variable["valueFrom"].is_null() {
            let why = "may not be specified when `value` is not empty";
            causes.push(Cause::invalid(format!("{field}.valueFrom"), &"".into(), why));
        }
    }
    let mut paths: Vec<&str> = Vec::new();
    for (index, mount) in items(container, &["volumeMounts"]).iter().enumerate() {
        let field = format!("{path}.volumeMounts[{index}]");
        let name = text(mount, &["name"]);
        if name.is_empty() {
            causes.push(Cause::required(format!("{field}.name"), ""));
        } else if !volumes.contains(&name) {
            causes.push(Cause::new("FieldValueNotFound", format!("{field}.name"), format!("Not found: \"{name}\"")));
        }
        let mount_path = text(mount, &["mountPath"]);
        if mount_path.is_empty() {
            causes.push(Cause::required(format!("{field}.mountPath"), ""));
        } else if paths.contains(&mount_path) {
            causes.push(Cause::invalid(format!("{field}.mountPath"), &mount_path.into(), "must be unique"));
        }
        paths.push(mount_path);
    }
    validate_resources(&container["resources"], &format!("{path}.resources"), causes);
}

/// Validates that a probe or hook has exactly one handler.
fn validate_handler(handler: &Value, path: &str, causes: &mut Vec<Cause>) {
    if handler.is_null() {
        return;
    }
    let mut given =
        ["exec", "httpGet", "tcpSocket", "grpc", "sleep"].into_iter().filter(|kind| !handler[*kind].is_null());
    if given.next().is_none() {
        causes.push(Cause::required(path.to_owned(), "must specify a handler type"));
    }
    for other in given {
        causes.push(Cause::forbidden(format!("{path}.{other}"), "may not specify more than 1 handler type"));
    }
}

fn validate_ports(container: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut names: Vec<&str> = Vec::new();
    for (index, port) in items(container, &["ports"]).iter().enumerate() {
        let field = format!("{path}.ports[{index}]");
        let name = text(port, &["name"]);
        if !name.is_empty() {
            if name.len() > 15 {
                causes.push(Cause::invalid(
                    format!("{field}.name"),
                    &name.into(),
                    "must be no more than 15 characters",
                ));
            } else if names.contains(&name) {
                causes.push(duplicate(format!("{field}.name"), &name.into()));
            }
            names.push(name);
        }
        match port["containerPort"].as_i64() {
            None | Some(0) => causes.push(Cause::required(format!("{field}.containerPort"), "")),
            Some(number) => port_range(&format!("{field}.containerPort"), number, causes),
        }
        let protocol = text(port, &["protocol"]);
        if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
            causes.push(Cause::not_supported(format!("{field}.protocol"), &protocol.into(), &["SCTP", "TCP", "UDP"]));
        }
    }
}

/// Validates a port number: `must be between 1 and 65535, inclusive`.
pub(super) fn port_range(field: &str, number: i64, causes: &mut Vec<Cause>) {
    if !(1..=65535).contains(&number) {
        causes.push(Cause::invalid(field, &number.into(), "must be between 1 and 65535, inclusive"));
    }
}

fn validate_resources(resources: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let limit = at(resources, &["limits", name]);
        if let (Some(wanted), Some(most)) = (quantity::nanos(request), quantity::nanos(limit))
            && wanted > most
        {
            let why = format!("must be less than or equal to {name} limit of {}", limit.as_str().unwrap_or_default());
            causes.push(Cause::invalid(format!("{path}.requests"), request, &why));
        }
    }
    for list in ["limits", "requests"] {
        for (name, value) in resources[list].as_object().into_iter().flatten() {
            if quantity::nanos(value).is_some_and(|n| n < 0) {
                let field = format!("{path}.{list}[{name}]");
                causes.push(Cause::invalid(field, value, "must be greater than or equal to 0"));
            }
        }
    }
}

/// Returns the cause `Duplicate value: …`.
pub(super) fn duplicate(field: String, value: &Value) -> Cause {
    Cause::new("FieldValueDuplicate", field, format!("Duplicate value: {value}"))
}

/// Fails on an invalid quantity in a pod spec.
pub(super) fn check_quantities(spec: &Value) -> Result<(), String> {
    for list in ["containers", "initContainers"] {
        for container in items(spec, &[list]) {
            for resources in ["limits", "requests"] {
                check_list(at(container, &["resources", resources]))?;
            }
        }
    }
    Ok(())
}

/// Fails on an invalid quantity in a resource list.
pub(super) fn check_list(list: &Value) -> Result<(), String> {
    let fine = list.as_object().into_iter().flatten().all(|(_, v)| v.is_null() || quantity::is_quantity(v));
    if fine { Ok(()) } else { Err(quantity::NONSENSE.to_owned()) }
}

/// Validates an update: only images, the deadline and additional tolerations may change.
pub(super) fn immutable(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let frozen = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("activeDeadlineSeconds");
            spec.remove("tolerations");
            spec.remove("nodeName");
            for list in ["containers", "initContainers"] {
                spec.each(list).for_each(|c| {
                    c.remove("image");
                });
            }
            spec.remove("schedulingGates");
        }
        spec
    };
    let kept = items(old, &["spec", "tolerations"]);
    let additions_only = kept.iter().all(|t| items(new, &["spec", "tolerations"]).contains(t));
    // Scheduling gates can be removed, but not added.
    let gates = items(old, &["spec", "schedulingGates"]);
    let gated = items(new, &["spec", "schedulingGates"]).iter().any(|gate| !gates.contains(gate));
    let rebound = !text(old, &["spec", "nodeName"]).is_empty() && old["spec"]["nodeName"] != new["spec"]["nodeName"];
    let deadline = |pod: &Value| pod["spec"]["activeDeadlineSeconds"].as_i64();
    let field = "spec.activeDeadlineSeconds";
    match (deadline(old), deadline(new)) {
        (Some(before), Some(now)) if now > before => {
            causes.push(Cause::invalid(field, &now.into(), "must be less than or equal to previous value"));
        }
        (Some(_), None) => {
            causes.push(Cause::invalid(field, &Value::Null, "must not update from a positive integer to nil value"));
        }
        _ => {}
    }
    if frozen(old) != frozen(new) || !additions_only || rebound || gated {
        causes.push(Cause::forbidden("spec", "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"));
    }
}

/// Validates the resize policies of a container.
fn resize_policies(container: &Value, path: &str, restart: &str, causes: &mut Vec<Cause>) {
    let field = format!("{path}.resizePolicy");
    let mut seen: Vec<&str> = Vec::new();
    for (index, policy) in items(container, &["resizePolicy"]).iter().enumerate() {
        let (resource, wanted) = (text(policy, &["resourceName"]), text(policy, &["restartPolicy"]));
        if seen.contains(&resource) {
            causes.push(duplicate(format!("{field}[{index}]"), &resource.into()));
        }
        seen.push(resource);
        for (given, known) in [(resource, ["cpu", "memory"]), (wanted, ["NotRequired", "RestartContainer"])] {
            if given.is_empty() {
                causes.push(Cause::required(&field, ""));
            } else if !known.contains(&given) {
                causes.push(Cause::not_supported(&field, &given.into(), &known));
            }
        }
        if restart == "Never" && wanted != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            causes.push(Cause::invalid(&field, &wanted.into(), why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_every_fault_of_a_pod_spec() {
        let spec = json!({
            "restartPolicy": "Never",
            "containers": [
                {"name": "c", "ports": [{"containerPort": 0, "protocol": "TCP"}], "volumeMounts": [{"name": "v", "mountPath": "/a"}]},
                {
                    "name": "c", "image": "x", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
                    "livenessProbe": {"periodSeconds": 1},
                    "readinessProbe": {"httpGet": {"port": 1}, "tcpSocket": {"port": 1}},
                },
            ],
        });
        let mut causes = Vec::new();
        validate_spec(&spec, "spec.template.spec", Restarts::Always, &mut causes);
        let lines: Vec<String> = causes.iter().map(|c| format!("{} {}", c.field, c.message)).collect();
        assert_eq!(
            lines,
            [
                "spec.template.spec.containers[0].image Required value",
                "spec.template.spec.containers[0].ports[0].containerPort Required value",
                "spec.template.spec.containers[0].volumeMounts[0].name Not found: \"v\"",
                "spec.template.spec.containers[1].name Duplicate value: \"c\"",
                "spec.template.spec.containers[1].livenessProbe Required value: must specify a handler type",
                "spec.template.spec.containers[1].readinessProbe.tcpSocket Forbidden: may not specify more than 1 handler type",
                "spec.template.spec.containers[1].resources.requests Invalid value: \"2\": must be less than or equal to cpu limit of 1",
                "spec.template.spec.restartPolicy Unsupported value: \"Never\": supported values: \"Always\"",
            ]
        );
    }
}
