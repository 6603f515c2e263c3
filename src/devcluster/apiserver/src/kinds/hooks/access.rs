//! RBAC roles and bindings; Ingresses and NetworkPolicies.

use serde_json::{Value, json};

use super::fill::{Fill, Object, items, text};
use crate::status::Cause;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Sets defaults. A role without rules has an explicit null; bindings name the API groups of role and subjects.
pub(super) fn default_rbac(kind: &str, object: &mut Object) {
    if matches!(kind, "Role" | "ClusterRole") {
        object.entry("rules").or_insert(Value::Null);
        return;
    }
    object.drop_zero(&["subjects"]);
    if let Some(role) = object.inner("roleRef") {
        role.text("apiGroup", RBAC);
    }
    for subject in object.each("subjects") {
        match subject.str("kind") {
            "User" | "Group" => subject.text("apiGroup", RBAC),
            _ => subject.drop_zero(&["apiGroup"]),
        }
    }
}

/// Validates a role or binding.
pub(super) fn validate_rbac(kind: &str, object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    if matches!(kind, "Role" | "ClusterRole") {
        for (index, rule) in items(object, &["rules"]).iter().enumerate() {
            validate_rule(kind, rule, &format!("rules[{index}]"), causes);
        }
        return;
    }
    let role = &object["roleRef"];
    if old.is_some_and(|old| old["roleRef"] != *role) {
        causes.push(Cause::invalid("roleRef", role, "cannot change roleRef"));
    }
    let group = text(role, &["apiGroup"]);
    if group != RBAC {
        causes.push(Cause::not_supported("roleRef.apiGroup", &group.into(), &[RBAC]));
    }
    let known: &[&str] = if kind == "RoleBinding" { &["ClusterRole", "Role"] } else { &["ClusterRole"] };
    let role_kind = text(role, &["kind"]);
    if !known.contains(&role_kind) {
        causes.push(Cause::not_supported("roleRef.kind", &role_kind.into(), known));
    }
    if text(role, &["name"]).is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    }
    for (index, subject) in items(object, &["subjects"]).iter().enumerate() {
        let field = format!("subjects[{index}]");
        if text(subject, &["name"]).is_empty() {
            causes.push(Cause::required(format!("{field}.name"), ""));
        }
        match text(subject, &["kind"]) {
            "ServiceAccount" => {
                if text(subject, &["namespace"]).is_empty() {
                    causes.push(Cause::required(format!("{field}.namespace"), ""));
                }
            }
            "User" | "Group" => {}
            other => {
                let known = ["Group", "ServiceAccount", "User"];
                causes.push(Cause::not_supported(format!("{field}.kind"), &other.into(), &known));
            }
        }
    }
}

fn validate_rule(kind: &str, rule: &Value, field: &str, causes: &mut Vec<Cause>) {
    if items(rule, &["verbs"]).is_empty() {
        causes.push(Cause::required(format!("{field}.verbs"), "verbs must contain at least one value"));
    }
    if !items(rule, &["nonResourceURLs"]).is_empty() {
        if kind == "Role" {
            let why = "namespaced rules cannot apply to non-resource URLs";
            causes.push(Cause::invalid(format!("{field}.nonResourceURLs"), &rule["nonResourceURLs"], why));
        }
        return;
    }
    if items(rule, &["apiGroups"]).is_empty() {
        let why = "resource rules must supply at least one api group";
        causes.push(Cause::required(format!("{field}.apiGroups"), why));
    }
    if items(rule, &["resources"]).is_empty() {
        let why = "resource rules must supply at least one resource";
        causes.push(Cause::required(format!("{field}.resources"), why));
    }
}

/// Sets the policy types and protocols of a NetworkPolicy.
pub(super) fn default_policy(object: &mut Object) {
    let Some(spec) = object.object("spec") else { return };
    let has_rules = spec.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    let types = if has_rules { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    spec.drop_zero(&["policyTypes"]);
    spec.value("policyTypes", types);
    for list in ["ingress", "egress"] {
        for rule in spec.each(list) {
            rule.each("ports").for_each(|port| port.text("protocol", "TCP"));
        }
    }
}
