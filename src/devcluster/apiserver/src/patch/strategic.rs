//! Strategic merge patches: merge patches that merge lists with a merge key (or merge strategy) item by item.
//! Directives change the default behaviour.
//!
//! | directive | where | effect |
//! |---|---|---|
//! | `$patch: replace`, `delete`, `merge` | map, list item | replaces/empties maps, replaces lists, removes items |
//! | `$retainKeys: [a, b]` | map | removes every other key |
//! | `$setElementOrder/f: […]` | beside the list `f` | order of the result |
//! | `$deleteFromPrimitiveList/f: […]` | beside the list `f` | removes these scalars |
//!
//! Without an order, new items come before existing ones.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::typed::plain;
use crate::schema::Schema;
use crate::schema::node::{Strategy, View};
use crate::status::Status;

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE: &str = "$deleteFromPrimitiveList/";

type Fields = Map<String, Value>;

/// Returns the live object after a strategic merge patch.
///
/// Errors: 400 for a malformed patch or directive; 500 for a list item without its merge key (as on a real server).
pub fn strategic(schema: &Schema, live: &Value, patch: &Value) -> Result<Value, Status> {
    let (Value::Object(live), Value::Object(patch)) = (live, patch) else {
        return Err(Status::bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ));
    };
    maps(schema.view(), live.clone(), patch).map(Value::Object)
}

fn maps(view: View<'_>, mut live: Fields, patch: &Fields) -> Result<Fields, Status> {
    match patch.get(PATCH).map(|d| (d, d.as_str())) {
        None | Some((_, Some("merge"))) => {}
        Some((_, Some("replace"))) => return Ok(plain_map(patch)),
        Some((_, Some("delete"))) => return Ok(Fields::new()),
        Some((directive, _)) => return Err(unknown_directive(directive, patch)),
    }
    retain(&mut live, patch)?;
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix(ORDER) {
            ordered_list(view, &mut live, field, value, patch)?;
        } else if let Some(field) = key.strip_prefix(DELETE) {
            delete_scalars(&mut live, field, value)?;
        }
    }
    for (key, value) in patch.iter().filter(|(key, _)| !is_directive(key)) {
        // A list with a `$setElementOrder` was merged together with the order.
        if value.is_array() && patch.contains_key(&format!("{ORDER}{key}")) {
            continue;
        }
        if value.is_null() {
            live.remove(key);
            continue;
        }
        let merged = match live.remove(key) {
            None => without_directives(value),
            Some(before) => values(child(view, key), before, value)?,
        };
        if let Some(merged) = merged {
            live.insert(key.clone(), merged);
        }
    }
    Ok(live)
}

fn child<'a>(view: View<'a>, key: &str) -> View<'a> {
    view.key(key).map_or(View::any(), |(child, _)| child)
}

fn values(view: View<'_>, before: Value, patch: &Value) -> Result<Option<Value>, Status> {
    let strategy = &view.node.strategy;
    match (before, patch) {
        (Value::Object(before), Value::Object(patch)) if !strategy.replace => {
            maps(view, before, patch).map(Value::Object).map(Some)
        }
        (Value::Array(before), Value::Array(patch)) if strategy.merge => {
            lists(view, before, patch, None).map(Value::Array).map(Some)
        }
        (_, patch) => Ok(without_directives(patch)),
    }
}

fn is_directive(key: &str) -> bool {
    key == PATCH || key == RETAIN || key.starts_with(ORDER) || key.starts_with(DELETE)
}

fn unknown_directive(directive: &Value, patch: &Fields) -> Status {
    let map = plain(&Value::Object(patch.clone()));
    Status::new(500, "", format!("unknown patch type: {} in map: {map}", plain(directive)))
}

/// Applies `$retainKeys`: removes every other key of the live map.
fn retain(live: &mut Fields, patch: &Fields) -> Result<(), Status> {
    let Some(kept) = patch.get(RETAIN) else { return Ok(()) };
    let malformed = || Status::bad_request("invalid patch format of retainKeys");
    let kept = kept.as_array().ok_or_else(malformed)?;
    let is_kept = |key: &str| kept.iter().any(|k| k == key);
    if patch.iter().any(|(key, value)| !value.is_null() && !is_directive(key) && !is_kept(key)) {
        return Err(malformed());
    }
    live.retain(|key, _| is_kept(key));
    Ok(())
}

/// Applies `$deleteFromPrimitiveList`: removes these scalars.
fn delete_scalars(live: &mut Fields, field: &str, gone: &Value) -> Result<(), Status> {
    let gone = gone.as_array().ok_or_else(|| Status::bad_request("invalid patch format of primitive list"))?;
    if let Some(Value::Array(items)) = live.get_mut(field) {
        items.retain(|item| !gone.contains(item));
    }
    Ok(())
}

/// Applies `$setElementOrder`: merges the patch's items, if any, and sorts the list.
fn ordered_list(view: View<'_>, live: &mut Fields, field: &str, order: &Value, patch: &Fields) -> Result<(), Status> {
    let malformed = || Status::bad_request("invalid patch format of setElementOrder list");
    let order = order.as_array().ok_or_else(malformed)?;
    let list = child(view, field);
    let before = match live.remove(field) {
        Some(Value::Array(items)) => Some(items),
        Some(other) => {
            live.insert(field.to_owned(), other);
            return Ok(());
        }
        None => None,
    };
    let changes = patch.get(field).and_then(Value::as_array);
    let key = list.node.strategy.merge_key.as_deref();
    in_order(changes, order, key)?;
    let merged = match (before, changes) {
        (None, None) => return Ok(()),
        (None, Some(changes)) => sorted(plain_list(changes), &[], order, key),
        (Some(before), None) => sorted(before.clone(), &before, order, key),
        (Some(before), Some(changes)) => lists(list, before, changes, Some(order))?,
    };
    live.insert(field.to_owned(), Value::Array(merged));
    Ok(())
}

/// Validates that the items of the patch have the requested order.
fn in_order(changes: Option<&Vec<Value>>, order: &[Value], key: Option<&str>) -> Result<(), Status> {
    let changed = changes.into_iter().flatten().filter(|item| item.get(PATCH).is_none());
    let mut at = 0;
    for item in changed {
        let Some(next) = order[at..].iter().position(|o| same(o, item, key)) else {
            let list = plain(&Value::Array(changes.cloned().unwrap_or_default()));
            let wanted = plain(&Value::Array(order.to_vec()));
            let text = format!("The order in patch list:\n{list}\n doesn't match $setElementOrder list:\n{wanted}\n");
            return Err(Status::new(500, "", text));
        };
        at += next + 1;
    }
    Ok(())
}

/// Returns whether two items have the same identity: the merge key or, for scalars, the value.
fn same(a: &Value, b: &Value, key: Option<&str>) -> bool {
    match key {
        Some(key) if a.is_object() => a.get(key).is_some() && a.get(key) == b.get(key),
        _ => a == b,
    }
}

/// Merges the items of a patch into a list and sorts the result.
fn lists(view: View<'_>, before: Vec<Value>, patch: &[Value], order: Option<&[Value]>) -> Result<Vec<Value>, Status> {
    let Strategy { merge_key, .. } = &view.node.strategy;
    let of_maps = before.iter().chain(patch).any(Value::is_object);
    let key = match merge_key.as_deref() {
        Some(key) if of_maps => key,
        None if of_maps => return Err(Status::new(500, "", "cannot merge lists without merge key")),
        _ => {
            let mut merged: Vec<Value> = Vec::new();
            for item in before.iter().chain(patch) {
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            return Ok(sorted(merged, &before, order.unwrap_or(patch), None));
        }
    };
    let mut merged = before.clone();
    let mut changes: Vec<&Fields> = Vec::new();
    let mut replaces = false;
    for item in patch {
        let Value::Object(fields) = item else {
            return Err(Status::bad_request("invalid patch: the items of a list have different types"));
        };
        match fields.get(PATCH).map(|d| (d, d.as_str())) {
            None => changes.push(fields),
            Some((_, Some("replace"))) => replaces = true,
            Some((_, Some("delete"))) => {
                let gone = keyed(fields, key)?;
                merged.retain(|old| old.get(key) != Some(gone));
            }
            Some((_, Some("merge"))) => {
                return Err(Status::new(500, "", "merging lists cannot yet be specified in the patch"));
            }
            Some((directive, _)) => return Err(unknown_directive(directive, fields)),
        }
    }
    if replaces {
        return Ok(changes.into_iter().map(|fields| Value::Object(plain_map(fields))).collect());
    }
    for fields in &changes {
        let value = keyed(fields, key)?;
        match merged.iter_mut().find(|old| old.get(key) == Some(value)) {
            Some(Value::Object(old)) => *old = maps(view.item(), std::mem::take(old), fields)?,
            _ => merged.push(Value::Object(plain_map(fields))),
        }
    }
    let asked: Vec<Value> = changes.into_iter().cloned().map(Value::Object).collect();
    Ok(sorted(merged, &before, order.unwrap_or(&asked), Some(key)))
}

fn keyed<'a>(item: &'a Fields, key: &str) -> Result<&'a Value, Status> {
    item.get(key).ok_or_else(|| {
        let map = plain(&Value::Object(item.clone()));
        Status::new(500, "", format!("map: {map} does not contain declared merge key: {key}"))
    })
}

/// Sorts the items that `order` names. Other items keep their position in `before` if they have one; new ones come
/// last.
fn sorted(merged: Vec<Value>, before: &[Value], order: &[Value], key: Option<&str>) -> Vec<Value> {
    let identity = |item: &Value| key.and_then(|key| item.get(key)).unwrap_or(item).to_string();
    let places = |list: &[Value]| -> HashMap<String, usize> {
        list.iter().enumerate().rev().map(|(at, item)| (identity(item), at)).collect()
    };
    let (in_order, in_before) = (places(order), places(before));
    let place = |item: &Value| in_before.get(&identity(item)).copied();
    let (mut asked, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| in_order.contains_key(&identity(item)));
    asked.sort_by_cached_key(|item| in_order.get(&identity(item)).copied());
    others.sort_by_cached_key(place);
    let mut out = Vec::with_capacity(asked.len() + others.len());
    let (mut asked, mut others) = (asked.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(next), Some(other)) = (asked.peek(), others.peek()) {
        let comes_first = match (place(other), place(next)) {
            (Some(theirs), Some(ours)) => theirs < ours,
            _ => false,
        };
        out.extend(if comes_first { others.next() } else { asked.next() });
    }
    out.extend(asked);
    out.extend(others);
    out
}

/// Returns a patch value for a missing field: without directives and nulls. A map with a `$patch` directive has no
/// target and is omitted, even for `replace`.
fn without_directives(value: &Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => Some(Value::Object(plain_map(map))),
        Value::Array(items) => Some(Value::Array(plain_list(items))),
        scalar => Some(scalar.clone()),
    }
}

fn plain_map(map: &Fields) -> Fields {
    let kept = map.iter().filter(|(key, value)| !is_directive(key) && !value.is_null());
    kept.filter_map(|(key, value)| Some((key.clone(), without_directives(value)?))).collect()
}

fn plain_list(items: &[Value]) -> Vec<Value> {
    items.iter().filter_map(without_directives).collect()
}
