//! Verdicts about events of managed objects.

use mainstay_api::DriftPolicy;
use mainstay_engine::managed::verdict::{LastApplied, decide, resource_version, uid};
use mainstay_engine::managed::{Mark, projection};
use serde::Deserialize;
use serde_json::Value;

use crate::{LABEL, check};

/// An event about an object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    #[serde(rename = "case")]
    _title: String,
    /// The applied fields.
    #[serde(default = "sent")]
    sent: Value,
    /// Merge patch that turns the response to the apply into the object of the event.
    event: Value,
    /// Whether only the digest of the response is known, as after a restart.
    #[serde(default)]
    restarted: bool,
    #[serde(default)]
    policy: DriftPolicy,
}

/// Returns a Service with two ports, as Mainstay applies it.
fn sent() -> Value {
    serde_json::json!({
        "metadata": {"labels": {"app": "web"}, "annotations": {}},
        "spec": {"type": "ClusterIP", "ports": [{"port": 80, "name": "http"}, {"port": 443, "name": "https"}]},
    })
}

fn answer() -> Value {
    serde_json::json!({
        "metadata": {
            "uid": "u", "resourceVersion": "5",
            "labels": {"app": "web", "team": "theirs"}, "annotations": {"theirs": "1"},
            "managedFields": [{
                "manager": "mainstay", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:app": {}}, "f:annotations": {}},
                    "f:spec": {"f:type": {}, "f:ports": {
                        "k:{\"port\":80}": {".": {}, "f:port": {}, "f:name": {}},
                        "k:{\"port\":443}": {".": {}, "f:port": {}, "f:name": {}},
                    }},
                },
            }],
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.0.0.1",
            "ports": [{"port": 80, "name": "http", "protocol": "TCP"}, {"port": 443, "name": "https", "protocol": "TCP"}],
        },
        "status": {},
    })
}

/// Applies a merge patch (RFC 7386).
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    for (name, field) in fields {
        if field.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name], field);
        }
    }
}

fn check_event(case: &Case) -> String {
    let answer = answer();
    let empty_containers = projection::empty_containers(&answer, &case.sent);
    let verified = LastApplied {
        uid: uid(&answer).into(),
        resource_version: if case.restarted { "".into() } else { resource_version(&answer).into() },
        digest: projection::digest(&answer, &empty_containers),
        empty_containers,
    };
    let mut live = answer;
    merge(&mut live, &case.event);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    format!("{:?}", decide(&verified, &Mark::Label(LABEL.into()), &live, case.policy, now))
}

#[test]
fn an_event_becomes_a_verdict() {
    check("verdict", check_event);
}
