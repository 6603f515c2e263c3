//! Transfers of field ownership in `managedFields`: from other managers to Mainstay, and the release of Mainstay's
//! ownership.
//!
//! Not here: the choice of fields (`adoption`, `collision`, `additions`, `reserved`).

use serde_json::{Value, json};

use super::fields::{Fields, add, applied_by, owns, subtract};
use mainstay_api::names::{BEFORE_FIRST_APPLY, HANDOVER_MANAGER, MANAGER, SYNC_LABEL};

/// The field manager of `kubectl`; its commands add a suffix, such as `kubectl-edit`.
const KUBECTL: &str = "kubectl";

/// Whether this field manager is a command of `kubectl`.
pub(crate) fn is_kubectl(manager: &str) -> bool {
    manager.strip_prefix(KUBECTL).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Fields that moved from an entry of `managedFields` to Mainstay's entry.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    /// The former entry, without the moved fields.
    pub(crate) entry: Value,
    /// The fields.
    pub(crate) fields: Fields,
}

/// Returns `managedFields` after moving the fields in `part` of these entries to Mainstay; `None` if there are none.
pub(crate) fn moved(
    managed_fields: &Value,
    api_version: &str,
    now: &str,
    of: impl Fn(&Value) -> bool,
    part: impl Fn(&Fields) -> Fields,
) -> Option<Value> {
    transfer(managed_fields, api_version, now, of, part).map(|(entries, _)| entries)
}

/// Same as `moved`, but also returns the moved fields.
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

/// Returns `managedFields` in which Mainstay owns these fields, too.
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

/// Returns `managedFields` in which Mainstay's entry of this API version contains these fields, too.
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

/// Returns `managedFields` without Mainstay's fields in the entry `before-first-apply`; `None` if there are none. The
/// server adds this entry after an object's `managedFields` were emptied. It would co-own Mainstay's fields forever.
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

/// Returns `managedFields` without Mainstay's entry. The object then has no owner, and its content does not change.
pub fn released(managed_fields: &Value) -> Value {
    let entries = managed_fields.as_array().into_iter().flatten();
    let left =
        entries.filter(|e| e["manager"] != MANAGER && e["manager"] != HANDOVER_MANAGER).cloned().collect::<Vec<_>>();
    // A list with one empty entry is the documented form that removes all entries.
    if left.is_empty() { json!([{}]) } else { Value::Array(left) }
}

/// Returns the `managedFields` of an object in which Mainstay does not own the label of a GitSync; `None` if it does not
/// own it already. Mainstay's entry stays, because it proves that Mainstay applied the object.
pub(crate) fn without_label(object: &Value) -> Option<Value> {
    let mut entries = object.pointer("/metadata/managedFields")?.as_array()?.clone();
    let is_ours = |e: &&mut Value| {
        e["manager"] == MANAGER && e["operation"] == "Apply" && e.get("subresource").is_none_or(|s| s == "")
    };
    let fields = entries.iter_mut().find(is_ours)?.get_mut("fieldsV1")?.as_object_mut()?;
    let name = format!("f:{SYNC_LABEL}");
    if !owns(fields, &["f:metadata", "f:labels", &name]) {
        return None;
    }
    // An empty entry would be removed. No object has this other label, and the next apply gives its ownership up.
    let other = label(&format!("{name}.withdrawn"));
    let rest = subtract(fields, &label(&name));
    *fields = if rest.is_empty() { other } else { rest };
    Some(Value::Array(entries))
}

/// Returns the ownership of one label, by its name in `managedFields`.
fn label(name: &str) -> Fields {
    let labels: Fields = [(name.to_owned(), json!({}))].into_iter().collect();
    [("f:metadata".to_owned(), json!({ "f:labels": labels }))].into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_up_the_label_alone() {
        let entry = |fields: Value| json!({"manager": MANAGER, "operation": "Apply", "fieldsV1": fields});
        let object = |entries: Value| json!({"metadata": {"managedFields": entries}});
        let label = json!({"f:labels": {"f:mainstay.dev/sync": {}}});
        let whole = json!({"f:data": {"f:a": {}}, "f:metadata": label});
        let other = json!({"manager": "other", "operation": "Update", "fieldsV1": {"f:metadata": label}});
        let rest = without_label(&object(json!([entry(whole), other])));
        assert_eq!(rest, Some(json!([entry(json!({"f:data": {"f:a": {}}})), other])));
        assert_eq!(without_label(&object(rest.unwrap())), None, "once");
        let rest = without_label(&object(json!([entry(json!({"f:metadata": label}))]))).unwrap();
        let other = json!({"f:metadata": {"f:labels": {"f:mainstay.dev/sync.withdrawn": {}}}});
        assert_eq!(rest, json!([entry(other)]), "the entry is the proof that Mainstay applied the object");
        assert_eq!(without_label(&object(rest)), None, "once");
        assert_eq!((without_label(&object(json!([]))), without_label(&json!({}))), (None, None));
    }

    #[test]
    fn recognizes_commands_of_kubectl_by_name() {
        for manager in ["kubectl", "kubectl-client-side-apply", "kubectl-edit", "kubectl-last-applied", "kubectl-x"] {
            assert!(is_kubectl(manager), "{manager}");
        }
        for manager in ["kubectlish", "my-kubectl", "Kubectl", "kube-controller-manager", ""] {
            assert!(!is_kubectl(manager), "{manager}");
        }
    }

    #[test]
    fn removes_our_fields_from_before_first_apply() {
        let object = json!({"metadata": {"managedFields": [
            {"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:data": {"f:a": {}}}},
            {"manager": BEFORE_FIRST_APPLY, "operation": "Update", "fieldsV1": {"f:data": {".": {}, "f:a": {}, "f:b": {}}}}]}});
        let rewritten = without_first_apply_echo(&object).unwrap();
        assert_eq!(rewritten[1]["fieldsV1"], json!({"f:data": {".": {}, "f:b": {}}}));
        let again = json!({"metadata": {"managedFields": rewritten}});
        assert_eq!(without_first_apply_echo(&again), None);
    }
}
