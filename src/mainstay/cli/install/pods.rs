//! Applies the pod settings to the Deployments and StatefulSets.

use serde_json::{Value, json};

use super::values::{Expect, Values};
use crate::agent::memory;

/// The agent's Deployment. Some settings apply only to this Deployment.
const AGENT: &str = "mainstay";
/// The pod's spec in a workload.
const POD: &str = "/spec/template/spec";

/// Applies the settings to a Deployment or a StatefulSet of the installation.
pub(super) fn choose(workload: &mut Value, values: &Values) {
    let is_agent = workload["metadata"]["name"] == AGENT;
    if is_agent {
        workload["spec"]["replicas"] = json!(values.replicas.max(values.shards));
    }
    let metadata = &mut workload["spec"]["template"]["metadata"];
    for (field, more) in [("labels", &values.pod_labels), ("annotations", &values.pod_annotations)] {
        for (key, value) in more {
            metadata[field][key] = json!(value);
        }
    }
    let Some(pod) = workload.pointer_mut(POD) else { return };
    let of_all = [
        ("imagePullSecrets", named(&values.image_pull_secret)),
        ("priorityClassName", json!(values.priority_class_name)),
        ("nodeSelector", json!(values.node_selector)),
        ("tolerations", json!(values.tolerations)),
    ];
    let of_agent = [
        ("affinity", json!(values.affinity)),
        ("topologySpreadConstraints", json!(values.topology_spread_constraints)),
    ];
    for (field, value) in of_all.into_iter().chain(of_agent.into_iter().filter(|_| is_agent)) {
        if !is_empty(&value) {
            pod[field] = value;
        }
    }
    for list in ["initContainers", "containers"] {
        for container in pod.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let resources = container["name"].as_str().and_then(|name| values.resources.get(name));
            container["resources"] = resources.cloned().unwrap_or_else(|| json!({}));
            if is_agent && container["name"] == AGENT {
                set_expected_memory(&mut container["resources"], values.expect);
            }
            if !values.image_pull_policy.is_empty() {
                container["imagePullPolicy"] = json!(values.image_pull_policy);
            }
        }
    }
}

/// Sets the memory of the agent for its expected load.
fn set_expected_memory(resources: &mut Value, Expect { git_syncs, objects }: Expect) {
    if git_syncs + objects > 0 {
        let mib = memory::needed(git_syncs, objects);
        resources["limits"]["memory"] = json!(format!("{mib}Mi"));
        // Three tenths of the limit are for kept objects. The request is higher, because the kernel counts other memory
        // too. The rest of the limit is for peaks.
        resources["requests"]["memory"] = json!(format!("{}Mi", mib * 2 / 5));
    }
}

fn named(secret: &str) -> Value {
    if secret.is_empty() { Value::Null } else { json!([{"name": secret}]) }
}

/// Returns whether a value is unset.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}
