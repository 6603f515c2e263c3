//! An Event about an object, and the API object that records it.
//!
//! Invariant: API servers accept every Event. Names are valid, and texts are short enough.

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use mainstay_api::EventReason;
use mainstay_object::Key;

use super::lease::micro_time;

/// Maximum length of a note in bytes. API servers refuse more than 1024.
const MAX_NOTE: usize = 1000;
/// Maximum length of reason, action, reporting controller and instance in bytes.
const MAX_WORD: usize = 128;

/// The type of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Normal operation.
    Normal,
    /// A user may have to act.
    Warning,
}

/// The order in which Events are written. Each priority has its own queue and rate limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// An operation failed or is held back.
    Failure,
    /// The state of a resource changed, for instance after a failure.
    State,
    /// Normal operation. Many such Events are summed up.
    Routine,
    /// A Routine Event about an object that is also in the Event of the object's owner. It is dropped if it would have
    /// to wait.
    Detail,
}

impl Priority {
    /// The priority of an Event that is not about a managed object.
    pub const fn of(kind: EventType) -> Self {
        match kind {
            EventType::Warning => Self::Failure,
            EventType::Normal => Self::State,
        }
    }
}

/// The object of an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regarding {
    /// The identity of the object.
    pub key: Key,
    /// The `apiVersion` of the object.
    pub api_version: String,
    /// The UID of the object, if known. `kubectl describe` shows only Events with the UID.
    pub uid: Option<String>,
}

/// An Event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The object.
    pub regarding: Regarding,
    /// A related object.
    pub related: Option<Regarding>,
    /// The type of the Event.
    pub kind: EventType,
    /// The priority of the Event.
    pub priority: Priority,
    /// The reason of the Event.
    pub reason: EventReason,
    /// The agent's action as one CamelCase word, such as `Apply`.
    pub action: String,
    /// The text in one line, because `kubectl get events` shows only one. It is cut after 1000 bytes and must not
    /// contain secrets.
    pub note: String,
    /// The managed object that the note is about, if it is not `regarding`. Events that differ only in this object
    /// become one Event: `15 objects pruned: …`.
    pub about: Option<String>,
    /// Events are aggregated only if this key is equal. It contains, for example, the field paths. Notes may differ.
    pub aggregation_key: String,
}

/// Events with the same identity are aggregated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AggregationKey {
    pub(super) key: Key,
    uid: Option<String>,
    kind: EventType,
    pub(super) priority: Priority,
    reason: EventReason,
    action: String,
    detail: String,
}

impl Event {
    pub(super) fn identity(&self) -> AggregationKey {
        AggregationKey {
            key: self.regarding.key.clone(),
            uid: self.regarding.uid.clone(),
            kind: self.kind,
            priority: self.priority,
            reason: self.reason,
            action: self.action.clone(),
            detail: self.aggregation_key.clone(),
        }
    }

    /// Shortens an Event for bounded memory: cuts the note, and hashes a long key.
    pub(super) fn shortened(mut self) -> Self {
        self.note = cut(&one_line(&self.note), MAX_NOTE);
        self.about = self.about.map(|about| cut(&about, MAX_WORD));
        if self.aggregation_key.len() > MAX_WORD {
            self.aggregation_key = hex::encode(Sha256::digest(&self.aggregation_key));
        }
        self
    }

    /// The namespace of the Event object.
    pub(super) fn namespace(&self) -> &str {
        self.regarding.key.namespace.as_deref().unwrap_or("default")
    }

    /// Returns a new name for the Event object.
    pub(super) fn new_name(&self) -> String {
        event_name(&self.regarding.key.name)
    }

    /// Builds the Event object in core `v1`. `events.k8s.io/v1` rejects the times and the count by which `kubectl`
    /// sorts and describes Events.
    pub(super) fn object(&self, name: &str, seen: &Occurrences, reporter: &Reporter) -> Value {
        let controller = cut(&reporter.controller, MAX_WORD);
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "namespace": self.namespace(), "name": name },
            "eventTime": micro_time(seen.first),
            "firstTimestamp": whole_seconds(seen.first),
            "source": { "component": controller },
            "reportingComponent": controller,
            "reportingInstance": cut(&reporter.instance, MAX_WORD),
            "action": cut(&self.action, MAX_WORD),
            "reason": self.reason,
            "type": match self.kind { EventType::Normal => "Normal", EventType::Warning => "Warning" },
            "involvedObject": reference(&self.regarding),
        });
        if let (Some(body), Value::Object(repeated)) = (body.as_object_mut(), self.repeated(seen)) {
            body.extend(repeated);
        }
        if let Some(related) = &self.related {
            body["related"] = reference(related);
        }
        body
    }
}

impl Event {
    /// Returns the fields that change when the Event repeats.
    pub(super) fn repeated(&self, seen: &Occurrences) -> Value {
        let mut fields = json!({
            "message": cut(&self.note, MAX_NOTE), "count": seen.count, "lastTimestamp": whole_seconds(seen.last),
        });
        // A series starts with the second Event.
        if seen.count > 1 {
            fields["series"] = json!({ "count": seen.count, "lastObservedTime": micro_time(seen.last) });
        }
        fields
    }
}

/// First and last time of an Event, and the number of occurrences.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occurrences {
    pub first: Timestamp,
    pub last: Timestamp,
    pub count: u32,
}

/// Formats a time in whole seconds, as most API fields do.
fn whole_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The reporting controller.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    pub controller: String,
    pub instance: String,
}

fn reference(object: &Regarding) -> Value {
    let mut reference =
        json!({ "apiVersion": object.api_version, "kind": &*object.key.kind, "name": &*object.key.name });
    if let Some(namespace) = &object.key.namespace {
        reference["namespace"] = Value::from(&**namespace);
    }
    if let Some(uid) = &object.uid {
        reference["uid"] = Value::from(uid.as_str());
    }
    reference
}

/// Returns a name for the Event object: the object's name, reduced to the characters that Event names allow, and a
/// random suffix. Names of RBAC objects may contain colons.
fn event_name(object: &str) -> String {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut name: String = object.chars().map(|c| if allowed(c) || c == '.' { c } else { '-' }).take(200).collect();
    // Each part between dots must begin and end with a letter or digit.
    name = name
        .split('.')
        .map(|part| part.trim_matches('-'))
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(".");
    if name.is_empty() {
        name.push_str("object");
    }
    format!("{name}.{:016x}", fastrand::u64(..))
}

/// Joins the lines of a text with semicolons, or with a blank after a colon, a semicolon or a comma.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        line.push_str(match line.chars().last() {
            None => "",
            Some(':' | ';' | ',') => " ",
            Some(_) => "; ",
        });
        line.push_str(part);
    }
    line
}

fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most - "…".len()).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_whatever_the_object_is_called() {
        for (object, expected) in [
            ("web", "web."),
            ("system:node-reader", "system-node-reader."),
            ("-a-.b", "a.b."),
            ("A::", "object."),
            ("", "object."),
        ] {
            assert!(event_name(object).starts_with(expected), "{object}: {}", event_name(object));
        }
        assert!(event_name(&"a".repeat(253)).len() <= 253);
    }

    #[test]
    fn a_note_is_one_line() {
        for (text, expected) in [
            ("failed at commit c: a is wrong", "failed at commit c: a is wrong"),
            ("failed:\n  a is wrong\r\n\n  b is wrong\n", "failed: a is wrong; b is wrong"),
            ("", ""),
        ] {
            let key = Key::new("mainstay.dev", "GitSync", Some("shop"), "shop");
            let event = Event {
                regarding: Regarding { key, api_version: "mainstay.dev/v1alpha1".to_owned(), uid: None },
                related: None,
                kind: EventType::Warning,
                priority: Priority::Failure,
                reason: mainstay_api::events::Reason::Failed.into(),
                action: "Apply".to_owned(),
                note: text.to_owned(),
                about: None,
                aggregation_key: String::new(),
            };
            assert_eq!(event.shortened().note, expected);
        }
    }

    #[test]
    fn cuts_long_notes_between_characters() {
        assert_eq!(cut("short", 10), "short");
        let long = cut(&"ü".repeat(600), MAX_NOTE);
        assert!(long.len() <= MAX_NOTE && long.ends_with("ü…"));
    }
}
