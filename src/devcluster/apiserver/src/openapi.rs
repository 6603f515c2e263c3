//! OpenAPI v3 as clients read it: kinds that support field validation (`kubectl apply`), and descriptions of their
//! fields (`kubectl explain`).
//!
//! Built-in kinds have the schemas and descriptions of Kubernetes 1.36. `data/openapi.json.gz` merges the responses of
//! a
//! real server of that version for each group and version served here:
//! `kubectl get --raw /openapi/v3/apis/GROUP/VERSION`, then
//! `jq -cS -s 'map(.components.schemas) | add' | gzip -9n` for all of them. A custom kind has the schema of its
//! definition, plus the fields of every object.
//!
//! Not here: parameters and bodies of the operations, which clients of a cluster do not read.

use crate::kinds::table::{Kind, Table};
use flate2::read::GzDecoder;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

/// The prefix of references to schemas.
const PREFIX: &str = "#/components/schemas/";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should \
    convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this \
    from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// Returns the schemas of built-in types by name.
fn builtin() -> &'static Map<String, Value> {
    static SCHEMAS: OnceLock<Map<String, Value>> = OnceLock::new();
    SCHEMAS.get_or_init(|| {
        let packed = GzDecoder::new(&include_bytes!("data/openapi.json.gz")[..]);
        serde_json::from_reader(packed).expect("the recorded schemas are JSON")
    })
}

/// Returns the index at `/openapi/v3`: one document per group and version.
pub fn index(table: &Table) -> Value {
    let mut paths = Map::new();
    for (group, versions) in table.groups() {
        for version in versions {
            let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
            let url = format!("/openapi/v3/{path}?hash={}", hash(&table.resources(&group, &version)));
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// Returns a hash that changes with the document.
fn hash(kinds: &[Arc<Kind>]) -> String {
    let mut hasher = Sha256::new();
    for kind in kinds {
        hasher.update(&kind.plural);
        if let Some(custom) = &kind.custom {
            hasher.update(custom.published.to_string());
        }
    }
    hex::encode_upper(hasher.finalize())
}

/// Returns the document of a group and version, named as in the index.
pub fn document(table: &Table, path: &str) -> Option<Value> {
    let (group, version) = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => (String::new(), (*version).to_owned()),
        ["apis", group, version] => ((*group).to_owned(), (*version).to_owned()),
        _ => return None,
    };
    if !table.serves(&group, &version) {
        return None;
    }
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    let mut wanted = BTreeSet::new();
    for kind in table.resources(&group, &version) {
        let namespace = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
        let collection = format!("/{path}/{namespace}{}", kind.plural);
        let (many, one) = operations(&kind);
        if !many.is_empty() {
            paths.insert(collection.clone(), many.into());
        }
        if !one.is_empty() {
            paths.insert(format!("{collection}/{{name}}"), one.into());
        }
        if kind.custom.is_some() {
            let (name, schema) = custom(&kind);
            references(&schema, &mut wanted);
            schemas.insert(name, schema);
        } else {
            wanted
                .extend(builtin().iter().filter(|(_, schema)| describes(schema, &kind)).map(|(name, _)| name.clone()));
        }
    }
    while let Some(name) = wanted.pop_first() {
        if let Some(schema) = builtin().get(&name).filter(|_| !schemas.contains_key(&name)) {
            references(schema, &mut wanted);
            schemas.insert(name, schema.clone());
        }
    }
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "devcluster", "version": "v1.36.2"}, "paths": paths,
        "components": {"schemas": schemas},
    }))
}

/// Returns whether a schema describes a kind. Shared schemas (such as the options of verbs) list other kinds, too.
fn describes(schema: &Value, kind: &Kind) -> bool {
    let own = |gvk: &Value| gvk["group"] == kind.group && gvk["version"] == kind.version && gvk["kind"] == kind.kind;
    schema["x-kubernetes-group-version-kind"].as_array().is_some_and(|all| all.iter().any(own))
}

/// Collects the names of the types that a schema refers to.
fn references(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            let name = map.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix(PREFIX));
            found.extend(name.map(str::to_owned));
            for value in map.values() {
                references(value, found);
            }
        }
        Value::Array(list) => {
            for value in list {
                references(value, found);
            }
        }
        _ => {}
    }
}

/// Returns the operations on a collection and on one object.
fn operations(kind: &Kind) -> (Map<String, Value>, Map<String, Value>) {
    let (mut many, mut one) = (Map::new(), Map::new());
    let gvk = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let plain = |action: &str| json!({"x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk});
    for (verb, method, action) in [("list", "get", "list"), ("create", "post", "post")] {
        if kind.allows(verb) {
            many.insert(method.to_owned(), plain(action));
        }
    }
    for (verb, method, action) in [("get", "get", "get"), ("update", "put", "put"), ("delete", "delete", "delete")] {
        if kind.allows(verb) {
            one.insert(method.to_owned(), plain(action));
        }
    }
    if kind.allows("patch") {
        let parameter =
            |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
        let mut patch = plain("patch");
        patch["operationId"] = format!("patch{}{}", kind.version, kind.kind).into();
        patch["parameters"] =
            ["dryRun", "fieldManager", "fieldValidation", "force"].map(parameter).into_iter().collect();
        patch["responses"] = json!({"200": {"description": "OK"}, "201": {"description": "Created"}});
        one.insert("patch".to_owned(), patch);
    }
    (many, one)
}

/// Returns the name and schema of a custom kind.
fn custom(kind: &Kind) -> (String, Value) {
    let mut reversed: Vec<&str> = kind.group.split('.').collect();
    reversed.reverse();
    let name = format!("{}.{}.{}", reversed.join("."), kind.version, kind.kind);
    let published = kind.custom.as_ref().map_or(&Value::Null, |custom| &custom.published);
    let mut schema = if published.is_object() { published.clone() } else { json!({}) };
    schema["type"] = "object".into();
    if published.is_object() {
        let text = |text: &str| json!({"type": "string", "description": text});
        let metadata = json!({"allOf": [{"$ref": format!("{PREFIX}{OBJECT_META}")}], "description": METADATA});
        let common = [("apiVersion", text(API_VERSION)), ("kind", text(KIND)), ("metadata", metadata)];
        if !schema["properties"].is_object() {
            schema["properties"] = json!({});
        }
        for (field, value) in common {
            schema["properties"][field] = value;
        }
    }
    schema["x-kubernetes-group-version-kind"] =
        json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
    (name, schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_of_a_document_leads_somewhere() {
        let table = Table::with([]);
        let paths = index(&table)["paths"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert!(paths.contains(&"apis/apps/v1".to_owned()));
        for path in paths {
            let document = document(&table, &path).unwrap();
            let schemas = &document["components"]["schemas"];
            let mut found = BTreeSet::new();
            references(schemas, &mut found);
            for name in found {
                assert!(schemas.get(&name).is_some(), "{path}: {name}");
            }
        }
    }

    #[test]
    fn every_built_in_kind_is_described() {
        let table = Table::with([]);
        for (group, versions) in table.groups() {
            for version in versions {
                for kind in table.resources(&group, &version) {
                    let found = builtin().values().filter(|schema| describes(schema, &kind)).count();
                    assert_eq!(found, 1, "{group}/{version} {}", kind.kind);
                }
            }
        }
    }
}
