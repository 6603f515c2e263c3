//! Server-side apply: merges a configuration into the live object and updates field ownership.
//!
//! The steps follow the structured-merge-diff of a real server: merge; remove fields that the applier no longer applies
//! and no other manager owns; compare with the live object; refuse or (forced) take over changed fields of other
//! managers.
//!
//! Invariant: if neither the object nor the applier's fields change, the applier's entry keeps its time. The result
//! then equals the live object, and nothing is written.
//!
//! Not here: preconditions (resourceVersion, uid), defaults and validation, for which the verb is responsible.

use serde_json::{Map, Value};

use super::context::ApplyContext;
use super::difference::{Difference, Side, difference};
use super::fields::{Element, FieldSet};
use super::managed::{self, Entry, Operation};
use super::merged::{merged, without};
use super::owned::owned;
use super::reshaped::reshaped;
use super::{conflict, typed};
use crate::schema::Schema;
use crate::schema::node::View;
use crate::status::Status;

/// The manager of fields from before ownership was tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Fields of `metadata` that only the server sets. Applied values are ignored.
const SERVER_METADATA: [&str; 8] = [
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "generation",
    "selfLink",
    "managedFields",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// Returns the object after applying `config`, with new managedFields, before defaults.
///
/// Errors: 400 if the configuration has managedFields; 500 if it does not fit the schema or the live managedFields are
/// invalid; 409 with one cause per path if other managers own changed fields.
pub fn apply(cx: &ApplyContext<'_>, live: Option<&Value>, config: &Value) -> Result<Value, Status> {
    if config.pointer("/metadata/managedFields").is_some_and(|m| !m.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let view = cx.schema.view();
    typed::check(view, config).map_err(|why| untyped(config, &why))?;
    let config = writable(cx, config);
    let mut stated = owned(view, &config);
    let mut own = stated.clone();
    strip(&mut own);
    // The path always supplies the name, so `metadata` must stay even if nothing else in it is owned.
    stated.entry(["metadata", "name"].map(|name| Element::Field(name.to_owned()))).member = true;
    let mut entries = known(cx, live)?;
    let place = entries.iter().position(|e| e.is(Operation::Apply, cx.manager, cx.subresource, cx.api_version));
    let previous = place.map(|at| entries.remove(at));
    let mut object = match live {
        Some(live) => merged(view, live, &config),
        None => config,
    };
    if let Some(previous) = &previous {
        let mut owners: Vec<&FieldSet> = entries.iter().map(|e| &e.fields).collect();
        owners.push(&stated);
        let gone = abandoned(view, &previous.fields, &owners);
        without(view, &mut object, &gone);
    }
    let changed = live != Some(&object);
    if changed {
        let difference = difference(view, live.map_or(Side::Zero, Side::Is), Side::Is(&object));
        yield_to(cx, live, &mut entries, &difference)?;
    }
    entries.extend(entry(cx, own, previous, changed));
    store(&mut object, entries);
    Ok(object)
}

/// Fails with 500 if a configuration does not fit the schema.
pub fn check_typed(schema: &Schema, config: &Value) -> Result<(), Status> {
    typed::check(schema.view(), config).map_err(|why| untyped(config, &why))
}

/// Returns the applier's new entry. The time of the entry is the time of the last apply that changed the object. The
/// entry of an applier that changed nothing so far has no time.
fn entry(cx: &ApplyContext<'_>, fields: FieldSet, previous: Option<Entry>, changed: bool) -> Option<Entry> {
    if fields.is_empty() {
        return None;
    }
    let time = if changed { Some(cx.now.to_owned()) } else { previous.and_then(|previous| previous.time) };
    Some(Entry {
        manager: cx.manager.to_owned(),
        operation: Operation::Apply,
        api_version: cx.api_version.to_owned(),
        subresource: cx.subresource.to_owned(),
        time,
        fields,
    })
}

/// Removes changed and removed paths from the other managers. Fails on a conflict.
fn yield_to(
    cx: &ApplyContext<'_>,
    live: Option<&Value>,
    entries: &mut Vec<Entry>,
    difference: &Difference,
) -> Result<(), Status> {
    let taken = difference.taken();
    let conflicts: Vec<(&Entry, FieldSet)> =
        entries.iter().map(|e| (e, e.fields.intersection(&taken))).filter(|(_, common)| !common.is_empty()).collect();
    if !conflicts.is_empty() && !cx.force && !conflict::allowed_by_last_applied(cx, live, &conflicts) {
        return Err(conflict::refuse(&conflicts));
    }
    for entry in entries.iter_mut() {
        entry.fields.subtract(&taken);
        entry.fields.subtract(&difference.removed);
    }
    entries.retain(|e| !e.fields.is_empty());
    Ok(())
}

/// Returns the entries of the live object. An object without entries belongs to `before-first-apply` as a whole.
fn known(cx: &ApplyContext<'_>, live: Option<&Value>) -> Result<Vec<Entry>, Status> {
    let Some(live) = live else { return Ok(Vec::new()) };
    let entries = managed::decode(live.pointer("/metadata/managedFields"))
        .ok_or_else(|| Status::new(500, "", "failed to decode managed fields"))?;
    if !entries.is_empty() {
        return Ok(reshaped(cx.schema.view(), cx.api_version, entries));
    }
    let mut everything = difference(cx.schema.view(), Side::Zero, Side::Is(live)).taken();
    strip(&mut everything);
    cx.reset.iter().for_each(|path| everything.cut(path));
    let before = Entry {
        manager: BEFORE_FIRST_APPLY.to_owned(),
        operation: Operation::Update,
        api_version: cx.api_version.to_owned(),
        subresource: String::new(),
        time: Some(cx.now.to_owned()),
        fields: everything,
    };
    Ok(if before.fields.is_empty() { Vec::new() } else { vec![before] })
}

/// Returns the configuration without the fields that this endpoint cannot write.
fn writable(cx: &ApplyContext<'_>, config: &Value) -> Value {
    let mut config = config.clone();
    if let Some(Value::Object(metadata)) = config.get_mut("metadata") {
        for field in SERVER_METADATA {
            metadata.remove(field);
        }
    }
    cx.reset.iter().for_each(|path| cut(&mut config, path));
    config
}

fn cut(value: &mut Value, path: &[&str]) {
    let (Some((first, rest)), Value::Object(map)) = (path.split_first(), value) else { return };
    if rest.is_empty() {
        map.remove(*first);
    } else if let Some(child) = map.get_mut(*first) {
        cut(child, rest);
    }
}

/// Returns the paths of `last` that none of `owners` owns. A declared field also counts as owned if a field inside it
/// is owned.
fn abandoned(view: View<'_>, last: &FieldSet, owners: &[&FieldSet]) -> FieldSet {
    let mut gone = FieldSet::default();
    for (element, below) in &last.children {
        let theirs: Vec<&FieldSet> = owners.iter().filter_map(|o| o.children.get(element)).collect();
        let (child, declared) = match element {
            Element::Field(name) => view.key(name).unwrap_or((View::any(), false)),
            _ => (view.item(), false),
        };
        let holds = |set: &FieldSet| set.member || (declared && !set.children.is_empty());
        if holds(below) && !theirs.iter().any(|set| holds(set)) {
            gone.children.insert(element.clone(), FieldSet::leaf());
        } else {
            gone.put(element.clone(), abandoned(child, below, &theirs));
        }
    }
    gone
}

/// Removes the paths that cannot be owned.
pub(super) fn strip(set: &mut FieldSet) {
    for name in ["apiVersion", "kind"] {
        set.cut(&[name]);
    }
    let element = Element::Field("metadata".to_owned());
    let Some(metadata) = set.children.get_mut(&element) else { return };
    metadata.member = false;
    for name in
        ["name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"]
    {
        metadata.cut(&[name]);
    }
    if metadata.is_empty() {
        set.children.remove(&element);
    }
}

/// Writes the entries into the object.
pub(super) fn store(object: &mut Value, entries: Vec<Entry>) {
    let Value::Object(fields) = object else { return };
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(metadata) = metadata else { return };
    match managed::encode(entries) {
        Some(encoded) => metadata.insert("managedFields".into(), encoded),
        None => metadata.remove("managedFields"),
    };
}

/// Returns the 500 of a configuration that does not fit its schema.
fn untyped(config: &Value, why: &str) -> Status {
    let text = |pointer: &str| config.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("/apiVersion");
    let version = if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") };
    let (namespace, name, kind) = (text("/metadata/namespace"), text("/metadata/name"), text("/kind"));
    let what = format!("{namespace}/{name}; {version}, Kind={kind}");
    Status::new(500, "", format!("failed to create typed patch object ({what}): {why}"))
}
