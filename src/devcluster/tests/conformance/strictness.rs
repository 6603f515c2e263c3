//! Field validation and dry runs.

use serde_json::{Value, json};

use crate::patches::deployment;
use crate::world::{claim, rv};

fn misspelt() -> Value {
    let mut body = deployment("d");
    body["spec"]["bogus"] = 1.into();
    body["spec"]["template"]["spec"]["containers"][0]["extra"] = true.into();
    body
}

#[test]
fn unknown_fields_are_dropped_with_warnings() {
    claim(async |w| {
        let answer = w.post(&w.path("apps/v1", "deployments"), misspelt()).await.code(201);
        assert_eq!(answer.body["spec"]["bogus"], Value::Null);
        let mut warnings = answer.warnings();
        warnings.sort();
        assert_eq!(
            warnings,
            [
                "299 - \"unknown field \\\"spec.bogus\\\"\"",
                "299 - \"unknown field \\\"spec.template.spec.containers[0].extra\\\"\""
            ]
        );
    });
}

#[test]
fn unknown_fields_are_a_400_when_strict() {
    claim(async |w| {
        let path = w.path("apps/v1", "deployments?fieldValidation=Strict");
        let answer = w.post(&path, misspelt()).await;
        let message = "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown field \"spec.bogus\", unknown field \"spec.template.spec.containers[0].extra\"";
        answer.refused(400, "BadRequest", message);
    });
}

#[test]
fn unknown_fields_are_ignored_on_request() {
    claim(async |w| {
        let answer = w.post(&w.path("apps/v1", "deployments?fieldValidation=Ignore"), misspelt()).await.code(201);
        assert_eq!(answer.warnings(), [""; 0]);
        assert_eq!(answer.body["spec"]["bogus"], Value::Null);
    });
}

#[test]
fn a_strict_patch_with_an_unknown_field_is_a_422() {
    claim(async |w| {
        let path = w.path("apps/v1", "deployments");
        w.post(&path, deployment("d")).await.code(201);
        let answer = w.merge(&format!("{path}/d?fieldValidation=Strict"), json!({"spec": {"bogus": 1}})).await;
        let answer = answer.invalid("FieldValueInvalid", "patch");
        assert!(answer.message().contains("strict decoding error: unknown field \"spec.bogus\""), "{}", answer.text);
    });
}

#[test]
fn unknown_options_are_a_422() {
    claim(async |w| {
        w.post(&w.maps("?fieldValidation=Maybe"), json!({"metadata": {"name": "a"}})).await.refused_like(
            422,
            "Invalid",
            "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: ",
        );
        let answer = w.post(&w.maps("?dryRun=Some"), json!({"metadata": {"name": "a"}})).await;
        answer.refused_like(422, "Invalid", "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: ");
        w.map("b", json!({})).await;
        let answer = w.merge(&w.maps("b?fieldValidation=Maybe"), json!({})).await;
        answer.refused_like(422, "Invalid", "PatchOptions.meta.k8s.io \"\" is invalid: fieldValidation: ");
        let answer = w.delete(&w.maps("b"), json!({"propagationPolicy": "Sideways"})).await;
        answer.refused_like(422, "Invalid", "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: ");
    });
}

#[test]
fn a_dry_run_create_stores_nothing() {
    claim(async |w| {
        let shown = w.post(&w.maps("?dryRun=All"), json!({"metadata": {"name": "a"}})).await.code(201).body;
        assert!(shown["metadata"]["uid"].is_string());
        assert!(shown["metadata"]["creationTimestamp"].is_string());
        assert_eq!(shown["metadata"]["resourceVersion"], Value::Null);
        w.get(&w.maps("a")).await.code(404);
    });
}

#[test]
fn dry_runs_validate() {
    claim(async |w| {
        w.post(&w.maps("?dryRun=All"), json!({"metadata": {"name": "A_b"}})).await.refused_like(422, "Invalid", "");
        w.map("a", json!({})).await;
        w.post(&w.maps("?dryRun=All"), json!({"metadata": {"name": "a"}})).await.refused_like(409, "AlreadyExists", "");
    });
}

#[test]
fn dry_run_replace_patch_and_delete_leave_the_object() {
    claim(async |w| {
        let made = w.map("a", json!({"k": "v"})).await;
        let body = json!({"metadata": {"name": "a"}, "data": {"k": "w"}});
        let put = w.put(&w.maps("a?dryRun=All"), body).await.code(200).body;
        assert_eq!((&put["data"]["k"], rv(&put)), (&json!("w"), rv(&made)));
        w.merge(&w.maps("a?dryRun=All"), json!({"data": {"k": "x"}})).await.code(200);
        w.delete(&w.maps("a"), json!({"dryRun": ["All"]})).await.code(200);
        assert_eq!(w.get(&w.maps("a")).await.ok(), made);
    });
}
