//! Fractions and other values of a wrong type in built-in objects.

use crate::world::{World, claim};
use serde_json::{Value, json};

fn deployment(replicas: Value) -> Value {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec =
        json!({"replicas": replicas, "paused": true, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})
}

async fn made(w: &World) -> String {
    let path = w.path("apps/v1", "deployments");
    w.post(&path, deployment(json!(1))).await.code(201);
    format!("{path}/d")
}

const NO_INT: &str =
    "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32";

#[test]
fn a_fraction_is_no_number_of_replicas_for_who_sends_the_whole_object() {
    claim(async |w| {
        let path = made(w).await;
        let message = format!("Deployment in version \"v1\" cannot be handled as a Deployment: {NO_INT}");
        w.put(&path, deployment(json!(1.5))).await.refused(400, "BadRequest", &message);
        let collection = path.trim_end_matches("/d");
        w.post(collection, deployment(json!(1.5))).await.refused(400, "BadRequest", &message);
    });
}

#[test]
fn a_patch_that_makes_a_fraction_of_a_number_is_refused() {
    claim(async |w| {
        let path = made(w).await;
        let merge = w.merge(&path, json!({"spec": {"replicas": 1.5}})).await;
        let json = w.json_patch(&path, json!([{"op": "replace", "path": "/spec/replicas", "value": 1.5}])).await;
        // A real server's message also quotes the object.
        for refused in [merge, json] {
            assert_eq!((refused.code, refused.reason()), (422, "Invalid"), "{}", refused.text);
            assert!(refused.message().ends_with(&format!("\": {NO_INT}")), "{}", refused.message());
        }
        for (value, why) in [
            (json!(1.5), "cannot convert float64 to int32"),
            (json!("1"), "unrecognized type: int32"),
            (json!([]), "unrecognized type: int32"),
        ] {
            let refused = w.strategic(&path, json!({"spec": {"replicas": value}})).await;
            assert_eq!((refused.code, refused.reason()), (422, "Invalid"), "{}", refused.text);
            assert!(refused.message().ends_with(&format!(": {why}")), "{}", refused.message());
        }
    });
}

#[test]
fn a_fraction_that_is_applied_cannot_be_converted() {
    claim(async |w| {
        let path = made(w).await;
        let what = "apps/v1, Kind=Deployment";
        let message = format!(
            "failed to convert new object (/d; {what}) to proper version: unable to convert unstructured object to {what}: \
             cannot convert float64 to int32"
        );
        w.force(&path, "app", deployment(json!(1.5))).await.refused(500, "", &message);
    });
}

#[test]
fn a_whole_fraction_is_a_number_to_who_merges_strategically_or_applies() {
    claim(async |w| {
        let path = made(w).await;
        let body = r#"{"spec":{"replicas":2.0}}"#;
        let merged = [("Content-Type", "application/strategic-merge-patch+json")];
        let answer = w.send(reqwest::Method::PATCH, &path, &merged, body).await.ok();
        assert_eq!(answer["spec"]["replicas"], json!(2));
        let body = deployment(json!(3)).to_string().replace("\"replicas\":3", "\"replicas\":3.0");
        let applied = [("Content-Type", "application/apply-patch+yaml")];
        let at = format!("{path}?fieldManager=app&force=true");
        let answer = w.send(reqwest::Method::PATCH, &at, &applied, &body).await.ok();
        assert_eq!(answer["spec"]["replicas"], json!(3));
    });
}
