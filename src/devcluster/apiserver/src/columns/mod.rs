//! Converts objects to the rows that `kubectl get` prints (`meta.k8s.io/v1` Table).
//!
//! Invariant: every row has as many cells as there are column definitions.
//!
//! Not here: the list's metadata, which the caller adds. A watch sends the column definitions once; the caller removes
//! them from later Tables.

mod age;
mod descriptions;
mod jsonpath;
mod others;
mod text;
mod workloads;

use std::collections::HashMap;
use std::sync::OnceLock;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::hooks;

/// The part of each object in a row (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// `PartialObjectMetadata`; the API's default.
    Metadata,
    /// The whole object.
    Object,
}

/// Name, type, format and priority of a column.
type Column = (String, String, String, i64);

fn recorded() -> &'static HashMap<String, Vec<Column>> {
    static COLUMNS: OnceLock<HashMap<String, Vec<Column>>> = OnceLock::new();
    COLUMNS.get_or_init(|| {
        serde_json::from_str(include_str!("../data/table-columns.json")).expect("the embedded table of columns is JSON")
    })
}

/// Returns a Table of `objects`. `columns_path` is the resource's path without namespace (`/apis/apps/v1/deployments`).
/// `crd_columns` are a custom resource version's `additionalPrinterColumns` (`Some(&[])` if it declares none).
pub fn table(
    columns_path: &str,
    crd_columns: Option<&[Value]>,
    objects: &[&Value],
    include: Include,
    now: Timestamp,
) -> Value {
    let age = json!({
        "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": descriptions::age(),
    });
    let default = [age];
    let (definitions, cells): (Vec<Value>, Vec<Vec<Value>>) = if let Some(declared) = crd_columns {
        let declared = if declared.is_empty() { &default[..] } else { declared };
        (declared_definitions(declared), objects.iter().map(|o| declared_cells(declared, o, now)).collect())
    } else {
        let definitions = built_in_definitions(columns_path);
        let width = definitions.len();
        (definitions, objects.iter().map(|o| padded(built_in_cells(columns_path, o, now), o, width)).collect())
    };
    let rows: Vec<Value> = objects
        .iter()
        .zip(cells)
        .map(|(object, cells)| json!({"cells": cells, "object": shown(object, include)}))
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
        "columnDefinitions": definitions, "rows": rows,
    })
}

fn shown(object: &Value, include: Include) -> Value {
    match include {
        Include::None => Value::Null,
        Include::Metadata => {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
        }
        Include::Object => object.clone(),
    }
}

fn definition(name: &str, kind: &str, format: &str, priority: i64, description: &str) -> Value {
    json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
}

fn declared_definitions(declared: &[Value]) -> Vec<Value> {
    let field = |column: &Value, name: &str| column[name].as_str().unwrap_or_default().to_owned();
    let mut definitions = vec![definition("Name", "string", "name", 0, descriptions::name())];
    definitions.extend(declared.iter().map(|column| {
        let mut description = field(column, "description");
        if description.is_empty() {
            let path = field(column, "jsonPath");
            description = format!("Custom resource definition column (in JSONPath format): {path}");
        }
        definition(
            &field(column, "name"),
            &field(column, "type"),
            &field(column, "format"),
            column["priority"].as_i64().unwrap_or(0),
            &description,
        )
    }));
    definitions
}

fn declared_cells(declared: &[Value], object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![object["metadata"]["name"].clone()];
    cells.extend(declared.iter().map(|column| {
        let found = jsonpath::find(object, column["jsonPath"].as_str().unwrap_or_default());
        let Some(value) = found.first().filter(|v| !v.is_null()) else { return Value::Null };
        match column["type"].as_str().unwrap_or_default() {
            "string" => text::scalar(value).into(),
            "date" => age::since(value, now).into(),
            "integer" if value.is_i64() || value.is_u64() => (*value).clone(),
            "number" if value.is_number() => (*value).clone(),
            "boolean" if value.is_boolean() => (*value).clone(),
            _ => Value::Null,
        }
    }));
    cells
}

fn built_in_definitions(path: &str) -> Vec<Value> {
    match recorded().get(path) {
        Some(columns) => columns
            .iter()
            .enumerate()
            .map(|(at, (n, t, f, p))| definition(n, t, f, *p, descriptions::of(path, at)))
            .collect(),
        None => vec![
            definition("Name", "string", "name", 0, descriptions::name()),
            definition("Created At", "date", "", 0, descriptions::age()),
        ],
    }
}

/// Adds the name as the first cell (Events: as the last), and pads the row to the number of columns.
fn padded(cells: Vec<Value>, object: &Value, width: usize) -> Vec<Value> {
    let mut all = Vec::with_capacity(width);
    if cells.len() < width {
        all.push(object["metadata"]["name"].clone());
    }
    all.extend(cells);
    all.resize(width, Value::Null);
    all
}

/// Returns the cells after the name.
fn built_in_cells(path: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    match path {
        "/api/v1/pods" => workloads::pod(object, now),
        "/apis/apps/v1/deployments" => workloads::deployment(object, now),
        "/apis/apps/v1/replicasets" | "/api/v1/replicationcontrollers" => workloads::replica_set(object, now),
        "/apis/apps/v1/statefulsets" => workloads::stateful_set(object, now),
        "/apis/apps/v1/daemonsets" => workloads::daemon_set(object, now),
        "/apis/apps/v1/controllerrevisions" => others::revision(object, now),
        "/apis/batch/v1/jobs" => workloads::job(object, now),
        "/apis/batch/v1/cronjobs" => workloads::cron_job(object, now),
        "/apis/autoscaling/v1/horizontalpodautoscalers" => {
            others::autoscaler(&hooks::convert(object, "autoscaling/v1", "autoscaling/v2"), now)
        }
        "/apis/autoscaling/v2/horizontalpodautoscalers" => others::autoscaler(object, now),
        "/api/v1/configmaps" => others::config_map(object, now),
        "/api/v1/secrets" => others::secret(object, now),
        "/api/v1/namespaces" => others::namespace(object, now),
        "/api/v1/services" => others::service(object, now),
        "/api/v1/endpoints" => others::endpoints(object, now),
        "/apis/discovery.k8s.io/v1/endpointslices" => others::endpoint_slice(object, now),
        "/api/v1/events" | "/apis/events.k8s.io/v1/events" => others::event(object, now),
        "/api/v1/nodes" => others::node(object, now),
        "/api/v1/persistentvolumeclaims" => others::claim(object, now),
        "/api/v1/persistentvolumes" => others::volume(object, now),
        "/api/v1/podtemplates" => others::pod_template(object),
        "/api/v1/resourcequotas" => others::quota(object, now),
        "/apis/storage.k8s.io/v1/storageclasses" => others::storage_class(object, now),
        "/apis/networking.k8s.io/v1/ingresses" => others::ingress(object, now),
        "/apis/networking.k8s.io/v1/ingressclasses" => others::ingress_class(object, now),
        "/apis/networking.k8s.io/v1/networkpolicies" => others::network_policy(object, now),
        "/apis/policy/v1/poddisruptionbudgets" => others::budget(object, now),
        "/apis/rbac.authorization.k8s.io/v1/rolebindings"
        | "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings" => others::binding(object, now),
        "/apis/coordination.k8s.io/v1/leases" => others::lease(object, now),
        "/apis/scheduling.k8s.io/v1/priorityclasses" => others::priority_class(object, now),
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        | "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations" => others::webhooks(object, now),
        "/api/v1/serviceaccounts" => others::age_only(object, now),
        _ => others::created_at(object),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:01:00Z".parse().unwrap()
    }

    fn row(path: &str, mut object: Value) -> Value {
        object["metadata"]["name"] = "x".into();
        object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        table(path, None, &[&object], Include::None, now())["rows"][0]["cells"].clone()
    }

    #[test]
    fn every_row_has_as_many_cells_as_columns() {
        for path in recorded().keys() {
            let table = table(path, None, &[&json!({})], Include::None, now());
            assert_eq!(
                table["rows"][0]["cells"].as_array().map(Vec::len),
                table["columnDefinitions"].as_array().map(Vec::len),
                "{path}"
            );
        }
    }

    #[test]
    fn shows_a_running_pod() {
        let status = json!({"phase": "Running", "podIP": "10.1.0.2", "containerStatuses": [{"ready": true, "restartCount": 2, "state": {"running": {}}, "lastState": {"terminated": {"finishedAt": "2026-01-01T00:00:30Z"}}}]});
        assert_eq!(
            row("/api/v1/pods", json!({"spec": {"containers": [{}], "nodeName": "n1"}, "status": status})),
            json!(["x", "1/1", "Running", "2 (30s ago)", "60s", "10.1.0.2", "n1", "<none>", "<none>"])
        );
        let waiting = json!({"phase": "Pending", "containerStatuses": [{"ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}}]});
        let cells = row("/api/v1/pods", json!({"spec": {"containers": [{}]}, "status": waiting}));
        assert_eq!((&cells[1], &cells[2], &cells[3]), (&json!("0/1"), &json!("ImagePullBackOff"), &json!("0")));
    }

    #[test]
    fn says_of_a_pod_that_it_is_only_simulated() {
        let mark = json!([{"type": "devcluster.dev/Simulated", "status": "True"}]);
        for (phase, state, shown) in [
            ("Running", json!({"running": {}}), "Running (simulated)"),
            ("Succeeded", json!({"terminated": {"reason": "Completed"}}), "Completed (simulated)"),
            ("Running", json!({"waiting": {"reason": "CrashLoopBackOff"}}), "CrashLoopBackOff (simulated)"),
        ] {
            let containers = json!([{"ready": true, "restartCount": 0, "state": state}]);
            let status = json!({"phase": phase, "conditions": mark, "containerStatuses": containers});
            assert_eq!(row("/api/v1/pods", json!({"spec": {"containers": [{}]}, "status": status}))[2], shown);
        }
    }

    #[test]
    fn shows_deployments_services_and_jobs() {
        let template = json!({"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]}});
        assert_eq!(
            row(
                "/apis/apps/v1/deployments",
                json!({"spec": {"replicas": 2, "template": template, "selector": {"matchLabels": {"app": "x"}}}, "status": {"readyReplicas": 1, "updatedReplicas": 2}})
            ),
            json!(["x", "1/2", 2, 0, "60s", "a,b", "i,j", "app=x"])
        );
        assert_eq!(
            row(
                "/api/v1/services",
                json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}], "selector": {"app": "x"}}})
            ),
            json!(["x", "NodePort", "10.0.0.1", "<none>", "80:30080/TCP", "60s", "app=x"])
        );
        assert_eq!(
            row(
                "/apis/batch/v1/jobs",
                json!({"spec": {"completions": 1, "template": template}, "status": {"startTime": "2026-01-01T00:00:10Z"}})
            ),
            json!(["x", "Running", "0/1", "50s", "60s", "a,b", "i,j", "<none>"])
        );
    }

    #[test]
    fn shows_events_with_their_name_last() {
        let event = json!({"involvedObject": {"kind": "Pod", "name": "p"}, "type": "Normal", "reason": "R", "message": " m ", "source": {"component": "c"}, "lastTimestamp": "2026-01-01T00:00:30Z", "firstTimestamp": null, "eventTime": null});
        assert_eq!(
            row("/api/v1/events", event),
            json!(["30s", "Normal", "R", "pod/p", "", "c", "m", "<unknown>", 1, "x"])
        );
    }

    #[test]
    fn shows_declared_columns_of_custom_resources() {
        let columns = [
            json!({"name": "Size", "type": "integer", "jsonPath": ".spec.size"}),
            json!({"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "priority": 1}),
            json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}),
        ];
        let object =
            json!({"metadata": {"name": "w", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"size": 3}});
        let shown = table("", Some(&columns), &[&object], Include::Metadata, now());
        assert_eq!(shown["rows"][0]["cells"], json!(["w", 3, null, "60s"]));
        assert_eq!(shown["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(shown["columnDefinitions"][2]["priority"], 1);
        let plain = table("", Some(&[]), &[&object], Include::None, now());
        assert_eq!(plain["rows"][0]["cells"], json!(["w", "60s"]));
    }
}
