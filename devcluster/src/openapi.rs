//! As much OpenAPI as `kubectl apply` asks for: which kinds can be patched with field validation.
//!
//! Deliberately absent: the schemas themselves, so `kubectl explain` has nothing to say.

use crate::kinds::table::{Kind, Table};
use serde_json::{Map, Value, json};

/// `/openapi/v3`: a document per group and version.
pub fn index(table: &Table) -> Value {
    let mut paths = Map::new();
    for (group, versions) in table.groups() {
        for version in versions {
            let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
            let url = format!("/openapi/v3/{path}?hash={:X}", table.resources(&group, &version).len());
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// The document of a group and version, named as in the index.
pub fn document(table: &Table, path: &str) -> Option<Value> {
    let (group, version) = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => (String::new(), (*version).to_owned()),
        ["apis", group, version] => ((*group).to_owned(), (*version).to_owned()),
        _ => return None,
    };
    if !table.serves(&group, &version) {
        return None;
    }
    let mut paths = Map::new();
    for kind in table.resources(&group, &version).iter().filter(|k| k.allows("patch")) {
        let namespace = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
        paths.insert(format!("/{path}/{namespace}{}/{{name}}", kind.plural), json!({"patch": patch(kind)}));
    }
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "devcluster", "version": "v1.36.2"}, "paths": paths,
        "components": {"schemas": {}},
    }))
}

fn patch(kind: &Kind) -> Value {
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    json!({
        "operationId": format!("patch{}{}", kind.version, kind.kind),
        "parameters": (["dryRun", "fieldManager", "fieldValidation", "force"].map(parameter)),
        "responses": {"200": {"description": "OK"}, "201": {"description": "Created"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    })
}
