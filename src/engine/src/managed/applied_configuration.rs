//! The last-applied configuration, as read from a live object: the document that an earlier agent applied. A new agent
//! compares it with its own document, and skips the apply if both are equal.
//!
//! Invariant: equal documents need no apply, because Mainstay owns the same fields, with the same values, in the same
//! order. If the server stores a value in a different form, the documents differ, and the object is applied once more.

use serde_json::{Map, Value};

use super::fields::{Fields, applied_by};
use super::{ownership, projection};
use mainstay_api::names::MANAGER;
use mainstay_object::Digest;

/// Mainstay's last apply, as read from a live object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppliedConfiguration {
    /// Digest of the document.
    document: Digest,
    /// Digest of the projection.
    pub(crate) projection: Digest,
}

impl AppliedConfiguration {
    /// Reads the last apply from `live`; `None` if Mainstay never applied the object, or if one of Mainstay's fields is
    /// missing.
    pub fn of(live: &Value) -> Option<Self> {
        let fields = applied_by(live, MANAGER)?;
        if ownership::without_first_apply_echo(live).is_some() {
            return None;
        }
        // If a path that was sent empty is not empty now, the document digest differs anyway.
        let empty_containers = projection::empty_containers(live, live);
        Some(Self {
            document: digest(&owned_part(fields, live)?),
            projection: projection::digest(live, &empty_containers)?,
        })
    }

    /// Whether an apply of `body` would have this result.
    pub(crate) fn is_of(&self, mut body: Value) -> bool {
        if let Some(root) = body.as_object_mut() {
            root.retain(|name, _| name != "apiVersion" && name != "kind");
            if let Some(metadata) = root.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|name, _| name != "name" && name != "namespace");
            }
        }
        self.document == digest(&body)
    }
}

/// Returns the digest of a document. JSON objects are serialized in the order of their names.
fn digest(document: &Value) -> Digest {
    Digest::of(document.to_string().as_bytes())
}

/// Returns the part of `live` that `fields` owns; `None` if one of the fields is missing.
fn owned_part(fields: &Fields, live: &Value) -> Option<Value> {
    let inside = || fields.iter().filter(|(key, _)| *key != ".");
    if inside().next().is_none() {
        return Some(if fields.is_empty() { live.clone() } else { empty_container(live) });
    }
    let part = |key: &str, inside: &Value| {
        let (child, at) = projection::child(Some(live), key);
        Some((at, owned_part(inside.as_object()?, child?)?))
    };
    if live.is_array() {
        let mut items = inside().map(|(key, inside)| part(key, inside)).collect::<Option<Vec<_>>>()?;
        items.sort_by_key(|(at, _)| *at);
        return Some(items.into_iter().map(|(_, item)| item).collect());
    }
    let field = |(key, inside): (&String, &Value)| Some((key.strip_prefix("f:")?.to_owned(), part(key, inside)?.1));
    inside().map(field).collect::<Option<Map<_, _>>>().map(Value::Object)
}

/// Returns a container that Mainstay owns without any of its content.
fn empty_container(live: &Value) -> Value {
    if live.is_array() { Value::Array(Vec::new()) } else { Value::Object(Map::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn live() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Thing",
            "metadata": {"name": "a", "uid": "u", "labels": {"ours": "1", "theirs": "2"}, "managedFields": [{
                "manager": MANAGER, "operation": "Apply", "apiVersion": "v1",
                "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:ours": {}}},
                    "f:spec": {
                        "f:items": {
                            "k:{\"name\":\"b\"}": {".": {}, "f:name": {}},
                            "k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:size": {}},
                        },
                        "f:nothing": {},
                    },
                },
            }]},
            "spec": {
                "items": [{"name": "x"}, {"name": "b", "more": 1}, {"name": "a", "size": 2}],
                "nothing": {}, "defaulted": true,
            },
            "status": {},
        })
    }

    fn sent() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "n", "labels": {"ours": "1"}},
            "spec": {"items": [{"name": "b"}, {"name": "a", "size": 2}], "nothing": {}},
        })
    }

    fn is_applied_as(live: &Value, sent: Value) -> bool {
        AppliedConfiguration::of(live).is_some_and(|applied| applied.is_of(sent))
    }

    #[test]
    fn finds_the_applied_document_among_fields_of_other_managers() {
        assert!(is_applied_as(&live(), sent()));
    }

    #[test]
    fn finds_every_difference_between_the_live_object_and_the_next_apply() {
        for (pointer, value) in [
            ("/metadata/labels/ours", json!("2")),
            ("/metadata/labels", json!({})),
            ("/spec/items", json!([{"name": "a", "size": 2}, {"name": "b"}])),
            ("/spec/items/1/size", json!(3)),
            ("/spec/items", json!([{"name": "b"}])),
            ("/spec/nothing", json!({"some": 1})),
        ] {
            let mut other = sent();
            *other.pointer_mut(pointer).unwrap() = value.clone();
            assert!(!is_applied_as(&live(), other), "sent {pointer} = {value}");
        }
        for (pointer, value) in [
            ("/metadata/labels", json!({"theirs": "2"})),
            ("/spec/items", json!([{"name": "a", "size": 2}, {"name": "b"}])),
            ("/spec/items", json!([{"name": "a", "size": 2}])),
            ("/spec/items/2/size", json!(3)),
            ("/spec/nothing", json!({"some": 1})),
            ("/metadata/managedFields/0/fieldsV1/f:metadata", json!({})),
            ("/metadata/managedFields", json!([])),
        ] {
            let mut other = live();
            *other.pointer_mut(pointer).unwrap() = value.clone();
            assert!(!is_applied_as(&other, sent()), "found {pointer} = {value}");
        }
    }
}
