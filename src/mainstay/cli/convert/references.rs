//! The Secrets, ConfigMaps and ServiceAccounts that an object references in its own namespace.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::document::Document;
use super::fields::{Fate, Note};

/// Returns notes that ask the user to copy the objects that `document` references, if its counterpart is in a different
/// namespace.
pub(super) fn copies(document: &Document, namespace: &str) -> Vec<Note> {
    let own = document.namespace();
    if own.is_empty() || namespace.is_empty() || own == namespace {
        return Vec::new();
    }
    let mut found = Vec::new();
    walk(&document.object["spec"], "spec", &mut found);
    let note = |(field, kind, name): (String, String, String)| {
        let old = document.renamed.get(&(kind.clone(), name.clone()));
        let text = match (&*kind, old) {
            ("ServiceAccount", None) => format!(
                "create ServiceAccount {name} in the namespace {namespace}, with the permissions of the one in {own}"
            ),
            ("ServiceAccount", Some(old)) => format!(
                "create ServiceAccount {name} in the namespace {namespace}, with the permissions of {old} in {own}"
            ),
            (_, None) => format!("copy {kind} {name} from the namespace {own} to {namespace}"),
            (_, Some(old)) => format!(
                "copy {kind} {old} from the namespace {own} to {namespace}, as {name}: another {kind} has the name {old}"
            ),
        };
        Note { fate: Fate::ToDo, field, text }
    };
    found.into_iter().map(note).collect()
}

/// Gives a name of its own to each referenced object whose name is taken in the namespace `target`. An object of
/// `target` itself keeps its name.
pub(super) fn separate(documents: &mut [Document], target: &str) {
    let mut namespaces: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for document in documents.iter().filter(|document| !document.namespace().is_empty()) {
        let mut found = Vec::new();
        walk(&document.object["spec"], "spec", &mut found);
        for (_, kind, name) in found {
            namespaces.entry((kind, name)).or_default().insert(document.namespace().to_owned());
        }
    }
    let keeps = |all: &BTreeSet<String>| all.get(target).or_else(|| all.first()).cloned();
    for document in documents {
        let own = document.namespace().to_owned();
        let mut renamed = BTreeMap::new();
        rename(&mut document.object["spec"], &mut |kind, name| {
            let all = namespaces.get(&(kind.to_owned(), name.clone())).filter(|all| all.contains(&own));
            if all.and_then(keeps).is_some_and(|first| first != own) {
                let new = format!("{own}-{name}");
                renamed.insert((kind.to_owned(), new.clone()), std::mem::replace(name, new));
            }
        });
        document.renamed = renamed;
    }
}

/// Passes kind and name of each reference to `change`. Finds the same references as [`walk`].
fn rename(value: &mut Value, change: &mut impl FnMut(&str, &mut String)) {
    for (key, value) in value.as_object_mut().into_iter().flatten() {
        match (&**key, value) {
            ("serviceAccountName", Value::String(name)) => change("ServiceAccount", name),
            ("substituteFrom" | "valuesFrom", Value::Array(sources)) => {
                for from in sources {
                    let kind = from["kind"].as_str().unwrap_or_default().to_owned();
                    if let Some(Value::String(name)) = from.get_mut("name") {
                        change(&kind, name);
                    }
                }
            }
            ("values" | "substitute", _) => {}
            (key, value) if key.ends_with("ecretRef") => {
                if let Some(Value::String(name)) = value.get_mut("name") {
                    change("Secret", name);
                }
            }
            (_, value) => rename(value, change),
        }
    }
}

/// Collects field, kind and name of each reference.
fn walk(value: &Value, path: &str, found: &mut Vec<(String, String, String)>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        let name = value["name"].as_str();
        match (&**key, value) {
            ("serviceAccountName", Value::String(name)) => found.push((path, "ServiceAccount".into(), name.clone())),
            ("substituteFrom" | "valuesFrom", Value::Array(sources)) => {
                let named = sources.iter().filter_map(|from| Some((from["kind"].as_str()?, from["name"].as_str()?)));
                found.extend(named.map(|(kind, name)| (path.clone(), kind.to_owned(), name.to_owned())));
            }
            // Values of charts and variables have no known fields, so they are skipped.
            ("values" | "substitute", _) => {}
            _ if key.ends_with("ecretRef") => found.extend(name.map(|name| (path, "Secret".into(), name.to_owned()))),
            _ => walk(value, &path, found),
        }
    }
}
