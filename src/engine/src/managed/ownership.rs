//! Field ownership as it changes hands in `managedFields`: from others to us, and from us to nobody.
//!
//! Deliberately absent: what changes hands; `adoption`, `collision`, `additions` and `reserved` say it.

use serde_json::{Value, json};

use super::fields::{Fields, add, applied_by, subtract};
use mainstay_api::names::{BEFORE_FIRST_APPLY, HANDOVER_MANAGER, MANAGER};

/// The field manager of `kubectl`; those of its commands begin with it, such as `kubectl-edit`.
const KUBECTL: &str = "kubectl";

/// Whether a command of `kubectl` writes as this field manager.
pub(crate) fn is_kubectl(manager: &str) -> bool {
    manager.strip_prefix(KUBECTL).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Fields of one entry of `managedFields` that became ours.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    /// The entry, without its fields.
    pub(crate) entry: Value,
    /// The fields.
    pub(crate) fields: Fields,
}

/// `managedFields` in which what `part` says of the fields of such entries has become ours.
pub(crate) fn moved(
    managed_fields: &Value,
    api_version: &str,
    now: &str,
    of: impl Fn(&Value) -> bool,
    part: impl Fn(&Fields) -> Fields,
) -> Option<Value> {
    transfer(managed_fields, api_version, now, of, part).map(|(entries, _)| entries)
}

/// The same, and what has become ours.
pub(crate) fn transfer(
    managed_fields: &Value,
    api_version: &str,
    now: &str,
    of: impl Fn(&Value) -> bool,
    part: impl Fn(&Fields) -> Fields,
) -> Option<(Value, Vec<Moved>)> {
    let mut entries = managed_fields.as_array()?.clone();
    let (mut ours, mut moved) = (Fields::new(), Vec::new());
    for entry in &mut entries {
        if !of(entry) || entry.get("subresource").is_some_and(|s| s != "") || entry["apiVersion"] != api_version {
            continue;
        }
        let Some(fields) = entry.get_mut("fieldsV1").and_then(Value::as_object_mut) else { continue };
        let taken = part(fields);
        if !taken.is_empty() {
            *fields = subtract(fields, &taken);
            add(&mut ours, &taken);
            let mut head = entry.clone();
            head.as_object_mut().map(|head| head.remove("fieldsV1"));
            moved.push(Moved { entry: head, fields: taken });
        }
    }
    if ours.is_empty() {
        return None;
    }
    entries.retain(|e| e.get("fieldsV1").and_then(Value::as_object).is_none_or(|f| !f.is_empty()));
    Some((claimed(entries, api_version, now, &ours), moved))
}

/// `managedFields` in which these fields are ours as well.
pub(crate) fn claimed(mut entries: Vec<Value>, api_version: &str, now: &str, fields: &Fields) -> Value {
    let own = entries
        .iter_mut()
        .find(|e| e["manager"] == MANAGER && e["operation"] == "Apply" && e.get("subresource").is_none_or(|s| s == ""));
    match own.and_then(|e| e.get_mut("fieldsV1")).and_then(Value::as_object_mut) {
        Some(ours) => add(ours, fields),
        None => entries.push(json!({
            "manager": MANAGER, "operation": "Apply", "apiVersion": api_version, "time": now,
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        })),
    }
    Value::Array(entries)
}

/// `managedFields` in which our entry of this version of the kind owns these fields as well.
pub(crate) fn claimed_in(managed_fields: &Value, api_version: &str, more: &Fields) -> Value {
    let mut entries = managed_fields.clone();
    let is_ours = |entry: &&mut Value| {
        entry["manager"] == MANAGER && entry["operation"] == "Apply" && entry["apiVersion"] == api_version
    };
    let ours = entries.as_array_mut().into_iter().flatten().find(is_ours);
    if let Some(fields) = ours.and_then(|entry| entry.get_mut("fieldsV1")).and_then(Value::as_object_mut) {
        add(fields, more);
    }
    entries
}

/// `managedFields` in which the entry `before-first-apply` has lost what our own entry owns; `None` when there is
/// no such entry or nothing to take from it. Such an entry appears when the object's `managedFields` had been wiped,
/// and would co-own everything of ours for ever.
pub(crate) fn without_first_apply_echo(object: &Value) -> Option<Value> {
    let ours = applied_by(object, MANAGER)?.clone();
    let mut entries = object.pointer("/metadata/managedFields")?.as_array()?.clone();
    let echo = entries.iter_mut().find(|e| e["manager"] == BEFORE_FIRST_APPLY && e["operation"] == "Update")?;
    let fields = echo.get_mut("fieldsV1")?.as_object_mut()?;
    let rest = subtract(fields, &ours);
    if rest == *fields {
        return None;
    }
    *fields = rest;
    entries.retain(|e| e.get("fieldsV1").and_then(Value::as_object).is_none_or(|f| !f.is_empty()));
    Some(Value::Array(entries))
}

/// `managedFields` without our entry: the object is nobody's again, and nothing in it changes.
pub fn released(managed_fields: &Value) -> Value {
    let entries = managed_fields.as_array().into_iter().flatten();
    let left =
        entries.filter(|e| e["manager"] != MANAGER && e["manager"] != HANDOVER_MANAGER).cloned().collect::<Vec<_>>();
    // An empty list would be read as "wiped" and is refused by no server; one empty entry is how it is written.
    if left.is_empty() { json!([{}]) } else { Value::Array(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_commands_of_kubectl_by_their_names() {
        for manager in ["kubectl", "kubectl-client-side-apply", "kubectl-edit", "kubectl-last-applied", "kubectl-x"] {
            assert!(is_kubectl(manager), "{manager}");
        }
        for manager in ["kubectlish", "my-kubectl", "Kubectl", "kube-controller-manager", ""] {
            assert!(!is_kubectl(manager), "{manager}");
        }
    }

    #[test]
    fn takes_our_own_paths_out_of_before_first_apply() {
        let object = json!({"metadata": {"managedFields": [
            {"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:data": {"f:a": {}}}},
            {"manager": BEFORE_FIRST_APPLY, "operation": "Update", "fieldsV1": {"f:data": {".": {}, "f:a": {}, "f:b": {}}}}]}});
        let rewritten = without_first_apply_echo(&object).unwrap();
        assert_eq!(rewritten[1]["fieldsV1"], json!({"f:data": {".": {}, "f:b": {}}}));
        let again = json!({"metadata": {"managedFields": rewritten}});
        assert_eq!(without_first_apply_echo(&again), None);
    }
}
