//! Webhook configurations.

use serde_json::{Value, json};

use super::fill::{Fill, Object, items, text};
use super::metadata::{NameRule, name_fault, qualified_faults};
use super::pod_rules::duplicate;
use crate::expression::condition;
use crate::status::Cause;

/// Maximum number of match conditions of one webhook.
const CONDITIONS: usize = 64;
const FORM: &str = "; desired format: https://host[/path]";

/// Sets the defaults of webhook configurations.
pub(super) fn default(kind: &str, object: &mut Object) {
    for hook in object.each("webhooks") {
        hook.text("failurePolicy", "Fail");
        hook.text("matchPolicy", "Equivalent");
        hook.value("timeoutSeconds", 10);
        hook.value("namespaceSelector", json!({}));
        hook.value("objectSelector", json!({}));
        if kind == "MutatingWebhookConfiguration" {
            hook.text("reinvocationPolicy", "Never");
        }
        if let Some(service) = hook.inner("clientConfig").and_then(|c| c.inner("service")) {
            service.value("port", 443);
        }
        hook.each("rules").for_each(|rule| rule.text("scope", "*"));
    }
}

/// Validates a webhook configuration.
pub(super) fn validate(object: &Value, causes: &mut Vec<Cause>) {
    let mut names: Vec<&str> = Vec::new();
    for (index, hook) in items(object, &["webhooks"]).iter().enumerate() {
        let field = format!("webhooks[{index}]");
        let name = text(hook, &["name"]);
        if name.is_empty() {
            causes.push(Cause::required(format!("{field}.name"), ""));
        } else if let Some(why) = name_fault(name, NameRule::Subdomain) {
            causes.push(Cause::invalid(format!("{field}.name"), &name.into(), &why));
        } else if name.split('.').count() < 3 {
            let why = "should be a domain with at least three segments separated by dots";
            causes.push(Cause::invalid(format!("{field}.name"), &name.into(), why));
        }
        rules(&hook["rules"], &format!("{field}.rules"), causes);
        choices(hook, &field, causes);
        client(&hook["clientConfig"], &format!("{field}.clientConfig"), causes);
        conditions(hook, &format!("{field}.matchConditions"), causes);
        versions(hook, &format!("{field}.admissionReviewVersions"), causes);
        if !name.is_empty() && names.contains(&name) {
            causes.push(duplicate(format!("{field}.name"), &name.into()));
        }
        names.push(name);
    }
}

/// Validates enumerated fields.
fn choices(hook: &Value, field: &str, causes: &mut Vec<Cause>) {
    for (name, known) in [("failurePolicy", ["Fail", "Ignore"]), ("matchPolicy", ["Equivalent", "Exact"])] {
        let value = &hook[name];
        if value.as_str().is_some_and(|value| !known.contains(&value)) {
            causes.push(Cause::not_supported(format!("{field}.{name}"), value, &sorted(known)));
        }
    }
    let effects = &hook["sideEffects"];
    if effects.is_null() {
        causes.push(Cause::required(format!("{field}.sideEffects"), "must specify one of None, NoneOnDryRun"));
    } else if effects != "None" && effects != "NoneOnDryRun" {
        causes.push(Cause::not_supported(format!("{field}.sideEffects"), effects, &["None", "NoneOnDryRun"]));
    }
    if hook["timeoutSeconds"].as_i64().is_some_and(|n| !(1..=30).contains(&n)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        causes.push(Cause::invalid(format!("{field}.timeoutSeconds"), &hook["timeoutSeconds"], why));
    }
    let again = &hook["reinvocationPolicy"];
    if again.as_str().is_some_and(|value| !matches!(value, "IfNeeded" | "Never")) {
        let known = ["IfNeeded", "Never"];
        causes.push(Cause::not_supported(format!("{field}.reinvocationPolicy"), again, &known));
    }
}

fn sorted<const N: usize>(mut known: [&str; N]) -> [&str; N] {
    known.sort_unstable();
    known
}

fn client(client: &Value, field: &str, causes: &mut Vec<Cause>) {
    if client["url"].is_null() == client["service"].is_null() {
        causes.push(Cause::required(field, "exactly one of url or service is required"));
    } else if let Some(url) = client["url"].as_str() {
        address(url, &format!("{field}.url"), causes);
    } else {
        let service = &client["service"];
        for part in ["name", "namespace"] {
            if text(service, &[part]).is_empty() {
                causes.push(Cause::required(format!("{field}.service.{part}"), ""));
            }
        }
        if service["port"].as_i64().is_some_and(|port| !(1..=65535).contains(&port)) {
            let why = "port is not valid: must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(format!("{field}.service.port"), &service["port"], why));
        }
        path(text(service, &["path"]), &format!("{field}.service.path"), causes);
    }
}

fn address(url: &str, field: &str, causes: &mut Vec<Cause>) {
    let mut refuse = |value: &str, why: &str| causes.push(Cause::invalid(field, &value.into(), why));
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        refuse(scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() {
        refuse("", &format!("host must be specified{FORM}"));
    }
    if authority.contains('@') {
        refuse(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        refuse(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        refuse(query, "query parameters are not permitted in the URL");
    }
}

fn path(path: &str, field: &str, causes: &mut Vec<Cause>) {
    if matches!(path, "" | "/") {
        return;
    }
    let mut refuse = |why: String| causes.push(Cause::invalid(field, &path.into(), &why));
    if path == "//" {
        return refuse("segment[0] may not be empty".to_owned());
    }
    if !path.starts_with('/') {
        refuse("must start with a '/'".to_owned());
    }
    let checked: String = path.chars().skip(1).collect();
    for (index, step) in checked.strip_suffix('/').unwrap_or(&checked).split('/').enumerate() {
        if step.is_empty() {
            refuse(format!("segment[{index}] may not be empty"));
        } else if let Some(why) = name_fault(step, NameRule::Subdomain) {
            refuse(format!("segment[{index}]: {why}"));
        }
    }
}

fn versions(hook: &Value, field: &str, causes: &mut Vec<Cause>) {
    let versions = items(hook, &["admissionReviewVersions"]);
    if versions.is_empty() {
        causes.push(Cause::required(field, "must specify one of v1, v1beta1"));
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        if versions[..index].contains(version) {
            causes.push(Cause::invalid(format!("{field}[{index}]"), version, "duplicate version"));
        }
    }
    if !versions.iter().any(|version| version == "v1" || version == "v1beta1") {
        let why = "must include at least one of v1, v1beta1";
        causes.push(Cause::invalid(field, &hook["admissionReviewVersions"], why));
    }
}

pub(super) fn conditions(hook: &Value, field: &str, causes: &mut Vec<Cause>) {
    let conditions = items(hook, &["matchConditions"]);
    if conditions.len() > CONDITIONS {
        let why = format!("Too many: {}: must have at most {CONDITIONS} items", conditions.len());
        causes.push(Cause::new("FieldValueTooMany", field, why));
    }
    let mut names: Vec<&str> = Vec::new();
    for (index, one) in conditions.iter().enumerate() {
        let (name, expression) = (text(one, &["name"]), text(one, &["expression"]).trim());
        let at = format!("{field}[{index}].expression");
        if expression.is_empty() {
            causes.push(Cause::required(at, ""));
        } else if let Err(why) = condition::check(expression) {
            causes.push(Cause::invalid(at, &expression.into(), &why));
        }
        let at = format!("{field}[{index}].name");
        if name.is_empty() {
            causes.push(Cause::required(at, ""));
            continue;
        }
        causes.extend(qualified_faults(name).iter().map(|why| Cause::invalid(&at, &name.into(), why)));
        if names.contains(&name) {
            causes.push(duplicate(at, &name.into()));
        }
        names.push(name);
    }
}

pub(super) fn rules(list: &Value, field: &str, causes: &mut Vec<Cause>) {
    const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    for (index, rule) in items(list, &[]).iter().enumerate() {
        let field = format!("{field}[{index}]");
        for (list, others) in
            [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")]
        {
            let values = items(rule, &[list]);
            if values.is_empty() {
                causes.push(Cause::required(format!("{field}.{list}"), ""));
            }
            if values.len() > 1 && values.iter().any(|value| value == "*") {
                let why = format!("if '*' is present, must not specify other {others}");
                causes.push(Cause::invalid(format!("{field}.{list}"), &rule[list], &why));
            }
            for (index, value) in values.iter().enumerate() {
                let unknown = value.as_str().is_some_and(|value| !OPERATIONS.contains(&value));
                if list == "operations" && unknown {
                    causes.push(Cause::not_supported(format!("{field}.{list}[{index}]"), value, &OPERATIONS));
                }
                if list == "apiVersions" && value == "" {
                    causes.push(Cause::required(format!("{field}.{list}[{index}]"), ""));
                }
            }
        }
        resources(rule, &format!("{field}.resources"), causes);
        let scope = &rule["scope"];
        let known = ["*", "Cluster", "Namespaced"];
        if scope.as_str().is_some_and(|scope| !known.contains(&scope)) {
            causes.push(Cause::not_supported(format!("{field}.scope"), scope, &known));
        }
    }
}

fn resources(rule: &Value, field: &str, causes: &mut Vec<Cause>) {
    let resources = items(rule, &["resources"]);
    if resources.is_empty() {
        causes.push(Cause::required(field, ""));
    }
    let (mut parents, mut parts) = (Vec::new(), Vec::new());
    let mut plain = false;
    for (index, entry) in resources.iter().enumerate() {
        let entry = entry.as_str().unwrap_or_default();
        let at = format!("{field}[{index}]");
        if entry.is_empty() {
            causes.push(Cause::required(at, ""));
            continue;
        }
        let Some((resource, part)) = entry.split_once('/') else {
            plain = entry != "*";
            continue;
        };
        if parents.contains(&resource) {
            let why = format!("if '{resource}/*' is present, must not specify {entry}");
            causes.push(Cause::invalid(&at, &entry.into(), &why));
        }
        if parts.contains(&part) {
            let why = format!("if '*/{part}' is present, must not specify {entry}");
            causes.push(Cause::invalid(&at, &entry.into(), &why));
        }
        if part == "*" {
            parents.push(resource);
        }
        if resource == "*" {
            parts.push(part);
        }
    }
    if resources.len() > 1 && resources.iter().any(|entry| entry == "*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        causes.push(Cause::invalid(field, &rule["resources"], why));
    }
    if plain && resources.iter().any(|entry| entry == "*") {
        let why = "if '*' is present, must not specify other resources without subresources";
        causes.push(Cause::invalid(field, &rule["resources"], why));
    }
}
