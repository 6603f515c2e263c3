//! The fields of objects and Events that a time line is made of.
//!
//! Invariant: a reduced object has a limited number of fields and of bytes, whatever the object has.

use jiff::Timestamp;
use serde_json::{Value, json};

use mainstay_api::names;

/// Conditions with a moment.
const CONDITIONS: [&str; 5] = ["Suspended", "Failed", "PodScheduled", "Ready", "Running"];
/// The lists of a pod's container statuses.
const STATUSES: [&str; 2] = ["initContainerStatuses", "containerStatuses"];
/// Maximum number of containers in each of these lists, and of characters of a text.
const CONTAINERS: usize = 20;
const LONGEST: usize = 1024;

/// Returns the fields of an object that the time line reads.
pub(super) fn reduced(object: &Value) -> Value {
    let mut metadata = texts(&object["metadata"], &["name", "uid", "creationTimestamp"]);
    if let Some((kind, uid)) = controller(object) {
        metadata["ownerReferences"] = json!([{"kind": short(kind), "uid": short(uid), "controller": true}]);
    }
    if let Some(time) = applied(object) {
        metadata["managedFields"] = json!([{"manager": names::MANAGER, "time": time}]);
    }
    let mut status = texts(&object["status"], &["completionTime"]);
    let conditions = CONDITIONS.iter().filter_map(|kind| met(object, kind));
    status["conditions"] = conditions.map(|one| texts(one, &["type", "status", "lastTransitionTime"])).collect();
    for list in STATUSES {
        let all = object["status"][list].as_array().into_iter().flatten();
        status[list] = all.take(CONTAINERS).map(container_status).collect();
    }
    json!({"metadata": metadata, "status": status})
}

/// Returns the fields of an Event that the time line reads.
pub(super) fn reduced_event(event: &Value) -> Value {
    let mut kept = texts(event, &["reason", "message", "eventTime", "firstTimestamp", "lastTimestamp"]);
    kept["involvedObject"] = texts(&event["involvedObject"], &["uid"]);
    kept
}

fn container_status(status: &Value) -> Value {
    let mut terminated = texts(&status["state"]["terminated"], &["startedAt", "finishedAt"]);
    terminated["exitCode"] = json!(status["state"]["terminated"]["exitCode"].as_i64());
    let running = texts(&status["state"]["running"], &["startedAt"]);
    json!({"name": short(text(status, "/name")), "state": {"terminated": terminated, "running": running}})
}

/// Returns an object of those of these fields that are texts.
fn texts(object: &Value, fields: &[&str]) -> Value {
    let field = |name: &&str| Some(((*name).to_owned(), Value::from(short(object.get(*name)?.as_str()?))));
    Value::Object(fields.iter().filter_map(field).collect())
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

/// Returns kind and UID of an object's controller.
pub(super) fn controller(object: &Value) -> Option<(&str, &str)> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    Some((owner["kind"].as_str()?, owner["uid"].as_str()?))
}

/// Returns the statuses of a pod's containers.
pub(super) fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    STATUSES.into_iter().filter_map(|list| pod["status"][list].as_array()).flatten()
}

/// Returns when a condition became True.
pub(super) fn condition(object: &Value, kind: &str) -> Option<Timestamp> {
    time(met(object, kind)?, "/lastTransitionTime")
}

/// Returns a condition that is True.
fn met<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    let all = object.pointer("/status/conditions")?.as_array()?;
    all.iter().find(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// Returns when the agent last wrote its fields of the object.
pub(super) fn applied(object: &Value) -> Option<Timestamp> {
    let entries = object.pointer("/metadata/managedFields")?.as_array()?;
    entries.iter().filter(|entry| entry["manager"] == names::MANAGER).filter_map(|entry| time(entry, "/time")).max()
}

/// Returns the time at a JSON pointer.
pub(super) fn time(object: &Value, path: &str) -> Option<Timestamp> {
    text(object, path).parse().ok()
}

/// Returns the text at a JSON pointer; empty if there is none.
pub(super) fn text<'v>(object: &'v Value, path: &str) -> &'v str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reduced_object_keeps_its_moments_and_not_its_size() {
        let time = "2026-01-01T00:00:09Z";
        let long = "x".repeat(100_000);
        let met = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time, "message": long});
        let mut conditions = vec![met("Other"); 100];
        conditions.extend(["Ready", "Failed"].map(met));
        let status =
            json!({"name": "push", "image": long, "state": {"terminated": {"exitCode": 3, "finishedAt": time}}});
        let pod = json!({
            "metadata": {
                "name": long, "uid": "u", "annotations": {"a": long},
                "ownerReferences": [{"kind": "Node", "uid": "n"}, {"kind": "Job", "uid": "j", "controller": true}],
                "managedFields": [{"manager": names::MANAGER, "time": time, "fieldsV1": long}],
            },
            "spec": {"containers": vec![long.clone(); 10]},
            "status": {"conditions": conditions, "containerStatuses": vec![status; 100]},
        });
        let kept = reduced(&pod);
        assert!(kept.to_string().len() < 8 << 10, "{kept}");
        assert_eq!(controller(&kept), Some(("Job", "j")));
        let at: Option<Timestamp> = time.parse().ok();
        assert_eq!([applied(&kept), condition(&kept, "Ready"), condition(&kept, "Failed")], [at; 3]);
        assert_eq!(statuses(&kept).count(), CONTAINERS);
        assert_eq!(statuses(&kept).next().unwrap()["state"]["terminated"], json!({"exitCode": 3, "finishedAt": time}));
        let event = json!({"reason": "Pulled", "message": long, "involvedObject": {"uid": "u", "name": long}});
        assert!(reduced_event(&event).to_string().len() < 2 << 10);
        assert_eq!(text(&reduced_event(&event), "/involvedObject/uid"), "u");
        for hostile in
            [json!(null), json!([]), json!({"metadata": 1, "status": {"conditions": {}, "containerStatuses": 3}})]
        {
            assert_eq!(controller(&reduced(&hostile)), None);
        }
    }
}
