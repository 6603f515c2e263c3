//! Checks whether the node fits a pod: taints, and allocatable resources.
//!
//! Not here: requests of other pods. Any number of pods fits if each one fits alone.

use serde_json::{Value, json};

use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::kinds::hooks::quantity;
use devcluster_apiserver::kubelet::NODE;
use devcluster_apiserver::kubelet::requests::asked;

const COMPARED: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

const PREEMPTION: &str = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";

/// Returns the scheduler's message if a pod fits on no node.
pub(super) fn misfit(client: &Client, pod: &Value) -> Option<String> {
    let node = client.get(&Subject::new("nodes", "", NODE))?;
    if let Some(kept) = kept_away(&node, pod) {
        return Some(format!("0/1 nodes are available: 1 {kept}. {PREEMPTION}"));
    }
    let lacks = |name: &&str| quantity(&node["status"]["allocatable"][name]).is_some_and(|all| asked(pod, name) > all);
    let lacking = COMPARED.into_iter().filter(lacks).map(|name| format!("1 Insufficient {name}")).collect::<Vec<_>>();
    if lacking.is_empty() {
        return None;
    }
    Some(format!("0/1 nodes are available: {}. {PREEMPTION}", lacking.join(", ")))
}

/// Returns why the node repels a pod: it is cordoned or has an untolerated taint.
fn kept_away(node: &Value, pod: &Value) -> Option<&'static str> {
    let cordoned = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    if node["spec"]["unschedulable"] == true && !tolerates(pod, &cordoned) {
        return Some("node(s) were unschedulable");
    }
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let away = |taint: &&Value| matches!(taint["effect"].as_str(), Some("NoSchedule" | "NoExecute"));
    taints.find(|taint| away(taint) && !tolerates(pod, taint)).map(|_| "node(s) had untolerated taint(s)")
}

fn tolerates(pod: &Value, taint: &Value) -> bool {
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let mut all = pod["spec"]["tolerations"].as_array().into_iter().flatten();
    all.any(|toleration| {
        let of = |name: &str| text(toleration, name);
        let exists = of("operator") == "Exists";
        (of("effect").is_empty() || of("effect") == text(taint, "effect"))
            && (of("key") == text(taint, "key") || of("key").is_empty() && exists)
            && (exists || of("value") == text(taint, "value"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(node: Value, tolerations: Value, expected: Option<&str>) {
        let pod = json!({"spec": {"tolerations": tolerations}});
        assert_eq!(kept_away(&json!({"spec": node}), &pod), expected, "{node} {pod}");
    }

    #[test]
    fn a_pod_keeps_away_from_what_it_does_not_tolerate() {
        let cordoned = "node(s) were unschedulable";
        check(json!({}), json!([]), None);
        check(json!({"unschedulable": true}), json!([]), Some(cordoned));
        check(json!({"unschedulable": true}), json!([{"operator": "Exists"}]), None);
        check(json!({"unschedulable": true}), json!([{"key": "other", "operator": "Exists"}]), Some(cordoned));
        let taint = |effect: &str| json!({"taints": [{"key": "a", "value": "b", "effect": effect}]});
        check(taint("NoSchedule"), json!([]), Some("node(s) had untolerated taint(s)"));
        check(taint("PreferNoSchedule"), json!([]), None);
        check(taint("NoSchedule"), json!([{"key": "a", "value": "b"}]), None);
        check(taint("NoSchedule"), json!([{"key": "a", "value": "c"}]), Some("node(s) had untolerated taint(s)"));
        check(taint("NoExecute"), json!([{"key": "a", "operator": "Exists", "effect": "NoExecute"}]), None);
    }
}
