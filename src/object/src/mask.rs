//! Hides secret values in two states of an object for display. A change of a secret is visible, but not its value.
//!
//! Invariant: a confidential object keeps only `apiVersion`, `kind`, `type`, name and namespace.
//! Invariant: in any other object, every value is hidden that is or contains a known value of a Secret. The annotation
//! in which `kubectl apply` keeps a copy of the object is hidden, too.
//! Invariant: no login of a URL is shown.
//! Invariant: a replacement reveals only whether the value is the same on both sides.
//!
//! Not here: which objects are confidential, and the origin of known values.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::logins::{add_field, hide_changed_logins, hide_logins, hide_logins_in};

/// The annotation with the copy of the object that `kubectl apply` keeps.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Minimum length, in bytes, of a known value that is also searched for inside of other values. A shorter value would
/// match almost everywhere.
const FOUND_WITHIN: usize = 4;
/// Replacements: for a single or unchanged value, and for the two sides of a changed one.
const MASKED: &str = "(masked)";
const BEFORE: &str = "(masked, before)";
const AFTER: &str = "(masked, after)";

/// The values to hide.
#[derive(Clone, Copy, Debug)]
pub struct Mask<'m> {
    /// Whether the whole content is confidential.
    pub is_confidential: bool,
    /// Known values of Secrets.
    pub secrets: &'m [String],
}

type Pair = (Option<Value>, Option<Value>);

impl Mask<'_> {
    /// Returns the displayable form of two states of an object. One of them may be missing.
    pub fn apply(&self, before: Option<&Value>, after: Option<&Value>) -> Pair {
        self.pair(&mut Vec::new(), before, after)
    }

    /// Returns a text without known values of Secrets and without logins of URLs.
    pub fn text(&self, text: &str) -> String {
        let mut shown = text.to_owned();
        for secret in self.secrets.iter().filter(|secret| secret.len() >= FOUND_WITHIN) {
            shown = shown.replace(secret.as_str(), MASKED);
        }
        hide_logins(&shown).into_owned()
    }

    fn pair<'v>(&self, path: &mut Vec<&'v str>, before: Option<&'v Value>, after: Option<&'v Value>) -> Pair {
        let both = || [before, after].into_iter().flatten();
        if before.is_none() && after.is_none() {
            (None, None)
        } else if both().all(Value::is_object) {
            self.maps(path, before.and_then(Value::as_object), after.and_then(Value::as_object))
        } else if both().all(Value::is_array) {
            self.lists(path, before.and_then(Value::as_array), after.and_then(Value::as_array))
        } else if both().any(|one| one.is_object() || one.is_array()) {
            (self.pair(path, before, None).0, self.pair(path, None, after).1)
        } else {
            self.scalars(path, before, after)
        }
    }

    fn maps<'v>(
        &self,
        path: &mut Vec<&'v str>,
        before: Option<&'v Map<String, Value>>,
        after: Option<&'v Map<String, Value>>,
    ) -> Pair {
        let keys: BTreeSet<&str> =
            [before, after].into_iter().flatten().flat_map(Map::keys).map(String::as_str).collect();
        let (mut left, mut right) = (before.map(|_| Map::new()), after.map(|_| Map::new()));
        for key in keys {
            path.push(key);
            let of = |map: Option<&'v Map<String, Value>>| map.and_then(|map| map.get(key));
            let (one, other) = self.pair(path, of(before), of(after));
            path.pop();
            add_field(key, (left.as_mut(), one), (right.as_mut(), other));
        }
        (left.map(Value::Object), right.map(Value::Object))
    }

    fn lists<'v>(
        &self,
        path: &mut Vec<&'v str>,
        before: Option<&'v Vec<Value>>,
        after: Option<&'v Vec<Value>>,
    ) -> Pair {
        let length = |list: Option<&Vec<Value>>| list.map_or(0, Vec::len);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for at in 0..length(before).max(length(after)) {
            path.push("[]");
            let of = |list: Option<&'v Vec<Value>>| list.and_then(|list| list.get(at));
            let (one, other) = self.pair(path, of(before), of(after));
            path.pop();
            left.extend(one);
            right.extend(other);
        }
        (before.map(|_| Value::Array(left)), after.map(|_| Value::Array(right)))
    }

    fn scalars(&self, path: &[&str], before: Option<&Value>, after: Option<&Value>) -> Pair {
        let is_hidden = self.hides(path);
        let is_other = before.is_some() && after.is_some() && before != after;
        let one = |value: Option<&Value>, shown: Option<Value>, other: &str| {
            let value = value?;
            if is_hidden || self.holds_secret(value) {
                Some(if is_other { other.into() } else { MASKED.into() })
            } else {
                shown
            }
        };
        let (left, right) = without_logins(before, after);
        (one(before, left, BEFORE), one(after, right, AFTER))
    }

    /// Returns whether every value at this path is hidden.
    fn hides(&self, path: &[&str]) -> bool {
        match path {
            ["metadata", "annotations", LAST_APPLIED] => true,
            ["apiVersion" | "kind" | "type"] | ["metadata", "name" | "namespace"] => false,
            _ => self.is_confidential,
        }
    }

    fn holds_secret(&self, value: &Value) -> bool {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let is_in = |secret: &String| {
            !secret.is_empty() && (text == *secret || secret.len() >= FOUND_WITHIN && text.contains(secret.as_str()))
        };
        self.secrets.iter().any(is_in)
    }
}

/// Returns two values without the logins of URLs. A change of a login is visible.
fn without_logins(before: Option<&Value>, after: Option<&Value>) -> Pair {
    if let (Some(Value::String(before)), Some(Value::String(after))) = (before, after) {
        let (before, after) = hide_changed_logins(before, after);
        return (Some(before.into()), Some(after.into()));
    }
    let shown = |value: Option<&Value>| {
        let mut value = value?.clone();
        hide_logins_in(&mut value);
        Some(value)
    };
    (shown(before), shown(after))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(is_confidential: bool, before: Value, after: Value) -> (Value, Value) {
        let secrets = ["hunter2".to_owned(), "3".to_owned()];
        let (before, after) = Mask { is_confidential, secrets: &secrets }.apply(Some(&before), Some(&after));
        (before.unwrap(), after.unwrap())
    }

    #[test]
    fn a_masked_secret_shows_only_that_a_value_changed() {
        let secret = |data: Value| {
            json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {"name": "s", "labels": {"a": "b"}},
                "data": data})
        };
        let (before, after) = check(
            true,
            secret(json!({"a": "eA==", "b": "eA==", "c": ""})),
            secret(json!({"a": "eA==", "b": "eQ==", "d": {"e": 1}})),
        );
        assert_eq!(before["data"], json!({"a": MASKED, "b": BEFORE, "c": MASKED}));
        assert_eq!(after["data"], json!({"a": MASKED, "b": AFTER, "d": {"e": MASKED}}));
        assert_eq!(
            (&after["type"], &after["metadata"]),
            (&json!("Opaque"), &json!({"name": "s", "labels": {"a": MASKED}}))
        );
    }

    #[test]
    fn other_objects_hide_known_values_and_the_annotation_of_kubectl() {
        let of = |a: Value| json!({"metadata": {"annotations": {LAST_APPLIED: a}}, "spec": {"list": [{"a": a}, 1]}});
        let (before, after) = check(false, of(json!("x-hunter2-y")), of(json!("plain")));
        assert_eq!(before["spec"]["list"], json!([{"a": BEFORE}, 1]));
        assert_eq!(after["spec"]["list"], json!([{"a": "plain"}, 1]));
        assert_eq!(after["metadata"]["annotations"][LAST_APPLIED], AFTER);
        let (before, after) =
            check(false, json!({"a": 3, "b": [1], "c": "13"}), json!({"a": 4, "b": {"c": "hunter2"}, "c": "13"}));
        assert_eq!(
            (before, after),
            (json!({"a": BEFORE, "b": [1], "c": "13"}), json!({"a": 4, "b": {"c": MASKED}, "c": "13"}))
        );
    }

    #[test]
    fn logins_of_urls_are_hidden_and_their_change_is_visible() {
        let of = |login: &str| json!({"a": format!("https://{login}@host"), "b": "https://u:p@host"});
        let (before, after) = check(false, of("u:one"), of("u:two"));
        assert_eq!(before, json!({"a": "https://(hidden-before)@host", "b": "https://(hidden)@host"}));
        assert_eq!(after, json!({"a": "https://(hidden-after)@host", "b": "https://(hidden)@host"}));
        let mask = Mask { is_confidential: false, secrets: &[] };
        assert_eq!(mask.apply(Some(&of("u:one")), None).0.unwrap()["a"], "https://(hidden)@host");
        assert_eq!(mask.text("no https://u:p@host"), "no https://(hidden)@host");
    }

    #[test]
    fn logins_in_keys_are_hidden_and_their_change_is_visible() {
        let of = |login: &str| json!({format!("https://{login}@host"): 1, "https://u:p@host/b": 2});
        let (before, after) = check(false, of("u:one"), of("u:two"));
        assert_eq!(before, json!({"https://(hidden-before)@host": 1, "https://(hidden)@host/b": 2}));
        assert_eq!(after, json!({"https://(hidden-after)@host": 1, "https://(hidden)@host/b": 2}));
        let mask = Mask { is_confidential: false, secrets: &[] };
        let (before, after) = mask.apply(Some(&of("u:one")), None);
        assert_eq!(before, Some(json!({"https://(hidden)@host": 1, "https://(hidden)@host/b": 2})));
        assert_eq!(after, None);
    }

    #[test]
    fn an_object_that_is_only_on_one_side_is_masked_as_well() {
        let mask = Mask { is_confidential: true, secrets: &[] };
        let (before, after) = mask.apply(None, Some(&json!({"kind": "Secret", "data": {"a": "eA=="}, "x": []})));
        assert_eq!((before, after), (None, Some(json!({"kind": "Secret", "data": {"a": MASKED}, "x": []}))));
        assert_eq!(Mask { is_confidential: false, secrets: &["hunter2".to_owned()] }.text("a hunter2"), "a (masked)");
    }
}
