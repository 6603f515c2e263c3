//! The Service that gives a Function its address: `http://{function}.{namespace}.svc.cluster.local`.

use serde_json::{Value, json};

use super::{PORT, metadata};
use crate::ResolvedFunction;

/// Returns the Service, which has the Function's name.
pub fn build(function: &ResolvedFunction) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(function, &function.name),
        "spec": {
            "type": "ClusterIP",
            "selector": function.pod_selector(),
            "ports": [{ "name": "http", "port": 80, "targetPort": PORT, "protocol": "TCP" }]
        }
    })
}
