//! An Event of core `v1` or `events.k8s.io/v1`.
//!
//! Invariant: the strings of an Event are untrusted. They cannot start a line of the output, or end their own line.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::object_name;
use mainstay_object::{Key, printable, split_api_version};

/// An Event for display.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SeenEvent {
    /// Name of the Event itself.
    pub(super) name: String,
    /// When the Event last occurred.
    pub(super) last: Option<Timestamp>,
    /// The number of occurrences.
    pub(super) count: i64,
    /// `Normal` or `Warning`.
    pub(super) severity: String,
    pub(super) reason: String,
    /// The object of the Event.
    pub(super) object: Key,
    pub(super) message: String,
    /// The component that reported the Event.
    reporter: String,
}

impl SeenEvent {
    /// Reads an Event. Missing fields stay empty.
    pub(super) fn read(value: &Value) -> Self {
        let first = |paths: &[&str]| {
            let texts = paths.iter().filter_map(|path| value.pointer(path).and_then(Value::as_str));
            texts.filter(|text| !text.is_empty()).map(str::to_owned).next().unwrap_or_default()
        };
        let of = |field: &str| first(&[&format!("/regarding/{field}"), &format!("/involvedObject/{field}")]);
        let times = ["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp", "/eventTime"];
        let created = "/metadata/creationTimestamp";
        let last = times.iter().chain([&created]).filter_map(|path| value.pointer(path)?.as_str()?.parse().ok()).max();
        let counts = ["/series/count", "/count", "/deprecatedCount"];
        let count = counts.iter().filter_map(|path| value.pointer(path).and_then(Value::as_i64)).max();
        let api_version = of("apiVersion");
        let namespace = Some(of("namespace")).filter(|namespace| !namespace.is_empty());
        Self {
            name: first(&["/metadata/name"]),
            last,
            count: count.unwrap_or(1),
            severity: first(&["/type"]),
            reason: first(&["/reason"]),
            object: Key::new(split_api_version(&api_version).0, of("kind"), namespace.as_deref(), of("name")),
            message: first(&["/note", "/message"]),
            reporter: first(&[
                "/reportingController",
                "/reportingComponent",
                "/source/component",
                "/deprecatedSource/component",
            ]),
        }
    }

    pub(super) fn is_about_a_git_sync(&self) -> bool {
        self.object.is("mainstay.dev", "GitSync")
    }

    /// Returns the Event for JSON and YAML.
    pub(super) fn facts(&self) -> Value {
        json!({
            "time": self.last, "count": self.count, "type": self.severity, "reason": self.reason,
            "object": object_name::facts(&self.object),
            "message": self.message, "reporter": self.reporter,
        })
    }

    /// Returns the Event as one line, or as several lines, the further ones indented, if its message has line breaks.
    pub(super) fn line(&self) -> String {
        let time = self.last.map_or_else(|| "?".to_owned(), |last| last.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        let object = self.object.to_string();
        let message = self.message.replace('\n', "\n    ");
        format!(
            "{time}  {}  {}  {}: {message}\n",
            printable(&self.severity),
            printable(&self.reason),
            printable(&object)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_apis_alike() {
        let core = json!({
            "metadata": {"name": "e", "creationTimestamp": "2030-01-01T00:00:00Z"}, "type": "Warning", "reason": "Failed",
            "involvedObject": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"},
            "message": "no disk", "count": 3, "lastTimestamp": "2030-01-01T00:05:00Z", "eventTime": null,
            "source": {"component": "scheduler"},
        });
        let grouped = json!({
            "metadata": {"name": "e", "creationTimestamp": "2030-01-01T00:00:00Z"}, "type": "Warning", "reason": "Failed",
            "regarding": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"},
            "note": "no disk", "deprecatedCount": 3, "deprecatedLastTimestamp": "2030-01-01T00:05:00Z",
            "reportingController": "scheduler",
        });
        let event = SeenEvent::read(&core);
        assert_eq!(event, SeenEvent::read(&grouped));
        assert_eq!(event.line(), "2030-01-01T00:05:00Z  Warning  Failed  Deployment.apps shop/web: no disk\n");
        assert_eq!((event.count, event.facts()["object"]["group"].as_str()), (3, Some("apps")));
    }

    #[test]
    fn a_message_does_not_begin_a_line_of_its_own() {
        let event = json!({
            "type": "Normal", "reason": "A\nB", "involvedObject": {"kind": "Pod", "name": "x\ny"},
            "message": "one\n2030-01-01T00:00:00Z  Normal  Synced  GitSync apps/shop: all is well",
        });
        let line = SeenEvent::read(&event).line();
        assert_eq!(line.lines().count(), 2);
        assert!(line.lines().nth(1).unwrap().starts_with("    2030"), "{line}");
        assert!(line.starts_with("?  Normal  A\\nB  Pod x\\ny: one\n"), "{line}");
        SeenEvent::read(&json!(null));
    }
}
