//! Deletes with preconditions.
//!
//! Invariant: a delete only affects the object that was read: uid and, if given, resourceVersion must match.

use http::Method;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::connect::Cluster;
use super::count::Verb;
use super::error::{Attempt, Error};
use super::kind::Kind;
use super::request::Call;

/// The propagation policy: the fate of the objects that the deleted one owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted afterwards.
    #[default]
    Background,
    /// They are deleted first.
    Foreground,
    /// They are orphaned.
    Orphan,
}

/// The preconditions of a delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard<'a> {
    /// Only if it has this uid.
    pub uid: Option<&'a str>,
    /// Only if it has this resourceVersion.
    pub resource_version: Option<&'a str>,
}

/// The result of a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It did not exist.
    Absent,
    /// It is gone.
    Gone,
    /// It waits for finalizers, its grace period or its dependents.
    Terminating(Terminating),
}

/// The deletion as an object's metadata report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminating {
    /// Its finalizers. Without any it waits for its grace period, or for what it holds.
    pub finalizers: Vec<String>,
    /// Its `deletionTimestamp`: when it was to be gone.
    pub since: Timestamp,
}

impl Terminating {
    /// Reads the deletion from an object's metadata; `None` if it is not being deleted.
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let since = meta.deletion_timestamp.as_ref()?.0;
        Some(Self { finalizers: meta.finalizers.clone().unwrap_or_default(), since })
    }
}

impl Cluster {
    /// Deletes an object. A precondition that does not match is a conflict; a missing object is no error.
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

/// Servers answer with a `Status` if the object is gone; otherwise, and for some kinds always, with the object.
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
