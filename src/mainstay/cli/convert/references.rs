//! The Secrets, ConfigMaps and ServiceAccounts that an object references in its own namespace.

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
        let text = match &*kind {
            "ServiceAccount" => format!(
                "create ServiceAccount {name} in the namespace {namespace}, with the permissions of the one in {own}"
            ),
            _ => format!("copy {kind} {name} from the namespace {own} to {namespace}"),
        };
        Note { fate: Fate::ToDo, field, text }
    };
    found.into_iter().map(note).collect()
}

/// Collects field, kind and name of each reference.
fn walk(value: &Value, path: &str, found: &mut Vec<(String, String, String)>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        let name = value["name"].as_str();
        match (&**key, value) {
            ("serviceAccountName", Value::String(name)) => found.push((path, "ServiceAccount".into(), name.clone())),
            ("substituteFrom", Value::Array(sources)) => {
                let named = sources.iter().filter_map(|from| Some((from["kind"].as_str()?, from["name"].as_str()?)));
                found.extend(named.map(|(kind, name)| (path.clone(), kind.to_owned(), name.to_owned())));
            }
            // Secrets in it are lost.
            ("valuesFrom", Value::Array(sources)) => {
                let named = sources.iter().filter(|from| from["kind"] == "ConfigMap");
                let named = named.filter_map(|from| from["name"].as_str());
                found.extend(named.map(|name| (path.clone(), "ConfigMap".to_owned(), name.to_owned())));
            }
            // Values of charts and variables have no known fields, so they are skipped.
            ("values" | "substitute", _) => {}
            _ if key.ends_with("ecretRef") => found.extend(name.map(|name| (path, "Secret".into(), name.to_owned()))),
            _ => walk(value, &path, found),
        }
    }
}
