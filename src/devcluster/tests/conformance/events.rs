//! Events: one storage, two versions with different rules.

use serde_json::{Value, json};

use crate::world::{World, claim};

fn event(w: &World, more: Value) -> Value {
    let mut body = json!({
        "metadata": {"name": "e"}, "regarding": {"kind": "ConfigMap", "name": "a", "namespace": w.ns},
        "eventTime": "2026-01-01T00:00:00.000000Z", "action": "A", "reason": "R", "type": "Normal", "note": "n",
        "reportingController": "example.com/c", "reportingInstance": "c-0",
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        body[field] = value.clone();
    }
    body
}

#[test]
fn deprecated_fields_are_refused_in_the_newer_version() {
    claim(async |w| {
        let path = w.path("events.k8s.io/v1", "events");
        let refused = async |more: Value, reason: &str, field: &str, why: &str| {
            let answer = w.post(&path, event(w, more)).await.code(422);
            assert_eq!(answer.causes(), [format!("{reason} {field}: {why}")], "{}", answer.text);
        };
        let unset = "Invalid value: \"\": needs to be unset";
        let invalid = "FieldValueInvalid";
        refused(json!({"deprecatedFirstTimestamp": "2026-01-01T00:00:00Z"}), invalid, "firstTimestamp", unset).await;
        refused(json!({"deprecatedLastTimestamp": "2026-01-01T00:00:00Z"}), invalid, "lastTimestamp", unset).await;
        refused(json!({"deprecatedCount": 2}), invalid, "count", unset).await;
        refused(json!({"deprecatedSource": {"component": "c"}}), invalid, "source", unset).await;
        refused(json!({"type": "Bad"}), invalid, "type", "Invalid value: \"\": has invalid value: Bad").await;
        refused(json!({"action": ""}), "FieldValueRequired", "action", "Required value").await;
        refused(json!({"reason": ""}), "FieldValueRequired", "reason", "Required value").await;
        refused(json!({"reportingInstance": ""}), "FieldValueRequired", "reportingInstance", "Required value").await;
        refused(json!({"eventTime": null}), "FieldValueRequired", "eventTime", "Required value").await;
        let once = json!({"series": {"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}});
        refused(once, invalid, "series.count", "Invalid value: \"\": should be at least 2").await;
        let long = json!({"note": "x".repeat(1025)});
        refused(long, invalid, "message", "Invalid value: \"\": can have at most 1024 characters").await;
        w.post(&path, event(w, json!({}))).await.code(201);
    });
}

#[test]
fn deprecated_fields_are_fine_in_the_older_version() {
    claim(async |w| {
        let path = w.path("v1", "events");
        let body = json!({
            "metadata": {"name": "e"}, "involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": w.ns},
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 2,
            "source": {"component": "c"}, "message": "m", "reason": "R", "type": "Normal",
        });
        w.post(&path, body).await.code(201);
        let newer = w.get(&format!("{}/e", w.path("events.k8s.io/v1", "events"))).await.ok();
        assert_eq!(newer["deprecatedLastTimestamp"], "2026-01-01T00:00:00Z");
        assert_eq!((&newer["deprecatedCount"], &newer["deprecatedSource"]["component"]), (&json!(2), &json!("c")));
        // An object with `eventTime` requires the newer fields here, too.
        let body = json!({
            "metadata": {"name": "f"}, "involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": w.ns},
            "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "R", "action": "A", "reportingInstance": "i",
        });
        let causes = w.post(&path, body).await.code(422).causes();
        assert!(causes.contains(&"FieldValueRequired reportingComponent: Required value".to_owned()), "{causes:?}");
    });
}

#[test]
fn the_fields_of_an_event_do_not_change_in_the_newer_version() {
    claim(async |w| {
        let path = format!("{}/e", w.path("events.k8s.io/v1", "events"));
        w.post(&w.path("events.k8s.io/v1", "events"), event(w, json!({}))).await.code(201);
        for (patch, field) in [
            (json!({"note": "other"}), "message"),
            (json!({"reason": "Other"}), "reason"),
            (json!({"type": "Warning"}), "type"),
            (json!({"action": "Other"}), "action"),
            (json!({"reportingInstance": "c-1"}), "reportingInstance"),
            (json!({"reportingController": "d"}), "reportingController"),
            (json!({"regarding": {"name": "b"}}), "involvedObject"),
            (json!({"eventTime": "2026-01-01T00:00:01.000000Z"}), "eventTime"),
        ] {
            w.merge(&path, patch).await.invalid("FieldValueInvalid", field);
        }
        let series = json!({"series": {"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}});
        w.merge(&path, series).await.invalid("FieldValueInvalid", "series.count");
        let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}});
        w.merge(&path, series).await.code(200);
        w.merge(&path, json!({"metadata": {"labels": {"a": "b"}}})).await.code(200);
        let core = w.path("v1", "events/e");
        w.merge(&core, json!({"message": "other"})).await.code(200);
    });
}

#[test]
fn an_event_lies_in_the_namespace_of_what_it_is_about() {
    claim(async |w| {
        let about = json!({"kind": "ConfigMap", "name": "a", "namespace": "other"});
        let body = json!({"metadata": {"name": "e"}, "involvedObject": about, "reason": "R"});
        let answer = w.post(&w.path("v1", "events"), body).await.code(422);
        let why =
            "FieldValueInvalid involvedObject.namespace: Invalid value: \"other\": does not match event.namespace";
        assert_eq!(answer.causes(), [why], "{}", answer.text);
        let cluster_wide = event(w, json!({"regarding": {"kind": "Node", "name": "n"}}));
        let answer = w.post(&w.path("events.k8s.io/v1", "events"), cluster_wide).await.code(422);
        let why = "FieldValueInvalid involvedObject.namespace: Invalid value: \"\": does not match event.namespace";
        assert_eq!(answer.causes(), [why], "{}", answer.text);
    });
}

#[test]
fn the_scheduler_tells_in_the_newer_form_where_a_pod_goes() {
    claim(async |w| {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        // The ServiceAccount is created after its namespace.
        w.until(&w.path("v1", "serviceaccounts/default"), "the account is there", |a| a.code == 200).await;
        w.post(&w.path("v1", "pods"), pod).await.code(201);
        let event = w.event("Pod", "p", "Scheduled").await;
        assert_eq!(event["action"], "Binding");
        assert_eq!(event["reportingComponent"], "default-scheduler");
        assert!(event["reportingInstance"].as_str().unwrap().starts_with("default-scheduler-"), "{event}");
        assert_eq!(event["source"], json!({}));
        assert_eq!((&event["firstTimestamp"], &event["lastTimestamp"]), (&Value::Null, &Value::Null));
        assert_eq!(event.get("count"), None);
        assert_eq!(event["eventTime"].as_str().unwrap().len(), "2026-01-01T00:00:00.000000Z".len());
        assert!(
            event["message"].as_str().unwrap().starts_with(&format!("Successfully assigned {}/p to ", w.ns)),
            "{event}"
        );
    });
}
