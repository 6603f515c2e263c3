//! ValidatingAdmissionPolicies and their bindings.

use serde_json::{Value, json};

use super::fill::{Fill, Object, items, text};
use super::metadata::{NameRule, name_fault};
use super::pod_rules::duplicate;
use super::rules::label_selector;
use super::webhooks::{conditions, rules};
use crate::expression::infer::Wanted;
use crate::expression::policy::Composition;
use crate::status::Cause;

/// Sets the defaults of policies and bindings.
pub(super) fn default(kind: &str, object: &mut Object) {
    let Some(spec) = object.inner("spec") else { return };
    if kind == "ValidatingAdmissionPolicy" {
        spec.text("failurePolicy", "Fail");
    }
    for field in ["matchConstraints", "matchResources"] {
        let Some(resources) = spec.inner(field) else { continue };
        resources.text("matchPolicy", "Equivalent");
        resources.value("namespaceSelector", json!({}));
        resources.value("objectSelector", json!({}));
        for list in ["resourceRules", "excludeResourceRules"] {
            resources.each(list).for_each(|rule| rule.text("scope", "*"));
        }
    }
}

/// Validates a policy.
pub(super) fn validate(object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    one_of(&spec["failurePolicy"], "spec.failurePolicy", &["Fail", "Ignore"], causes);
    let constraints = &spec["matchConstraints"];
    if constraints.is_null() {
        causes.push(Cause::required("spec.matchConstraints", ""));
    } else {
        resources(constraints, "spec.matchConstraints", causes);
        if items(constraints, &["resourceRules"]).is_empty() {
            causes.push(Cause::required("spec.matchConstraints.resourceRules", ""));
        }
    }
    conditions(spec, "spec.matchConditions", causes);
    let composition = variables(spec, causes);
    let validations = items(spec, &["validations"]);
    if validations.is_empty() && items(spec, &["auditAnnotations"]).is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        causes.push(Cause::required("spec.validations", why));
        causes.push(Cause::required("spec.auditAnnotations", why));
    }
    for (index, validation) in validations.iter().enumerate() {
        judge(validation, &format!("spec.validations[{index}]"), &composition, causes);
    }
}

/// Validates the variables of a policy and declares them.
fn variables(spec: &Value, causes: &mut Vec<Cause>) -> Composition {
    let mut composition = Composition::begin(spec);
    for (index, variable) in items(spec, &["variables"]).iter().enumerate() {
        let field = format!("spec.variables[{index}]");
        let (name, expression) = (text(variable, &["name"]), text(variable, &["expression"]));
        if name.trim().is_empty() {
            causes.push(Cause::required(format!("{field}.name"), "name is not specified"));
        } else if !is_identifier(name) {
            causes.push(Cause::invalid(format!("{field}.name"), &name.into(), "must be a valid CEL identifier"));
        }
        if expression.trim().is_empty() {
            causes.push(Cause::required(format!("{field}.expression"), "expression is not specified"));
        } else if let Err(why) = composition.declare(name, expression) {
            causes.push(Cause::invalid(format!("{field}.expression"), &expression.into(), &why));
        }
    }
    composition
}

fn is_identifier(name: &str) -> bool {
    let reserved = ["true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"];
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !reserved.contains(&name)
}

fn judge(validation: &Value, field: &str, composition: &Composition, causes: &mut Vec<Cause>) {
    let expression = text(validation, &["expression"]);
    let at = format!("{field}.expression");
    if expression.trim().is_empty() {
        causes.push(Cause::required(at, "expression is not specified"));
    } else if let Err(why) = composition.check(expression, Wanted::Bool) {
        causes.push(Cause::invalid(at, &expression.into(), &why));
    }
    let worded = text(validation, &["messageExpression"]);
    let at = format!("{field}.messageExpression");
    if !worded.is_empty() && worded.trim().is_empty() {
        causes.push(Cause::invalid(at, &worded.into(), "must be non-empty if specified"));
    } else if !worded.is_empty()
        && let Err(why) = composition.check(worded, Wanted::Text)
    {
        causes.push(Cause::invalid(at, &worded.into(), &why));
    }
    let message = text(validation, &["message"]);
    let at = format!("{field}.message");
    if !message.is_empty() && message.trim().is_empty() {
        causes.push(Cause::invalid(at, &message.into(), "must be non-empty if specified"));
    } else if message.trim().contains('\n') {
        causes.push(Cause::invalid(at, &message.into(), "must not contain line breaks"));
    }
    let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    one_of(&validation["reason"], &format!("{field}.reason"), &reasons, causes);
}

pub(super) fn validate_binding(object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    let policy = text(spec, &["policyName"]);
    if policy.is_empty() {
        causes.push(Cause::required("spec.policyName", ""));
    } else if let Some(why) = name_fault(policy, NameRule::Subdomain) {
        causes.push(Cause::invalid("spec.policyName", &policy.into(), &why));
    }
    if !spec["matchResources"].is_null() {
        resources(&spec["matchResources"], "spec.matchResources", causes);
    }
    let field = "spec.validationActions";
    let actions = items(spec, &["validationActions"]);
    for (index, action) in actions.iter().enumerate() {
        one_of(action, &format!("{field}[{index}]"), &["Audit", "Deny", "Warn"], causes);
        if actions[..index].contains(action) {
            causes.push(duplicate(format!("{field}[{index}]"), action));
        }
    }
    let has = |wanted: &str| actions.iter().any(|action| action == wanted);
    if has("Deny") && has("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                   response and headers serves no purpose)";
        causes.push(Cause::invalid(field, &spec["validationActions"], why));
    }
    if actions.is_empty() {
        causes.push(Cause::required(field, "at least one validation action is required"));
    }
}

/// Validates the match constraints of a policy or binding.
fn resources(about: &Value, field: &str, causes: &mut Vec<Cause>) {
    one_of(&about["matchPolicy"], &format!("{field}.matchPolicy"), &["Equivalent", "Exact"], causes);
    for selector in ["namespaceSelector", "objectSelector"] {
        label_selector(&format!("{field}.{selector}"), &about[selector], causes);
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        rules(&about[list], &format!("{field}.{list}"), causes);
    }
}

fn one_of(value: &Value, field: &str, known: &[&str], causes: &mut Vec<Cause>) {
    if value.as_str().is_some_and(|value| !known.contains(&value)) {
        causes.push(Cause::not_supported(field, value, known));
    }
}
