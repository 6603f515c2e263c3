//! The discovery documents, in the legacy and the aggregated form.
//!
//! Invariant: both forms derive from the same type table, so they never differ.
//!
//! Not here: a `group` or `version` equal to that of the enclosing document. Such fields are omitted, because clients
//! would take an empty string as a value.

use crate::kinds::table::{Kind, Subresource, Table};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Returns the document at `/api`.
pub fn core_versions() -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
    })
}

/// Returns the document at `/apis`.
pub fn groups(table: &Table) -> Value {
    let groups: Vec<Value> =
        table.groups().into_iter().filter(|(name, _)| !name.is_empty()).map(|(n, v)| group_item(&n, &v)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Returns the document at `/apis/{group}`.
pub fn group(table: &Table, name: &str) -> Option<Value> {
    let (name, versions) = table.groups().into_iter().find(|(n, _)| n == name && !n.is_empty())?;
    let mut group = group_item(&name, &versions);
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

fn group_item(name: &str, versions: &[String]) -> Value {
    let version = |v: &String| json!({"groupVersion": format!("{name}/{v}"), "version": v});
    json!({
        "name": name,
        "versions": versions.iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(version),
    })
}

/// Returns the document at `/api/v1` or `/apis/{group}/{version}`.
pub fn resources(table: &Table, group: &str, version: &str) -> Option<Value> {
    if !table.serves(group, version) {
        return None;
    }
    let mut resources = Vec::new();
    for kind in table.resources(group, version) {
        resources.push(resource_item(&kind));
        resources.extend(kind.subresources.iter().map(|sub| subresource_item(&kind, sub)));
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

fn resource_item(kind: &Kind) -> Value {
    let mut item = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        item["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        item["categories"] = json!(kind.categories);
    }
    if kind.allows("list") {
        item["storageVersionHash"] = storage_version_hash(kind).into();
    }
    item
}

/// Returns a hash that changes with the storage version of a kind.
fn storage_version_hash(kind: &Kind) -> String {
    let (group, version) = kind.storage_api_version.split_once('/').unwrap_or(("", &kind.storage_api_version));
    let digest = Sha256::digest(format!("{group}/{version}/{}", kind.kind));
    STANDARD.encode(&digest[..8])
}

fn subresource_item(kind: &Kind, sub: &Subresource) -> Value {
    let mut item = json!({
        "name": format!("{}/{}", kind.plural, sub.name), "singularName": "", "namespaced": kind.namespaced,
        "kind": sub.kind, "verbs": sub.verbs,
    });
    if !sub.version.is_empty() || !sub.group.is_empty() && sub.group != kind.group {
        item["group"] = sub.group.clone().into();
        item["version"] = if sub.version.is_empty() { "v1".into() } else { sub.version.clone().into() };
    }
    item
}

/// Returns the aggregated document for the core group or for all other groups, and its `ETag`.
pub fn aggregated(table: &Table, core: bool) -> (Value, String) {
    let items: Vec<Value> = table
        .groups()
        .into_iter()
        .filter(|(name, _)| name.is_empty() == core)
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> =
                        table.resources(&name, version).iter().map(|kind| aggregated_item(kind)).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if core { json!({}) } else { json!({"name": name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    let etag = hex::encode_upper(Sha256::digest(document.to_string()));
    (document, format!("\"{etag}\""))
}

fn aggregated_item(kind: &Kind) -> Value {
    let mut item = Map::new();
    let response = |name: &str, group: &str, version: &str| json!({"group": group, "version": version, "kind": name});
    item.insert("resource".to_owned(), kind.plural.clone().into());
    item.insert("responseKind".to_owned(), response(&kind.kind, "", ""));
    item.insert("scope".to_owned(), if kind.namespaced { "Namespaced" } else { "Cluster" }.into());
    item.insert("singularResource".to_owned(), kind.singular.clone().into());
    item.insert("verbs".to_owned(), json!(kind.verbs));
    if !kind.short_names.is_empty() {
        item.insert("shortNames".to_owned(), json!(kind.short_names));
    }
    if !kind.categories.is_empty() {
        item.insert("categories".to_owned(), json!(kind.categories));
    }
    let subresource = |sub: &Subresource| {
        json!({
            "subresource": sub.name, "responseKind": response(&sub.kind, &sub.group, &sub.version), "verbs": sub.verbs,
        })
    };
    if !kind.subresources.is_empty() {
        item.insert("subresources".to_owned(), kind.subresources.iter().map(subresource).collect());
    }
    Value::Object(item)
}

/// Returns the document at `/version`.
pub fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.2+devcluster", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
        "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
    })
}
