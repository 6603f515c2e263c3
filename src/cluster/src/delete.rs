//! Deletes with preconditions.
//!
//! Invariant: a delete affects only the object that was read. UID and resourceVersion must match if the guard contains
//! them.

use http::Method;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::connect::Cluster;
use super::count::Verb;
use super::error::{Attempt, Error};
use super::kind::Kind;
use super::request::Call;

/// The treatment of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// The dependents are deleted afterwards.
    #[default]
    Background,
    /// The dependents are deleted first.
    Foreground,
    /// The dependents are orphaned.
    Orphan,
}

/// The preconditions of a delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard<'a> {
    /// The required UID.
    pub uid: Option<&'a str>,
    /// The required resourceVersion.
    pub resource_version: Option<&'a str>,
}

/// The result of a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The object did not exist.
    Absent,
    /// The object is gone.
    Gone,
    /// The object waits for finalizers, its grace period or its dependents.
    Terminating(Terminating),
}

/// The state of an object that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminating {
    /// The remaining finalizers. If there are none, the object waits for its grace period or its dependents.
    pub finalizers: Vec<String>,
    /// The `deletionTimestamp`: the time when the deletion should have ended.
    pub since: Timestamp,
}

impl Terminating {
    /// Reads the metadata of an object; `None` if it is not being deleted.
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let since = meta.deletion_timestamp.as_ref()?.0;
        Some(Self { finalizers: meta.finalizers.clone().unwrap_or_default(), since })
    }
}

impl Cluster {
    /// Deletes an object. A failed precondition is a conflict; a missing object is not an error.
    pub async fn delete(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        guard: Guard<'_>,
        propagation: Propagation,
    ) -> Result<Removal, Error> {
        let call = Call::object(Attempt::Delete, Verb::Delete, kind, namespace, name, None)?;
        let call = call.with(Method::DELETE, "application/json", options(guard, propagation).to_string());
        match self.ask(&call).await {
            Ok(answer) => {
                let answer: Value = serde_json::from_slice(&answer).map_err(|error| call.failed(error))?;
                Ok(removal(&answer))
            }
            Err(error) if error.is_not_found() => Ok(Removal::Absent),
            Err(error) => Err(error),
        }
    }
}

fn options(guard: Guard<'_>, propagation: Propagation) -> Value {
    let mut preconditions = Map::new();
    if let Some(uid) = guard.uid {
        preconditions.insert("uid".to_owned(), Value::from(uid));
    }
    if let Some(version) = guard.resource_version {
        preconditions.insert("resourceVersion".to_owned(), Value::from(version));
    }
    let propagation = match propagation {
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
        Propagation::Orphan => "Orphan",
    };
    let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation });
    if !preconditions.is_empty() {
        options["preconditions"] = Value::Object(preconditions);
    }
    options
}

/// Interprets the response to a delete. It is a `Status` if the object is gone. Otherwise, and for some kinds always,
/// it is the object.
fn removal(answer: &Value) -> Removal {
    let metadata = &answer["metadata"];
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let finalizers = texts(&metadata["finalizers"]);
    let waits = !finalizers.is_empty()
        || metadata["deletionGracePeriodSeconds"].as_u64().is_some_and(|seconds| seconds > 0)
        || !texts(&answer["spec"]["finalizers"]).is_empty();
    let since = metadata["deletionTimestamp"].as_str().and_then(|since| since.parse().ok());
    match since {
        Some(since) if waits && answer["kind"] != "Status" => Removal::Terminating(Terminating { finalizers, since }),
        _ => Removal::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_only_the_preconditions_it_was_given() {
        assert_eq!(
            options(Guard { uid: Some("u"), resource_version: None }, Propagation::Background),
            json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "preconditions": { "uid": "u" } })
        );
        assert_eq!(options(Guard::default(), Propagation::Orphan).get("preconditions"), None);
    }

    #[test]
    fn tells_gone_from_terminating() {
        assert_eq!(removal(&json!({ "kind": "Status", "status": "Success" })), Removal::Gone);
        let (at, since) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z".parse().unwrap());
        let terminating = |finalizers: &[&str]| {
            let finalizers = finalizers.iter().map(ToString::to_string).collect();
            Removal::Terminating(Terminating { finalizers, since })
        };
        let waiting = json!({ "kind": "ConfigMap", "metadata": { "deletionTimestamp": at, "finalizers": ["a/b"] } });
        assert_eq!(removal(&waiting), terminating(&["a/b"]));
        let namespace = json!({ "kind": "Namespace", "metadata": { "deletionTimestamp": at }, "spec": { "finalizers": ["kubernetes"] } });
        assert_eq!(removal(&namespace), terminating(&[]));
        assert_eq!(removal(&json!({ "kind": "Pod", "metadata": { "name": "a" } })), Removal::Gone);
    }
}
