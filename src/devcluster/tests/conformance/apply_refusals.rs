//! Configurations that server-side apply refuses, and unusual ones that it accepts.

use serde_json::json;

use crate::apply::{apply, config};
use crate::patches::deployment;
use crate::world::claim;

#[test]
fn apply_needs_a_manager() {
    claim(async |w| {
        let headers = [("Content-Type", "application/apply-patch+yaml")];
        let answer = w.send(reqwest::Method::PATCH, &w.maps("a"), &headers, &config(json!({})).to_string()).await;
        let message =
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
        answer.refused(422, "Invalid", message);
    });
}

#[test]
fn an_unknown_field_in_an_apply_is_a_500() {
    claim(async |w| {
        let mut body = config(json!({}));
        body["bogus"] = 1.into();
        let answer = w.apply(&w.maps("a"), "m", body).await.code(500);
        let message =
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .bogus: field not declared in schema";
        assert_eq!(answer.message(), message, "the namespace of the path is not that of the configuration");
        assert_eq!(answer.reason(), "");
        let mut placed = config(json!({}));
        placed["bogus"] = 1.into();
        placed["metadata"]["namespace"] = w.ns.as_str().into();
        let answer = w.apply(&w.maps("a"), "m", placed).await.code(500);
        assert!(answer.message().contains(&format!("({}/a; /v1, Kind=ConfigMap)", w.ns)), "{}", answer.text);
    });
}

#[test]
fn a_wrong_type_in_an_apply_is_a_500() {
    claim(async |w| {
        let answer = w.apply(&w.maps("a"), "m", config(json!({"n": 1}))).await.code(500);
        let start = "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data.n: expected string, got ";
        assert!(answer.message().starts_with(start), "{}", answer.text);
        assert_eq!(answer.reason(), "");
    });
}

#[test]
fn duplicate_keys_in_an_applied_list_are_a_500() {
    claim(async |w| {
        let mut body = deployment("a");
        let container = body["spec"]["template"]["spec"]["containers"][0].clone();
        body["spec"]["template"]["spec"]["containers"] = json!([container, container]);
        let path = format!("{}/a", w.path("apps/v1", "deployments"));
        let answer = w.apply(&path, "m", body).await.code(500);
        let start = "failed to create typed patch object (/a; apps/v1, Kind=Deployment): ";
        let end = ".containers: duplicate entries for key [name=\"c\"]";
        assert!(answer.message().starts_with(start) && answer.message().ends_with(end), "{}", answer.text);
    });
}

#[test]
fn managed_fields_in_an_apply_are_a_400() {
    claim(async |w| {
        let mut body = config(json!({}));
        body["metadata"]["managedFields"] = json!([{"manager": "x"}]);
        w.apply(&w.maps("a"), "m", body).await.refused(400, "BadRequest", "metadata.managedFields must be nil");
    });
}

#[test]
fn applying_with_a_uid_where_nothing_is_is_a_409() {
    claim(async |w| {
        let mut body = config(json!({}));
        body["metadata"]["uid"] = "abc".into();
        let message = "uid mismatch: the provided object specified uid abc, and no existing object was found";
        let answer = w.apply(&w.maps("a"), "m", body).await.refused_like(409, "Conflict", "");
        assert!(answer.message().ends_with(message), "{}", answer.text);
    });
}

#[test]
fn applying_with_a_version_where_nothing_is_creates() {
    claim(async |w| {
        let mut body = config(json!({"k": "v"}));
        body["metadata"]["resourceVersion"] = "5".into();
        w.apply(&w.maps("a"), "m", body).await.code(201);
    });
}

#[test]
fn applying_with_a_version_that_no_object_has_creates_only() {
    claim(async |w| {
        let mut body = config(json!({"k": "v"}));
        body["metadata"]["resourceVersion"] = i64::MAX.to_string().into();
        let made = w.apply(&w.maps("a"), "m", body.clone()).await.code(201);
        assert_ne!(made.body["metadata"]["resourceVersion"], body["metadata"]["resourceVersion"]);
        for manager in ["m", "another"] {
            let refused = w.apply(&w.maps("a"), manager, body.clone()).await;
            refused.refused_like(409, "Conflict", "Operation cannot be fulfilled on configmaps \"a\": ");
        }
        let kept = w.get(&w.maps("a")).await.code(200);
        assert_eq!(kept.body["metadata"]["resourceVersion"], made.body["metadata"]["resourceVersion"]);
    });
}

#[test]
fn applying_with_a_stale_version_is_a_409() {
    claim(async |w| {
        let first = apply(w, "m", json!({"k": "1"})).await;
        apply(w, "m", json!({"k": "2"})).await;
        let mut body = config(json!({"k": "3"}));
        body["metadata"]["resourceVersion"] = first["metadata"]["resourceVersion"].clone();
        w.apply(&w.maps("a"), "m", body).await.refused_like(
            409,
            "Conflict",
            "Operation cannot be fulfilled on configmaps \"a\": ",
        );
    });
}

#[test]
fn the_name_of_an_applied_config_may_be_missing_where_the_object_is_but_not_differ() {
    claim(async |w| {
        let mut body = config(json!({}));
        body["metadata"] = json!({});
        let message = "the name of the object (a based on URL) was undeterminable: name must be provided";
        w.apply(&w.maps("a"), "m", body.clone()).await.refused(400, "BadRequest", message);
        w.map("a", json!({})).await;
        w.apply(&w.maps("a"), "m", body.clone()).await.code(200);
        body["metadata"]["name"] = "b".into();
        w.apply(&w.maps("a"), "m", body).await.refused_like(400, "BadRequest", "");
    });
}

#[test]
fn an_applied_config_of_another_kind_is_a_400() {
    claim(async |w| {
        let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
        let answer = w.apply(&w.maps("a"), "m", body).await.code(400);
        assert!(answer.message().contains("invalid object type: /v1, Kind=Secret"), "{}", answer.text);
    });
}

#[test]
fn applying_with_the_uid_of_another_object_is_a_422() {
    claim(async |w| {
        apply(w, "m", json!({"k": "v"})).await;
        let mut body = config(json!({"k": "w"}));
        body["metadata"]["uid"] = "abc".into();
        w.apply(&w.maps("a"), "m", body).await.invalid("FieldValueInvalid", "metadata.uid");
    });
}

#[test]
fn applying_status_needs_the_object() {
    claim(async |w| {
        let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "status": {"replicas": 1}});
        let path = format!("{}/d/status", w.path("apps/v1", "deployments"));
        w.apply(&path, "m", body).await.refused(404, "NotFound", "deployments.apps \"d\" not found");
    });
}
