//! Reads the fields of a live object that determine its health.

use serde_json::Value;

use super::state::Health::{self, Healthy, Progressing};
use crate::Key;
use crate::redact::{redact_server_text, withhold_server_text};

/// A live object.
pub(super) struct Live<'v> {
    pub(super) key: &'v Key,
    pub(super) value: &'v Value,
    /// Whether messages in the object may quote confidential values.
    pub(super) is_confidential: bool,
}

/// A condition of a live object.
pub(super) struct Condition<'v> {
    pub(super) value: &'v Value,
}

impl<'v> Live<'v> {
    pub(super) fn at(&self, pointer: &str) -> Option<&'v Value> {
        self.value.pointer(pointer)
    }

    pub(super) fn number(&self, pointer: &str) -> Option<i64> {
        self.at(pointer).and_then(Value::as_i64)
    }

    pub(super) fn text(&self, pointer: &str) -> &'v str {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns a number of the status; 0 if it is missing.
    pub(super) fn count(&self, field: &str) -> i64 {
        self.at("/status").and_then(|status| status.get(field)).and_then(Value::as_i64).unwrap_or(0)
    }

    pub(super) fn replicas(&self) -> i64 {
        self.number("/spec/replicas").unwrap_or(1)
    }

    pub(super) fn conditions(&self) -> impl Iterator<Item = Condition<'v>> + use<'v> {
        let conditions = self.at("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().map(|value| Condition { value })
    }

    pub(super) fn condition(&self, kind: &str) -> Option<Condition<'v>> {
        self.conditions().find(|condition| condition.kind() == kind)
    }

    /// Returns the condition of this type if it has this status.
    pub(super) fn is(&self, kind: &str, status: &str) -> Option<Condition<'v>> {
        self.conditions().find(|condition| condition.kind() == kind && condition.status() == status)
    }

    /// Returns the generation of the object if the condition belongs to an older one. A suspended object keeps the
    /// conditions of an older one; a GitSync that is suspended until some time says so by a condition.
    pub(super) fn unseen_generation(&self, condition: &Condition<'_>) -> Option<i64> {
        if is_suspended(self.value) || self.is("Suspended", "True").is_some() {
            return None;
        }
        let observed = condition.value["observedGeneration"].as_i64()?;
        self.number("/metadata/generation").filter(|generation| observed < *generation)
    }

    /// Returns a condition as text, without values in its message.
    pub(super) fn words(&self, condition: &Condition<'_>) -> String {
        let text = |field: &str| condition.value[field].as_str().unwrap_or_default();
        let mut words = format!("{} is {}", text("type"), text("status"));
        let message = if self.is_confidential {
            withhold_server_text(text("message")).to_owned()
        } else {
            redact_server_text(self.key, text("message"))
        };
        for part in [text("reason"), &message] {
            if !part.is_empty() {
                words.push_str(": ");
                words.push_str(part);
            }
        }
        words
    }

    /// Returns progressing if fewer than `desired` replicas, counted by the status field `field`, have this `state`.
    pub(super) fn at_least(&self, desired: i64, field: &str, state: &str) -> Health {
        let have = self.count(field);
        if have < desired { Progressing(format!("{have} of {desired} replicas are {state}")) } else { Healthy }
    }

    pub(super) fn at_most(&self, most: i64) -> Health {
        let more = self.count("replicas") - most;
        if more > 0 { Progressing(format!("{more} old replicas are still there")) } else { Healthy }
    }
}

impl Condition<'_> {
    pub(super) fn kind(&self) -> &str {
        self.value["type"].as_str().unwrap_or_default()
    }

    pub(super) fn status(&self) -> &str {
        self.value["status"].as_str().unwrap_or_default()
    }

    pub(super) fn reason(&self) -> &str {
        self.value["reason"].as_str().unwrap_or_default()
    }
}

/// Whether `spec.suspend` is true and the controller of the object leaves its status as it was. The controller of Jobs
/// does not.
pub(super) fn is_suspended(live: &Value) -> bool {
    let is_batch = live["apiVersion"].as_str().is_some_and(|version| version.starts_with("batch/"));
    live.pointer("/spec/suspend") == Some(&Value::Bool(true)) && !is_batch
}

/// Returns the first result that is not healthy.
pub(super) fn first(checks: impl IntoIterator<Item = Health>) -> Health {
    checks.into_iter().find(|health| *health != Healthy).unwrap_or(Healthy)
}
