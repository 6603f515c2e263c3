//! Serves the kinds that CustomResourceDefinitions define.
//!
//! A definition is registered within the request that writes it. When the response is sent, discovery lists the kind
//! and the definition is established. As on a real server, the response to the creation shows the definition before it
//! is established, and watches receive both writes.
//!
//! Invariant: the type table holds exactly the served versions of the established definitions in the store.
//! Invariant: every change of a definition ends the open watches of its resource.
//!
//! Not here: conversion webhooks. A `server::Converter` in the options replaces them. Without it, versions differ in
//! their schemas only.

use crate::{
    kinds::table::{AtRest, Converter, Custom, Kind, ScalePaths, Subresource, Table},
    schema,
    server::{Server, stamp},
    store::{Key, Stored},
    verbs::{Settings, Target, metadata, text, write},
};
use serde_json::{Value, json};
use std::{cell::LazyCell, sync::Arc, time::Instant};

/// Storage of the definitions.
const STORAGE: &str = "customresourcedefinitions.apiextensions.k8s.io";
const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "CustomResourceDefinition";
/// Finalizer that keeps a definition until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Follow-up work after a write is stored.
#[must_use]
pub(crate) enum Registration {
    /// None: the object is not a definition.
    None,
    /// Checks the names and serves the kind.
    Establish,
}

impl Registration {
    pub(crate) fn finish(self, server: &Server, key: &Key) {
        if matches!(self, Self::Establish) {
            establish(server, key.name());
        }
    }
}

/// Prepares a new object that may be a definition.
pub(crate) fn prepare_new(kind: &Kind, object: &mut Value) -> Registration {
    if kind.kind != KIND {
        return Registration::None;
    }
    let stored: Vec<Value> = versions(object).filter(|v| v["storage"] == true).map(|v| v["name"].clone()).collect();
    object["status"] = json!({
        "conditions": null, "acceptedNames": {"kind": "", "plural": ""}, "storedVersions": stored,
    });
    Registration::Establish
}

/// Prepares the new state of an object that may be a definition.
pub(crate) fn prepare_changed(kind: &Kind, object: &mut Value) -> Registration {
    if kind.kind != KIND {
        return Registration::None;
    }
    let wanted: Vec<Value> = versions(object).filter(|v| v["storage"] == true).map(|v| v["name"].clone()).collect();
    if let Some(stored) = object["status"]["storedVersions"].as_array_mut() {
        for version in wanted {
            if !stored.contains(&version) {
                stored.push(version);
            }
        }
    }
    Registration::Establish
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition["spec"]["versions"].as_array().into_iter().flatten()
}

/// Accepts the names of a definition, updates its status, and serves it.
fn establish(server: &Server, name: &str) {
    let lock = server.registry().lock();
    let key = Key::new("", name);
    let mut changed = None;
    while let Some(live) = server.store().get(STORAGE, &key) {
        let old = live.value();
        let mut new = (*old).clone();
        judge(server, &mut new, &stamp(server.now()));
        changed = Some(storage_of(&old));
        if new == *old || write(server, &key, &live, new) {
            break;
        }
    }
    refresh(server);
    drop(lock);
    if let Some(storage) = changed {
        server.store().end_watches(Some(&storage));
    }
}

fn write(server: &Server, key: &Key, live: &Stored, new: Value) -> bool {
    let table = server.table();
    let Some(kind) = table.find_kind(API_VERSION, KIND).cloned() else { return false };
    let target =
        Target { kind, namespace: String::new(), name: key.name().to_owned(), subresource: "status".to_owned() };
    write::stored_by_server(server, &target, &stamp(server.now()), live, new)
}

/// Sets the conditions `NamesAccepted` and `Established`.
fn judge(server: &Server, definition: &mut Value, now: &str) {
    let (names, clash) = accepted(server, definition);
    let (accepted, reason, message) = match &clash {
        None => ("True", "NoConflicts", "no conflicts found".to_owned()),
        Some((reason, name)) => ("False", *reason, format!("\"{name}\" is already in use")),
    };
    definition["status"]["acceptedNames"] = names;
    condition(definition, "NamesAccepted", accepted, reason, &message, now);
    if has_condition(definition, "Established") {
        return;
    }
    if clash.is_none() {
        let message = "the initial names have been accepted";
        condition(definition, "Established", "True", "InitialNamesAccepted", message, now);
    } else {
        condition(definition, "Established", "False", "NotAccepted", "not all names are accepted", now);
    }
}

/// The names of the other definitions in a group.
struct Taken {
    /// Plural, singular and short names of resources.
    resources: Vec<String>,
    /// Names of kinds and their lists.
    kinds: Vec<String>,
}

fn taken(server: &Server, definition: &Value) -> Taken {
    let mut taken = Taken { resources: Vec::new(), kinds: Vec::new() };
    for (key, stored) in server.store().snapshot(STORAGE).from(None, None) {
        let other = stored.value();
        let same = key.name() == text(definition, "/metadata/name");
        if same || text(&other, "/spec/group") != text(definition, "/spec/group") {
            continue;
        }
        let names = &other["status"]["acceptedNames"];
        let name = |field: &str| names[field].as_str().filter(|name| !name.is_empty()).map(ToOwned::to_owned);
        taken.resources.extend(["plural", "singular"].into_iter().filter_map(name));
        let shorts = names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        taken.resources.extend(shorts.map(ToOwned::to_owned));
        taken.kinds.extend(["kind", "listKind"].into_iter().filter_map(name));
    }
    taken
}

/// Returns the names that a definition gets, and the last conflict. A field with a conflict keeps the name that it had
/// before.
fn accepted(server: &Server, definition: &Value) -> (Value, Option<(&'static str, String)>) {
    let (taken, wanted) = (taken(server, definition), &definition["spec"]["names"]);
    let had = &definition["status"]["acceptedNames"];
    let (mut names, mut clash) = (json!({"plural": "", "kind": ""}), None);
    let used = |list: &[String], value: &Value| value.as_str().is_some_and(|name| list.iter().any(|n| n == name));
    for (field, list, reason) in [
        ("plural", &taken.resources, "PluralConflict"),
        ("singular", &taken.resources, "SingularConflict"),
        ("shortNames", &taken.resources, "ShortNamesConflict"),
        ("kind", &taken.kinds, "KindConflict"),
        ("listKind", &taken.kinds, "ListKindConflict"),
    ] {
        let value = &wanted[field];
        let single = std::slice::from_ref(value);
        let each = value.as_array().map_or(single, Vec::as_slice);
        let bad = each.iter().find(|name| used(list, name)).and_then(Value::as_str);
        if let Some(name) = bad {
            clash = Some((reason, name.to_owned()));
        }
        let given = if bad.is_some() { &had[field] } else { value };
        if !given.is_null() {
            names[field] = given.clone();
        }
    }
    if !wanted["categories"].is_null() {
        names["categories"] = wanted["categories"].clone();
    }
    (names, clash)
}

fn condition(definition: &mut Value, name: &str, status: &str, reason: &str, message: &str, now: &str) {
    let conditions = &mut definition["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    let found = list.iter().position(|c| c["type"] == name);
    let since = found
        .map(|at| &list[at])
        .filter(|c| c["status"] == status)
        .and_then(|c| c["lastTransitionTime"].as_str())
        .unwrap_or(now)
        .to_owned();
    let new = json!({
        "type": name, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
    });
    match found {
        Some(at) => list[at] = new,
        None => list.push(new),
    }
}

fn has_condition(definition: &Value, name: &str) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == name && c["status"] == "True")
}

fn storage_of(definition: &Value) -> String {
    format!("{}.{}", text(definition, "/spec/names/plural"), text(definition, "/spec/group"))
}

/// Rebuilds the type table from the definitions in the store.
fn refresh(server: &Server) {
    let mut kinds = Vec::new();
    let before = server.table();
    for (_, stored) in server.store().snapshot(STORAGE).from(None, None) {
        let definition = stored.value();
        if has_condition(&definition, "Established") {
            kinds.extend(kinds_of(&definition, &before, server.store().version(), server.options().converter));
        }
    }
    server.serve_kinds(kinds);
}

fn kinds_of(definition: &Value, before: &Table, now: u64, converter: Option<Converter>) -> Vec<Arc<Kind>> {
    let group = text(definition, "/spec/group");
    let names = &definition["status"]["acceptedNames"];
    let plural = text(names, "/plural");
    let list = |pointer: &str| -> Vec<String> {
        let values = names.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        values.filter_map(Value::as_str).map(ToOwned::to_owned).collect()
    };
    let stored = versions(definition).find(|v| v["storage"] == true).map_or("v1", |v| text(v, "/name"));
    let preserve = definition["spec"]["preserveUnknownFields"] == true;
    let structural = |version: &Value| schema::structural(&version["schema"]["openAPIV3Schema"], preserve).ok();
    // A load compiles all patterns and rules, so only new kinds cause it.
    let at_rest = LazyCell::new(|| {
        let schema = versions(definition).find(|v| v["storage"] == true).and_then(structural)?;
        Some(AtRest { schema, since: now })
    });
    let converter = converter.filter(|_| definition["spec"]["conversion"]["strategy"] == "Webhook");
    let mut kinds = Vec::new();
    for version in versions(definition).filter(|v| v["served"] == true) {
        let name = text(version, "/name");
        let same = definition["metadata"]["generation"].as_i64();
        let custom = custom_of(definition, version, same);
        if let Some(kind) = before.find(group, name, plural)
            && kind.custom.as_ref().is_some_and(|c| same.is_some() && *c == custom)
        {
            kinds.push(kind.clone());
            continue;
        }
        let is_stored = version["storage"] == true;
        let schema = if is_stored { at_rest.as_ref().map(|one| one.schema.clone()) } else { structural(version) };
        let Some(schema) = schema else { continue };
        kinds.push(Arc::new(Kind {
            group: group.to_owned(),
            version: name.to_owned(),
            api_version: format!("{group}/{name}"),
            plural: plural.to_owned(),
            singular: text(names, "/singular").to_owned(),
            kind: text(names, "/kind").to_owned(),
            list_kind: text(names, "/listKind").to_owned(),
            namespaced: text(definition, "/spec/scope") == "Namespaced",
            short_names: list("/shortNames"),
            categories: list("/categories"),
            verbs: ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
                .map(ToOwned::to_owned)
                .to_vec(),
            subresources: subresources(version, text(names, "/kind")),
            storage: storage_of(definition).into(),
            storage_api_version: format!("{group}/{stored}"),
            schema,
            custom: Some(custom),
            at_rest: at_rest.clone(),
            converter,
        }));
    }
    kinds
}

fn subresources(version: &Value, kind: &str) -> Vec<Subresource> {
    let verbs = ["get", "patch", "update"].map(ToOwned::to_owned).to_vec();
    let mut found = Vec::new();
    if version["subresources"]["status"].is_object() {
        found.push(Subresource {
            name: "status".to_owned(),
            kind: kind.to_owned(),
            verbs: verbs.clone(),
            ..Subresource::default()
        });
    }
    if version["subresources"]["scale"].is_object() {
        found.push(Subresource {
            name: "scale".to_owned(),
            kind: "Scale".to_owned(),
            group: "autoscaling".to_owned(),
            version: "v1".to_owned(),
            verbs,
        });
    }
    found
}

fn custom_of(definition: &Value, version: &Value, generation: Option<i64>) -> Custom {
    let scale = &version["subresources"]["scale"];
    let pointer = |field: &str| scale[field].as_str().map(|path| path.replace('.', "/"));
    let selectable = version["selectableFields"].as_array().into_iter().flatten();
    let deprecation = (version["deprecated"] == true).then(|| {
        version["deprecationWarning"].as_str().map_or_else(
            || {
                let group = text(definition, "/spec/group");
                format!("{group}/{} {} is deprecated", text(version, "/name"), text(definition, "/spec/names/kind"))
            },
            ToOwned::to_owned,
        )
    });
    Custom {
        definition: text(definition, "/metadata/name").to_owned(),
        generation,
        columns: version["additionalPrinterColumns"].as_array().cloned(),
        selectable: selectable
            .filter_map(|f| f["jsonPath"].as_str())
            .map(|path| path.trim_start_matches('.').to_owned())
            .collect(),
        scale: pointer("specReplicasPath").map(|spec| ScalePaths {
            spec,
            status: pointer("statusReplicasPath").unwrap_or_default(),
            selector: pointer("labelSelectorPath"),
        }),
        terminating: metadata::is_terminating(definition),
        published: version["schema"]["openAPIV3Schema"].clone(),
        deprecation,
    }
}

/// Adds the finalizer to a deleted definition that still has objects.
pub(crate) fn mark_terminating(server: &Server, definition: &mut Value, now: &str) {
    if server.store().count(&storage_of(definition)) > 0 || !metadata::is_terminating(definition) {
        let mut list: Vec<String> = metadata::finalizers(definition).into_iter().map(ToOwned::to_owned).collect();
        if !list.iter().any(|f| f == CLEANUP) {
            list.push(CLEANUP.to_owned());
        }
        metadata::of(definition).insert("finalizers".to_owned(), json!(list));
        let message = "CustomResource deletion is in progress";
        condition(definition, "Terminating", "True", "InstanceDeletionInProgress", message, now);
    }
}

/// Deletes the objects of a terminating definition, and the definition when none is left. `delete` deletes one object.
pub(crate) fn terminate(server: &Server, name: &str, delete: impl Fn(&Target, &Settings)) {
    {
        let _lock = server.registry().lock();
        refresh(server);
    }
    let table = server.table();
    let Some(kind) = table.iter().find(|k| k.custom.as_ref().is_some_and(|c| c.definition == name)).cloned() else {
        return release(server, name);
    };
    let settings = Settings { now: stamp(server.now()), ..Settings::default() };
    for (key, _) in server.store().snapshot(&kind.storage).from(None, None) {
        let target = Target {
            kind: kind.clone(),
            namespace: key.namespace().to_owned(),
            name: key.name().to_owned(),
            subresource: String::new(),
        };
        delete(&target, &settings);
    }
    if server.store().count(&kind.storage) == 0 {
        release(server, name);
    }
}

/// Handles the removal of a definition, or of the last object of a terminating one.
pub(crate) fn removed(server: &Server, kind: &Kind, name: &str) {
    match &kind.custom {
        Some(custom) => {
            let terminating = server
                .store()
                .get(STORAGE, &Key::new("", &custom.definition))
                .is_some_and(|d| metadata::is_terminating(&d.value()));
            if terminating && server.store().count(&kind.storage) == 0 {
                release(server, &custom.definition);
            }
        }
        None if kind.kind == KIND => withdraw(server, name),
        None => {}
    }
}

/// Removes the finalizer from a definition without objects, and the definition if that was the last finalizer.
fn release(server: &Server, name: &str) {
    let key = Key::new("", name);
    let storage: Arc<str> = STORAGE.into();
    while let Some(live) = server.store().get(STORAGE, &key) {
        let mut definition = (*live.value()).clone();
        let mut list: Vec<String> = metadata::finalizers(&definition).into_iter().map(ToOwned::to_owned).collect();
        list.retain(|f| f != CLEANUP);
        let done = if list.is_empty() {
            server.store().remove(&storage, &key, live.rv, Instant::now()).is_ok()
        } else {
            metadata::of(&mut definition).insert("finalizers".to_owned(), json!(list));
            write(server, &key, &live, definition)
        };
        if done {
            break;
        }
    }
    withdraw(server, name);
}

/// Stops serving the kinds of a removed definition.
fn withdraw(server: &Server, name: &str) {
    let lock = server.registry().lock();
    let storages: Vec<Arc<str>> = server
        .table()
        .iter()
        .filter(|k| k.custom.as_ref().is_some_and(|c| c.definition == name))
        .map(|k| k.storage.clone())
        .collect();
    refresh(server);
    drop(lock);
    for storage in storages {
        server.store().end_watches(Some(&storage));
    }
}
