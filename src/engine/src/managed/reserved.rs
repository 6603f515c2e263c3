//! Reserved fields: fields that only the owner of an object may set. Additions by other managers are removed.
//!
//! Server-side apply keeps the fields of other managers. Some owners reserve fields that change the effect of the
//! object ([`Reserved`]). Additions in these fields are moved into Mainstay's entry in `managedFields`. The next apply
//! omits them and therefore removes them.
//!
//! Invariant: fields without an owner stay (defaults, and fields set by admission), as do writes to a subresource and
//! all fields that are not reserved.
//! Invariant: for an object without additions, only its `managedFields` are checked, without a request.
//!
//! Not here: the list of reserved fields, which the owner sets, and the backoff after repeated additions (`drift`).

use serde_json::{Map, Value};

use super::collision::Collision;
use super::fields::{Fields, applied_by, readable, subtract};
use super::ownership::moved;
use super::projection::{Difference, quoted_pair, value_at};
use mainstay_api::names::MANAGER;

/// Fields of an object that only its owner may set. Paths are field names joined by dots; items of lists add no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The fields, with all of their content.
    pub fields: &'static [&'static str],
    /// Exceptions: fields inside of `fields` that all managers may set.
    pub except: &'static [&'static str],
}

impl Reserved {
    /// No reserved fields.
    pub const NOTHING: Self = Self { fields: &[], except: &[] };

    fn covers(self, path: &str) -> bool {
        self.fields.iter().any(|field| is_within(path, field)) && !self.is_excepted(path)
    }

    fn is_excepted(self, path: &str) -> bool {
        self.except.iter().any(|field| is_within(path, field))
    }

    /// Whether the field at this path may contain reserved fields.
    fn leads_on(self, path: &str) -> bool {
        self.covers(path) || self.fields.iter().any(|field| is_within(field, path))
    }
}

/// Whether `path` is `field` or lies in it.
fn is_within(path: &str, field: &str) -> bool {
    path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether another manager set a reserved field of an object.
pub fn is_added_to(reserved: Reserved, live: &Value) -> bool {
    let Some(ours) = ours(reserved, live) else { return false };
    ours.others(live).any(|entry| !ours.added(entry).is_empty())
}

/// Returns `collision` extended by the reserved fields of other managers; the next apply removes both.
pub(crate) fn with(collision: Option<Collision>, reserved: Reserved, live: &Value, now: &str) -> Option<Collision> {
    let entries = collision.as_ref().map(|collision| &collision.entries);
    let added = entries.or(live.pointer("/metadata/managedFields")).and_then(|all| added(reserved, live, all, now));
    added.or(collision)
}

/// Returns `entries` rewritten so that Mainstay's next apply removes the reserved fields of other managers. `entries`
/// are the current `managedFields` of `live`.
fn added(reserved: Reserved, live: &Value, entries: &Value, now: &str) -> Option<Collision> {
    let ours = ours(reserved, live)?;
    let writers = ours.others(live).filter(|entry| !ours.added(entry).is_empty());
    let last = writers.max_by_key(|entry| entry["time"].as_str())?;
    let who = last["manager"].as_str().map(str::to_owned);
    let entries = moved(entries, ours.api_version, now, is_anybodys, |fields| ours.added_in(fields))?;
    Some(Collision { entries, who })
}

/// Returns the reserved fields of other managers in `found`, with their values in `found` and `restored`.
pub(crate) fn differences(reserved: Reserved, found: &Value, restored: &Value) -> Vec<Difference> {
    let Some(ours) = ours(reserved, found) else { return Vec::new() };
    let mut all = Vec::new();
    for entry in ours.others(found) {
        let who = entry["manager"].as_str();
        let added = ours.added(entry);
        roots(&added, &mut Vec::new(), &mut |path| {
            let (found, restored) = (value_at(found, path), value_at(restored, path));
            if found != restored {
                let (found, restored) = quoted_pair(found, restored);
                all.push(Difference { path: readable(path), found, restored, who: who.map(str::to_owned) });
            }
        });
    }
    all
}

/// Adds these differences to the known ones.
pub(crate) fn add_differences(known: &mut Vec<Difference>, reserved: Reserved, found: &Value, restored: &Value) {
    for added in differences(reserved, found, restored) {
        if known.iter().all(|known| known.path != added.path) {
            known.push(added);
        }
    }
}

/// Mainstay's fields of an object.
struct Ours<'v> {
    reserved: Reserved,
    fields: &'v Fields,
    api_version: &'v str,
}

/// Returns Mainstay's fields; `None` if no fields are reserved, or if Mainstay never applied the object.
fn ours(reserved: Reserved, live: &Value) -> Option<Ours<'_>> {
    if reserved.fields.is_empty() {
        return None;
    }
    let fields = applied_by(live, MANAGER)?;
    let own = entries(live).find(|entry| is_own(entry))?;
    Some(Ours { reserved, fields, api_version: own["apiVersion"].as_str()? })
}

impl<'v> Ours<'v> {
    /// Returns the entries of other managers in Mainstay's API version of the kind. Paths of other versions have other
    /// meanings.
    fn others(&self, live: &'v Value) -> impl Iterator<Item = &'v Value> {
        let api_version = self.api_version;
        entries(live).filter(move |entry| is_anybodys(entry) && entry["apiVersion"] == api_version)
    }

    fn added(&self, entry: &Value) -> Fields {
        entry.get("fieldsV1").and_then(Value::as_object).map(|fields| self.added_in(fields)).unwrap_or_default()
    }

    /// Returns the reserved fields in a field set that Mainstay does not own, too.
    fn added_in(&self, fields: &Fields) -> Fields {
        subtract(&part(self.reserved, fields, ""), self.fields)
    }
}

fn entries(live: &Value) -> impl Iterator<Item = &Value> {
    live.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten()
}

fn is_own(entry: &Value) -> bool {
    entry["manager"] == MANAGER && entry["operation"] == "Apply" && is_of_object(entry)
}

/// Whether an entry belongs to another manager. Any client may choose any manager name, so no name is exempt. The
/// controllers of Kubernetes write through subresources.
fn is_anybodys(entry: &Value) -> bool {
    is_of_object(entry) && !is_own(entry)
}

fn is_of_object(entry: &Value) -> bool {
    entry.get("subresource").is_none_or(|subresource| subresource == "")
}

/// Returns the reserved part of a field set at this path.
fn part(reserved: Reserved, fields: &Fields, path: &str) -> Fields {
    let mut all = Fields::new();
    for (key, inside) in fields {
        let Some(name) = key.strip_prefix("f:") else {
            // The key is an item of a list, or the container itself.
            match inside.as_object().filter(|inside| !inside.is_empty()) {
                Some(inside) => put(&mut all, key, part(reserved, inside, path)),
                None if reserved.covers(path) => _ = all.insert(key.clone(), inside.clone()),
                None => {}
            }
            continue;
        };
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        if reserved.is_excepted(&path) || !reserved.leads_on(&path) {
            continue;
        }
        match inside.as_object().filter(|inside| !inside.is_empty()) {
            Some(inside) => put(&mut all, key, part(reserved, inside, &path)),
            None if reserved.covers(&path) => _ = all.insert(key.clone(), inside.clone()),
            None => {}
        }
    }
    all
}

fn put(all: &mut Fields, key: &str, inside: Map<String, Value>) {
    if !inside.is_empty() {
        all.insert(key.to_owned(), Value::Object(inside));
    }
}

/// Visits the outermost nodes that a field set owns.
fn roots<'f>(fields: &'f Fields, path: &mut Vec<&'f str>, visit: &mut dyn FnMut(&[&'f str])) {
    for (key, inside) in fields.iter().filter(|(key, _)| *key != ".") {
        path.push(key);
        match inside.as_object().filter(|inside| !inside.is_empty() && !inside.contains_key(".")) {
            Some(inside) => roots(inside, path, visit),
            None => visit(path),
        }
        path.pop();
    }
}

#[cfg(test)]
mod tests;
