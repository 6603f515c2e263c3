//! Deletes with preconditions.
//!
//! Invariant: a delete only affects the object that was read: uid and, if given, resourceVersion must match.

use http::Method;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It did not exist.
    Absent,
    /// It is gone.
    Gone,
    /// It has a deletionTimestamp and waits for finalizers, its grace period or its dependents.
    Terminating,
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
    let waits = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
        || metadata["deletionGracePeriodSeconds"].as_u64().is_some_and(|seconds| seconds > 0)
        || answer["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    if answer["kind"] != "Status" && metadata["deletionTimestamp"].is_string() && waits {
        Removal::Terminating
    } else {
        Removal::Gone
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
        let waiting = json!({ "kind": "ConfigMap", "metadata": { "deletionTimestamp": "x", "finalizers": ["a/b"] } });
        assert_eq!(removal(&waiting), Removal::Terminating);
        let namespace = json!({ "kind": "Namespace", "metadata": { "deletionTimestamp": "x" }, "spec": { "finalizers": ["kubernetes"] } });
        assert_eq!(removal(&namespace), Removal::Terminating);
        assert_eq!(removal(&json!({ "kind": "Pod", "metadata": { "name": "a" } })), Removal::Gone);
    }
}
