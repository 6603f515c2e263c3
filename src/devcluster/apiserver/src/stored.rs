//! One version of an object, as the store and the event log hold it: its bytes, and what is often asked of it.

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;

/// Namespace and name of an object in its storage; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<(String, String)>);

impl Key {
    /// A key; the namespace of cluster-scoped objects is empty.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(Arc::new((namespace.to_owned(), name.to_owned())))
    }

    /// Namespace, empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        &self.0.0
    }

    /// Name.
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

/// One version of an object. What those ask for who look at every change is there beside the bytes.
#[derive(Debug)]
pub struct Stored {
    /// Its resource version.
    pub rv: u64,
    /// The resource version under which this content was written: another one only in the event of a deletion.
    pub written: u64,
    /// Labels, for selectors.
    pub labels: Vec<(String, String)>,
    /// UID.
    pub uid: String,
    /// Whether it is marked for deletion.
    pub going: bool,
    /// Its owner references.
    pub owners: Vec<Owner>,
    json: Bytes,
    rest: usize,
    parsed: Mutex<Parsed>,
}

/// The object beside its bytes.
#[derive(Debug, Default)]
struct Parsed {
    value: Option<Arc<Value>>,
    /// Whether the version is history: then it is parsed for who asks, and not kept.
    retired: bool,
}

impl Stored {
    /// A version of an object under its number.
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

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }

    /// The owner that controls it.
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controls)
    }

    /// The object as JSON, with `kind` and `apiVersion` of its storage.
    pub fn json(&self) -> Bytes {
        self.json.clone()
    }

    /// The JSON without the opening brace, `kind` and `apiVersion`: `"metadata":{…}}`.
    pub fn rest(&self) -> &[u8] {
        &self.json[self.rest..]
    }

    /// Size of the JSON in bytes.
    pub fn size(&self) -> usize {
        self.json.len()
    }

    /// The object, parsed again if that was forgotten.
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

    /// Whether the object is there beside its bytes.
    #[cfg(test)]
    pub(crate) fn is_parsed(&self) -> bool {
        self.parsed.lock().value.is_some()
    }

    /// Forgets the object beside its bytes.
    pub(crate) fn forget_value(&self) {
        self.parsed.lock().value = None;
    }

    /// The version is history from now on.
    pub(crate) fn retire(&self) {
        *self.parsed.lock() = Parsed { value: None, retired: true };
    }

    /// The same object under another resource version.
    pub(crate) fn at_version(&self, rv: u64) -> Self {
        let value = self.value();
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut shown = Self::new(&text("apiVersion"), &text("kind"), rv, (*value).clone());
        shown.written = self.written;
        shown.retire();
        shown
    }
}

/// The object as JSON with `kind` and `apiVersion` first, and where the rest begins.
pub fn serialise(api_version: &str, kind: &str, value: &Value) -> (Bytes, usize) {
    let mut out = Vec::with_capacity(2048);
    // Writing JSON values into memory cannot fail: keys are strings and the buffer grows.
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
