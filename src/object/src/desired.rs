//! A desired object, as in its manifest.
//!
//! Invariant: an [`Object`] is a JSON object with a well-formed `apiVersion`, `kind` and `metadata.name`. It is
//! nested at most [`DEPTH`] deep, and its labels and annotations are maps of strings. No other code needs to check
//! this.
//! Invariant: the content is stored once, as compact JSON with sorted keys, and the digest is computed from those
//! bytes.
//!
//! Not here: changes of the content. `manifest` normalises it before it creates an object.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::key::{Identity, Names, split_api_version};
use super::{Digest, Key, Place, Retyped};

/// Maximum nesting depth of an object.
const DEPTH: usize = 110;

/// A desired object.
#[derive(Clone, PartialEq, Eq)]
pub struct Object {
    /// Key of the object. The namespace is that of the manifest; `None` if the manifest has none.
    pub key: Key,
    /// `apiVersion`, such as `apps/v1`.
    pub api_version: Arc<str>,
    /// Location in the repository.
    pub place: Place,
    /// Digest of the content.
    pub digest: Digest,
    /// Whether the object contains values of a Secret, or decrypted values. Not set for Secrets themselves.
    from_secret: bool,
    /// Strings whose type changed when variables were substituted.
    retyped: Option<Arc<[Retyped]>>,
    json: Box<[u8]>,
}

/// The allowed content of the identifying fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Identifiers {
    /// Final values.
    Final,
    /// Final values or expressions.
    WithExpressions,
}

/// A step from a value to one inside of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The value of a key.
    Key(String),
    /// The item of a list at this index, from 0.
    Item(usize),
}

/// Why a value is not a valid object. Contains names of fields, never values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Flaw {
    /// Path of the invalid value.
    pub path: Vec<Step>,
    /// The problem.
    pub what: String,
    /// The remedy.
    pub hint: Option<&'static str>,
}

impl Flaw {
    /// Returns the error for the value at a path.
    pub fn new(path: Vec<Step>, what: impl Into<String>, hint: Option<&'static str>) -> Self {
        Self { path, what: what.into(), hint }
    }
}

/// Maximum number of reported entries of one map.
const MAX_ENTRIES: usize = 50;

const QUOTE: Option<&str> = Some("put the value in quotes");
const ADD_FIELD: Option<&str> = Some("every manifest needs apiVersion, kind and metadata.name");

impl Object {
    /// Parses the object in a value. The error lists all invalid values.
    pub fn from_value(value: &Value, place: Place) -> Result<Self, Vec<Flaw>> {
        Self::sharing_names(value, place, &mut Names::default())
    }

    /// Parses like [`Object::from_value`], and shares the strings of the key with other objects.
    pub fn sharing_names(value: &Value, place: Place, names: &mut Names) -> Result<Self, Vec<Flaw>> {
        Self::read(value, place, names, Identifiers::Final)
    }

    /// Parses like [`Object::sharing_names`], but allows expressions, also in `apiVersion`, `kind`, name and
    /// namespace. The result must not be applied.
    pub fn with_expressions(value: &Value, place: Place, names: &mut Names) -> Result<Self, Vec<Flaw>> {
        Self::read(value, place, names, Identifiers::WithExpressions)
    }

    fn read(value: &Value, place: Place, names: &mut Names, identifiers: Identifiers) -> Result<Self, Vec<Flaw>> {
        let Value::Object(map) = value else {
            return Err(vec![Flaw::new(vec![], "the document is not an object", ADD_FIELD)]);
        };
        let mut flaws = Vec::new();
        let api_version = required(map, "apiVersion", &[], (well_formed_api_version, identifiers), &mut flaws);
        let kind = required(map, "kind", &[], (well_formed_kind, identifiers), &mut flaws);
        let (name, namespace) = metadata(map, identifiers, &mut flaws);
        if !shallow(value, DEPTH) {
            flaws.push(Flaw::new(vec![], "the object is nested too deeply", None));
        }
        let (Some(api_version), Some(kind), Some(name), true) = (api_version, kind, name, flaws.is_empty()) else {
            return Err(flaws);
        };
        let json = serde_json::to_vec(value).expect("a value has string keys and no infinite numbers");
        Ok(Self {
            key: Key::from(Identity {
                group: names.intern(split_api_version(api_version).0),
                kind: names.intern(kind),
                namespace: namespace.map(|namespace| names.intern(namespace)),
                name: name.into(),
            }),
            api_version: names.intern(api_version),
            place,
            digest: Digest::of(&json),
            from_secret: false,
            retyped: None,
            json: json.into(),
        })
    }

    /// Marks the object as one that contains values of a Secret, or decrypted values.
    #[must_use]
    pub fn from_secret(self) -> Self {
        Self { from_secret: true, ..self }
    }

    /// Adds the strings whose type changed when variables were substituted.
    #[must_use]
    pub fn with_retyped(self, retyped: Vec<Retyped>) -> Self {
        Self { retyped: (!retyped.is_empty()).then(|| retyped.into()), ..self }
    }

    /// Returns a remedy for a message that requires a string, if the type of a string changed.
    pub fn quoting_hint(&self, message: &str) -> Option<String> {
        Retyped::hint(self.retyped.as_deref()?, message)
    }

    /// Returns whether the object was marked with `from_secret`.
    pub fn is_from_secret(&self) -> bool {
        self.from_secret
    }

    /// Returns whether the object's content must not be shown: it is a Secret, or contains values of one.
    pub fn is_confidential(&self) -> bool {
        self.from_secret || self.key.is("", "Secret")
    }

    /// Parses the content.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).expect("the bytes were written from a value of bounded depth")
    }

    /// Returns the content as compact JSON.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// Returns the version, such as `v1`.
    pub fn version(&self) -> &str {
        split_api_version(&self.api_version).1
    }
}

/// Formats only key and location, because the content may be secret.
impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Object({} at {}, {})", self.key, self.place, self.digest)
    }
}

/// Removes `status` from a value, for kinds with a status subresource, where an apply ignores it.
pub fn strip_status(value: &mut Value) {
    if let Value::Object(map) = value {
        map.remove("status");
    }
}

/// Returns a path in the notation of users: `metadata.labels["app/x"]`, `items[3].kind`.
pub fn path_text(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Item(index) => write!(text, "[{index}]").expect("writing to a string does not fail"),
            Step::Key(key) if key.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') && !key.is_empty() => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(key);
            }
            Step::Key(key) => write!(text, "[{key:?}]").expect("writing to a string does not fail"),
        }
    }
    text
}

fn path(parents: &[&str], key: &str) -> Vec<Step> {
    parents.iter().chain([&key]).map(|step| Step::Key((*step).to_owned())).collect()
}

/// Reads a required, non-empty string of a given form.
fn required<'v>(
    map: &'v Map<String, Value>,
    field: &str,
    parents: &[&str],
    (well_formed, identifiers): (fn(&str) -> bool, Identifiers),
    flaws: &mut Vec<Flaw>,
) -> Option<&'v str> {
    let at = path(parents, field);
    let shown = path_text(&at);
    let (what, hint) = match map.get(field) {
        Some(Value::String(text)) if text.is_empty() => (format!("{shown} is empty"), ADD_FIELD),
        Some(Value::String(text)) if well_formed(text) => return Some(text),
        Some(Value::String(text)) if identifiers == Identifiers::WithExpressions && text.contains('$') => {
            return Some(text);
        }
        Some(Value::String(_)) => (format!("{shown} has characters that do not belong there"), None),
        None | Some(Value::Null) => (format!("{shown} is missing"), ADD_FIELD),
        Some(other) => (format!("{shown} is {}, not a string", type_name(other)), QUOTE),
    };
    flaws.push(Flaw::new(at, what, hint));
    None
}

/// Checks the types of the metadata, and returns name and namespace.
fn metadata<'v>(
    map: &'v Map<String, Value>,
    identifiers: Identifiers,
    flaws: &mut Vec<Flaw>,
) -> (Option<&'v str>, Option<&'v str>) {
    let metadata = match map.get("metadata") {
        Some(Value::Object(metadata)) => metadata,
        None | Some(Value::Null) => {
            flaws.push(Flaw::new(path(&["metadata"], "name"), "metadata.name is missing", ADD_FIELD));
            return (None, None);
        }
        Some(other) => {
            let what = format!("metadata is {}, not a map", type_name(other));
            flaws.push(Flaw::new(path(&[], "metadata"), what, ADD_FIELD));
            return (None, None);
        }
    };
    let generated = metadata.get("generateName").is_some_and(|value| !value.is_null());
    if generated {
        let hint = Some("give the object a metadata.name: an object without one cannot be kept in sync");
        flaws.push(Flaw::new(path(&["metadata"], "generateName"), "metadata.generateName cannot be synced", hint));
    }
    let name = if generated && !metadata.contains_key("name") {
        None
    } else {
        required(metadata, "name", &["metadata"], (path_segment, identifiers), flaws)
    };
    let namespace = match metadata.get("namespace") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) if text.is_empty() => None,
        Some(_) => required(metadata, "namespace", &["metadata"], (path_segment, identifiers), flaws),
    };
    for field in ["labels", "annotations"] {
        string_map(metadata, field, flaws);
    }
    for field in ["finalizers", "ownerReferences"] {
        match metadata.get(field) {
            None | Some(Value::Null | Value::Array(_)) => {}
            Some(other) => {
                let what = format!("metadata.{field} is {}, not a list", type_name(other));
                flaws.push(Flaw::new(path(&["metadata"], field), what, None));
            }
        }
    }
    (name, namespace)
}

fn string_map(metadata: &Map<String, Value>, field: &str, flaws: &mut Vec<Flaw>) {
    let entries = match metadata.get(field) {
        None | Some(Value::Null) => return,
        Some(Value::Object(entries)) => entries,
        Some(other) => {
            let what = format!("metadata.{field} is {}, not a map", type_name(other));
            flaws.push(Flaw::new(path(&["metadata"], field), what, None));
            return;
        }
    };
    for (key, value) in entries.iter().filter(|(_, value)| !value.is_string()).take(MAX_ENTRIES) {
        let at = path(&["metadata", field], key);
        let what = format!("{} is {}, not a string", path_text(&at), type_name(value));
        flaws.push(Flaw::new(at, what, QUOTE));
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// Returns whether the text is `group/version` or `version` with characters of DNS names, because it becomes part of a
/// URL.
fn well_formed_api_version(text: &str) -> bool {
    let word = |text: &str| {
        !text.is_empty()
            && text.len() <= 253
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
            && !text.starts_with('.')
            && !text.ends_with('.')
            && !text.contains("..")
    };
    match text.split_once('/') {
        Some((group, version)) => word(group) && word(version),
        None => word(text),
    }
}

fn well_formed_kind(text: &str) -> bool {
    text.len() <= 253 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Applies Kubernetes' minimum rule for names: one segment of a URL's path.
fn path_segment(text: &str) -> bool {
    text != "." && text != ".." && text.len() <= 253 && !text.contains(['/', '%']) && !text.contains(char::is_control)
}

fn shallow(value: &Value, left: usize) -> bool {
    match value {
        Value::Array(items) => left > 0 && items.iter().all(|item| shallow(item, left - 1)),
        Value::Object(map) => left > 0 && map.values().all(|value| shallow(value, left - 1)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(value: Value) -> String {
        match Object::from_value(&value, Place::file("a.yaml")) {
            Ok(object) => format!("{} {}", object.api_version, object.key),
            Err(flaws) => flaws.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        }
    }

    #[test]
    fn an_object_has_a_version_a_kind_and_a_name() {
        let cases = [
            (
                json!({"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"b"}}),
                "apps/v1 Deployment.apps b/a",
            ),
            (json!({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":""}}), "v1 ConfigMap a"),
            (json!({}), "apiVersion is missing; kind is missing; metadata.name is missing"),
            (json!([1]), "the document is not an object"),
            (
                json!({"apiVersion":1,"kind":true,"metadata":[]}),
                "apiVersion is a number, not a string; kind is a boolean, not a string; metadata is a list, not a map",
            ),
            (
                json!({"apiVersion":"a/../b","kind":"A/B","metadata":{"name":"../x","namespace":"%2e"}}),
                "apiVersion has characters that do not belong there; kind has characters that do not belong there; metadata.name has characters that do not belong there; metadata.namespace has characters that do not belong there",
            ),
            (
                json!({"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"a-"}}),
                "metadata.generateName cannot be synced",
            ),
            (
                json!({"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"a/b":1,"c":"d"},"annotations":7}}),
                "metadata.labels[\"a/b\"] is a number, not a string; metadata.annotations is a number, not a map",
            ),
            (json!({"apiVersion":"v1","kind":"Pod","metadata":{"name":7}}), "metadata.name is a number, not a string"),
        ];
        for (value, expected) in cases {
            assert_eq!(check(value.clone()), expected, "{value}");
        }
    }

    #[test]
    fn keeps_its_content_and_never_shows_it() {
        let value = json!({"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"p":"aHVudGVyMg=="}});
        let object = Object::from_value(&value, Place::file("a.yaml")).unwrap();
        assert_eq!(object.value(), value);
        assert_eq!(object.version(), "v1");
        assert_eq!(object.digest, Digest::of(object.json()));
        assert!(!format!("{object:?}").contains("aHVudGVyMg"));
    }

    #[test]
    fn expressions_may_be_where_it_says_what_it_is_until_they_have_values() {
        let value = json!({"apiVersion":"${A}/v1","kind":"${K}","metadata":{"name":"${N:-a/b}","namespace":"$x%"}});
        let read = Object::with_expressions(&value, Place::file("a.yaml"), &mut Names::default()).unwrap();
        assert!(!read.is_confidential() && read.clone().from_secret().is_confidential());
        assert!(check(value).starts_with("apiVersion has characters that do not belong there; kind has"));
        let slash = json!({"apiVersion":"v1","kind":"X","metadata":{"name":"a/b"}});
        assert!(Object::with_expressions(&slash, Place::file("a.yaml"), &mut Names::default()).is_err());
    }

    #[test]
    fn refuses_what_it_could_not_read_back() {
        let mut deep = json!(1);
        for _ in 0..200 {
            deep = json!([deep]);
        }
        let value = json!({"apiVersion":"v1","kind":"X","metadata":{"name":"a"},"spec":deep});
        assert_eq!(check(value), "the object is nested too deeply");
    }

    #[test]
    fn strips_status_on_request() {
        let mut value = json!({"status":{},"spec":{"status":1}});
        strip_status(&mut value);
        assert_eq!(value, json!({"spec":{"status":1}}));
    }
}
