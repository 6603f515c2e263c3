//! Behaviour that a GitOps agent relies on to detect drift.

use serde_json::{Value, json};

use crate::patches::deployment;
use crate::world::{World, claim, fields, managers, rv};

async fn applied(w: &World, body: &Value) -> (String, Value) {
    let path = format!("{}/d", w.path("apps/v1", "deployments"));
    let made = w.apply(&path, "agent", body.clone()).await.ok();
    (path, made)
}

fn container(object: &Value) -> &Value {
    &object["spec"]["template"]["spec"]["containers"][0]
}

fn owned_container(object: &Value) -> Value {
    let owned = fields(object, "agent", "Apply");
    owned["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"].clone()
}

#[test]
fn quantities_are_stored_canonically_and_reapplying_the_same_text_is_no_write() {
    claim(async |w| {
        let mut body = deployment("d");
        let limits = json!({"limits": {"cpu": "1000m", "memory": "1024Mi"}});
        body["spec"]["template"]["spec"]["containers"][0]["resources"] = limits;
        let (path, made) = applied(w, &body).await;
        assert_eq!(container(&made)["resources"]["limits"], json!({"cpu": "1", "memory": "1Gi"}));
        let again = w.apply(&path, "agent", body.clone()).await.code(200).body;
        assert_eq!(again["metadata"]["generation"], 1);
        let answer = w.apply(&path, "other", body).await.code(409);
        let message = answer.message().to_owned();
        assert!(message.contains("resources.limits.cpu") && message.contains("resources.limits.memory"), "{message}");
    });
}

#[test]
fn changing_an_owned_scalar_takes_exactly_that_path_away() {
    claim(async |w| {
        let (path, made) = applied(w, &deployment("d")).await;
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}}});
        let drifted = w.strategic(&format!("{path}?fieldManager=kubectl-edit"), patch).await.ok();
        let mut expected = owned_container(&made);
        expected.as_object_mut().unwrap().remove("f:image");
        assert_eq!(owned_container(&drifted), expected);
        let back = w.force(&path, "agent", deployment("d")).await.ok();
        assert_eq!(container(&back)["image"], "busybox:1");
        assert_eq!(owned_container(&back), owned_container(&made));
    });
}

#[test]
fn reordering_an_atomic_list_takes_it_away() {
    claim(async |w| {
        let mut body = deployment("d");
        body["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["a", "b"]);
        let (path, made) = applied(w, &body).await;
        assert_eq!(owned_container(&made)["f:command"], json!({}));
        let patch = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/command", "value": ["b", "a"]}]);
        let drifted = w.json_patch(&path, patch).await.ok();
        assert_eq!(owned_container(&drifted)["f:command"], Value::Null);
    });
}

#[test]
fn reordering_a_keyed_list_keeps_ownership_and_counts_a_generation() {
    claim(async |w| {
        let mut body = deployment("d");
        let env = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]);
        body["spec"]["template"]["spec"]["containers"][0]["env"] = env.clone();
        let (path, made) = applied(w, &body).await;
        let swapped = json!([{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]);
        let patch = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/env", "value": swapped}]);
        let drifted = w.json_patch(&path, patch).await.ok();
        assert_eq!(container(&drifted)["env"], swapped);
        assert_eq!(owned_container(&drifted), owned_container(&made));
        assert_eq!(drifted["metadata"]["generation"], 2);
        let back = w.apply(&path, "agent", body).await.code(200).body;
        assert_eq!(container(&back)["env"], env, "re-applying restores the order");
    });
}

#[test]
fn additions_of_other_managers_are_theirs_and_no_drift() {
    claim(async |w| {
        let (path, _) = applied(w, &deployment("d")).await;
        let patch = json!({
            "metadata": {"labels": {"theirs": "1"}},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "env": [{"name": "THEIRS", "value": "1"}]}]}}},
        });
        let added = w.strategic(&format!("{path}?fieldManager=them"), patch).await.ok();
        let again = w.apply(&path, "agent", deployment("d")).await.code(200).body;
        assert_eq!(again["metadata"]["generation"], added["metadata"]["generation"]);
        assert_eq!(again["metadata"]["labels"]["theirs"], "1");
        assert_eq!(container(&again)["env"].as_array().map(Vec::len), Some(2));
    });
}

#[test]
fn a_removed_item_leaves_our_entry_and_no_author() {
    claim(async |w| {
        let (path, _) = applied(w, &deployment("d")).await;
        let patch = json!([{"op": "remove", "path": "/spec/template/spec/containers/0/env"}]);
        let drifted = w.json_patch(&format!("{path}?fieldManager=them"), patch).await.ok();
        assert_eq!(owned_container(&drifted)["f:env"], Value::Null);
        assert!(!managers(&drifted).iter().any(|m| m.starts_with("them/")), "{:?}", managers(&drifted));
    });
}

#[test]
fn updating_under_our_name_makes_a_second_entry() {
    claim(async |w| {
        let (path, _) = applied(w, &deployment("d")).await;
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}}});
        let drifted = w.strategic(&format!("{path}?fieldManager=agent"), patch).await.ok();
        let ours: Vec<String> = managers(&drifted).into_iter().filter(|m| m.starts_with("agent/")).collect();
        assert_eq!(ours, ["agent/Apply", "agent/Update"]);
        assert_eq!(owned_container(&drifted)["f:image"], Value::Null);
        let answer = w.apply(&path, "agent", deployment("d")).await.code(409);
        assert!(answer.message().contains("conflict with \"agent\" using apps/v1"), "{}", answer.text);
    });
}

#[test]
fn applying_under_our_name_leaves_our_entry_as_it_was() {
    claim(async |w| {
        let (path, made) = applied(w, &deployment("d")).await;
        let mut other = deployment("d");
        other["spec"]["template"]["spec"]["containers"][0]["image"] = "busybox:9".into();
        let drifted = w.apply(&path, "agent", other).await.code(200).body;
        assert_eq!(fields(&drifted, "agent", "Apply"), fields(&made, "agent", "Apply"));
        assert_eq!(container(&drifted)["image"], "busybox:9");
    });
}

#[test]
fn the_first_apply_after_a_wipe_makes_before_first_apply_co_owner() {
    claim(async |w| {
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
        w.apply(&w.maps("a"), "agent", config.clone()).await.code(201);
        let wiped = w.merge(&w.maps("a"), json!({"metadata": {"managedFields": [{}]}})).await.ok();
        assert_eq!(managers(&wiped), [""; 0]);
        let plain = w.merge(&w.maps("a"), json!({"data": {"l": "w"}})).await.ok();
        assert_eq!(managers(&plain), [""; 0], "plain writes do not begin tracking again");
        let after = w.apply(&w.maps("a"), "agent", config).await.code(200).body;
        assert_eq!(managers(&after), ["agent/Apply", "before-first-apply/Update"]);
        assert_eq!(fields(&after, "before-first-apply", "Update")["f:data"]["f:k"], json!({}));
        assert_eq!(fields(&after, "before-first-apply", "Update")["f:data"]["f:l"], json!({}));
    });
}

#[test]
fn more_than_ten_update_managers_merge_into_ancient_changes() {
    claim(async |w| {
        w.map("a", json!({"k": "v"})).await;
        let mut last = Value::Null;
        for n in 0..12 {
            let path = w.maps(&format!("a?fieldManager=u{n}"));
            last = w.merge(&path, json!({"data": {format!("k{n}"): "v"}})).await.ok();
        }
        let names = managers(&last);
        assert!(names.contains(&"ancient-changes/Update".to_owned()), "{names:?}");
        assert!(names.len() <= 11, "{names:?}");
    });
}

#[test]
fn an_autoscaler_applied_as_v1_is_read_as_v2_with_v1_paths() {
    claim(async |w| {
        let body = json!({
            "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 60, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
        });
        let path = format!("{}/h", w.path("autoscaling/v1", "horizontalpodautoscalers"));
        w.apply(&path, "agent", body.clone()).await.code(201);
        let v2 = w.get(&format!("{}/h", w.path("autoscaling/v2", "horizontalpodautoscalers"))).await.ok();
        assert_eq!(v2["apiVersion"], "autoscaling/v2");
        assert_eq!(v2["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 60);
        let entry =
            v2["metadata"]["managedFields"].as_array().unwrap().iter().find(|e| e["manager"] == "agent").unwrap();
        assert_eq!(entry["apiVersion"], "autoscaling/v1");
        assert_eq!(entry["fieldsV1"]["f:spec"]["f:targetCPUUtilizationPercentage"], json!({}));
        let before = w.get(&path).await.ok();
        let again = w.apply(&path, "agent", body).await.code(200).body;
        assert_eq!(again["spec"], before["spec"]);
    });
}

#[test]
fn losing_label_and_annotation_at_once_is_one_deletion_with_the_old_object() {
    claim(async |w| {
        let made = w
            .post(
                &w.maps(""),
                json!({"metadata": {"name": "a", "labels": {"ours": "1"}, "annotations": {"n": "1", "keep": "1"}}}),
            )
            .await
            .ok();
        let patch = json!({"metadata": {"labels": {"ours": null}, "annotations": {"n": null}}});
        w.merge(&w.maps("a"), patch).await.code(200);
        w.post(&w.maps(""), json!({"metadata": {"name": "b", "labels": {"ours": "1"}}})).await.ok();
        let path = w.maps(&format!("?watch=1&labelSelector=ours&resourceVersion={}", rv(&made)));
        let seen = w.watch(&path).await.expect(&[("DELETED", "a"), ("ADDED", "b")]).await;
        assert_eq!(seen[0]["metadata"]["annotations"], json!({"n": "1", "keep": "1"}));
    });
}

#[test]
fn creating_in_a_terminating_namespace_is_a_403_with_its_cause() {
    claim(async |w| {
        w.post(&w.maps(""), json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})).await.code(201);
        w.delete(&format!("/api/v1/namespaces/{}", w.ns), json!({})).await.code(200);
        let message = format!(
            "configmaps \"new\" is forbidden: unable to create new content in namespace {} because it is being terminated",
            w.ns
        );
        let answer =
            w.post(&w.maps(""), json!({"metadata": {"name": "new"}})).await.refused(403, "Forbidden", &message);
        let causes = answer.causes();
        assert!(causes[0].starts_with("NamespaceTerminating metadata.namespace: "), "{causes:?}");
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
        w.apply(&w.maps("new"), "m", config).await.refused(403, "Forbidden", &message);
        w.merge(&w.maps("a"), json!({"data": {"k": "v"}})).await.code(200);
        w.merge(&w.maps("a"), json!({"metadata": {"finalizers": null}})).await.code(200);
    });
}
