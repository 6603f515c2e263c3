//! The facts about pods that Istio's policies need.

use std::collections::HashMap;

use serde_json::Value;

/// The pods of an APIRule's Services.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Workloads {
    /// Whether pods of the namespace have Istio's proxy, which checks requests.
    pub(super) have_proxies: bool,
    /// The pod selector of each existing Service that has a selector.
    pub(super) labels: HashMap<String, Value>,
}

/// Whether pods of a namespace with these labels get Istio's proxy.
pub(super) fn have_proxies(labels: &Value) -> bool {
    labels["istio-injection"] == "enabled"
        || (labels["istio-injection"].is_null() && labels["istio.io/rev"].as_str().is_some_and(|rev| !rev.is_empty()))
}

/// Returns the pod selector of a Service, if there is one.
pub(super) fn labels(service: &Value) -> Option<Value> {
    service["spec"].get("selector").filter(|selector| selector.as_object().is_some_and(|all| !all.is_empty())).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_namespace_says_whether_its_pods_get_a_proxy() {
        for (said, expected) in [
            (json!({"istio-injection": "enabled"}), true),
            (json!({"istio.io/rev": "stable"}), true),
            (json!({"istio-injection": "disabled", "istio.io/rev": "stable"}), false),
            (json!({"istio.io/rev": ""}), false),
            (json!({"istio.io/dataplane-mode": "ambient"}), false),
            (Value::Null, false),
        ] {
            assert_eq!(have_proxies(&said), expected, "{said}");
        }
    }

    #[test]
    fn a_service_may_select_nothing() {
        assert_eq!(labels(&json!({"spec": {"selector": {"app": "web"}}})), Some(json!({"app": "web"})));
        assert_eq!(labels(&json!({"spec": {"selector": {}}})).or(labels(&json!({"spec": {}}))), None);
    }
}
