//! The verbs of the API: one file per verb, one path through the store for all kinds.
//!
//! [`create`], [`update`], [`patch`] and [`delete`] compute a new state from the live one. They pass it to the store
//! with the version that it is based on. [`read`] and [`watch`] answer from snapshots and the event log. [`decode`]
//! turns bodies into objects, and [`metadata`] holds rules for the metadata of every kind.
//!
//! Not here: HTTP (`service`), and the behaviour of single built-in kinds (`kinds::hooks`).

pub(crate) mod binding;
pub(crate) mod connect;
#[expect(clippy::disallowed_methods, reason = "a write has a time")]
pub mod create;
pub mod decode;
#[expect(clippy::disallowed_methods, reason = "a write has a time")]
pub mod delete;
pub mod duplicate_fields;
pub mod eviction;
pub mod metadata;
pub mod namespace;
pub mod patch;
pub mod read;
pub mod review;
pub mod scale;
mod service_account;
pub mod token;
#[expect(clippy::disallowed_methods, reason = "a write has a time")]
pub mod update;
#[expect(clippy::disallowed_methods, reason = "a watch has a deadline")]
pub mod watch;
#[expect(clippy::disallowed_methods, reason = "a write has a time")]
pub(crate) mod write;

pub(crate) use crate::object::text;
use crate::{
    access::User,
    admission::Answers,
    kinds::table::Kind,
    schema,
    status::Status,
    store::{Key, Stored, serialise},
};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;

/// The collection, object or subresource of a request.
#[derive(Clone, Debug)]
pub struct Target {
    /// Kind at the version of the request.
    pub kind: Arc<Kind>,
    /// Namespace; empty for cluster-scoped kinds and for requests over all namespaces.
    pub namespace: String,
    /// Name, empty for the collection.
    pub name: String,
    /// Subresource, empty for the object itself.
    pub subresource: String,
}

impl Target {
    /// Returns the key of the object in its storage.
    pub fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    /// Returns the 404 of the object.
    pub fn not_found(&self) -> Status {
        Status::not_found(&self.kind.group_resource(), &self.name)
    }
}

/// The handling of unknown fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Refuses requests with unknown fields.
    Strict,
    /// Drops unknown fields and returns warnings.
    #[default]
    Warn,
    /// Drops unknown fields.
    Ignore,
}

/// The options and context of a write.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Whether nothing is stored.
    pub dry_run: bool,
    /// The handling of unknown fields.
    pub validation: FieldValidation,
    /// Duplicate fields of the body, treated like unknown ones.
    pub duplicate_fields: Vec<String>,
    /// Field manager.
    pub manager: String,
    /// Whether an apply takes over fields of other managers.
    pub force: bool,
    /// Time of the request, RFC 3339 with seconds.
    pub now: String,
    /// The user.
    pub user: User,
    /// UID of a new object; `None`: random.
    pub uid: Option<String>,
    /// Seed of generated names; `None`: random.
    pub(crate) seed: Option<u64>,
    /// Whether the name was generated.
    pub(crate) generated: bool,
    /// The options of the write, as webhooks receive them.
    pub(crate) options: serde_json::Map<String, Value>,
    /// Whether webhooks and policies apply.
    pub(crate) admit: bool,
    /// The results of webhook calls.
    pub(crate) answers: Answers,
    /// Warnings of policies and Pod Security for the client.
    pub(crate) warned: Arc<Mutex<Vec<String>>>,
}

impl Settings {
    /// Returns the UID of a new object.
    pub(crate) fn uid(&self) -> String {
        self.uid.clone().unwrap_or_else(metadata::new_uid)
    }

    /// Adds a warning for the client, unless it is already there.
    pub(crate) fn warn(&self, text: String) {
        let mut warned = self.warned.lock();
        if !warned.contains(&text) {
            warned.push(text);
        }
    }
}

/// An object in a response.
#[derive(Clone, Debug)]
pub enum Shown {
    /// The stored object.
    Stored(Arc<Stored>),
    /// An object made for this response.
    Value(Value),
}

impl Shown {
    /// Returns the JSON in the version of `kind`.
    pub fn json(&self, kind: &Kind) -> Bytes {
        match self {
            Self::Stored(stored) => json_as(kind, stored),
            Self::Value(value) => Bytes::from(value.to_string()),
        }
    }

    /// Returns the object in the version of `kind`.
    pub fn value(&self, kind: &Kind) -> Arc<Value> {
        match self {
            Self::Stored(stored) => value_as(kind, stored),
            Self::Value(value) => Arc::new(value.clone()),
        }
    }
}

/// A completed write.
#[derive(Clone, Debug)]
pub struct Done {
    /// 200 or 201.
    pub code: u16,
    /// The new object.
    pub object: Shown,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

impl Done {
    fn new(code: u16, object: Shown, warnings: Vec<String>) -> Self {
        Self { code, object, warnings }
    }
}

/// Returns a stored object in the version of `kind`.
pub fn value_as(kind: &Kind, stored: &Stored) -> Arc<Value> {
    let value = at_rest(kind, stored);
    if kind.converts() { Arc::new(kind.converted(&value, &kind.storage_api_version, &kind.api_version)) } else { value }
}

/// Returns a stored object in the storage version. If its definition has changed since, unknown fields are dropped and
/// defaults applied, as a real server does at every read.
fn at_rest(kind: &Kind, stored: &Stored) -> Arc<Value> {
    let value = stored.value();
    let Some(schema) = kind.outdated(stored) else { return value };
    let mut value = (*value).clone();
    value["apiVersion"] = kind.storage_api_version.clone().into();
    schema::drop_unknown(schema, &mut value);
    schema::apply_defaults(schema, &mut value);
    Arc::new(value)
}

/// Returns whether writing an object again, as it is read, would change the stored data.
pub(crate) fn wants_rewriting(kind: &Kind, stored: &Stored) -> bool {
    kind.outdated(stored).is_some() && at_rest(kind, stored) != stored.value()
}

/// Returns a stored object as JSON in the version of `kind`.
pub fn json_as(kind: &Kind, stored: &Stored) -> Bytes {
    if kind.shows_as_stored(stored) {
        return stored.json();
    }
    serialise(&kind.api_version, &kind.kind, &value_as(kind, stored)).0
}

/// Maximum size of a stored object, in bytes of JSON.
const MAX_OBJECT: usize = 1_536 * 1024;

/// Maximum depth of a stored object. Deeper ones could not be parsed again.
const MAX_DEPTH: usize = 120;

/// Fails with 500 if a real server's storage would refuse the size, and with 400 if the object is too deep for this
/// server.
pub(crate) fn fits(object: &Value) -> Result<(), Status> {
    if crate::patch::depth(object) > MAX_DEPTH {
        return Err(Status::bad_request(format!("the object has more than {MAX_DEPTH} levels")));
    }
    if weight(object) > MAX_OBJECT {
        return Err(Status::new(500, "", "etcdserver: request is too large"));
    }
    Ok(())
}

/// Estimates the length of an object's JSON.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 3,
        Value::Array(items) => items.iter().map(weight).sum::<usize>() + 2,
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + 4 + weight(value)).sum::<usize>() + 2,
        _ => 5,
    }
}

/// Converts an object of `kind` to the storage version.
pub(crate) fn to_storage(kind: &Kind, value: Value) -> Value {
    if kind.converts() { kind.converted(&value, &kind.api_version, &kind.storage_api_version) } else { value }
}

/// Returns the fields that writes through an endpoint neither change nor own.
pub(crate) fn reset_paths(kind: &Kind, subresource: &str) -> Vec<&'static [&'static str]> {
    let status: &[&str] = &["status"];
    let spec: &[&str] = &["spec"];
    match (subresource, kind.custom.is_some()) {
        ("status", true) => vec![spec, &["metadata"]],
        ("status", false) => {
            let mut paths = vec![spec];
            match kind.kind.as_str() {
                "Deployment" => paths.push(&["metadata", "labels"]),
                "Pod" => {
                    paths.push(&["metadata", "deletionTimestamp"]);
                    paths.push(&["metadata", "ownerReferences"]);
                }
                _ => {}
            }
            paths
        }
        ("", _) if kind.has_status() => vec![status],
        _ => Vec::new(),
    }
}
