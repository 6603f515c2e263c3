//! Events, one storage under two versions with different field names.
//!
//! Stored as core `v1`; `events.k8s.io/v1` is the same object in other words.

use serde_json::{Value, json};

use super::fill::{Fill, Object, text};
use crate::status::Cause;

/// Field names of `v1` and of `events.k8s.io/v1`.
const TWINS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Fields that are written even when they are empty.
pub(super) fn default(api_version: &str, event: &mut Object) {
    if api_version == "v1" {
        event.value("source", json!({}));
        event.value("reportingComponent", "");
        event.value("reportingInstance", "");
        event.value("involvedObject", json!({}));
        for time in ["firstTimestamp", "lastTimestamp", "eventTime"] {
            event.entry(time).or_insert(Value::Null);
        }
        event.drop_zero(&["count", "action", "type", "reason", "message"]);
    } else {
        event.value("deprecatedSource", json!({}));
        event.value("regarding", json!({}));
        for time in ["deprecatedFirstTimestamp", "deprecatedLastTimestamp", "eventTime"] {
            event.entry(time).or_insert(Value::Null);
        }
        event.drop_zero(&["deprecatedCount", "reportingController", "reportingInstance"]);
    }
}

/// The same event in the other version.
pub(super) fn convert(event: &Value, to: &str) -> Value {
    let mut event = event.clone();
    if let Some(map) = event.as_object_mut() {
        for (core, new) in TWINS {
            let (from, into) = if to == "v1" { (new, core) } else { (core, new) };
            if let Some(value) = map.remove(from) {
                map.insert(into.to_owned(), value);
            }
        }
        map.insert("apiVersion".into(), to.into());
        default(to, map);
    }
    event
}

/// Why an event is refused.
pub(super) fn validate(api_version: &str, event: &Value, causes: &mut Vec<Cause>) {
    let about = if api_version == "v1" { "involvedObject" } else { "regarding" };
    let (named, home) = (text(event, &[about, "namespace"]), text(event, &["metadata", "namespace"]));
    let fits = if named.is_empty() { home == "default" || home.is_empty() } else { named == home };
    if !fits {
        causes.push(Cause::invalid(format!("{about}.namespace"), &named.into(), "does not match event.namespace"));
    }
    if api_version == "v1" {
        return;
    }
    if event["eventTime"].is_null() {
        causes.push(Cause::required("eventTime", ""));
    }
    for field in ["reportingController", "reportingInstance", "action", "reason"] {
        if text(event, &[field]).is_empty() {
            causes.push(Cause::required(field, ""));
        }
    }
    let kind = text(event, &["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        causes.push(Cause::invalid("type", &kind.into(), "has invalid value: "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_the_same_in_both_versions() {
        let new = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "n"},
            "regarding": {"kind": "ConfigMap", "name": "a", "namespace": "n"}, "note": "m", "reason": "R", "action": "A",
            "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "c-0",
        });
        let core = convert(&new, "v1");
        assert_eq!(core["message"], "m");
        assert_eq!(core["involvedObject"]["name"], "a");
        assert_eq!(core["reportingComponent"], "c");
        assert_eq!(core["firstTimestamp"], Value::Null);
        let mut expected = new.clone();
        default("events.k8s.io/v1", expected.as_object_mut().unwrap());
        assert_eq!(convert(&core, "events.k8s.io/v1"), expected);
    }
}
