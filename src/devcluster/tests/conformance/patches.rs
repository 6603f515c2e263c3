//! Merge, JSON and strategic merge patches.

use serde_json::{Value, json};

use crate::world::{World, claim, rv};

/// A Deployment without pods.
pub(crate) fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "busybox:1", "env": [{"name": "A", "value": "1"}]}]},
            },
        },
    })
}

async fn deployed(w: &World) -> String {
    let path = w.path("apps/v1", "deployments");
    w.post(&path, deployment("d")).await.code(201);
    format!("{path}/d")
}

#[test]
fn a_merge_patch_changes_and_removes() {
    claim(async |w| {
        w.map("a", json!({"x": "1", "y": "2"})).await;
        let after = w.merge(&w.maps("a"), json!({"data": {"x": null, "z": "3"}})).await.code(200).body;
        assert_eq!(after["data"], json!({"y": "2", "z": "3"}));
    });
}

#[test]
fn a_merge_patch_that_is_no_object_is_a_400() {
    claim(async |w| {
        w.map("a", json!({})).await;
        w.merge(&w.maps("a"), json!([1])).await.refused_like(400, "BadRequest", "error decoding patch: ");
    });
}

#[test]
fn patching_what_is_not_there_is_a_404() {
    claim(async |w| {
        w.merge(&w.maps("a"), json!({})).await.refused(404, "NotFound", "configmaps \"a\" not found");
    });
}

#[test]
fn a_patch_with_a_stale_version_is_a_409_and_with_the_live_one_is_fine() {
    claim(async |w| {
        let made = w.map("a", json!({})).await;
        let version = &made["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "data": {"k": "v"}});
        w.merge(&w.maps("a"), patch.clone()).await.code(200);
        w.merge(&w.maps("a"), patch).await.refused_like(
            409,
            "Conflict",
            "Operation cannot be fulfilled on configmaps \"a\": ",
        );
    });
}

#[test]
fn a_patch_cannot_rename() {
    claim(async |w| {
        w.map("a", json!({})).await;
        let message = "the name of the object (b) does not match the name on the URL (a)";
        w.merge(&w.maps("a"), json!({"metadata": {"name": "b"}})).await.refused(400, "BadRequest", message);
    });
}

#[test]
fn a_patch_cannot_change_the_uid() {
    claim(async |w| {
        w.map("a", json!({})).await;
        let answer = w.merge(&w.maps("a"), json!({"metadata": {"uid": "x"}})).await;
        let start = "ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable";
        answer.refused_like(422, "Invalid", start);
    });
}

#[test]
fn server_fields_in_a_patch_are_ignored() {
    claim(async |w| {
        let made = w.map("a", json!({})).await;
        let patch =
            json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7, "selfLink": "x"}});
        let after = w.merge(&w.maps("a"), patch).await.code(200).body;
        assert_eq!(after["metadata"]["creationTimestamp"], made["metadata"]["creationTimestamp"]);
    });
}

#[test]
fn a_json_patch_tests_and_replaces() {
    claim(async |w| {
        w.map("a", json!({"k": "v"})).await;
        let patch = json!([
            {"op": "test", "path": "/data/k", "value": "v"},
            {"op": "replace", "path": "/data/k", "value": "w"},
            {"op": "add", "path": "/metadata/labels", "value": {"l": "x"}},
        ]);
        let after = w.json_patch(&w.maps("a"), patch).await.code(200).body;
        assert_eq!((&after["data"]["k"], &after["metadata"]["labels"]["l"]), (&json!("w"), &json!("x")));
    });
}

#[test]
fn a_json_patch_whose_test_fails_is_a_422() {
    claim(async |w| {
        let made = w.map("a", json!({"k": "v"})).await;
        let patch = json!([{"op": "test", "path": "/data/k", "value": "other"}]);
        let message = "the server rejected our request due to an error in our request";
        let answer = w.json_patch(&w.maps("a"), patch).await.refused(422, "Invalid", message);
        assert_eq!(answer.body["details"], json!({}));
        assert_eq!(w.get(&w.maps("a")).await.ok(), made);
    });
}

#[test]
fn a_json_patch_that_is_no_array_is_a_400() {
    claim(async |w| {
        w.map("a", json!({})).await;
        w.json_patch(&w.maps("a"), json!({"op": "test"})).await.refused_like(400, "BadRequest", "");
    });
}

#[test]
fn an_unknown_patch_type_is_a_415() {
    claim(async |w| {
        w.map("a", json!({})).await;
        let headers = [("Content-Type", "application/json")];
        let answer = w.send(reqwest::Method::PATCH, &w.maps("a"), &headers, "{}").await;
        answer.refused(415, "UnsupportedMediaType", "415: Unsupported Media Type");
        let custom = w.custom(json!({"type": "object"}), json!({})).await;
        let answer = w.strategic(&custom.at("a"), json!({})).await;
        let message = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        answer.refused(415, "UnsupportedMediaType", message);
    });
}

#[test]
fn force_belongs_to_apply_only() {
    claim(async |w| {
        w.map("a", json!({})).await;
        w.merge(&w.maps("a?force=true"), json!({})).await.refused_like(
            422,
            "Invalid",
            "PatchOptions.meta.k8s.io \"\" is invalid: force: ",
        );
    });
}

#[test]
fn a_patch_to_a_wrong_type_is_a_422_of_the_patch() {
    claim(async |w| {
        w.map("a", json!({"k": "v"})).await;
        w.merge(&w.maps("a"), json!({"data": {"k": 1}})).await.invalid("FieldValueInvalid", "patch");
    });
}

#[test]
fn a_strategic_patch_merges_containers_by_name() {
    claim(async |w| {
        let path = deployed(w).await;
        let patch = json!({"spec": {"template": {"spec": {"containers": [
            {"name": "c", "image": "busybox:2"}, {"name": "side", "image": "pause:3"},
        ]}}}});
        let after = w.strategic(&path, patch).await.code(200).body;
        let containers = after["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        let by_name = |name: &str| containers.iter().find(|c| c["name"] == name).unwrap();
        assert_eq!(containers.len(), 2);
        assert_eq!(by_name("c")["image"], "busybox:2");
        assert_eq!(by_name("c")["env"], json!([{"name": "A", "value": "1"}]), "what the patch does not name stays");
        assert_eq!(by_name("side")["image"], "pause:3");
    });
}

#[test]
fn a_strategic_patch_deletes_and_replaces_by_directive() {
    claim(async |w| {
        let path = deployed(w).await;
        let add = json!({"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "pause:3"}]}}}});
        w.strategic(&path, add).await.code(200);
        let delete = json!({"spec": {"template": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}}});
        let after = w.strategic(&path, delete).await.code(200).body;
        assert_eq!(after["spec"]["template"]["spec"]["containers"].as_array().map(Vec::len), Some(1));
        let replace = json!({"metadata": {"labels": {"$patch": "replace", "only": "this"}}});
        let nothing = w.strategic(&path, replace.clone()).await.code(200).body;
        assert_eq!(nothing["metadata"]["labels"], Value::Null, "there is nothing to replace");
        w.strategic(&path, json!({"metadata": {"labels": {"a": "b"}}})).await.code(200);
        let after = w.strategic(&path, replace).await.code(200).body;
        assert_eq!(after["metadata"]["labels"], json!({"only": "this"}));
    });
}

#[test]
fn a_strategic_item_without_its_key_is_a_500() {
    claim(async |w| {
        let path = deployed(w).await;
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"image": "zz"}]}}}});
        let answer = w.strategic(&path, patch).await.code(500);
        assert!(
            answer.message().contains("map: map[image:zz] does not contain declared merge key: name"),
            "{}",
            answer.text
        );
    });
}

#[test]
fn custom_resources_take_no_strategic_patch() {
    claim(async |w| {
        let custom = w.custom(json!({"type": "object"}), json!({})).await;
        w.post(&custom.path, custom.widget("a", json!({}))).await.code(201);
        let answer = w.strategic(&custom.at("a"), json!({})).await;
        assert_eq!((answer.code, answer.reason()), (415, "UnsupportedMediaType"), "{}", answer.text);
    });
}

#[test]
fn concurrent_merge_patches_all_succeed() {
    claim(async |w| {
        let made = w.map("a", json!({})).await;
        let patches = (0..10).map(|n| {
            let patch = json!({"data": {format!("k{n}"): "v"}});
            async move { w.merge(&w.maps("a"), patch).await.code(200) }
        });
        futures::future::join_all(patches).await;
        let after = w.get(&w.maps("a")).await.ok();
        assert_eq!(after["data"].as_object().map(serde_json::Map::len), Some(10));
        assert!(rv(&after) > rv(&made));
    });
}

#[test]
fn a_patch_that_changes_nothing_keeps_the_version() {
    claim(async |w| {
        let made = w.map("a", json!({"k": "v"})).await;
        assert_eq!(w.merge(&w.maps("a"), json!({"data": {"k": "v"}})).await.code(200).body, made);
        assert_eq!(w.merge(&w.maps("a"), json!({})).await.code(200).body, made);
    });
}

#[test]
fn changing_the_strategy_without_clearing_rolling_update_is_a_422() {
    claim(async |w| {
        let path = deployed(w).await;
        let answer = w.merge(&path, json!({"spec": {"strategy": {"type": "Recreate"}}})).await;
        answer.invalid("FieldValueForbidden", "spec.strategy.rollingUpdate");
        let patch = json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}});
        w.merge(&path, patch).await.code(200);
    });
}
