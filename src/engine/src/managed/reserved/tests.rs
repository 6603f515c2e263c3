//! Reserved fields: additions that are removed and fields that stay.

use super::*;
use serde_json::json;

const NOW: &str = "2026-01-01T00:00:00Z";
const RESERVED: Reserved = Reserved { fields: &["spec"], except: &["spec.replicas", "spec.template.metadata"] };

fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
}

/// The fields of a container `web`.
fn container(fields: &Value) -> Value {
    json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {r#"k:{"name":"web"}"#: fields}}}}})
}

/// An object that Mainstay applied, with an entry of another manager.
fn object(theirs: &Value) -> Value {
    let ours = container(&json!({".": {}, "f:name": {}, "f:image": {}}));
    json!({"metadata": {"managedFields": [entry(MANAGER, "Apply", &ours), theirs]}})
}

/// Returns the fields of another manager that Mainstay takes over.
fn taken(theirs: &Value) -> Option<Value> {
    let live = object(theirs);
    let entries = with(None, RESERVED, &live, NOW)?.entries;
    assert!(is_added_to(RESERVED, &live));
    let ours = entries.as_array().unwrap().iter().find(|entry| is_own(entry)).unwrap();
    let before = live.pointer("/metadata/managedFields/0/fieldsV1").and_then(Value::as_object).unwrap();
    Some(Value::Object(subtract(ours["fieldsV1"].as_object().unwrap(), before)))
}

fn check(fields: &Value, goes: &Value) {
    let taken = taken(&entry("kubectl-edit", "Update", fields));
    assert_eq!(taken, (!goes.is_null()).then(|| goes.clone()), "{fields}");
}

#[test]
fn reserved_fields_are_removed_and_the_rest_stays() {
    let paused = json!({"f:spec": {"f:paused": {}}});
    check(&paused, &paused);
    let command = container(&json!({"f:command": {}}));
    check(&command, &command);
    let labels = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:data": {"f:spec": {}}});
    check(&labels, &Value::Null);
    check(
        &json!({"f:spec": {"f:replicas": {}, "f:template": {"f:metadata": {"f:labels": {"f:a": {}}}}}}),
        &Value::Null,
    );
    check(&json!({"f:spec": {"f:replicas": {}, "f:paused": {}}, "f:metadata": {"f:labels": {"f:a": {}}}}), &paused);
    let longer = json!({"f:spec": {"f:replicasAndMore": {}}});
    check(&longer, &longer);
    check(&json!({"f:specialists": {"f:a": {}}}), &Value::Null);
}

#[test]
fn shared_fields_are_no_additions() {
    check(&container(&json!({".": {}, "f:name": {}, "f:image": {}})), &Value::Null);
    let (command, both) = (json!({"f:command": {}}), json!({".": {}, "f:image": {}, "f:command": {}}));
    check(&container(&both), &container(&command));
}

#[test]
fn a_container_is_removed_as_a_whole() {
    let sidecar = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
        r#"k:{"name":"sidecar"}"#: {".": {}, "f:name": {}, "f:image": {}, "f:env": {".": {}}}}}}}});
    check(&sidecar, &sidecar);
}

#[test]
fn a_reserved_field_is_removed_from_every_writer_of_the_object() {
    let paused = json!({"f:spec": {"f:paused": {}}});
    for (manager, operation) in [
        ("kubectl-edit", "Update"),
        ("kubectl", "Apply"),
        ("some-script", "Update"),
        ("some-operator", "Apply"),
        ("before-first-apply", "Update"),
        (MANAGER, "Update"),
        ("kube-controller-manager", "Update"),
        ("kubelet", "Update"),
    ] {
        assert!(taken(&entry(manager, operation, &paused)).is_some(), "{manager} {operation}");
    }
    let mut scaled = entry("kubectl", "Update", &paused);
    scaled["subresource"] = "scale".into();
    assert_eq!(taken(&scaled), None, "it was written through a subresource");
    let mut other = entry("kubectl", "Update", &paused);
    other["apiVersion"] = "v2".into();
    assert_eq!(taken(&other), None, "its paths are those of another version");
}

#[test]
fn without_reserved_fields_or_an_apply_there_are_no_additions() {
    let theirs = entry("kubectl-edit", "Update", &json!({"f:spec": {"f:paused": {}}}));
    assert!(!is_added_to(Reserved::NOTHING, &object(&theirs)));
    assert!(!is_added_to(RESERVED, &json!({"metadata": {"managedFields": [theirs]}})));
    assert!(!is_added_to(RESERVED, &json!({"metadata": {}})));
}

#[test]
fn the_last_writer_and_the_outermost_fields_are_reported() {
    let sidecar = json!({"name": "sidecar", "image": "x"});
    let first = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
        r#"k:{"name":"sidecar"}"#: {".": {}, "f:name": {}, "f:image": {}}}}}}});
    let mut live = object(&entry("kubectl-edit", "Update", &first));
    let mut second = entry("kubectl-rollout", "Update", &json!({"f:spec": {"f:paused": {}, "f:policy": {}}}));
    second["time"] = NOW.into();
    live["metadata"]["managedFields"].as_array_mut().unwrap().push(second);
    live["spec"] = json!({"paused": true, "policy": "Always", "template": {"spec": {"containers": [sidecar]}}});
    assert_eq!(with(None, RESERVED, &live, NOW).unwrap().who.as_deref(), Some("kubectl-rollout"));
    let after = json!({"spec": {"policy": "Never", "template": {"spec": {"containers": []}}}});
    let reported = differences(RESERVED, &live, &after).into_iter().map(|d| (d.path, d.found, d.restored));
    let expected = [
        ("spec.template.spec.containers[name=\"sidecar\"]", r#"{"image":"x","name":"sidecar"}"#, "absent"),
        ("spec.paused", "true", "absent"),
        ("spec.policy", r#""Always""#, r#""Never""#),
    ];
    assert_eq!(reported.collect::<Vec<_>>(), expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())));
}

#[test]
fn a_changed_login_of_a_url_is_reported_without_the_login() {
    let mut live = object(&entry("kubectl-edit", "Update", &json!({"f:spec": {"f:policy": {}}})));
    live["spec"] = json!({"policy": "https://u:hunter2@h"});
    let reported = differences(RESERVED, &live, &json!({"spec": {"policy": "https://u:hunter3@h"}}));
    let texts = reported.iter().map(|d| (&*d.found, &*d.restored)).collect::<Vec<_>>();
    assert_eq!(texts, [(r#""https://(hidden-before)@h""#, r#""https://(hidden-after)@h""#)]);
}

#[test]
fn colliding_items_are_removed_together_with_reserved_ones() {
    let live = object(&entry("kubectl-edit", "Update", &json!({"f:spec": {"f:paused": {}}})));
    let entries = live.pointer("/metadata/managedFields").unwrap();
    let found = with(Some(Collision { entries: entries.clone(), who: None }), RESERVED, &live, NOW).unwrap();
    assert_eq!(found.who.as_deref(), Some("kubectl-edit"));
    assert_eq!(found.entries.as_array().unwrap().len(), 1);
    let collision = || Some(Collision { entries: entries.clone(), who: Some("kubectl-set".into()) });
    assert_eq!(with(collision(), Reserved::NOTHING, &live, NOW), collision());
    let quiet = object(&entry("kubectl-edit", "Update", &json!({"f:metadata": {}})));
    assert_eq!(with(None, RESERVED, &quiet, NOW), None);
}
