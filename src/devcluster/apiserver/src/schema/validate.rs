//! Validates the values of a custom resource against its schema: types, limits, list identities, rules.
//!
//! The texts are those of a real server's OpenAPI validator. On an update, unchanged values are not validated again, so
//! that a stricter schema does not block unrelated changes to old objects.
//!
//! Invariant: rules run only on values with valid types. If a value is missing or mistyped, one cause without a field
//! reports the skipped rules.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::facets::{Bound, Facets};
use super::identity::Before;
use super::list::List;
use super::node::{Scalar, Schema, Shape, View};
use super::path::child;
use super::{format, rules};
use crate::patch::element;
use crate::status::Cause;

/// The field of findings about the whole object.
const NO_FIELD: &str = "<nil>";

/// Validates `value`. `old` is the object before an update.
pub fn validate(schema: &Schema, value: &Value, old: Option<&Value>) -> Vec<Cause> {
    validate_at(schema.view(), value, old, "")
}

pub(super) fn validate_at(view: View<'_>, value: &Value, old: Option<&Value>, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    visit(view, value, old, path, &mut causes);
    identities(view, value, old, path, &mut causes);
    let blocking = ["NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid"];
    if causes.iter().any(|c| blocking.iter().any(|b| c.reason.strip_prefix("FieldValue") == Some(b))) {
        if rules::any_below(view, value) {
            let why = "some validation rules were not checked because the object was invalid; \
                       correct the existing errors to complete validation";
            causes.push(Cause::invalid(NO_FIELD, &Value::Null, why));
        }
    } else {
        rules::check(view, value, old, path, &mut causes);
    }
    causes
}

fn visit(view: View<'_>, value: &Value, old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    if old == Some(value) {
        return;
    }
    let facets = view.node.facets.as_deref();
    if value.is_null() {
        if !view.node.nullable && !matches!(view.node.shape, Shape::Any) {
            causes.push(mistyped(path, view, "null"));
        }
        return;
    }
    if !fits(view, value) {
        causes.push(mistyped(path, view, type_name(value)));
    }
    if let Some(facets) = facets {
        composed(view, facets, value, path, causes);
        limits(facets, value, path, causes);
    }
    match (&view.node.shape, value) {
        (Shape::Object(object), Value::Object(map)) => {
            for name in object.required.iter().filter(|name| !map.contains_key(*name)) {
                causes.push(Cause::required(child(path, name), ""));
            }
            if facets.is_some_and(|f| f.embedded) {
                for name in ["apiVersion", "kind"].into_iter().filter(|name| !map.contains_key(*name)) {
                    causes.push(Cause::required(child(path, name), "must not be empty"));
                }
            }
            for (key, item) in map {
                if let Some((below, _)) = view.key(key) {
                    visit(below, item, old.and_then(|o| o.get(key)), &child(path, key), causes);
                }
            }
        }
        (Shape::Array(array), Value::Array(items)) => {
            let before = Before::of(&array.list, old);
            for (i, item) in items.iter().enumerate() {
                visit(view.at(array.items), item, before.get(&array.list, item), &format!("{path}[{i}]"), causes);
            }
        }
        _ => {}
    }
}

fn fits(view: View<'_>, value: &Value) -> bool {
    let integral = || value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|f| f.fract() == 0.0);
    match &view.node.shape {
        Shape::Any | Shape::Opaque => true,
        Shape::Object(_) => value.is_object(),
        Shape::Array(_) => value.is_array(),
        Shape::Scalar(scalar) => match scalar {
            Scalar::String | Scalar::Bytes | Scalar::Time | Scalar::MicroTime => value.is_string(),
            Scalar::Int32 | Scalar::Int64 => value.is_number() && integral(),
            Scalar::Number => value.is_number(),
            Scalar::Boolean => value.is_boolean(),
            Scalar::IntOrString => value.is_string() || value.is_number() && integral(),
            Scalar::Quantity => value.is_string() || value.is_number(),
        },
    }
}

fn mistyped(path: &str, view: View<'_>, found: &str) -> Cause {
    let wanted = match &view.node.shape {
        Shape::Any | Shape::Opaque | Shape::Object(_) => "object",
        Shape::Array(_) => "array",
        Shape::Scalar(scalar) => match scalar {
            Scalar::String | Scalar::Bytes | Scalar::Time | Scalar::MicroTime => "string",
            Scalar::Int32 | Scalar::Int64 => "integer",
            Scalar::Number => "number",
            Scalar::Boolean => "boolean",
            Scalar::IntOrString => "integer,string",
            Scalar::Quantity => "number,string",
        },
    };
    type_invalid(path, found, wanted)
}

fn type_invalid(path: &str, found: &str, wanted: &str) -> Cause {
    let shown = Value::from(found);
    let text = format!("Invalid value: {shown}: {path} in body must be of type {wanted}: {shown}");
    Cause::new("FieldValueTypeInvalid", path, text)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Validates `allOf`, `anyOf`, `oneOf` and `not`.
fn composed(view: View<'_>, facets: &Facets, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let findings = |id: u32| {
        let mut found = Vec::new();
        visit(view.at(id), value, None, path, &mut found);
        found
    };
    let refuse = |text: String| Cause::invalid(NO_FIELD, &Value::from(""), &text);
    if !facets.any_of.is_empty() {
        let outcomes: Vec<_> = facets.any_of.iter().map(|id| findings(*id)).collect();
        if outcomes.iter().all(|found| !found.is_empty()) {
            causes.push(refuse(format!("\"{path}\" must validate at least one schema (anyOf)")));
            causes.extend(outcomes.into_iter().min_by_key(Vec::len).unwrap_or_default());
        }
    }
    if !facets.one_of.is_empty() {
        let mut outcomes: Vec<_> = facets.one_of.iter().map(|id| findings(*id)).collect();
        let text = format!("\"{path}\" must validate one and only one schema (oneOf).");
        match outcomes.iter().filter(|found| found.is_empty()).count() {
            1 => {}
            0 => {
                causes.push(refuse(format!("{text} Found none valid")));
                outcomes.sort_by_key(Vec::len);
                causes.extend(outcomes.into_iter().next().unwrap_or_default());
            }
            several => causes.push(refuse(format!("{text} Found {several} valid alternatives"))),
        }
    }
    let failed: Vec<Cause> = facets.all_of.iter().flat_map(|id| findings(*id)).collect();
    if !failed.is_empty() {
        causes.push(refuse(format!("\"{path}\" must validate all the schemas (allOf)")));
        causes.extend(failed);
    }
    if facets.not.is_some_and(|id| findings(id).is_empty()) {
        causes.push(refuse(format!("\"{path}\" must not validate the schema (not)")));
    }
}

/// Validates limits on single values and sizes.
fn limits(facets: &Facets, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let invalid = |what: String| Cause::invalid(path, value, &format!("{path} in body {what}"));
    if !facets.enumeration.is_empty() && !facets.enumeration.contains(value) {
        causes.push(not_supported(path, value, &facets.enumeration));
    }
    match value {
        Value::String(text) => texts(facets, text, path, &invalid, causes),
        Value::Number(number) => numbers(facets, number.as_f64().unwrap_or_default(), &invalid, causes),
        Value::Array(items) => {
            if let Some(least) = facets.min_items.filter(|n| (items.len() as u64) < *n) {
                causes.push(invalid(format!("should have at least {least} items")));
            }
            if let Some(most) = facets.max_items.filter(|n| (items.len() as u64) > *n) {
                causes.push(too_many(path, items.len(), most));
            }
            if facets.unique_items && items.iter().enumerate().any(|(i, item)| items[..i].contains(item)) {
                causes.push(invalid("shouldn't contain duplicates".to_owned()));
            }
        }
        Value::Object(map) => {
            if let Some(least) = facets.min_properties.filter(|n| (map.len() as u64) < *n) {
                causes.push(invalid(format!("should have at least {least} properties")));
            }
            if let Some(most) = facets.max_properties.filter(|n| (map.len() as u64) > *n) {
                causes.push(too_many(path, map.len(), most));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn texts(facets: &Facets, text: &str, path: &str, invalid: &dyn Fn(String) -> Cause, causes: &mut Vec<Cause>) {
    let length = text.chars().count() as u64;
    // Only the first error of a string is reported.
    if let Some(most) = facets.max_length.filter(|n| length > *n) {
        let text = format!("Too long: may not be more than {most} bytes");
        causes.push(Cause::new("FieldValueTooLong", path, text));
    } else if let Some(least) = facets.min_length.filter(|n| length < *n) {
        causes.push(invalid(format!("should be at least {least} chars long")));
    } else if let Some(pattern) = facets.pattern.as_ref().filter(|p| !p.is_match(text)) {
        causes.push(invalid(format!("should match '{}'", pattern.as_str())));
    }
    if let Some(format) = facets.format.as_deref().filter(|f| !format::accepts(f, text)) {
        causes.push(type_invalid(path, text, format));
    }
}

fn numbers(facets: &Facets, number: f64, invalid: &dyn Fn(String) -> Cause, causes: &mut Vec<Cause>) {
    match facets.minimum {
        Some((least, Bound::Inclusive)) if number < least => {
            causes.push(invalid(format!("should be greater than or equal to {least}")));
        }
        Some((least, Bound::Exclusive)) if number <= least => {
            causes.push(invalid(format!("should be greater than {least}")));
        }
        _ => {}
    }
    match facets.maximum {
        Some((most, Bound::Inclusive)) if number > most => {
            causes.push(invalid(format!("should be less than or equal to {most}")));
        }
        Some((most, Bound::Exclusive)) if number >= most => {
            causes.push(invalid(format!("should be less than {most}")));
        }
        _ => {}
    }
    if let Some(step) = facets.multiple_of.filter(|step| *step != 0.0 && (number / step).fract() != 0.0) {
        causes.push(invalid(format!("should be a multiple of {step}")));
    }
}

fn too_many(path: &str, found: usize, most: u64) -> Cause {
    let plural = if most == 1 { "item" } else { "items" };
    let text = format!("Too many: {found}: must have at most {most} {plural}");
    Cause::new("FieldValueTooMany", path, text)
}

fn not_supported(path: &str, value: &Value, allowed: &[Value]) -> Cause {
    let words: Vec<String> = allowed.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
    Cause::not_supported(path, value, &words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Validates that items of sets and map lists are unique, and that map list items have all keys.
fn identities(view: View<'_>, value: &Value, old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    if old == Some(value) {
        return;
    }
    match (&view.node.shape, value) {
        (Shape::Object(_), Value::Object(map)) => {
            for (key, item) in map {
                if let Some((below, _)) = view.key(key) {
                    identities(below, item, old.and_then(|o| o.get(key)), &child(path, key), causes);
                }
            }
        }
        (Shape::Array(array), Value::Array(items)) => {
            let before = Before::of(&array.list, old);
            let mut seen = BTreeSet::new();
            for (i, item) in items.iter().enumerate() {
                let place = format!("{path}[{i}]");
                identities(view.at(array.items), item, before.get(&array.list, item), &place, causes);
                if array.list == List::Atomic || element(&array.list, item).is_ok_and(|e| seen.insert(e)) {
                    continue;
                }
                match (&array.list, item) {
                    (List::Map(keys), Value::Object(map)) => duplicate_or_keyless(keys, map, &place, causes),
                    (List::Set, _) => causes.push(duplicate(&place, item)),
                    // The wrong type is already reported.
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

fn duplicate_or_keyless(
    keys: &[(String, Option<Value>)],
    item: &Map<String, Value>,
    place: &str,
    causes: &mut Vec<Cause>,
) {
    let missing = keys.iter().find(|(key, default)| !item.contains_key(key) && default.is_none());
    if let Some((key, _)) = missing {
        causes.push(Cause::required(child(place, key), ""));
        return;
    }
    let identity: Map<String, Value> =
        keys.iter().filter_map(|(k, _)| Some((k.clone(), item.get(k)?.clone()))).collect();
    causes.push(duplicate(place, &Value::Object(identity)));
}

fn duplicate(path: &str, value: &Value) -> Cause {
    Cause::new("FieldValueDuplicate", path, format!("Duplicate value: {value}"))
}
