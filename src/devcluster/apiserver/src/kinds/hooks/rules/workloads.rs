//! Deployments, ReplicaSets, StatefulSets and DaemonSets.

use super::{at_most_all, count_or_percent, invalid, is_none, label_selector, nonnegative, unsupported};
use crate::kinds::hooks::{
    fill::{at, items, text},
    label_selector::matches,
    metadata::{label_fault, labels},
    pod_rules::{self, Restarts},
};
use crate::status::Cause;
use serde_json::{Value, json};

/// Validates the spec of a workload, regardless of its previous state.
pub(in crate::kinds::hooks) fn validate(kind: &str, spec: &Value, causes: &mut Vec<Cause>) {
    match kind {
        "Deployment" => {
            nonnegative("spec", spec, &["replicas"], causes);
            selected_template(spec, "deployment", "invalid label selector", causes);
            deployment_strategy(&spec["strategy"], causes);
            nonnegative("spec", spec, &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"], causes);
            if let Some(deadline) = spec["progressDeadlineSeconds"].as_i64()
                && deadline <= spec["minReadySeconds"].as_i64().unwrap_or(0)
            {
                let why = "must be greater than minReadySeconds";
                causes.push(Cause::invalid("spec.progressDeadlineSeconds", &deadline.into(), why));
            }
        }
        "ReplicaSet" => {
            nonnegative("spec", spec, &["replicas", "minReadySeconds"], causes);
            // A real server's message names a Deployment here, too.
            selected_template(spec, "deployment", "invalid label selector", causes);
        }
        "StatefulSet" => stateful_set(spec, causes),
        _ => daemon_set(spec, causes),
    }
}

/// Validates the selector, and that it matches the template.
fn selected_template(spec: &Value, kind: &str, senseless: &str, causes: &mut Vec<Cause>) {
    if selector(spec, kind, senseless, causes) {
        let labels = at(spec, &["template", "metadata", "labels"]);
        if !is_empty(&spec["selector"]) && !matches(&spec["selector"], labels) {
            causes.push(unselected(labels));
        }
        template(spec, "ReplicaSet", causes);
    }
}

fn unselected(labels: &Value) -> Cause {
    Cause::invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
}

fn template(spec: &Value, kind: &str, causes: &mut Vec<Cause>) {
    pod_rules::validate_template(&spec["template"], "spec.template", Restarts::Always, causes);
    if !at(spec, &["template", "spec", "activeDeadlineSeconds"]).is_null() {
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        causes.push(Cause::forbidden("spec.template.spec.activeDeadlineSeconds", &why));
    }
}

fn is_empty(selector: &Value) -> bool {
    items(selector, &["matchExpressions"]).is_empty()
        && selector["matchLabels"].as_object().is_none_or(serde_json::Map::is_empty)
}

/// Validates the selector. Returns false if it is invalid, so that it cannot be compared with the template.
fn selector(spec: &Value, kind: &str, senseless: &str, causes: &mut Vec<Cause>) -> bool {
    let selector = &spec["selector"];
    if selector.is_null() {
        causes.push(Cause::required("spec.selector", ""));
        // A missing selector matches nothing.
        causes.extend((kind != "daemonset").then(|| unselected(at(spec, &["template", "metadata", "labels"]))));
        return true;
    }
    let sensible = label_selector("spec.selector", selector, causes);
    if is_empty(selector) {
        let why = format!("empty selector is invalid for {kind}");
        causes.push(Cause::invalid("spec.selector", selector, &why));
    }
    if !sensible {
        causes.push(Cause::invalid("spec.selector", &without_empty(selector), senseless));
    }
    sensible
}

/// Returns a selector without empty lists, as Go prints it.
fn without_empty(selector: &Value) -> Value {
    let mut selector = selector.clone();
    for expression in selector["matchExpressions"].as_array_mut().into_iter().flatten() {
        if let Some(expression) = expression.as_object_mut() {
            expression.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
        }
    }
    if let Some(selector) = selector.as_object_mut() {
        selector.retain(|_, value| !value.is_null());
    }
    selector
}

fn deployment_strategy(strategy: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.strategy.rollingUpdate";
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, &["type"]) {
        "Recreate" => {
            if !rolling.is_null() {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                causes.push(Cause::forbidden(path, why));
            }
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            let field = format!("{path}.maxUnavailable");
            count_or_percent(&field, unavailable, causes);
            count_or_percent(&format!("{path}.maxSurge"), surge, causes);
            if is_none(unavailable) && is_none(surge) {
                causes.push(Cause::invalid(&field, unavailable, "may not be 0 when `maxSurge` is 0"));
            }
            at_most_all(&field, unavailable, causes);
        }
        other => {
            let printed = format!("{{\"Type\":{other:?},\"RollingUpdate\":null}}");
            causes.push(unsupported("spec.strategy", &printed, &["Recreate", "RollingUpdate"]));
        }
    }
}

fn stateful_set(spec: &Value, causes: &mut Vec<Cause>) {
    let management = text(spec, &["podManagementPolicy"]);
    if !matches!(management, "OrderedReady" | "Parallel") {
        let why = "must be 'OrderedReady' or 'Parallel'";
        causes.push(Cause::invalid("spec.podManagementPolicy", &management.into(), why));
    }
    stateful_set_strategy(&spec["updateStrategy"], causes);
    for field in ["whenDeleted", "whenScaled"] {
        let policy = at(spec, &["persistentVolumeClaimRetentionPolicy", field]);
        if policy.as_str().is_some_and(|policy| !matches!(policy, "Retain" | "Delete")) {
            let field = format!("spec.persistentVolumeClaimRetentionPolicy.{field}");
            causes.push(Cause::not_supported(field, policy, &["Retain", "Delete"]));
        }
    }
    for (index, claim) in items(spec, &["volumeClaimTemplates"]).iter().enumerate() {
        let here = format!("spec.volumeClaimTemplates[{index}].spec");
        if items(claim, &["spec", "accessModes"]).is_empty() {
            causes.push(Cause::required(format!("{here}.accessModes"), "at least 1 access mode is required"));
        }
        if at(claim, &["spec", "resources", "requests", "storage"]).is_null() {
            causes.push(Cause::required(format!("{here}.resources[storage]"), ""));
        }
    }
    nonnegative("spec", spec, &["replicas", "minReadySeconds"], causes);
    nonnegative("spec.ordinals", &spec["ordinals"], &["start"], causes);
    let service = text(spec, &["serviceName"]);
    if let Some(why) = Some(service).filter(|name| !name.is_empty()).and_then(label_fault) {
        causes.push(Cause::invalid("spec.serviceName", &service.into(), &why));
    }
    if selector(spec, "statefulset", "", causes) {
        let found = at(spec, &["template", "metadata", "labels"]);
        if !spec["selector"].is_null() && !is_empty(&spec["selector"]) && !matches(&spec["selector"], found) {
            causes.push(unselected(found));
        }
        // Each claim is also a volume of the pods and replaces a volume of the same name.
        let mut whole = spec.clone();
        let claims = items(spec, &["volumeClaimTemplates"]);
        let name = |claim: &Value| text(claim, &["metadata", "name"]).to_owned();
        let names: Vec<String> = claims.iter().map(name).collect();
        let own = items(spec, &["template", "spec", "volumes"]).iter();
        let own = own.filter(|volume| !names.iter().any(|name| name == text(volume, &["name"]))).cloned();
        let claimed = names.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
        let volumes: Vec<Value> = claimed.chain(own).collect();
        if !volumes.is_empty() && whole["template"]["spec"].is_object() {
            whole["template"]["spec"]["volumes"] = volumes.into();
        }
        template(&whole, "StatefulSet", causes);
        // Reported twice, as by a real server: by the validation of templates and by the validation of the kind.
        labels("spec.template.labels", found, causes);
    }
}

fn stateful_set_strategy(strategy: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.updateStrategy";
    let rolling = &strategy["rollingUpdate"];
    let printed = |rolling: &Value| {
        format!(
            "{{\"Partition\":{},\"MaxUnavailable\":{}}}",
            rolling["partition"].as_i64().unwrap_or(0),
            rolling["maxUnavailable"]
        )
    };
    match text(strategy, &["type"]) {
        "RollingUpdate" => nonnegative("spec.updateStrategy.rollingUpdate", rolling, &["partition"], causes),
        "OnDelete" => {
            if !rolling.is_null() {
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                causes.push(invalid(format!("{path}.rollingUpdate"), &printed(rolling), why));
            }
        }
        other => {
            let rolling = if rolling.is_null() { "null".to_owned() } else { printed(rolling) };
            let printed = format!("{{\"Type\":{other:?},\"RollingUpdate\":{rolling}}}");
            causes.push(invalid(path, &printed, "must be 'RollingUpdate' or 'OnDelete'"));
        }
    }
}

fn daemon_set(spec: &Value, causes: &mut Vec<Cause>) {
    let found = at(spec, &["template", "metadata", "labels"]);
    let selector = &spec["selector"];
    if label_selector("spec.selector", selector, causes) && !matches(selector, found) {
        causes.push(unselected(found));
    }
    if !selector.is_null() && is_empty(selector) {
        causes.push(Cause::invalid("spec.selector", selector, "empty selector is invalid for daemonset"));
    }
    template(spec, "DaemonSet", causes);
    nonnegative("spec", spec, &["minReadySeconds"], causes);
    let path = "spec.updateStrategy";
    let rolling = &spec["updateStrategy"]["rollingUpdate"];
    match text(spec, &["updateStrategy", "type"]) {
        "RollingUpdate" => daemon_set_rolling(rolling, causes),
        "OnDelete" => {}
        other => {
            let printed = format!("{{\"Type\":{other:?},\"RollingUpdate\":null}}");
            causes.push(unsupported(path, &printed, &["RollingUpdate", "OnDelete"]));
        }
    }
    nonnegative("spec", spec, &["revisionHistoryLimit"], causes);
}

fn daemon_set_rolling(rolling: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.updateStrategy.rollingUpdate";
    let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
    let (first, second) = (format!("{path}.maxUnavailable"), format!("{path}.maxSurge"));
    count_or_percent(&first, unavailable, causes);
    count_or_percent(&second, surge, causes);
    at_most_all(&first, unavailable, causes);
    at_most_all(&second, surge, causes);
    match (is_none(unavailable), is_none(surge)) {
        (true, true) => causes.push(Cause::required(&first, "cannot be 0 when maxSurge is 0")),
        (false, false) => {
            causes.push(Cause::invalid(&second, surge, "may not be set when maxUnavailable is non-zero"));
        }
        _ => {}
    }
}
