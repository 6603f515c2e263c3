//! Merges an applied configuration into a live object. The configuration takes precedence.
//!
//! Lists with item identities are merged item by item. The configuration's items keep their relative order. Every other
//! live item stays behind its previous predecessor.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::elements;
use super::fields::{Element, FieldSet};
use crate::schema::node::{List, Shape, View};

/// Returns the live value with the configuration merged into it.
pub(crate) fn merged(view: View<'_>, live: &Value, config: &Value) -> Value {
    match (&view.node.shape, live, config) {
        (Shape::Object(object), Value::Object(live), Value::Object(config)) if !object.atomic => {
            merged_maps(view, live, config)
        }
        (Shape::Any, Value::Object(live), Value::Object(config)) => merged_maps(view, live, config),
        (Shape::Array(array), Value::Array(live), Value::Array(config)) if array.list != List::Atomic => {
            if live.is_empty() || config.is_empty() {
                return Value::Array(if config.is_empty() { live.clone() } else { config.clone() });
            }
            Value::Array(merged_lists(view.at(array.items), &array.list, live, config))
        }
        // An explicit null merges like an empty collection.
        (Shape::Object(object), Value::Object(map), Value::Null) if !object.atomic && !map.is_empty() => live.clone(),
        (Shape::Array(array), Value::Array(items), Value::Null) if array.list != List::Atomic && !items.is_empty() => {
            live.clone()
        }
        _ => config.clone(),
    }
}

fn merged_maps(view: View<'_>, live: &Map<String, Value>, config: &Map<String, Value>) -> Value {
    let mut out = Map::new();
    for (key, theirs) in live {
        let value = match config.get(key) {
            None => theirs.clone(),
            Some(ours) => view.key(key).map_or_else(|| ours.clone(), |(child, _)| merged(child, theirs, ours)),
        };
        out.insert(key.clone(), value);
    }
    for (key, ours) in config {
        if !live.contains_key(key) {
            out.insert(key.clone(), ours.clone());
        }
    }
    Value::Object(out)
}

fn merged_lists(item: View<'_>, list: &List, live: &[Value], config: &[Value]) -> Vec<Value> {
    let live_items = elements(list, live);
    let config_items = elements(list, config);
    let of_live: BTreeMap<&Element, &Value> = live_items.iter().map(|(e, v)| (e, *v)).collect();
    let of_config: BTreeMap<&Element, &Value> = config_items.iter().map(|(e, v)| (e, *v)).collect();
    let overlay = |element: &Element, ours: &Value| match of_live.get(element) {
        Some(theirs) => merged(item, theirs, ours),
        None => ours.clone(),
    };
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let mut ours = config_items.iter().peekable();
    // The common items are emitted in the configuration's order. The peeked item is next.
    let mut shared = config_items.iter().map(|(e, _)| e).filter(|e| of_live.contains_key(*e)).peekable();
    for (element, theirs) in &live_items {
        if !of_config.contains_key(element) {
            out.push((*theirs).clone());
            continue;
        }
        if shared.peek() != Some(&element) {
            // The item is emitted at its position in the configuration.
            continue;
        }
        for (next, value) in ours.by_ref() {
            out.push(overlay(next, value));
            if next == element {
                break;
            }
        }
        shared.next();
    }
    out.extend(ours.map(|(element, value)| overlay(element, value)));
    out
}

/// Removes paths from a value. Emptied containers stay.
pub(crate) fn without(view: View<'_>, value: &mut Value, gone: &FieldSet) {
    match (&view.node.shape, value) {
        (Shape::Object(object), Value::Object(map)) if !object.atomic => remove_keys(view, map, gone),
        (Shape::Any, Value::Object(map)) => remove_keys(view, map, gone),
        (Shape::Array(array), Value::Array(items)) if array.list != List::Atomic => {
            items.retain_mut(|item| {
                let Ok(element) = super::element::element(&array.list, item) else { return true };
                let Some(below) = gone.children.get(&element) else { return true };
                if !below.member {
                    without(view.at(array.items), item, below);
                }
                !below.member
            });
        }
        _ => {}
    }
}

fn remove_keys(view: View<'_>, map: &mut Map<String, Value>, gone: &FieldSet) {
    for (element, below) in &gone.children {
        let Element::Field(key) = element else { continue };
        if below.member {
            map.remove(key);
        } else if let (Some((child, _)), Some(value)) = (view.key(key), map.get_mut(key)) {
            without(child, value, below);
        }
    }
}
