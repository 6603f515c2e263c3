//! Documents for the repository of a world.

use serde_json::{Value, json};

/// Returns a GitSync document for the GitRepository `repo`. Its objects are deleted together with it.
pub fn git_sync(name: &str, base_dir: &str) -> String {
    json!({
        "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
        "metadata": {"name": name, "annotations": {"mainstay.dev/on-delete": "prune"}},
        "spec": {"gitRepository": "repo", "interval": "1h", "baseDir": base_dir},
    })
    .to_string()
}

/// Returns a ConfigMap document with `data.key`.
pub fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  key: \"{value}\"\n")
}

/// Returns a Deployment document with one container.
pub fn deployment(name: &str, image: &str, replicas: u32) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\nspec:\n  replicas: {replicas}\n  selector:\n    \
         matchLabels: {{app: {name}}}\n  template:\n    metadata:\n      labels: {{app: {name}}}\n    spec:\n      \
         containers:\n      - name: web\n        image: {image}\n        env:\n        - {{name: A, value: \"1\"}}\n        \
         - {{name: B, value: \"2\"}}\n"
    )
}

/// Returns a CRD of widgets.
pub fn definition() -> String {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.mainstay-tests.example.org"},
        "spec": {
            "group": "mainstay-tests.example.org", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
            }}}],
        },
    })
    .to_string()
}

/// Returns a CRD of widgets that accepts any field, so that a status can be written to them.
pub fn open_definition() -> String {
    let mut definition: Value = serde_json::from_str(&definition()).unwrap();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
    definition.to_string()
}
