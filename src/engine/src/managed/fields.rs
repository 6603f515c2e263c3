//! Field sets in the format of `managedFields` (`fieldsV1`), with lookup and subtraction.
//!
//! A field set is a trie. Its keys are `f:name` (a field), `k:{…}` (an item of a keyed list), `v:…` (an item of a set)
//! and `.` (the node itself). An empty node owns its whole value.
//!
//! Not here: schemas. The server has already decided which lists have keys.

use serde_json::{Map, Value};

/// The path of a workload's replica count.
pub(crate) const REPLICAS: [&str; 2] = ["f:spec", "f:replicas"];

/// A field set.
pub type Fields = Map<String, Value>;

/// The parts of a `metadata.managedFields` entry that Mainstay uses.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Field manager.
    pub manager: &'a str,
    /// `Apply` or `Update`.
    pub operation: &'a str,
    /// Subresource of the manager's writes; empty for the object itself.
    pub subresource: &'a str,
    /// Time of the manager's last write (RFC 3339); may be empty.
    pub time: &'a str,
    /// The fields that the manager owns.
    pub fields: &'a Fields,
}

/// Returns the readable entries of an object's `managedFields`.
pub fn entries(object: &Value) -> impl Iterator<Item = Entry<'_>> {
    let list = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|entry| {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        Some(Entry {
            manager: text("manager"),
            operation: text("operation"),
            subresource: text("subresource"),
            time: text("time"),
            fields: entry.get("fieldsV1")?.as_object()?,
        })
    })
}

/// Returns the fields that `manager` applied, if it has an entry.
pub fn applied_by<'a>(object: &'a Value, manager: &str) -> Option<&'a Fields> {
    entries(object)
        .find(|e| e.manager == manager && e.operation == "Apply" && e.subresource.is_empty())
        .map(|e| e.fields)
}

/// Whether the set owns the value at `path`, or owns a value that contains it as a whole.
pub fn owns(fields: &Fields, path: &[&str]) -> bool {
    let mut node = fields;
    for key in path {
        match node.get(*key).and_then(Value::as_object) {
            Some(next) => node = next,
            None => return node.is_empty() && !std::ptr::eq(node, fields),
        }
    }
    true
}

/// Returns `from` without the fields in `minus`. Nodes that become empty are removed.
pub(crate) fn subtract(from: &Fields, minus: &Fields) -> Fields {
    let mut left = Fields::new();
    for (key, value) in from {
        let inside = value.as_object();
        match (inside, minus.get(key).and_then(Value::as_object)) {
            (_, None) => {
                left.insert(key.clone(), value.clone());
            }
            (Some(inside), Some(minus)) if !inside.is_empty() && !minus.is_empty() => {
                let rest = subtract(inside, minus);
                if !rest.is_empty() && rest.keys().any(|k| k != ".") {
                    left.insert(key.clone(), Value::Object(rest));
                }
            }
            _ => {}
        }
    }
    left
}

/// Adds the fields in `more` to `to`.
pub fn add(to: &mut Fields, more: &Fields) {
    for (key, value) in more {
        match (to.get_mut(key).and_then(Value::as_object_mut), value.as_object()) {
            (Some(old), Some(new)) => add(old, new),
            (None, _) => {
                to.insert(key.clone(), value.clone());
            }
            (Some(_), None) => {}
        }
    }
}

/// Returns a readable path: `spec.template.spec.containers[name="web"].image`.
pub fn readable(path: &[&str]) -> String {
    let mut text = String::new();
    for key in path {
        match key.split_once(':') {
            Some(("f", name)) if name.contains(['.', '/', ' ']) => text.push_str(&format!("[{name}]")),
            Some(("f", name)) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Some(("k", keys)) => {
                let keys = serde_json::from_str::<Fields>(keys).unwrap_or_default();
                let keys = keys.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>();
                text.push_str(&format!("[{}]", keys.join(",")));
            }
            Some(("v", value)) => text.push_str(&format!("[={value}]")),
            _ => {}
        }
    }
    text
}

/// Returns the readable paths of a field set. Omits structures if the set also owns fields inside of them.
pub fn paths(fields: &Fields) -> Vec<String> {
    fn walk<'f>(fields: &'f Fields, path: &mut Vec<&'f str>, found: &mut Vec<String>) {
        for (key, inside) in fields.iter().filter(|(key, _)| *key != ".") {
            path.push(key);
            match inside.as_object() {
                Some(inside) if inside.keys().any(|key| key != ".") => walk(inside, path, found),
                _ => found.push(readable(path)),
            }
            path.pop();
        }
    }
    let mut found = Vec::new();
    walk(fields, &mut Vec::new(), &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(value: Value) -> Fields {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn subtracts_paths_and_the_nodes_that_become_empty() {
        let from = fields(
            json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:metadata": {"f:labels": {".": {}, "f:x": {}}}}),
        );
        let minus = fields(json!({"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {"f:x": {}}}}));
        assert_eq!(Value::Object(subtract(&from, &minus)), json!({"f:data": {".": {}, "f:b": {}}}));
    }

    #[test]
    fn owns_a_path_itself_or_through_an_outer_value() {
        let set = fields(json!({"f:spec": {"f:selector": {}, "f:replicas": {}}}));
        assert!(owns(&set, &["f:spec", "f:replicas"]));
        assert!(owns(&set, &["f:spec", "f:selector", "f:matchLabels"]));
        assert!(!owns(&set, &["f:spec", "f:template"]));
        assert!(!owns(&Fields::new(), &["f:spec"]));
    }

    #[test]
    fn names_the_paths_of_a_set() {
        let set = fields(json!({
            "f:data": {".": {}, "f:a": {}, "f:b": {}},
            "f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}}, "k:{\"name\":\"bare\"}": {".": {}}}},
        }));
        let found = ["data.a", "data.b", "spec.containers[name=\"bare\"]", "spec.containers[name=\"web\"].image"];
        assert_eq!(paths(&set), found);
    }

    #[test]
    fn formats_readable_paths() {
        let path = ["f:spec", "f:containers", r#"k:{"name":"web"}"#, "f:image"];
        assert_eq!(readable(&path), r#"spec.containers[name="web"].image"#);
        assert_eq!(readable(&["f:metadata", "f:labels", "f:a.b/c"]), "metadata.labels[a.b/c]");
        assert_eq!(readable(&["f:metadata", "f:finalizers", r#"v:"x/y""#]), r#"metadata.finalizers[="x/y"]"#);
    }
}
