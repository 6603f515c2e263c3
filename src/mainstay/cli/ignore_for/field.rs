//! Converts a field in the agent's notation, such as `spec.containers[name="web"].image`, to a JSON pointer into the
//! manifest.
//!
//! The notation identifies a list item by its keys; the pointer identifies the item by its index in the manifest. This
//! index equals the index among the live items that Mainstay owns, because these items come from the manifest in the
//! same order.

use serde_json::{Map, Value};

use mainstay_api::names::MANAGER;
use mainstay_engine::managed::fields::{Fields, applied_by};
use mainstay_object::Pointer;

/// Suffix of a list's name if the order of its items differs.
const ORDER: &str = " (order)";

/// A part of a field's name.
#[derive(Debug, PartialEq)]
enum Part {
    Field(String),
    /// The list item with these keys.
    Item(Map<String, Value>),
    /// The set member with this value.
    Member(Value),
}

/// Returns the pointer to a field of a live object.
///
/// # Errors
/// Fails with the reason why there is no pointer.
pub(super) fn pointer(field: &str, live: Option<&Value>) -> Result<Pointer, String> {
    if field.starts_with('(') || field.starts_with('…') || field == "metadata.managedFields" {
        return Err("it is not a field".to_owned());
    }
    if field.ends_with(ORDER) {
        return Err("the order of a list cannot be ignored, but the whole list can".to_owned());
    }
    let parts = parts(field).ok_or("its form in the manifest is unknown")?;
    if parts.iter().any(|part| matches!(part, Part::Field(name) if name == "…")) {
        return Err("its name is not shown, because it may contain values of a Secret".to_owned());
    }
    if parts.iter().any(has_login) {
        return Err("its name is not shown, because it contains a login".to_owned());
    }
    let ours = live.and_then(|live| applied_by(live, MANAGER));
    let tokens = tokens(&parts, live, ours);
    tokens
        .and_then(Pointer::of)
        .ok_or_else(|| "its position in the manifest is unknown, because the object does not have it now".to_owned())
}

fn tokens(parts: &[Part], live: Option<&Value>, ours: Option<&Fields>) -> Option<Vec<String>> {
    let (mut live, mut ours, mut tokens) = (live, ours, Vec::new());
    for part in parts {
        match part {
            Part::Field(name) => {
                live = live.and_then(|live| live.get(name));
                ours = ours.and_then(|ours| ours.get(&format!("f:{name}"))?.as_object());
                tokens.push(name.clone());
            }
            Part::Item(_) | Part::Member(_) => {
                let items = live?.as_array()?;
                let at = items.iter().position(|item| is(part, item))?;
                let is_ours = |item: &&Value| ours.is_none_or(|ours| key_of(ours, item).is_some());
                tokens.push(items[..at].iter().filter(is_ours).count().to_string());
                live = Some(&items[at]);
                ours = ours.and_then(|ours| ours.get(key_of(ours, &items[at])?)?.as_object());
            }
        }
    }
    Some(tokens)
}

/// Returns whether a part contains the login of a URL, or the mark of one, with which the manifest has no such part.
fn has_login(part: &Part) -> bool {
    let is_in = |value: &Value| value.as_str().is_some_and(mainstay_object::has_login);
    match part {
        Part::Field(name) => mainstay_object::has_login(name),
        Part::Item(keys) => keys.iter().any(|(name, value)| mainstay_object::has_login(name) || is_in(value)),
        Part::Member(value) => is_in(value),
    }
}

fn is(part: &Part, item: &Value) -> bool {
    match part {
        Part::Field(_) => false,
        Part::Item(keys) => keys.iter().all(|(name, value)| item.get(name) == Some(value)),
        Part::Member(value) => item == value,
    }
}

/// Returns the key in the owned fields for a list item.
fn key_of<'f>(ours: &'f Fields, item: &Value) -> Option<&'f String> {
    ours.keys().find(|key| match key.split_once(':') {
        Some(("k", keys)) => serde_json::from_str(keys).is_ok_and(|keys| is(&Part::Item(keys), item)),
        Some(("v", value)) => serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item),
        _ => false,
    })
}

fn parts(mut field: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    while !field.is_empty() {
        if let Some(rest) = field.strip_prefix('[') {
            let (part, rest) = in_brackets(rest)?;
            parts.push(part);
            field = rest;
        } else {
            let name = field.strip_prefix('.').unwrap_or(field);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                return None;
            }
            parts.push(Part::Field(name[..end].to_owned()));
            field = &name[end..];
        }
    }
    Some(parts)
}

/// Parses the content of brackets. Returns the part with the rest of the string.
fn in_brackets(text: &str) -> Option<(Part, &str)> {
    if let Some((value, rest)) = text.strip_prefix('=').and_then(value) {
        return Some((Part::Member(value), rest.strip_prefix(']')?));
    }
    if let Some((keys, rest)) = keys(text) {
        return Some((Part::Item(keys), rest));
    }
    let (name, rest) = text.split_once(']')?;
    Some((Part::Field(name.to_owned()), rest))
}

/// Parses keys with their values, up to the closing bracket.
fn keys(mut text: &str) -> Option<(Map<String, Value>, &str)> {
    let mut keys = Map::new();
    loop {
        let (name, rest) = text.split_once('=')?;
        let (value, rest) = value(rest)?;
        keys.insert(name.to_owned(), value);
        match rest.split_at_checked(1)? {
            ("]", rest) => return Some((keys, rest)),
            (",", rest) => text = rest,
            _ => return None,
        }
    }
}

/// Parses a JSON value. Returns the value with the rest of the string.
fn value(text: &str) -> Option<(Value, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    Some((value, &text[values.byte_offset()..]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live() -> Value {
        json!({
            "metadata": {"finalizers": ["x/y", "a/b"], "managedFields": [{
                "manager": MANAGER, "operation": "Apply", "fieldsV1": {
                    "f:metadata": {"f:finalizers": {"v:\"a/b\"": {}}},
                    "f:spec": {"f:containers": {
                        "k:{\"name\":\"web\"}": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {}}},
                        "k:{\"name\":\"log\"}": {},
                    }},
                }}]},
            "spec": {"containers": [
                {"name": "injected"}, {"name": "web", "ports": [{"port": 1}, {"port": 80, "protocol": "TCP"}]}, {"name": "log"}]},
            "data": {"a]b": "1"},
        })
    }

    fn check(field: &str, expected: &str) {
        let found = pointer(field, Some(&live())).map(|pointer| pointer.to_string());
        let found = found.unwrap_or_else(|why| why);
        assert!(
            if expected.starts_with('/') { found == expected } else { found.starts_with(expected) },
            "{field}: {found}"
        );
    }

    #[test]
    fn items_are_counted_among_those_of_the_manifest() {
        for (field, expected) in [
            ("spec.replicas", "/spec/replicas"),
            ("metadata.annotations[a.b/c~d]", "/metadata/annotations/a.b~1c~0d"),
            ("spec.containers[name=\"log\"].image", "/spec/containers/1/image"),
            ("spec.containers[name=\"web\"].ports[port=80,protocol=\"TCP\"].name", "/spec/containers/0/ports/0/name"),
            ("spec.containers[name=\"web\"]", "/spec/containers/0"),
            ("metadata.finalizers[=\"a/b\"]", "/metadata/finalizers/0"),
            ("data[a/b=c]", "/data/a~1b=c"),
            ("spec.containers[name=\"gone\"].image", "its position in the manifest is unknown"),
            ("data[…]", "its name is not shown"),
            ("spec.mirrors[https://(hidden)@h]", "its name is not shown, because it contains a login"),
            ("spec.mirrors[https://u:hunter2@h].a", "its name is not shown, because it contains a login"),
            ("spec.mirrors[url=\"https://(hidden-after)@h\"].a", "its name is not shown, because it contains a login"),
            ("metadata.finalizers[=\"https://u:hunter2@h\"]", "its name is not shown, because it contains a login"),
            ("metadata.annotations[https://h/a]", "/metadata/annotations/https:~1~1h~1a"),
            ("(object)", "it is not a field"),
            ("metadata.managedFields", "it is not a field"),
            ("spec.containers (order)", "the order of a list"),
            ("data[a", "its form in the manifest"),
            ("..", "its form in the manifest"),
            ("… and 3 more", "it is not a field"),
        ] {
            check(field, expected);
        }
    }

    #[test]
    fn no_text_makes_it_panic() {
        let mut random = fastrand::Rng::with_seed(3);
        let pieces = ["spec", ".", "[", "]", "=", "\"", ",", "name", "containers", "1", "ä", "…", "{", "}", "\\"];
        for _ in 0..20_000 {
            let text: String = (0..random.usize(..12)).map(|_| *random.choice(&pieces).unwrap()).collect();
            let _ = pointer(&text, Some(&live()));
        }
    }
}
