//! Events: one storage, two versions with different field names.
//!
//! Stored as core `v1`. `events.k8s.io/v1` renames the fields of the same object.

use serde_json::{Value, json};

use super::fill::{Fill, Object, text};
use super::metadata::qualified_faults;
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

/// Sets the fields that are written even if empty.
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

/// Converts an event to the other version.
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

/// Validates an event. Causes use the field names of the core version in both versions.
pub(super) fn validate(api_version: &str, event: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    always(api_version, event, causes);
    if api_version == "v1" {
        return;
    }
    match old {
        None => new(event, causes),
        Some(old) => changed(event, old, causes),
    }
}

/// Validates an event in both versions.
fn always(api_version: &str, event: &Value, causes: &mut Vec<Cause>) {
    let core = api_version == "v1";
    let (about, note, reporter) = if core {
        ("involvedObject", "message", "reportingComponent")
    } else {
        ("regarding", "note", "reportingController")
    };
    let (named, home) = (text(event, &[about, "namespace"]), text(event, &["metadata", "namespace"]));
    let timed = !event["eventTime"].is_null();
    let fits = match (named.is_empty(), timed) {
        (true, true) => matches!(home, "default" | "kube-system"),
        (true, false) => matches!(home, "default" | ""),
        (false, true) => true,
        (false, false) => named == home,
    };
    if !fits {
        causes.push(Cause::invalid("involvedObject.namespace", &named.into(), "does not match event.namespace"));
    }
    if !timed {
        return;
    }
    let controller = text(event, &[reporter]);
    if controller.is_empty() {
        causes.push(Cause::required(reporter, ""));
    }
    causes.extend(qualified_faults(controller).iter().map(|why| Cause::invalid(reporter, &controller.into(), why)));
    for (field, most) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        let value = text(event, &[field]);
        if value.is_empty() {
            causes.push(Cause::required(field, ""));
        }
        too_long(field, value, most, causes);
    }
    too_long("message", text(event, &[note]), 1024, causes);
}

fn too_long(field: &str, value: &str, most: usize, causes: &mut Vec<Cause>) {
    if value.len() > most {
        causes.push(Cause::invalid(field, &"".into(), &format!("can have at most {most} characters")));
    }
}

/// Validates a new event of `events.k8s.io/v1`, whose deprecated fields must be unset.
fn new(event: &Value, causes: &mut Vec<Cause>) {
    aggregated(event, causes);
    if event["eventTime"].is_null() {
        causes.push(Cause::required("eventTime", ""));
    }
    let kind = text(event, &["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        causes.push(Cause::invalid("type", &"".into(), &format!("has invalid value: {kind}")));
    }
    for (core, twin) in TWINS.iter().filter(|(_, twin)| twin.starts_with("deprecated")) {
        let value = &event[*twin];
        let unset = value.is_null() || value == 0 || value.as_object().is_some_and(serde_json::Map::is_empty);
        if !unset {
            causes.push(Cause::invalid(*core, &"".into(), "needs to be unset"));
        }
    }
}

/// Validates a series: at least two occurrences, and a time of the last one.
fn aggregated(event: &Value, causes: &mut Vec<Cause>) {
    let series = &event["series"];
    if series.is_null() {
        return;
    }
    if series["count"].as_i64().unwrap_or(0) < 2 {
        causes.push(Cause::invalid("series.count", &"".into(), "should be at least 2"));
    }
    if series["lastObservedTime"].is_null() {
        causes.push(Cause::required("series.lastObservedTime", ""));
    }
}

/// Validates a change through `events.k8s.io/v1`. Only `series` and metadata may change.
fn changed(event: &Value, old: &Value, causes: &mut Vec<Cause>) {
    if event["series"] != old["series"] {
        aggregated(event, causes);
    }
    let same = ["reason", "type", "eventTime", "action", "related", "reportingInstance"].map(|field| (field, field));
    for (core, field) in TWINS.into_iter().chain(same) {
        if event[field] != old[field] {
            let named = if core == "reportingComponent" { field } else { core };
            causes.push(Cause::invalid(named, &event[field], "field is immutable"));
        }
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
