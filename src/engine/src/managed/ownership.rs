//! Taking over an object from people's tools: which of their fields we make ours, so that applying removes what Git
//! does not have.
//!
//! What `kubectl` client-side apply, edit or create last wrote in labels, annotations, data and env lists is moved
//! into our own entry of `managedFields`, and so is all that `mainstay function apply` has applied; server-side apply then
//! removes what the document does not name. Nothing else changes hands: finalizers, owner references, replicas and every other field stay with who wrote them.
//!
//! Invariant: fields of managers that are not people's tools are not touched here.

use serde_json::{Map, Value, json};

use super::fields::{Fields, add, applied_by, subtract};
use mainstay_api::names::{BEFORE_FIRST_APPLY, FUNCTION_MANAGER, HANDOVER_MANAGER, MANAGER};

/// Managers that people's `kubectl` commands write as.
pub(crate) const TOOLS: [&str; 4] = ["kubectl-client-side-apply", "kubectl-edit", "kubectl-create", "kubectl"];
/// Lists of environment variables, wherever containers are.
const ENV: &str = "f:env";
/// Top-level data of ConfigMaps and Secrets.
const DATA: [&str; 3] = ["f:data", "f:binaryData", "f:stringData"];
const METADATA: [&str; 2] = ["f:labels", "f:annotations"];

/// `managedFields` rewritten so that our next apply removes what people's tools left; `None` when there is nothing to
/// take over. `api_version` is that of the document; `leave` takes out of a field set what stays whose it is.
pub fn take_over(managed_fields: &Value, api_version: &str, now: &str, leave: impl Fn(&mut Fields)) -> Option<Value> {
    let is_tool = |entry: &Value| entry["manager"].as_str().is_some_and(|m| TOOLS.contains(&m));
    let taken = |fields: &Fields| {
        let mut taken = removable(fields);
        leave(&mut taken);
        taken
    };
    let of_tools = moved(managed_fields, api_version, now, is_tool, taken);
    let whole = |fields: &Fields| {
        let mut whole = fields.clone();
        leave(&mut whole);
        whole
    };
    let is_command = |entry: &Value| entry["manager"] == FUNCTION_MANAGER && entry["operation"] == "Apply";
    moved(of_tools.as_ref().unwrap_or(managed_fields), api_version, now, is_command, whole).or(of_tools)
}

/// `managedFields` in which what `part` says of the fields of such entries has become ours.
pub(crate) fn moved(
    managed_fields: &Value,
    api_version: &str,
    now: &str,
    of: impl Fn(&Value) -> bool,
    part: impl Fn(&Fields) -> Fields,
) -> Option<Value> {
    let mut entries = managed_fields.as_array()?.clone();
    let mut ours = Fields::new();
    for entry in &mut entries {
        if !of(entry) || entry.get("subresource").is_some_and(|s| s != "") || entry["apiVersion"] != api_version {
            continue;
        }
        let Some(fields) = entry.get_mut("fieldsV1").and_then(Value::as_object_mut) else { continue };
        let taken = part(fields);
        if !taken.is_empty() {
            *fields = subtract(fields, &taken);
            add(&mut ours, &taken);
        }
    }
    if ours.is_empty() {
        return None;
    }
    entries.retain(|e| e.get("fieldsV1").and_then(Value::as_object).is_none_or(|f| !f.is_empty()));
    Some(claimed(entries, api_version, now, &ours))
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

/// The part of a tool's fields that may be removed at adoption.
fn removable(fields: &Fields) -> Fields {
    let mut taken = Fields::new();
    for (key, value) in fields {
        if DATA.contains(&key.as_str()) {
            taken.insert(key.clone(), value.clone());
        } else if key == "f:metadata" {
            let inside = value.as_object().into_iter().flatten();
            let inside: Fields =
                inside.filter(|(k, _)| METADATA.contains(&k.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect();
            if !inside.is_empty() {
                taken.insert(key.clone(), Value::Object(inside));
            }
        } else if let Some(inside) = value.as_object() {
            let inside = env_lists(inside);
            if !inside.is_empty() {
                taken.insert(key.clone(), Value::Object(inside));
            }
        }
    }
    taken
}

/// The items of env lists, however deep; the lists themselves stay with who made them.
fn env_lists(fields: &Map<String, Value>) -> Fields {
    let mut taken = Fields::new();
    for (key, value) in fields {
        let Some(inside) = value.as_object() else { continue };
        let inside = if key == ENV {
            inside.iter().filter(|(k, _)| k.starts_with("k:")).map(|(k, v)| (k.clone(), v.clone())).collect()
        } else {
            env_lists(inside)
        };
        if !inside.is_empty() {
            taken.insert(key.clone(), Value::Object(inside));
        }
    }
    taken
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

    fn entry(manager: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn takes_labels_annotations_data_and_env_from_people_and_nothing_else() {
        let fields = json!([entry(
            "kubectl-client-side-apply",
            json!({
                "f:metadata": {"f:labels": {".": {}, "f:old": {}}, "f:finalizers": {"v:\"a/b\"": {}}},
                "f:spec": {"f:replicas": {}, "f:containers": {"k:{\"name\":\"web\"}": {"f:image": {}, "f:env": {
                    ".": {}, "k:{\"name\":\"DEBUG\"}": {".": {}, "f:name": {}, "f:value": {}}}}}},
            })
        )]);
        let rewritten = take_over(&fields, "apps/v1", "2026-01-01T00:00:00Z", |_| ()).unwrap();
        let env = json!({"k:{\"name\":\"DEBUG\"}": {".": {}, "f:name": {}, "f:value": {}}});
        assert_eq!(
            rewritten[1]["fieldsV1"],
            json!({"f:metadata": {"f:labels": {".": {}, "f:old": {}}},
                   "f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {"f:env": env}}}})
        );
        assert_eq!(
            rewritten[0]["fieldsV1"]["f:metadata"],
            json!({"f:finalizers": {"v:\"a/b\"": {}}}),
            "finalizers stay with who wrote them"
        );
        assert!(rewritten[0]["fieldsV1"]["f:spec"].get("f:replicas").is_some());
    }

    #[test]
    fn takes_all_that_our_own_command_has_applied() {
        let applied = |fields: &Value| json!({"f:spec": {"f:source": fields, "f:env": fields}});
        let mut command = entry(FUNCTION_MANAGER, applied(&json!({})));
        command["operation"] = "Apply".into();
        let label = json!({"f:metadata": {"f:labels": {"f:old": {}}}});
        let entries = json!([command, entry("kubectl", label)]);
        let rewritten = take_over(&entries, "apps/v1", "now", |_| ()).unwrap();
        let [ours] = &rewritten.as_array().unwrap()[..] else { panic!("{rewritten}") };
        assert_eq!(ours["manager"], MANAGER);
        assert_eq!(ours["fieldsV1"]["f:spec"], json!({"f:source": {}, "f:env": {}}));
        assert_eq!(ours["fieldsV1"]["f:metadata"], json!({"f:labels": {"f:old": {}}}));
    }

    #[test]
    fn leaves_controllers_alone() {
        let fields = json!([entry("kube-controller-manager", json!({"f:metadata": {"f:annotations": {"f:x": {}}}}))]);
        assert_eq!(take_over(&fields, "apps/v1", "now", |_| ()), None);
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
