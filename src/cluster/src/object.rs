//! Decodes an object of a server: the whole object, or at least its identity.
//!
//! Servers store objects with up to a thousand levels, but the parser here stops at 128. An object that is too deep
//! must affect only its owner, and must not hide the other objects of its kind.
//!
//! Invariant: an object that cannot be parsed is known by name, so it never counts as absent.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Error, Map, Value};

use super::kind::Kind;

/// The result of decoding an object.
#[derive(Debug)]
pub(super) enum Read {
    /// The whole object.
    Whole(Value),
    /// `apiVersion`, `kind` and `metadata` as far as they can be parsed, and the error of the rest.
    Identity(Value, Error),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Outline<'o> {
    #[serde(borrow, rename = "apiVersion")]
    api_version: Option<&'o RawValue>,
    #[serde(borrow)]
    kind: Option<&'o RawValue>,
    #[serde(borrow)]
    metadata: BTreeMap<String, &'o RawValue>,
}

#[derive(Deserialize)]
struct OnlyMetadata {
    #[serde(default)]
    metadata: ObjectMeta,
}

/// Decodes an object. Fails if not even its outline can be parsed.
pub(super) fn read(text: &str) -> Result<Read, Error> {
    match serde_json::from_str(text) {
        Ok(object) => Ok(Read::Whole(object)),
        Err(error) => Ok(Read::Identity(identity(text.as_bytes())?, error)),
    }
}

/// Decodes an item of a list. Servers omit `apiVersion` and `kind` in lists.
pub(super) fn read_item(kind: &Kind, text: &str) -> Result<Read, Error> {
    let mut read = read(text)?;
    let (Read::Whole(object) | Read::Identity(object, _)) = &mut read;
    if let Some(object) = object.as_object_mut() {
        object.entry("kind").or_insert_with(|| Value::from(&*kind.kind));
        object.entry("apiVersion").or_insert_with(|| Value::from(kind.api_version()));
    }
    Ok(read)
}

/// Decodes the metadata of an object, without `managedFields` if those cannot be parsed.
pub(super) fn read_metadata(text: &[u8]) -> Result<ObjectMeta, Error> {
    let read = match serde_json::from_slice::<OnlyMetadata>(text) {
        Ok(object) => object,
        Err(_) => serde_json::from_value(identity(text)?)?,
    };
    Ok(read.metadata)
}

/// Decodes the outline of an object without `managedFields`, which are nested as deeply as the object.
fn identity(text: &[u8]) -> Result<Value, Error> {
    let outline: Outline = serde_json::from_slice(text)?;
    let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
    let metadata = outline.metadata.iter().filter(|(name, _)| *name != "managedFields");
    let metadata: Map<_, _> = metadata.filter_map(|(name, raw)| Some((name.clone(), value(raw)?))).collect();
    let mut object = Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]);
    for (name, raw) in [("apiVersion", outline.api_version), ("kind", outline.kind)] {
        object.extend(raw.and_then(value).map(|value| (name.to_owned(), value)));
    }
    Ok(Value::Object(object))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A ConfigMap that is too deep to be parsed.
    pub(crate) fn deep(name: &str, version: u64) -> String {
        let (open, close) = ("{\"f:a\":".repeat(500), "}".repeat(500));
        let metadata = format!(
            r#"{{"name":"{name}","resourceVersion":"{version}","labels":{{"a":"b"}},"managedFields":[{{"fieldsV1":{open}{{}}{close}}}]}}"#
        );
        format!(r#"{{"kind":"ConfigMap","metadata":{metadata},"spec":{open}1{close}}}"#)
    }

    #[test]
    fn an_object_that_is_too_deep_still_has_its_identity() {
        let Ok(Read::Identity(object, _)) = read(&deep("a", 3)) else { panic!("it is too deep") };
        let metadata = json!({ "name": "a", "resourceVersion": "3", "labels": { "a": "b" } });
        assert_eq!(object, json!({ "kind": "ConfigMap", "metadata": metadata }));
        assert_eq!(read_metadata(deep("a", 3).as_bytes()).unwrap().name.as_deref(), Some("a"));
        for text in ["", "[]", r#"{"metadata":1}"#, r#"{"metadata":{}"#] {
            assert!(!matches!(read(text), Ok(Read::Identity(..))), "{text}");
        }
    }
}
