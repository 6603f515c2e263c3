//! The fields of an object that is converted, and what happens to each of them.
//!
//! Invariant: no field is lost silently. A field that is neither converted nor explained is reported as lost.

use serde_json::{Map, Value};

/// Fields that no conversion needs.
const METADATA: [&str; 8] = [
    "creationTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "uid",
];

/// The outcome for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// The field has no counterpart.
    Lost,
    /// The field is converted, or needs no counterpart, and the behaviour differs.
    Differs,
    /// The user has to do something.
    ToDo,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) fate: Fate,
    /// The dotted path of the field; empty for the whole object.
    pub(super) field: String,
    pub(super) text: String,
}

/// The remaining fields of an object, and the notes about the other fields.
#[derive(Debug)]
pub(super) struct Fields {
    left: Value,
    notes: Vec<Note>,
}

impl Fields {
    pub(super) fn new(object: &Value) -> Self {
        let mut left = object.clone();
        for key in ["apiVersion", "kind", "status"] {
            remove(&mut left, &[key]);
        }
        for key in METADATA {
            remove(&mut left, &["metadata", key]);
        }
        remove(&mut left, &["metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"]);
        Self { left, notes: Vec::new() }
    }

    /// Removes a field and returns its value. `null` counts as absent.
    pub(super) fn take(&mut self, path: &str) -> Option<Value> {
        self.take_at(&path.split('.').collect::<Vec<_>>())
    }

    /// Removes a field whose keys may contain dots, and returns its value.
    pub(super) fn take_at(&mut self, path: &[&str]) -> Option<Value> {
        remove(&mut self.left, path).filter(|value| !value.is_null())
    }

    /// Removes and returns a string. A value of a different type is reported as lost.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        match self.take(path)? {
            Value::String(text) => Some(text),
            other => {
                self.lost(path, format!("it is not a string: {other}"));
                None
            }
        }
    }

    /// Removes and returns a boolean. A value of a different type is reported as lost.
    pub(super) fn flag(&mut self, path: &str) -> Option<bool> {
        match self.take(path)? {
            Value::Bool(is) => Some(is),
            other => {
                self.lost(path, format!("it is neither true nor false: {other}"));
                None
            }
        }
    }

    /// Removes and returns a list; empty if absent.
    pub(super) fn list(&mut self, path: &str) -> Vec<Value> {
        match self.take(path) {
            Some(Value::Array(items)) => items,
            Some(other) => {
                self.lost(path, format!("it is not a list: {other}"));
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// Removes and returns a map; empty if absent.
    pub(super) fn map(&mut self, path: &str) -> Map<String, Value> {
        match self.take(path) {
            Some(Value::Object(map)) => map,
            Some(other) => {
                self.lost(path, format!("it is not a map: {other}"));
                Map::new()
            }
            None => Map::new(),
        }
    }

    /// Drops a field, if present, and reports that the behaviour differs.
    pub(super) fn drop_different(&mut self, path: &str, text: &str) {
        if self.take(path).is_some() {
            self.differs(path, text);
        }
    }

    /// Drops a field without a counterpart, if present, and reports it with a remedy.
    pub(super) fn drop_lost(&mut self, path: &str, text: &str) {
        if self.take(path).is_some() {
            self.lost(path, text);
        }
    }

    /// Drops fields that need no counterpart.
    pub(super) fn drop_unneeded(&mut self, paths: &[&str]) {
        for path in paths {
            self.take(path);
        }
    }

    pub(super) fn lost(&mut self, field: &str, text: impl Into<String>) {
        self.note(Fate::Lost, field, text);
    }

    /// Returns whether a note says that a field is lost.
    pub(super) fn has_lost(&self, field: &str) -> bool {
        self.notes.iter().any(|note| note.fate == Fate::Lost && note.field == field)
    }

    pub(super) fn differs(&mut self, field: &str, text: impl Into<String>) {
        self.note(Fate::Differs, field, text);
    }

    pub(super) fn ask(&mut self, field: &str, text: impl Into<String>) {
        self.note(Fate::ToDo, field, text);
    }

    fn note(&mut self, fate: Fate, field: &str, text: impl Into<String>) {
        self.notes.push(Note { fate, field: field.to_owned(), text: text.into() });
    }

    /// Returns the notes; lost fields come first. All remaining fields are reported as lost, because they have no
    /// counterpart.
    pub(super) fn finish(mut self) -> Vec<Note> {
        let mut leaves = Vec::new();
        list_leaves(&self.left, &mut Vec::new(), &mut leaves);
        for leaf in leaves {
            self.lost(&leaf, "it has no counterpart");
        }
        self.notes.sort_by_key(|note| note.fate);
        self.notes
    }
}

/// Removes a value and the maps that become empty as a result. Returns the value.
fn remove(value: &mut Value, path: &[&str]) -> Option<Value> {
    let map = value.as_object_mut()?;
    let (first, rest) = path.split_first()?;
    if rest.is_empty() {
        return map.remove(*first);
    }
    let found = remove(map.get_mut(*first)?, rest);
    if map.get(*first).and_then(Value::as_object).is_some_and(Map::is_empty) {
        map.remove(*first);
    }
    found
}

/// Collects the paths of the remaining fields. A list counts as one field.
fn list_leaves(value: &Value, path: &mut Vec<String>, leaves: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                path.push(key.clone());
                list_leaves(value, path, leaves);
                path.pop();
            }
        }
        Value::Null => {}
        _ => leaves.push(path.join(".")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_without_a_conversion_is_lost() {
        let object = json!({
            "apiVersion": "v1", "kind": "A", "metadata": {"name": "a", "uid": "1", "labels": {"a.b/c": "d"}},
            "spec": {"taken": {"a": 1, "b": null}, "list": [{"x": 1}], "text": 1},
            "status": {"ready": true},
        });
        let mut fields = Fields::new(&object);
        assert_eq!(fields.take("spec.taken.a"), Some(json!(1)));
        assert_eq!(fields.take("spec.taken.b"), None);
        assert_eq!(fields.text("spec.text"), None);
        let lines: Vec<_> = fields.finish().into_iter().map(|note| format!("{} {}", note.field, note.text)).collect();
        let expected = [
            "spec.text it is not a string: 1",
            "metadata.labels.a.b/c it has no counterpart",
            "spec.list it has no counterpart",
        ];
        assert_eq!(lines, expected);
    }
}
