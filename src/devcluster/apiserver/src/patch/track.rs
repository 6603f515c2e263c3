//! Field ownership after every write that is not an apply: a manager owns the paths that it changes.
//!
//! Invariant: an existing object with empty managedFields stays untracked until the next apply.

use serde_json::Value;

use super::apply::{store, strip};
use super::context::ApplyContext;
use super::difference::{Side, difference};
use super::managed::{self, Entry, Operation};
use super::reshaped::reshaped;

/// Writes `new`'s managedFields after `cx.manager` changed `old` into `new` (`None`: created it).
///
/// Valid managedFields in `new` replace the old ones, and `[]` or `[{}]` resets all ownership. On a subresource, or if
/// `new` has none, the old ones are kept.
pub fn track(cx: &ApplyContext<'_>, old: Option<&Value>, new: &mut Value) {
    let known = |object: Option<&Value>| {
        managed::decode(object.and_then(|o| o.pointer("/metadata/managedFields"))).unwrap_or_default()
    };
    let written = match new.get_mut("metadata") {
        Some(Value::Object(metadata)) => metadata.remove("managedFields"),
        _ => None,
    };
    let mut entries = if !cx.subresource.is_empty() {
        known(old)
    } else if managed::is_reset(written.as_ref()) {
        Vec::new()
    } else {
        match managed::decode(written.as_ref()) {
            Some(entries) if !entries.is_empty() => entries,
            _ => known(old),
        }
    };
    if entries.is_empty() && old.is_some() {
        return;
    }
    entries = reshaped(cx.schema.view(), cx.api_version, entries);
    let mut changes = difference(cx.schema.view(), old.map_or(Side::Zero, Side::Is), Side::Is(new));
    changes.each(|set| {
        strip(set);
        cx.reset.iter().for_each(|path| set.cut(path));
    });
    let taken = changes.taken();
    for entry in &mut entries {
        entry.fields.subtract(&taken);
        entry.fields.subtract(&changes.removed);
    }
    if !taken.is_empty() {
        let own = |e: &&mut Entry| e.is(Operation::Update, cx.manager, cx.subresource, cx.api_version);
        if let Some(entry) = entries.iter_mut().find(own) {
            entry.fields.unite(&taken);
            entry.time = Some(cx.now.to_owned());
        } else {
            entries.push(Entry {
                manager: cx.manager.to_owned(),
                operation: Operation::Update,
                api_version: cx.api_version.to_owned(),
                subresource: cx.subresource.to_owned(),
                time: Some(cx.now.to_owned()),
                fields: taken,
            });
        }
    }
    entries.retain(|e| !e.fields.is_empty());
    managed::cap_updaters(&mut entries);
    store(new, entries);
}

/// Returns whether two states differ only in the times of managedFields, so that no write is needed.
pub fn equal_but_times(a: &Value, b: &Value) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return a == b };
    same_keys(a, b, |key, x, y| match (key, x, y) {
        ("metadata", Value::Object(x), Value::Object(y)) => same_keys(x, y, |key, x, y| match (key, x, y) {
            ("managedFields", Value::Array(x), Value::Array(y)) => {
                x.len() == y.len() && x.iter().zip(y).all(|(x, y)| equal_entries(x, y))
            }
            _ => x == y,
        }),
        _ => x == y,
    })
}

fn equal_entries(a: &Value, b: &Value) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return a == b };
    same_keys(a, b, |key, x, y| key == "time" || x == y)
}

type Fields = serde_json::Map<String, Value>;

fn same_keys(a: &Fields, b: &Fields, same: impl Fn(&str, &Value, &Value) -> bool) -> bool {
    a.len() == b.len() && a.iter().all(|(key, x)| b.get(key).is_some_and(|y| same(key, x, y)))
}
