//! A live object as a page shows it: its YAML without secret values, its health and its Events.
//!
//! Invariant: only the names of a Secret's keys are shown, and no login of a URL.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::field::{message_at, text_at, time_at};
use crate::text::{SHORT, plain};
use mainstay_object::{Key, Mask, hide_logins_in};

/// Maximum size of a YAML document, in bytes.
const YAML: usize = 256 << 10;
/// The annotation in which `kubectl apply` stores a copy of the object.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The YAML of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Yaml {
    pub(crate) text: String,
    /// Whether the login of a URL is hidden, so that a copy is another object.
    pub(crate) is_hidden: bool,
}

/// Returns the YAML of an object, without `managedFields`, without the copy that kubectl stores, without secret values and
/// without logins of URLs.
pub(crate) fn yaml(key: &Key, live: &Value) -> Yaml {
    let mut shown = live.clone();
    if let Some(metadata) = shown.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
            if key.is("", "Secret") {
                hide(annotations);
            }
        }
    }
    if key.is("", "Secret") {
        for field in ["data", "stringData"] {
            if let Some(values) = shown.get_mut(field).and_then(Value::as_object_mut) {
                hide(values);
            }
        }
    }
    let is_hidden = hide_logins_in(&mut shown);
    let text = serde_yaml::to_string(&shown).unwrap_or_else(|_| "The object cannot be written as YAML.".to_owned());
    Yaml { text: plain(&text, YAML), is_hidden }
}

/// Returns the YAML of two states of an object. A change of the login of a URL is visible, but not the login.
pub(crate) fn changed_yaml(key: &Key, before: &Value, after: &Value) -> (String, String) {
    let (before, after) = Mask { is_confidential: false, secrets: &[] }.apply(Some(before), Some(after));
    (yaml(key, &before.unwrap_or_default()).text, yaml(key, &after.unwrap_or_default()).text)
}

fn hide(values: &mut serde_json::Map<String, Value>) {
    for value in values.values_mut() {
        *value = json!("(hidden)");
    }
}

/// An Event of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventRow {
    pub(crate) last: Option<Timestamp>,
    pub(crate) severity: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) count: i64,
}

/// Returns the row of an Event of core `v1`.
pub(crate) fn event_row(event: &Value) -> EventRow {
    EventRow {
        last: ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"]
            .iter()
            .filter_map(|pointer| time_at(event, pointer))
            .max(),
        severity: text_at(event, "/type", SHORT),
        reason: text_at(event, "/reason", SHORT),
        message: message_at(event, "/message"),
        count: ["/series/count", "/count"]
            .iter()
            .filter_map(|pointer| event.pointer(pointer).and_then(Value::as_i64))
            .max()
            .unwrap_or(1),
    }
}

/// Returns the rows of Events, newest first.
pub(crate) fn newest_first(mut rows: Vec<EventRow>) -> Vec<EventRow> {
    rows.sort_by_key(|row| std::cmp::Reverse(row.last));
    rows
}

/// Returns Events of core `v1`, newest first.
#[cfg(test)]
pub(crate) fn events(all: &[Value]) -> Vec<EventRow> {
    newest_first(all.iter().map(event_row).collect())
}

/// The value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VariableValue {
    /// The value in the Function itself.
    Plain(String),
    /// A key of a Secret or a ConfigMap, whose value is not read.
    KeyOf { kind: &'static str, name: String, key: String },
    /// A field of the pod, or a resource of its container.
    Field(String),
}

/// A variable of a Function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: VariableValue,
}

/// Returns the variables of a Function without the logins of URLs. A value from another object is represented by its place.
pub(crate) fn variables(function: &Value) -> Vec<Variable> {
    let all = function.pointer("/spec/env").and_then(Value::as_array).into_iter().flatten().take(500);
    let shown = |one: &Value| {
        // A value is cut after this, because the end of a login may be behind the cut.
        let mut one = one.clone();
        hide_logins_in(&mut one);
        variable(&one)
    };
    all.map(shown).collect()
}

/// Returns a variable of a Function as it is, for the form.
pub(crate) fn variable(one: &Value) -> Variable {
    Variable { name: text_at(one, "/name", SHORT), value: value_of(one) }
}

fn value_of(variable: &Value) -> VariableValue {
    let key_of = |source: &str, kind: &'static str| {
        let at = |field: &str| text_at(variable, &format!("/valueFrom/{source}/{field}"), SHORT);
        (!at("key").is_empty()).then(|| VariableValue::KeyOf { kind, name: at("name"), key: at("key") })
    };
    let field = |pointer: &str| {
        let text = text_at(variable, pointer, SHORT);
        (!text.is_empty()).then_some(VariableValue::Field(text))
    };
    key_of("secretKeyRef", "Secret")
        .or_else(|| key_of("configMapKeyRef", "ConfigMap"))
        .or_else(|| field("/valueFrom/fieldRef/fieldPath"))
        .or_else(|| field("/valueFrom/resourceFieldRef/resource"))
        .unwrap_or_else(|| VariableValue::Plain(text_at(variable, "/value", SHORT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_of_urls_are_hidden_in_the_yaml_and_in_a_change() {
        let key = Key::new("serverless.kyma-project.io", "GitRepository", Some("n"), "a");
        let of = |login: &str| json!({"metadata": {"annotations": {"x": format!("see https://{login}@host")}}, "spec": {"url": format!("https://{login}@host/a")}});
        let Yaml { text: shown, is_hidden } = yaml(&key, &of("user:hunter2"));
        assert!(is_hidden && !yaml(&key, &json!({"spec": {"url": "https://host/a"}})).is_hidden);
        assert!(shown.contains("url: https://(hidden)@host/a") && !shown.contains("hunter2"), "{shown}");
        let Yaml { text: shown, is_hidden } = yaml(&key, &json!({"spec": {"https://user:hunter2@host": 1}}));
        assert!(is_hidden && shown.contains("https://(hidden)@host") && !shown.contains("hunter2"), "{shown}");
        let (before, after) = changed_yaml(&key, &of("user:hunter2"), &of("user:hunter3"));
        assert!(before.contains("https://(hidden-before)@host/a") && after.contains("https://(hidden-after)@host/a"));
        assert!(!before.contains("hunter") && !after.contains("hunter"), "{before}{after}");
    }

    #[test]
    fn an_event_shows_no_login_of_a_url() {
        let row = event_row(&json!({"message": "spec.url: Invalid value: \"https://u:hunter2@h\""}));
        assert_eq!(row.message, "spec.url: Invalid value: \"https://(hidden)@h\"");
    }

    #[test]
    fn values_of_secrets_are_hidden_wherever_the_object_has_them() {
        let secret = json!({
            "kind": "Secret", "metadata": {"name": "a", "managedFields": [1], "annotations": {LAST_APPLIED: "hunter2", "x": "hunter2"}},
            "data": {"password": "aHVudGVyMg==", "nested": {"a": "hunter2"}}, "stringData": {"b": "hunter2"},
        });
        let shown = yaml(&Key::new("", "Secret", Some("n"), "a"), &secret).text;
        assert!(shown.contains("password: (hidden)"), "{shown}");
        for text in ["hunter2", "aHVudGVyMg", "managedFields", "last-applied"] {
            assert!(!shown.contains(text), "{text}: {shown}");
        }
    }

    #[test]
    fn a_login_of_a_url_in_a_variable_is_hidden_on_the_page_and_stays_in_the_form() {
        let long = format!("postgres://u:hunter2{}@db/shop", "x".repeat(2 * SHORT));
        let one = |value: &str| json!({"name": "DATABASE_URL", "value": value});
        let function = json!({"spec": {"env": [one("postgres://u:hunter2@db"), one(&long)]}});
        let values: Vec<VariableValue> = variables(&function).into_iter().map(|one| one.value).collect();
        let plain = |text: &str| VariableValue::Plain(text.into());
        assert_eq!(values, [plain("postgres://(hidden)@db"), plain("postgres://(hidden)@db/shop")]);
        assert_eq!(variable(&one("postgres://u:hunter2@db")).value, plain("postgres://u:hunter2@db"));
    }

    #[test]
    fn a_variable_of_another_object_is_named_by_its_place() {
        let function = json!({"spec": {"env": [
            {"name": "A", "value": "1"},
            {"name": "B", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
            {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            null,
        ]}});
        let values: Vec<VariableValue> = variables(&function).into_iter().map(|one| one.value).collect();
        let key_of = |kind: &'static str, name: &str| VariableValue::KeyOf { kind, name: name.into(), key: "k".into() };
        let plain = |text: &str| VariableValue::Plain(text.into());
        let field = VariableValue::Field("metadata.name".into());
        assert_eq!(values, [plain("1"), key_of("Secret", "s"), key_of("ConfigMap", "m"), field, plain("")]);
    }
}
