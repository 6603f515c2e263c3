//! Field ownership of the replica count, as the `scale` subresource sees and writes it.
//!
//! A Scale has one field that can be owned. Owners of the object's replica count own it in the Scale, too. On the way
//! back, an `Update` entry moves the count to a separate entry without a time.
//!
//! Invariant: this loses the same information as a real server. Two `Update` entries of one manager cannot both be read
//! again, so the next write of the object keeps only the later one.
//!
//! Not here: the Scale itself (`verbs::scale`).

use super::apply::store;
use super::conflict;
use super::context::ApplyContext;
use super::fields::{Element, FieldSet};
use super::managed::{self, Entry, Operation};
use crate::status::Status;
use serde_json::Value;

/// API version of Scales, which conflicts name.
const SCALE_VERSION: &str = "autoscaling/v1";
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Writes `new`'s managedFields after `cx.manager` changed the count at `path` through the scale subresource.
///
/// A Scale to 0 omits the count, so a count of 0 has no owner. A count without an owner stays unowned through later
/// scaling. The writer's entry has no time.
pub fn track_scale(cx: &ApplyContext<'_>, path: &[&str], old: &Value, new: &mut Value) {
    let mut entries = known(old);
    if !entries.iter().any(|e| e.fields.has(path)) {
        return store(new, entries);
    }
    let wanted = number(new, path);
    if number(old, path) == wanted {
        let owners = separate(&mut entries, path, true);
        entries.extend(owners);
    } else {
        for entry in &mut entries {
            entry.fields.cut(path);
        }
        if wanted != 0 {
            entries.push(Entry { operation: Operation::Update, ..own(cx, path) });
        }
    }
    entries.retain(|e| !e.fields.is_empty());
    managed::cap_updaters(&mut entries);
    store(new, entries);
}

/// Writes `new`'s managedFields after `cx.manager` applied a Scale; 409 if other managers own a changed count.
pub fn apply_scale(cx: &ApplyContext<'_>, path: &[&str], old: &Value, new: &mut Value) -> Result<(), Status> {
    let mut entries = known(old);
    let (before, wanted) = (number(old, path), number(new, path));
    let is_own = |entry: &Entry| entry.is(Operation::Apply, cx.manager, cx.subresource, cx.api_version);
    let mut others: Vec<Entry> = entries.iter().filter(|e| e.fields.has(path) && !is_own(e)).cloned().collect();
    let nobody = others.is_empty() && !entries.iter().any(|e| e.fields.has(path) && is_own(e));
    if nobody && before != 0 {
        let entry = own(cx, path);
        others.push(Entry { manager: BEFORE_FIRST_APPLY.to_owned(), operation: Operation::Update, ..entry });
    }
    if before != wanted && !others.is_empty() && !cx.force {
        // The conflict names the Scale, whose version and path the client knows.
        let owners: Vec<Entry> =
            others.iter().map(|e| Entry { api_version: SCALE_VERSION.to_owned(), ..e.clone() }).collect();
        let conflicts: Vec<(&Entry, FieldSet)> = owners.iter().map(|e| (e, leaf(&["spec", "replicas"]))).collect();
        return Err(conflict::refuse(&conflicts));
    }
    let owners = separate(&mut entries, path, before == wanted);
    if before == wanted {
        entries.extend(owners);
        entries.extend(others.into_iter().filter(|e| nobody && e.manager == BEFORE_FIRST_APPLY));
    } else {
        entries.iter_mut().filter(|entry| !is_own(entry)).for_each(|entry| entry.fields.cut(path));
    }
    if !entries.iter().any(is_own) {
        entries.push(Entry { operation: Operation::Apply, ..own(cx, path) });
    }
    entries.retain(|e| !e.fields.is_empty());
    store(new, entries);
    Ok(())
}

fn known(object: &Value) -> Vec<Entry> {
    managed::decode(object.pointer("/metadata/managedFields")).unwrap_or_default()
}

/// Returns the count at a path; 0 if it is missing.
fn number(object: &Value, path: &[&str]) -> i64 {
    path.iter().try_fold(object, |value, field| value.get(field)).and_then(Value::as_i64).unwrap_or(0)
}

fn leaf(path: &[&str]) -> FieldSet {
    let mut fields = FieldSet::default();
    fields.entry(path.iter().map(|field| Element::Field((*field).to_owned()))).unite(&FieldSet::leaf());
    fields
}

/// Returns an entry of the writer that owns only the count.
fn own(cx: &ApplyContext<'_>, path: &[&str]) -> Entry {
    Entry {
        manager: cx.manager.to_owned(),
        operation: Operation::Update,
        api_version: cx.api_version.to_owned(),
        subresource: cx.subresource.to_owned(),
        time: None,
        fields: leaf(path),
    }
}

/// Removes the count from all `Update` entries. If `kept`, returns a separate entry for each owner.
fn separate(entries: &mut [Entry], path: &[&str], kept: bool) -> Vec<Entry> {
    let mut owners = Vec::new();
    for entry in entries.iter_mut().filter(|e| e.operation == Operation::Update && e.fields.has(path)) {
        entry.fields.cut(path);
        if kept {
            owners.push(Entry { time: None, fields: leaf(path), ..entry.clone() });
        }
    }
    owners
}
