//! The objects every cluster has from the start: namespaces, the Service of the API, priority classes.
//!
//! Deliberately absent: roles, and the service accounts of namespaces, which a controller makes.

use crate::{
    server::{Server, stamp},
    verbs::{Settings, Target, create},
};
use serde_json::{Value, json};

/// Fills a new cluster.
pub(crate) fn fill(server: &Server) {
    let settings = Settings { manager: "kube-apiserver".to_owned(), now: stamp(server.now()), ..Settings::default() };
    for (api_version, plural, namespace, object) in initial() {
        let table = server.table();
        let Some(kind) = table.find_resource(api_version, plural) else { continue };
        let target = Target {
            kind: kind.clone(),
            namespace: namespace.to_owned(),
            name: String::new(),
            subresource: String::new(),
        };
        if let Err(status) = create::create(server, &target, &settings, object) {
            tracing::error!(message = status.message, plural, "an initial object was refused");
        }
    }
}

fn initial() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let mut objects = Vec::new();
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        objects.push(("v1", "namespaces", "", json!({"metadata": {"name": name}})));
    }
    objects.push((
        "v1",
        "services",
        "default",
        json!({
            "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {
                "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
            },
        }),
    ));
    for (name, value) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)] {
        objects.push((
            "scheduling.k8s.io/v1",
            "priorityclasses",
            "",
            json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority"}),
        ));
    }
    objects
}
