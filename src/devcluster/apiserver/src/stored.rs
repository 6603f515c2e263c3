//! One version of an object in the store and event log: its bytes and frequently read fields.

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;

/// Namespace and name of an object in its storage. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<(String, String)>);

impl Key {
    /// Creates a key. The namespace of cluster-scoped objects is empty.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(Arc::new((namespace.to_owned(), name.to_owned())))
    }

    /// Returns the namespace, empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        &self.0.0
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0.1
    }
}

/// An owner reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `apiVersion`.
    pub api_version: String,
    /// `kind`.
    pub kind: String,
    /// `name`.
    pub name: String,
    /// `uid`.
    pub uid: String,
    /// `controller`.
    pub controls: bool,
    /// `blockOwnerDeletion`.
    pub blocks: bool,
}

impl Owner {
    fn of(reference: &Value) -> Self {
        let text = |field: &str| reference[field].as_str().unwrap_or_default().to_owned();
        Self {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
            controls: reference["controller"] == true,
            blocks: reference["blockOwnerDeletion"] == true,
        }
    }
}

/// One version of an object. Fields that readers need for every change are kept beside the bytes.
#[derive(Debug)]
pub struct Stored {
    /// Resource version.
    pub rv: u64,
    /// The resource version that wrote this content. Differs from `rv` only in a deletion event.
    pub written: u64,
    /// Labels, for selectors.
    pub labels: Vec<(String, String)>,
    /// UID.
    pub uid: String,
    /// Whether the object is marked for deletion.
    pub going: bool,
    /// Owner references.
    pub owners: Vec<Owner>,
    json: Bytes,
    rest: usize,
    parsed: Mutex<Parsed>,
}

/// The parsed object, cached beside its bytes.
#[derive(Debug, Default)]
struct Parsed {
    value: Option<Arc<Value>>,
    /// Whether a newer version replaced this version, whose parsed value is then no longer cached.
    retired: bool,
}

impl Stored {
    /// Creates a version of an object with its resource version.
    pub(crate) fn new(api_version: &str, kind: &str, rv: u64, mut value: Value) -> Self {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), Value::String(rv.to_string()));
        }
        if let Some(root) = value.as_object_mut() {
            root.insert("apiVersion".to_owned(), api_version.into());
            root.insert("kind".to_owned(), kind.into());
        }
        let (json, rest) = serialise(api_version, kind, &value);
        let labels = value.pointer("/metadata/labels").and_then(Value::as_object).map_or_else(Vec::new, |labels| {
            labels.iter().map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect()
        });
        let metadata = &value["metadata"];
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten().map(Owner::of).collect();
        Self {
            rv,
            written: rv,
            labels,
            uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            going: !metadata["deletionTimestamp"].is_null(),
            owners,
            json,
            rest,
            parsed: Mutex::new(Parsed { value: Some(Arc::new(value)), retired: false }),
        }
    }

    /// Returns the value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }

    /// Returns the owner reference with `controller: true`.
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controls)
    }

    /// Returns the object as JSON, with `kind` and `apiVersion` of its storage.
    pub fn json(&self) -> Bytes {
        self.json.clone()
    }

    /// Returns the JSON without the opening brace, `kind` and `apiVersion`: `"metadata":{…}}`.
    pub fn rest(&self) -> &[u8] {
        &self.json[self.rest..]
    }

    /// Returns the size of the JSON in bytes.
    pub fn size(&self) -> usize {
        self.json.len()
    }

    /// Returns the parsed object. Parses it again if it is not cached.
    pub fn value(&self) -> Arc<Value> {
        let mut parsed = self.parsed.lock();
        if let Some(value) = &parsed.value {
            return value.clone();
        }
        let value: Value = serde_json::from_slice(&self.json).expect("what was serialised here parses");
        let value = Arc::new(value);
        if !parsed.retired {
            parsed.value = Some(value.clone());
        }
        value
    }

    /// Returns whether the parsed object is cached.
    #[cfg(test)]
    pub(crate) fn is_parsed(&self) -> bool {
        self.parsed.lock().value.is_some()
    }

    /// Drops the cached parsed object.
    pub(crate) fn forget_value(&self) {
        self.parsed.lock().value = None;
    }

    /// Marks the version as replaced by a newer one.
    pub(crate) fn retire(&self) {
        *self.parsed.lock() = Parsed { value: None, retired: true };
    }

    /// Returns the same object under another resource version.
    pub(crate) fn at_version(&self, rv: u64) -> Self {
        let value = self.value();
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut shown = Self::new(&text("apiVersion"), &text("kind"), rv, (*value).clone());
        shown.written = self.written;
        shown.retire();
        shown
    }
}

/// Serialises an object with `kind` and `apiVersion` first. Returns the JSON and the offset of the rest.
pub fn serialise(api_version: &str, kind: &str, value: &Value) -> (Bytes, usize) {
    let mut out = Vec::with_capacity(2048);
    // Writing JSON to memory cannot fail: keys are strings and the buffer grows.
    out.extend_from_slice(b"{\"kind\":");
    let _ = serde_json::to_writer(&mut out, kind);
    out.extend_from_slice(b",\"apiVersion\":");
    let _ = serde_json::to_writer(&mut out, api_version);
    let mut rest = out.len();
    for (key, value) in value.as_object().into_iter().flatten() {
        if key == "apiVersion" || key == "kind" {
            continue;
        }
        out.push(b',');
        let _ = serde_json::to_writer(&mut out, key);
        out.push(b':');
        let _ = serde_json::to_writer(&mut out, value);
    }
    if out.len() > rest {
        rest += 1;
    }
    out.push(b'}');
    (Bytes::from(out), rest)
}
