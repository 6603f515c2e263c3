//! Webhook configurations, and the webhooks that apply to a write.

use crate::{
    kinds::table::Kind,
    selector::selects,
    server::Server,
    status::{GroupResource, Status},
    store::Key,
    verbs::{Target, text},
};
use serde_json::Value;
use std::sync::Arc;

/// The group of webhook configurations and policies.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";

/// One webhook.
#[derive(Clone, Debug)]
pub(crate) struct Hook {
    /// Name and resource version of its configuration.
    pub(crate) configuration: (String, u64),
    /// Name of the webhook.
    pub(crate) name: String,
    /// The webhook as configured.
    pub(crate) value: Value,
    /// Whether the webhook may change objects.
    pub(crate) mutating: bool,
}

impl Hook {
    /// Returns whether a failed call fails the write.
    pub(crate) fn must_answer(&self) -> bool {
        self.value["failurePolicy"] != "Ignore"
    }

    /// Returns whether the webhook is called again after a later webhook changed the object.
    pub(crate) fn is_reinvoked(&self) -> bool {
        self.value["reinvocationPolicy"] == "IfNeeded"
    }
}

/// Returns whether there is any webhook.
pub(crate) fn any(server: &Server) -> bool {
    ["mutating", "validating"].iter().any(|kind| server.store().count(&storage(kind)) > 0)
}

/// The writes that a webhook or policy applies to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Criteria<'a> {
    /// The object with `objectSelector`, `namespaceSelector` and `matchPolicy`.
    pub(crate) selectors: &'a Value,
    /// Rules; at least one must match.
    pub(crate) rules: &'a Value,
    /// Rules; none may match.
    pub(crate) excluded: &'a Value,
}

fn storage(kind: &str) -> String {
    format!("{kind}webhookconfigurations.{GROUP}")
}

/// Returns the webhooks in calling order: by the name of the configuration, then as listed in it.
pub(crate) fn all(server: &Server, mutating: bool) -> Vec<Hook> {
    let storage = storage(if mutating { "mutating" } else { "validating" });
    let mut hooks = Vec::new();
    for (key, stored) in server.store().snapshot(&storage).from(None, None) {
        for value in stored.value()["webhooks"].as_array().into_iter().flatten() {
            hooks.push(Hook {
                configuration: (key.name().to_owned(), stored.rv),
                name: text(value, "/name").to_owned(),
                value: value.clone(),
                mutating,
            });
        }
    }
    hooks
}

/// A write as rules and selectors see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    /// The written object.
    pub(crate) target: &'a Target,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub(crate) operation: &'static str,
    /// The live object, if there is one.
    pub(crate) old: Option<&'a Value>,
}

impl Write<'_> {
    /// Returns the namespace of the write. A Namespace is in its own namespace.
    pub(crate) fn namespace(&self) -> &str {
        if self.is_namespace() { &self.target.name } else { &self.target.namespace }
    }

    fn is_namespace(&self) -> bool {
        &*self.target.kind.storage == "namespaces"
    }
}

/// Returns the kind at the version in which a webhook receives a write; `None` if the webhook does not apply.
pub(crate) fn concerned(
    server: &Server,
    hook: &Hook,
    write: &Write<'_>,
    object: Option<&Value>,
) -> Result<Option<Arc<Kind>>, Status> {
    let criteria = Criteria { selectors: &hook.value, rules: &hook.value["rules"], excluded: &Value::Null };
    selected(server, criteria, write, object)
}

/// Returns the kind at the version in which a write matches the criteria; `None` if it does not match.
pub(crate) fn selected(
    server: &Server,
    criteria: Criteria<'_>,
    write: &Write<'_>,
    object: Option<&Value>,
) -> Result<Option<Arc<Kind>>, Status> {
    let kind = &write.target.kind;
    // Webhook configurations and policies are exempt, so that they can always be repaired.
    if kind.group == GROUP {
        return Ok(None);
    }
    // An object without metadata, such as connection options, has no labels and is never selected.
    let labels = |object: Option<&Value>| {
        object.filter(|object| object["metadata"].is_object()).map(|object| object["metadata"]["labels"].clone())
    };
    let selector = &criteria.selectors["objectSelector"];
    let is_selected = |object| labels(object).is_some_and(|labels| selects(selector, &labels));
    if !is_empty(selector) && !is_selected(object) && !is_selected(write.old) {
        return Ok(None);
    }
    let is_equivalent = criteria.selectors["matchPolicy"] == "Equivalent";
    if matching(server, criteria.excluded, is_equivalent, write).is_some() {
        return Ok(None);
    }
    let Some(found) = matching(server, criteria.rules, is_equivalent, write) else { return Ok(None) };
    Ok(in_selected_namespace(server, criteria.selectors, write, object)?.then_some(found))
}

/// Returns the kind that one of the rules matches: the kind of the write, or an equivalent kind of the same objects.
fn matching(server: &Server, rules: &Value, is_equivalent: bool, write: &Write<'_>) -> Option<Arc<Kind>> {
    let kind = &write.target.kind;
    let rules = || rules.as_array().into_iter().flatten();
    if rules().any(|rule| matches(rule, kind, write)) {
        return Some(kind.clone());
    }
    if !is_equivalent {
        return None;
    }
    let table = server.table();
    let others: Vec<&Arc<Kind>> =
        table.iter().filter(|k| k.storage == kind.storage && k.api_version != kind.api_version).collect();
    rules().find_map(|rule| others.iter().find(|other| matches(rule, other, write))).map(|k| (*k).clone())
}

fn is_empty(selector: &Value) -> bool {
    let filled = |field: &str| match &selector[field] {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    };
    !filled("matchLabels") && !filled("matchExpressions")
}

fn in_selected_namespace(
    server: &Server,
    selectors: &Value,
    write: &Write<'_>,
    object: Option<&Value>,
) -> Result<bool, Status> {
    let selector = &selectors["namespaceSelector"];
    if is_empty(selector) || write.namespace().is_empty() {
        return Ok(true);
    }
    if let (true, Some(object)) = (write.is_namespace() && write.target.subresource.is_empty(), object) {
        return Ok(selects(selector, &object["metadata"]["labels"]));
    }
    let Some(namespace) = server.store().get("namespaces", &Key::new("", write.namespace())) else {
        let namespaces = GroupResource { group: String::new(), resource: "namespaces".to_owned() };
        return Err(Status::not_found(&namespaces, write.namespace()));
    };
    Ok(selects(selector, &namespace.value()["metadata"]["labels"]))
}

fn matches(rule: &Value, kind: &Kind, write: &Write<'_>) -> bool {
    let any = |field: &str, wanted: &str| {
        let items = rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        items.into_iter().any(|item| item == "*" || item == wanted)
    };
    let scope = match text(rule, "/scope") {
        "Namespaced" => kind.namespaced,
        "Cluster" => !kind.namespaced,
        _ => true,
    };
    let mut resources = rule["resources"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let names = rule["resourceNames"].as_array().filter(|names| !names.is_empty());
    scope
        && names.is_none_or(|names| names.iter().any(|name| name == write.target.name.as_str()))
        && any("operations", write.operation)
        && any("apiGroups", &kind.group)
        && any("apiVersions", &kind.version)
        && resources.any(|item| {
            let (resource, subresource) = item.split_once('/').unwrap_or((item, ""));
            (resource == "*" || resource == kind.plural)
                && (subresource == "*" || subresource == write.target.subresource)
        })
}

/// Returns the object as a webhook or policy receives it: in its version, or as a Scale.
pub(super) fn as_seen(write: &Write<'_>, kind: &Kind, object: &Value) -> Value {
    if write.target.subresource == "scale" {
        return crate::kinds::scale::of(&write.target.kind, object);
    }
    if kind.api_version == write.target.kind.api_version {
        return object.clone();
    }
    kind.converted(object, &write.target.kind.api_version, &kind.api_version)
}
