//! Adoption: moves fields of former appliers to Mainstay, so that the next apply removes fields that the manifest
//! omits.
//!
//! Server-side apply removes only fields that its own field manager owned. Without adoption, an object keeps all fields
//! that `kubectl` or another GitOps tool applied.
//!
//! Invariant: fields of controllers, admission webhooks and autoscalers are never taken over. Neither are ignored
//! fields and writes to a subresource.
//! Invariant: fields outside `additions::removable` are taken over only if the manifest contains them. The same holds
//! for the suspension of a Flux object, because an active HelmRelease or Kustomization that is deleted later deletes
//! its objects.
//!
//! Not here: requests, and whether the owner of a former applier still exists.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::additions::{is_of_object, outermost, removable};
use super::collision::{is_item, keys_of};
use super::desired::Desired;
use super::fields::{Fields, add, readable, subtract};
use super::ownership::{Moved, is_kubectl, transfer};
use super::verdict::uid;
use mainstay_api::names::{BEFORE_FIRST_APPLY, FUNCTION_MANAGER, MANAGER};
use mainstay_object::without_item_names;

/// Field managers of GitOps tools, and of Helm.
pub const KNOWN_APPLIERS: [&str; 7] = [
    "kustomize-controller",
    "flux",
    "helm-controller",
    "argocd-controller",
    "argocd-application-controller",
    "helm",
    "Helm",
];

/// Suffix of the API groups of Flux.
const FLUX: &str = ".toolkit.fluxcd.io";

/// The field managers whose fields are taken over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Appliers {
    tools: Tools,
    named: Arc<[String]>,
}

/// Whether fields of `kubectl` and those from before the first apply are taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Tools {
    #[default]
    Never,
    /// Fields of `kubectl` whose last write was before this time.
    Before(Timestamp),
    Always,
}

/// The time of a takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before the first apply.
    Before,
    /// After an apply: the manifest contains all fields in Mainstay's entry in `managedFields`.
    After,
}

/// A takeover of fields.
#[derive(Clone, Debug)]
pub(crate) struct TakeOver {
    /// The rewritten `managedFields`, with which Mainstay's next apply removes fields that the manifest omits.
    pub(crate) entries: Value,
    /// The fields that are taken over.
    pub(crate) taken: Fields,
    /// The former entries of the fields, to undo the takeover.
    pub(crate) moved: Vec<Moved>,
    /// The former appliers.
    pub(crate) from: Vec<String>,
    /// The fields that the manifest omits.
    unnamed: Fields,
}

impl TakeOver {
    /// Returns readable paths of the fields that the manifest omits.
    pub(crate) fn fields(&self) -> Vec<String> {
        paths(&self.unnamed)
    }
}

/// A takeover after the rewrite of `managedFields` and before the apply that follows.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) what: TakeOver,
    /// The object right after the rewrite, without `managedFields`.
    before: Value,
}

impl Taken {
    pub(crate) fn new(mut what: TakeOver, mut before: Value) -> Self {
        what.entries = Value::Null;
        before["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
        Self { what, before }
    }

    /// Adds an earlier takeover of the same object.
    pub(crate) fn and_earlier(&mut self, earlier: &Self) {
        if uid(&earlier.before) != uid(&self.before) {
            return;
        }
        self.before.clone_from(&earlier.before);
        let (what, earlier) = (&mut self.what, &earlier.what);
        add(&mut what.taken, &earlier.taken);
        add(&mut what.unnamed, &earlier.unnamed);
        what.moved.extend(earlier.moved.iter().cloned());
        what.from.extend(earlier.from.iter().filter(|one| !what.from.contains(one)).cloned().collect::<Vec<_>>());
    }

    /// Returns readable paths of the fields that an apply of `body` removed; `None` if `after` has a different UID.
    /// Omits fields that the server set to the same value again, such as defaults.
    pub(crate) fn removed(&self, body: &Value, after: &Value) -> Option<Vec<String>> {
        let unnamed = subtract(&self.what.unnamed, &named(&self.what.unnamed, body));
        (uid(&self.before) == uid(after)).then(|| paths(&changed(&unnamed, &self.before, after)))
    }
}

impl Appliers {
    /// Returns the appliers of an object that is adopted: `kubectl`, fields from before the first apply, and `named`.
    pub fn former(named: Arc<[String]>) -> Self {
        Self { tools: Tools::Always, named }
    }

    /// Returns the appliers that an earlier version left in a managed object: `kubectl` if its last write was before
    /// `since`, and `named`.
    pub fn left(named: Arc<[String]>, since: Option<Timestamp>) -> Self {
        Self { tools: since.map_or(Tools::Never, Tools::Before), named }
    }

    fn takes(&self, entry: &Value) -> bool {
        let Some(manager) = entry["manager"].as_str().filter(|_| is_of_object(entry)) else { return false };
        let is_tools = match self.tools {
            Tools::Never => false,
            Tools::Before(since) => is_kubectl(manager) && written(entry).is_some_and(|at| at < since),
            Tools::Always => is_kubectl(manager) || [BEFORE_FIRST_APPLY, FUNCTION_MANAGER].contains(&manager),
        };
        is_tools || self.named.iter().any(|named| named == manager)
    }

    /// Adds the known appliers.
    #[must_use]
    pub fn and_known(&self) -> Self {
        let known = KNOWN_APPLIERS.iter().map(|known| (*known).to_owned());
        Self { tools: self.tools, named: self.named.iter().cloned().chain(known).collect() }
    }

    /// Returns the paths that an apply of the manifest would remove after a takeover of these `managedFields`; `None`
    /// if no field would be taken over.
    pub fn would_remove(&self, managed_fields: &Value, desired: &Desired) -> Option<Vec<String>> {
        managed_fields.as_array().filter(|entries| entries.iter().any(|entry| self.takes(entry)))?;
        let taken = take_over(managed_fields, desired, &desired.body(), self, Moment::After, "")?;
        let is_confidential = desired.object.is_confidential();
        let shown = |field: String| if is_confidential { without_item_names(&field) } else { field };
        Some(taken.fields().into_iter().map(shown).collect())
    }
}

fn written(entry: &Value) -> Option<Timestamp> {
    entry["time"].as_str()?.parse().ok()
}

/// Returns the takeover that makes an apply of `body` remove omitted fields; `None` if there is no such field. Each API
/// version needs its own takeover, because an entry contains fields of one version.
pub(crate) fn take_over(
    managed_fields: &Value,
    desired: &Desired,
    body: &Value,
    from: &Appliers,
    moment: Moment,
    now: &str,
) -> Option<TakeOver> {
    let entries = managed_fields.as_array()?;
    let own = entries.iter().find(|entry| is_own(entry)).and_then(|entry| entry["apiVersion"].as_str());
    let wanted = &*desired.object.api_version;
    let others = entries.iter().filter_map(|entry| entry["apiVersion"].as_str()).filter(|version| *version != wanted);
    std::iter::once(wanted).chain(others).find_map(|version| {
        let entries = match own {
            Some(own) if own != version && moment == Moment::Before => return None,
            // Mainstay's fields of the other version were just applied.
            Some(own) if own != version => entries.iter().filter(|entry| !is_own(entry)).cloned().collect(),
            _ => managed_fields.clone(),
        };
        of_version(&entries, version, desired, body, from, now)
    })
}

fn is_own(entry: &Value) -> bool {
    entry["manager"] == MANAGER && entry["operation"] == "Apply" && is_of_object(entry)
}

fn of_version(
    entries: &Value,
    version: &str,
    desired: &Desired,
    body: &Value,
    from: &Appliers,
    now: &str,
) -> Option<TakeOver> {
    let part = |fields: &Fields| {
        let mut part = removable(fields);
        if desired.key.group.ends_with(FLUX) {
            part = subtract(&part, &suspension());
        }
        add(&mut part, &named(fields, body));
        desired.leave_ignored(&mut part);
        part
    };
    let (entries, moved) = transfer(entries, version, now, |entry| from.takes(entry), part)?;
    let mut taken = Fields::new();
    for one in &moved {
        add(&mut taken, &one.fields);
    }
    let mut from = moved.iter().filter_map(|one| one.entry["manager"].as_str()).map(str::to_owned).collect::<Vec<_>>();
    from.dedup();
    let mut unnamed = subtract(&taken, &named(&taken, body));
    if desired.key.is("", "Secret") {
        // The API server merges this field into `data`, so no live object has it.
        unnamed.remove("f:stringData");
    }
    Some(TakeOver { entries, taken, moved, from, unnamed })
}

/// Returns the field that suspends an object of Flux.
fn suspension() -> Fields {
    Fields::from_iter([("f:spec".to_owned(), json!({"f:suspend": {}}))])
}

fn paths(fields: &Fields) -> Vec<String> {
    let mut paths = Vec::new();
    outermost(fields, &mut Vec::new(), &mut |path| paths.push(readable(path)));
    paths
}

/// Returns the part of a field set whose values differ between two states of an object.
fn changed(fields: &Fields, before: &Value, after: &Value) -> Fields {
    let mut part = Fields::new();
    for (key, inside) in fields.iter().filter(|(key, _)| *key != ".") {
        match (at(before, key), at(after, key), inside.as_object()) {
            (Some(was), Some(is), _) if was == is => {}
            (Some(was), Some(is), Some(inside)) if !inside.is_empty() => {
                let inside = changed(inside, was, is);
                if !inside.is_empty() {
                    part.insert(key.clone(), Value::Object(inside));
                }
            }
            _ => {
                part.insert(key.clone(), inside.clone());
            }
        }
    }
    part
}

/// Returns the part of a field set that a document contains.
fn named(fields: &Fields, document: &Value) -> Fields {
    let mut named_here = Fields::new();
    for (key, inside) in fields.iter().filter(|(key, _)| *key != ".") {
        let (Some(value), Some(inside)) = (at(document, key), inside.as_object()) else { continue };
        if inside.is_empty() {
            named_here.insert(key.clone(), json!({}));
            continue;
        }
        let mut part = named(inside, value);
        if key.starts_with("k:") && inside.contains_key(".") {
            part.insert(".".to_owned(), json!({}));
        }
        if !part.is_empty() {
            named_here.insert(key.clone(), Value::Object(part));
        }
    }
    named_here
}

/// Returns the value at one key of a field set.
fn at<'v>(document: &'v Value, key: &str) -> Option<&'v Value> {
    let found = match key.split_once(':')? {
        ("f", name) => document.get(name),
        ("k", _) => {
            let keys = keys_of(key)?;
            document.as_array()?.iter().find(|item| is_item(item, &keys))
        }
        ("v", text) => {
            let wanted = serde_json::from_str::<Value>(text).ok()?;
            document.as_array()?.iter().find(|item| **item == wanted)
        }
        _ => None,
    };
    found.filter(|value| !value.is_null())
}

/// Returns `managedFields` with fields returned to their former owners; `None` if there are none. If `causes`, the
/// field paths in a refusal, is not empty, only fields at those paths are returned.
pub(crate) fn put_back(managed_fields: &Value, taken: &TakeOver, causes: &[&str]) -> Option<Value> {
    let causes = causes.iter().filter(|cause| !cause.is_empty()).map(|cause| names(cause)).collect::<Vec<_>>();
    let mut entries = managed_fields.as_array()?.clone();
    let mut any = false;
    for Moved { entry: head, fields } in &taken.moved {
        let back = if causes.is_empty() { fields.clone() } else { concerned(fields, &causes, &mut Vec::new()) };
        if back.is_empty() {
            continue;
        }
        any = true;
        if let Some(ours) = entries.iter_mut().find(|entry| is_own(entry)).and_then(fields_of) {
            *ours = subtract(ours, &back);
        }
        if let Some(theirs) = entries.iter_mut().find(|entry| is_same(entry, head)).and_then(fields_of) {
            add(theirs, &back);
        } else {
            let mut entry = head.clone();
            entry["fieldsV1"] = Value::Object(back);
            entries.push(entry);
        }
    }
    entries.retain(|entry| entry.get("fieldsV1").and_then(Value::as_object).is_none_or(|fields| !fields.is_empty()));
    any.then_some(Value::Array(entries))
}

fn fields_of(entry: &mut Value) -> Option<&mut Fields> {
    entry.get_mut("fieldsV1")?.as_object_mut()
}

fn is_same(entry: &Value, head: &Value) -> bool {
    ["manager", "operation", "apiVersion", "subresource"].iter().all(|name| entry.get(*name) == head.get(*name))
}

/// Returns the names of the fields along a path in a refusal, without list positions and keys.
fn names(path: &str) -> Vec<&str> {
    path.split('.').map(|part| part.split('[').next().unwrap_or_default()).collect()
}

/// Returns the part of a field set that `causes` concern. A field without inner fields is included if a cause is inside
/// of the field.
fn concerned<'f>(fields: &'f Fields, causes: &[Vec<&str>], path: &mut Vec<&'f str>) -> Fields {
    let mut part = Fields::new();
    for (key, inside) in fields.iter().filter(|(key, _)| *key != ".") {
        let name = key.strip_prefix("f:");
        path.extend(name);
        let leads_there = causes.iter().any(|cause| cause.iter().zip(&*path).all(|(one, other)| one == other));
        match inside.as_object() {
            _ if !leads_there => {}
            Some(inside) if !inside.is_empty() && !is_named(causes, path) => {
                let inside = concerned(inside, causes, path);
                if !inside.is_empty() {
                    part.insert(key.clone(), Value::Object(inside));
                }
            }
            _ => {
                part.insert(key.clone(), inside.clone());
            }
        }
        path.truncate(path.len() - usize::from(name.is_some()));
    }
    part
}

/// Whether one of `causes` is the field at `path` or contains it.
fn is_named(causes: &[Vec<&str>], path: &[&str]) -> bool {
    causes.iter().any(|cause| cause.len() <= path.len() && cause.iter().zip(path).all(|(one, other)| one == other))
}

/// Returns the object after an apply that removed the fields in `taken`. Fields in `keep` have a different owner and
/// stay.
pub(crate) fn without(mut object: Value, taken: &Fields, keep: &Fields) -> Value {
    remove(&mut object, taken, keep);
    object
}

fn remove(value: &mut Value, taken: &Fields, keep: &Fields) {
    let nothing = Fields::new();
    for (key, inside) in taken.iter().filter(|(key, _)| *key != ".") {
        let Some(inside) = inside.as_object() else { continue };
        match keep.get(key).and_then(Value::as_object) {
            Some(kept) if kept.is_empty() || inside.is_empty() => {}
            Some(kept) => {
                if let Some(child) = child_mut(value, key) {
                    remove(child, inside, kept);
                }
            }
            None if inside.is_empty() || inside.contains_key(".") => remove_child(value, key),
            None => {
                if let Some(child) = child_mut(value, key) {
                    remove(child, inside, &nothing);
                }
            }
        }
    }
}

fn child_mut<'v>(value: &'v mut Value, key: &str) -> Option<&'v mut Value> {
    if let Some(name) = key.strip_prefix("f:") {
        return value.get_mut(name);
    }
    let (_, position) = super::projection::child(Some(value), key);
    value.get_mut(position?)
}

fn remove_child(value: &mut Value, key: &str) {
    if let (Some(name), Some(fields)) = (key.strip_prefix("f:"), value.as_object_mut()) {
        fields.remove(name);
    } else if let (_, Some(position)) = super::projection::child(Some(value), key)
        && let Some(items) = value.as_array_mut()
    {
        items.remove(position);
    }
}

#[cfg(test)]
#[path = "adoption/tests.rs"]
mod tests;
