//! The part of a live object that its manifest sets: the fields that Mainstay applied, as the API server stores them.
//! For a drifted field, the value in the repository is inserted.
//!
//! Invariant: the only inputs are the object and the drift in the status of its GitSync.
//!
//! Not here: fields of the manifest that a conflict kept Mainstay from applying.

use serde_json::{Map, Value, json};

use super::fields::{Fields, add, applied_by, entries, readable};
use super::projection::child;
use mainstay_api::git_sync::Change;
use mainstay_api::names::MANAGER;

/// The part of an object that its manifest sets.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestPart {
    /// The object with these fields only, and the values in the repository.
    pub wanted: Value,
    /// The same fields with the values of the live object.
    pub found: Value,
    /// Drifted fields whose value in the repository is not in `wanted`, because the status does not contain it.
    pub unknown: Vec<String>,
}

impl ManifestPart {
    /// Returns the part of a live object, with its drift undone; `None` if Mainstay never applied it.
    pub fn of(live: &Value, drift: &[Change]) -> Option<Self> {
        let mut fields = applied_by(live, MANAGER)?.clone();
        let (mut restored, mut unknown) = (live.clone(), Vec::new());
        for change in drift {
            let path = path_of(live, &change.field);
            let value = serde_json::from_str::<Value>(&change.restored).ok();
            let is_set = match (&path, value) {
                (Some(path), Some(value)) => set(&mut restored, path, value),
                _ => false,
            };
            match path.filter(|_| is_set) {
                Some(path) => add(&mut fields, &trie(&path)),
                None => unknown.push(change.field.clone()),
            }
        }
        Some(Self { wanted: named_part(&fields, &restored), found: named_part(&fields, live), unknown })
    }
}

/// Returns the owned part of an object, with its kind and its name.
fn named_part(fields: &Fields, live: &Value) -> Value {
    let mut object = part(fields, live);
    for field in ["apiVersion", "kind"] {
        object[field] = live.get(field).cloned().unwrap_or_default();
    }
    let mut metadata = object.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for name in ["name", "namespace"] {
        metadata.extend(live.pointer(&format!("/metadata/{name}")).map(|value| (name.to_owned(), value.clone())));
    }
    object["metadata"] = Value::Object(metadata);
    object
}

/// Returns the keys along a readable path: those of a field manager that owns it, or else the plain names in the path.
fn path_of(live: &Value, field: &str) -> Option<Vec<String>> {
    let owned = entries(live).find_map(|entry| find(entry.fields, field, &mut Vec::new()));
    let is_plain = || !field.is_empty() && !field.contains(['[', ']', '(', ' ']);
    owned.or_else(|| is_plain().then(|| field.split('.').map(|name| format!("f:{name}")).collect()))
}

fn find<'f>(fields: &'f Fields, field: &str, path: &mut Vec<&'f str>) -> Option<Vec<String>> {
    for (key, inside) in fields.iter().filter(|(key, _)| *key != ".") {
        path.push(key);
        let name = readable(path);
        let found = if name == field {
            Some(path.iter().map(|&key| key.to_owned()).collect())
        } else {
            // The path of a field begins with the paths of the structures around it.
            inside.as_object().filter(|_| field.starts_with(&name)).and_then(|inside| find(inside, field, path))
        };
        path.pop();
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Sets a value, and returns whether its path exists. Missing structures are created, missing items of lists are not.
fn set(object: &mut Value, path: &[String], value: Value) -> bool {
    let Some((key, rest)) = path.split_first() else {
        *object = value;
        return true;
    };
    let Some(name) = key.strip_prefix("f:") else {
        let item = child(Some(object), key).1;
        return item.and_then(|at| object.get_mut(at)).is_some_and(|item| set(item, rest, value));
    };
    if object.is_null() {
        *object = json!({});
    }
    object.as_object_mut().is_some_and(|map| set(map.entry(name).or_insert(Value::Null), rest, value))
}

/// Returns a field set with one path.
fn trie(path: &[String]) -> Fields {
    path.iter().rev().fold(Map::new(), |inside, key| Map::from_iter([(key.clone(), Value::Object(inside))]))
}

/// Returns the owned part of a value. Fields that are missing stay missing.
fn part(fields: &Fields, live: &Value) -> Value {
    let inside = || fields.iter().filter(|(key, _)| *key != ".");
    if fields.is_empty() {
        return live.clone();
    }
    let owned = |key: &str, inside: &Value| {
        let (found, at) = child(Some(live), key);
        Some((at, part(inside.as_object()?, found?)))
    };
    if live.is_array() {
        let mut items: Vec<_> = inside().filter_map(|(key, inside)| owned(key, inside)).collect();
        items.sort_by_key(|(at, _)| *at);
        return items.into_iter().map(|(_, item)| item).collect();
    }
    let field = |(key, inside): (&String, &Value)| Some((key.strip_prefix("f:")?.to_owned(), owned(key, inside)?.1));
    Value::Object(inside().filter_map(field).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> Value {
        let ours = json!({
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {"f:replicas": {}, "f:containers": {
                "k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}}, "k:{\"name\":\"gone\"}": {".": {}, "f:name": {}},
            }},
        });
        json!({
            "apiVersion": "apps/v1", "kind": "Thing",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": {"app": "x", "theirs": "y"}, "managedFields": [
                {"manager": MANAGER, "operation": "Apply", "fieldsV1": ours},
                {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:paused": {}, "f:size": {}}}},
            ]},
            "spec": {"replicas": 5, "paused": true, "size": 9, "containers": [{"name": "side"}, {"name": "web", "image": "b", "tty": true}]},
            "status": {"ready": 1},
        })
    }

    fn change(field: &str, restored: &str) -> Change {
        Change { field: field.to_owned(), found: "1".to_owned(), restored: restored.to_owned() }
    }

    #[test]
    fn fields_of_others_are_left_out() {
        let part = ManifestPart::of(&live(), &[]).unwrap();
        let expected = json!({
            "apiVersion": "apps/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "n", "labels": {"app": "x"}},
            "spec": {"replicas": 5, "containers": [{"name": "web", "image": "b"}]},
        });
        assert_eq!(part, ManifestPart { wanted: expected.clone(), found: expected, unknown: vec![] });
        assert_eq!(ManifestPart::of(&json!({"metadata": {"name": "a"}}), &[]), None);
    }

    #[test]
    fn drifted_fields_have_the_value_of_the_repository() {
        let drift = [
            change("spec.replicas", "2"),
            change("spec.size", "3"),
            change(r#"spec.containers[name="web"].image"#, r#""a""#),
            change("spec.removed.flag", "true"),
            change(r#"spec.containers[name="gone"].image"#, r#""a""#),
            change("spec.long", "\"cut…"),
            change("(object)", "{}"),
        ];
        let part = ManifestPart::of(&live(), &drift).unwrap();
        let expected = json!({
            "replicas": 2, "size": 3, "removed": {"flag": true}, "containers": [{"name": "web", "image": "a"}],
        });
        assert_eq!(part.wanted["spec"], expected);
        assert_eq!((&part.found["spec"]["replicas"], &part.found["spec"]["size"]), (&json!(5), &json!(9)));
        assert_eq!(part.unknown, [r#"spec.containers[name="gone"].image"#, "spec.long", "(object)"]);
    }
}
