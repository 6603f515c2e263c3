//! Field ownership of the replicas after a write through the scale subresource.

use crate::world::{Answer, World, claim, condition, fields, managers};
use reqwest::Method;
use serde_json::{Value, json};

async fn deployment(w: &World, replicas: Value) -> String {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec =
        json!({"replicas": replicas, "paused": true, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    let path = w.path("apps/v1", "deployments");
    let object = json!({"metadata": {"name": "d"}, "spec": spec});
    w.post(&format!("{path}?fieldManager=maker"), object).await.code(201);
    format!("{path}/d")
}

fn scale(replicas: Value) -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": replicas}})
}

/// Returns the managers of an object, without its controllers.
async fn owners(w: &World, path: &str) -> Vec<String> {
    let all = managers(&w.get(path).await.ok());
    all.into_iter().filter(|entry| !entry.ends_with("/status")).collect()
}

#[test]
fn a_scale_that_changes_nothing_gives_the_number_an_entry_of_its_own() {
    claim(async |w| {
        let path = deployment(w, json!(1)).await;
        // Another write of the object would merge the two entries.
        let settled =
            |a: &Answer| !condition(&a.body, "Available").is_empty() && !condition(&a.body, "Progressing").is_empty();
        w.until(&path, "its controller has said what there is to say", settled).await;
        let put = w.put(&format!("{path}/scale?fieldManager=scaler"), scale(json!(1))).await.ok();
        assert_eq!(put["spec"]["replicas"], 1);
        assert_eq!(owners(w, &path).await, ["maker/Update", "maker/Update"]);
        let object = w.get(&path).await.ok();
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        let number = json!({"f:spec": {"f:replicas": {}}});
        let (own, rest): (Vec<&Value>, Vec<&Value>) =
            entries.iter().filter(|e| e["manager"] == "maker").partition(|e| e["fieldsV1"] == number);
        assert_eq!((own.len(), rest.len()), (1, 1), "{object}");
        assert_eq!(rest[0]["fieldsV1"]["f:spec"].get("f:replicas"), None);
    });
}

#[test]
fn a_scale_takes_nothing_but_the_number_from_who_applied_it() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let spec =
            json!({"replicas": 2, "paused": true, "selector": {"matchLabels": {"a": "b"}}, "template": template});
        let applied = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec});
        w.apply(&path, "app", applied).await.code(201);
        let patch = json!({"spec": {"replicas": 3}});
        w.merge(&format!("{path}/scale?fieldManager=scaler"), patch).await.ok();
        assert_eq!(owners(w, &path).await, ["app/Apply", "scaler/Update/scale"]);
        let object = w.get(&path).await.ok();
        let kept = fields(&object, "app", "Apply");
        assert_eq!(kept["f:spec"].get("f:replicas"), None);
        assert!(kept["f:spec"].get("f:template").is_some(), "{kept}");
    });
}

#[test]
fn a_scale_is_applied_by_its_owner_and_refused_to_others() {
    claim(async |w| {
        let path = deployment(w, json!(1)).await;
        let at = format!("{path}/scale");
        let told = "conflict with \"maker\" using autoscaling/v1";
        let refused = w.apply(&at, "app", scale(json!(2))).await;
        assert_eq!(refused.causes(), [format!("FieldManagerConflict .spec.replicas: {told}")]);
        refused.refused(409, "Conflict", &format!("Apply failed with 1 conflict: {told}: .spec.replicas"));
        let taken = w.force(&at, "app", scale(json!(2))).await.ok();
        assert_eq!((&taken["kind"], &taken["spec"]["replicas"]), (&json!("Scale"), &json!(2)));
        assert_eq!(owners(w, &path).await, ["app/Apply/scale", "maker/Update"]);
        let object = w.get(&path).await.ok();
        assert_eq!(fields(&object, "app", "Apply"), json!({"f:spec": {"f:replicas": {}}}));
        assert_eq!(object["spec"]["replicas"], 2);
        // The owner may change the count; another applier conflicts.
        assert_eq!(w.apply(&at, "app", scale(json!(3))).await.ok()["spec"]["replicas"], 3);
        let told = "conflict with \"app\" with subresource \"scale\"";
        let message = format!("Apply failed with 1 conflict: {told}: .spec.replicas");
        w.apply(&at, "other", scale(json!(4))).await.refused(409, "Conflict", &message);
        // An applier of the same value becomes a co-owner.
        w.apply(&at, "other", scale(json!(3))).await.ok();
        assert_eq!(owners(w, &path).await, ["app/Apply/scale", "maker/Update", "other/Apply/scale"]);
    });
}

#[test]
fn an_unowned_scale_belongs_to_before_first_apply() {
    claim(async |w| {
        let path = deployment(w, json!(1)).await;
        w.merge(&path, json!({"metadata": {"managedFields": [{}]}})).await.ok();
        let at = format!("{path}/scale");
        let told = "conflict with \"before-first-apply\" with subresource \"scale\" using autoscaling/v1";
        let message = format!("Apply failed with 1 conflict: {told}: .spec.replicas");
        w.apply(&at, "app", scale(json!(2))).await.refused(409, "Conflict", &message);
        w.apply(&at, "app", scale(json!(1))).await.ok();
        let owners = owners(w, &path).await;
        assert!(owners.contains(&"before-first-apply/Update/scale".to_owned()), "{owners:?}");
        assert!(owners.contains(&"app/Apply/scale".to_owned()), "{owners:?}");
    });
}

#[test]
fn an_apply_to_a_scale_takes_a_scale() {
    claim(async |w| {
        let at = format!("{}/scale", deployment(w, json!(1)).await);
        let wrong = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}});
        let message = "invalid object type: apps/v1, Kind=Deployment";
        w.apply(&at, "app", wrong).await.refused(400, "BadRequest", message);
        let mut other = scale(json!(1));
        other["metadata"]["name"] = "other".into();
        let message = "the name of the object (other) does not match the name on the URL (d)";
        w.apply(&at, "app", other).await.refused(400, "BadRequest", message);
        let mut more = scale(json!(1));
        more["spec"]["foo"] = 1.into();
        let message = "failed to create typed patch object (/d; autoscaling/v1, Kind=Scale): .spec.foo: field not declared in schema";
        w.apply(&at, "app", more).await.refused(500, "", message);
        let message =
            "Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
        w.force(&at, "app", scale(json!(-1))).await.refused(422, "Invalid", message);
        let none = w.path("apps/v1", "deployments/none/scale");
        let mut absent = scale(json!(1));
        absent["metadata"]["name"] = "none".into();
        w.apply(&none, "app", absent).await.refused(404, "NotFound", "deployments.apps \"none\" not found");
    });
}

#[test]
fn a_scale_of_other_kinds_is_applied_alike_and_one_of_a_custom_resource_is_not() {
    claim(async |w| {
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        for resource in ["replicasets", "statefulsets"] {
            let spec = json!({"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template});
            w.post(&w.path("apps/v1", resource), json!({"metadata": {"name": "d"}, "spec": spec})).await.code(201);
            let at = w.path("apps/v1", &format!("{resource}/d/scale"));
            assert_eq!(w.force(&at, "app", scale(json!(1))).await.ok()["spec"]["replicas"], 1);
        }
        let scaled = json!({"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}});
        let schema = json!({"type": "object", "properties": {"size": {"type": "integer"}, "x": {"type": "string"}}});
        let widgets = w.custom(schema, json!({"subresources": scaled})).await;
        w.post(&widgets.path, widgets.widget("d", json!({"size": 1, "x": "y"}))).await.code(201);
        let at = format!("{}/scale", widgets.at("d"));
        let message = "failed to convert new object (/d; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid group/version: autoscaling/v1";
        w.force(&at, "app", scale(json!(2))).await.refused(500, "", message);
        assert_eq!(w.get(&widgets.at("d")).await.ok()["spec"]["size"], 1);
    });
}

#[test]
fn a_custom_resource_without_a_number_has_no_scale_until_it_gets_one() {
    claim(async |w| {
        let scaled = json!({"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}});
        let schema = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
        let widgets = w.custom(schema, json!({"subresources": scaled})).await;
        w.post(&widgets.path, widgets.widget("d", json!({}))).await.code(201);
        let at = format!("{}/scale", widgets.at("d"));
        let message = "Internal error occurred: the spec replicas field \".spec.size\" does not exist";
        w.get(&at).await.refused(500, "InternalError", message);
        let message = "the spec replicas field \".spec.size\" cannot be empty";
        w.merge(&at, json!({"metadata": {"labels": {"a": "b"}}})).await.refused(400, "BadRequest", message);
        assert_eq!(w.merge(&at, json!({"spec": {"replicas": 3}})).await.ok()["spec"]["replicas"], 3);
        assert_eq!(w.get(&widgets.at("d")).await.ok()["spec"]["size"], 3);
        assert_eq!(w.get(&at).await.ok()["spec"]["replicas"], 3);
    });
}

#[test]
fn the_number_of_a_scale_is_a_whole_one() {
    claim(async |w| {
        let at = format!("{}/scale", deployment(w, json!(1)).await);
        let why = "json: cannot unmarshal number 1.5 into Go struct field ScaleSpec.spec.replicas of type int32";
        let message = format!("Scale in version \"v1\" cannot be handled as a Scale: {why}");
        w.put(&at, scale(json!(1.5))).await.refused(400, "BadRequest", &message);
        for kind in ["application/merge-patch+json", "application/json-patch+json"] {
            let merge = json!({"spec": {"replicas": 1.5}}).to_string();
            let json = json!([{"op": "replace", "path": "/spec/replicas", "value": 1.5}]).to_string();
            let body = if kind.contains("merge") { merge } else { json };
            let refused = w.send(Method::PATCH, &at, &[("Content-Type", kind)], &body).await;
            assert_eq!((refused.code, refused.reason()), (422, "Invalid"), "{}", refused.text);
            assert!(refused.message().ends_with(why), "{}", refused.message());
        }
    });
}
