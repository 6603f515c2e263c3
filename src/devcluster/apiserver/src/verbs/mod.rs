//! The verbs of the API: one file per verb, one path through the store for all kinds.
//!
//! [`create`], [`update`], [`patch`] and [`delete`] compute a new state from the live one and hand it to the store with
//! the version it is based on; [`read`] and [`watch`] answer from snapshots and the event log. [`decode`] is where
//! bodies become objects, [`metadata`] what holds for the metadata of every kind.
//!
//! Deliberately absent: HTTP (`service`), and what single built-in kinds want (`kinds::hooks`).

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

/// The collection, object or subresource that a request is about.
#[derive(Clone, Debug)]
pub struct Target {
    /// Kind at the version of the request.
    pub kind: Arc<Kind>,
    /// Namespace, empty for cluster-scoped kinds and for requests over all namespaces.
    pub namespace: String,
    /// Name, empty for the collection.
    pub name: String,
    /// Subresource, empty for the object itself.
    pub subresource: String,
}

impl Target {
    /// Where the object lies in its storage.
    pub fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    /// 404 of the object.
    pub fn not_found(&self) -> Status {
        Status::not_found(&self.kind.group_resource(), &self.name)
    }
}

/// The handling of fields that are not in the schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Refuse them.
    Strict,
    /// Drop them and say so.
    #[default]
    Warn,
    /// Drop them.
    Ignore,
}

/// How a write is to be done.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Everything but storing.
    pub dry_run: bool,
    /// The handling of unknown fields.
    pub validation: FieldValidation,
    /// Fields that the body has twice; treated like unknown ones.
    pub duplicate_fields: Vec<String>,
    /// Field manager.
    pub manager: String,
    /// Whether an apply takes fields that others own.
    pub force: bool,
    /// The moment of the request, RFC 3339 with seconds.
    pub now: String,
    /// The user.
    pub user: User,
    /// The uid of what is made; absent: chance decides.
    pub uid: Option<String>,
    /// The seed of generated names; absent: random.
    pub(crate) seed: Option<u64>,
    /// Whether the name was generated.
    pub(crate) generated: bool,
    /// The options of the write, as they are sent to webhooks.
    pub(crate) options: serde_json::Map<String, Value>,
    /// Whether webhooks and policies are asked.
    pub(crate) admit: bool,
    /// The answers of webhooks.
    pub(crate) answers: Answers,
    /// What policies and Pod Security want the client to be warned of.
    pub(crate) warned: Arc<Mutex<Vec<String>>>,
}

impl Settings {
    /// The uid of a new object.
    pub(crate) fn uid(&self) -> String {
        self.uid.clone().unwrap_or_else(metadata::new_uid)
    }

    /// Warns the client, once.
    pub(crate) fn warn(&self, text: String) {
        let mut warned = self.warned.lock();
        if !warned.contains(&text) {
            warned.push(text);
        }
    }
}

/// An object in an answer.
#[derive(Clone, Debug)]
pub enum Shown {
    /// As it is stored.
    Stored(Arc<Stored>),
    /// Made for this answer.
    Value(Value),
}

impl Shown {
    /// The JSON in the version of `kind`.
    pub fn json(&self, kind: &Kind) -> Bytes {
        match self {
            Self::Stored(stored) => json_as(kind, stored),
            Self::Value(value) => Bytes::from(value.to_string()),
        }
    }

    /// The object in the version of `kind`.
    pub fn value(&self, kind: &Kind) -> Arc<Value> {
        match self {
            Self::Stored(stored) => value_as(kind, stored),
            Self::Value(value) => Arc::new(value.clone()),
        }
    }
}

/// A write that was done.
#[derive(Clone, Debug)]
pub struct Done {
    /// 200 or 201.
    pub code: u16,
    /// The object after it.
    pub object: Shown,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

impl Done {
    fn new(code: u16, object: Shown, warnings: Vec<String>) -> Self {
        Self { code, object, warnings }
    }
}

/// A stored object in the version of `kind`.
pub fn value_as(kind: &Kind, stored: &Stored) -> Arc<Value> {
    let value = at_rest(kind, stored);
    if kind.converts() { Arc::new(kind.converted(&value, &kind.storage_api_version, &kind.api_version)) } else { value }
}

/// A stored object in the version of the storage. One from before the last change of its definition loses what the
/// schema no longer knows and gets its defaults, as a real server does whenever it reads.
fn at_rest(kind: &Kind, stored: &Stored) -> Arc<Value> {
    let value = stored.value();
    let Some(schema) = kind.outdated(stored) else { return value };
    let mut value = (*value).clone();
    value["apiVersion"] = kind.storage_api_version.clone().into();
    schema::drop_unknown(schema, &mut value);
    schema::apply_defaults(schema, &mut value);
    Arc::new(value)
}

/// Whether an object would be stored differently if it were written again as it is read.
pub(crate) fn wants_rewriting(kind: &Kind, stored: &Stored) -> bool {
    kind.outdated(stored).is_some() && at_rest(kind, stored) != stored.value()
}

/// A stored object as JSON in the version of `kind`.
pub fn json_as(kind: &Kind, stored: &Stored) -> Bytes {
    if kind.shows_as_stored(stored) {
        return stored.json();
    }
    serialise(&kind.api_version, &kind.kind, &value_as(kind, stored)).0
}

/// Largest stored object, in bytes of JSON.
const MAX_OBJECT: usize = 1_536 * 1024;

/// Deepest stored object. What is deeper could not be parsed again.
const MAX_DEPTH: usize = 120;

/// 500 of an object that a real server's storage would refuse, 400 of one that lies too deep for this one.
pub(crate) fn fits(object: &Value) -> Result<(), Status> {
    if crate::patch::depth(object) > MAX_DEPTH {
        return Err(Status::bad_request(format!("the object has more than {MAX_DEPTH} levels")));
    }
    if weight(object) > MAX_OBJECT {
        return Err(Status::new(500, "", "etcdserver: request is too large"));
    }
    Ok(())
}

/// About the length of an object's JSON.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 3,
        Value::Array(items) => items.iter().map(weight).sum::<usize>() + 2,
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + 4 + weight(value)).sum::<usize>() + 2,
        _ => 5,
    }
}

/// An object of `kind` in the version in which it is stored.
pub(crate) fn to_storage(kind: &Kind, value: Value) -> Value {
    if kind.converts() { kind.converted(&value, &kind.api_version, &kind.storage_api_version) } else { value }
}

/// Fields that writes through an endpoint neither change nor own.
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
