//! Responses and bodies in YAML.

use crate::world::{Answer, World, claim};
use reqwest::Method;
use serde_json::{Value, json};

const YAML: &[(&str, &str)] = &[("Accept", "application/yaml")];

/// Parses a YAML response.
#[track_caller]
fn read(answer: &Answer) -> Value {
    assert_eq!(answer.headers["content-type"], "application/yaml", "{}", answer.text);
    serde_yaml::from_str(&answer.text).expect("the answer is YAML")
}

async fn get(w: &World, path: &str) -> Answer {
    w.send(Method::GET, path, YAML, "").await
}

#[test]
fn objects_and_lists_are_answered_in_yaml_to_who_wants_it() {
    claim(async |w| {
        w.map("a", json!({"yes": "yes", "number": "1", "text": "x: y\n- z", "empty": ""})).await;
        for path in [w.maps("a"), w.maps("?labelSelector=no-such-label"), w.path("v1", ""), "/apis/apps".to_owned()] {
            let path = path.trim_end_matches('/');
            let wanted = w.get(path).await.ok();
            assert_eq!(read(&get(w, path).await.code(200))["kind"], wanted["kind"]);
        }
        let object = get(w, &w.maps("a")).await.code(200);
        assert_eq!(read(&object), w.get(&w.maps("a")).await.ok());
        assert!(object.text.contains("\n  \"yes\": \"yes\"\n"), "{}", object.text);
        assert!(object.text.contains("\n  number: \"1\"\n"), "{}", object.text);
    });
}

#[test]
fn refusals_are_answered_in_yaml_to_who_wants_it() {
    claim(async |w| {
        let missing = get(w, &w.maps("none")).await.code(404);
        assert_eq!(read(&missing), w.get(&w.maps("none")).await.body);
        w.map("a", json!({})).await;
        let again = w.send(Method::POST, &w.maps(""), YAML, r#"{"metadata":{"name":"a"}}"#).await.code(409);
        assert_eq!(read(&again)["reason"], "AlreadyExists");
        assert_eq!(read(&get(w, "/api/v1/nope").await.code(404))["reason"], "NotFound");
        // The version is not available as YAML.
        let version = read(&get(w, "/version").await.code(406));
        assert_eq!(version["message"], "406: Not Acceptable\n\nAvailable representations: application/json");
    });
}

#[test]
fn tables_and_metadata_are_answered_in_yaml_to_who_wants_it() {
    claim(async |w| {
        w.map("a", json!({})).await;
        for form in ["Table", "PartialObjectMetadata"] {
            let accept = format!("application/yaml;as={form};g=meta.k8s.io;v=v1");
            assert_eq!(read(&w.get_as(&w.maps("a"), &accept).await.code(200))["kind"], form);
        }
    });
}

#[test]
fn the_heaviest_clause_of_accept_counts() {
    claim(async |w| {
        w.map("a", json!({})).await;
        for accept in [
            "application/json;q=0.5,application/yaml",
            "*/*, application/yaml",
            "application/yaml,application/json",
            "application/yaml;q=0.9,application/json;q=0.1",
        ] {
            read(&w.get_as(&w.maps("a"), accept).await.code(200));
        }
        for accept in ["application/yaml;q=0.1,application/json;q=0.2", "application/json,application/yaml", "*/*"] {
            w.get_as(&w.maps("a"), accept).await.ok();
        }
    });
}

#[test]
fn a_watch_has_no_yaml_form() {
    claim(async |w| {
        let answer = get(w, &w.maps("?watch=true&timeoutSeconds=1")).await.code(406);
        let status = read(&answer);
        assert_eq!(status["reason"], "NotAcceptable");
        let text = "only the following media types are accepted: application/json;stream=watch, \
                    application/vnd.kubernetes.protobuf;stream=watch";
        assert_eq!(status["message"], text);
    });
}

#[test]
fn objects_are_taken_in_yaml_and_the_first_document_counts() {
    claim(async |w| {
        let yaml = &[("Content-Type", "application/yaml")][..];
        let body = "metadata:\n  name: a\ndata:\n  x: |\n    y\n---\nmetadata: {name: b}\n";
        let created = w.send(Method::POST, &w.maps(""), yaml, body).await.ok();
        assert_eq!((&created["metadata"]["name"], &created["data"]), (&json!("a"), &json!({"x": "y\n"})));
        let replaced = w.send(Method::PUT, &w.maps("a"), yaml, "metadata: {name: a}\ndata: {z: \"1\"}\n").await.ok();
        assert_eq!(replaced["data"], json!({"z": "1"}));
        let text = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go \
                    struct field ConfigMap.data of type string";
        let wrong = w.send(Method::POST, &w.maps(""), yaml, "metadata: {name: c}\ndata: {x: 1}\n").await;
        wrong.refused(400, "BadRequest", text);
        let other =
            w.send(Method::POST, &w.maps(""), yaml, "apiVersion: v1\nkind: Secret\nmetadata: {name: c}\n").await;
        let text = "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to \
                    (core.ConfigMap): unknown conversion";
        other.refused(400, "BadRequest", text);
    });
}

#[test]
fn the_body_of_a_deletion_replaces_its_query() {
    claim(async |w| {
        w.map("a", json!({})).await;
        let dry = format!("{}?dryRun=All", w.maps("a"));
        w.send(Method::DELETE, &dry, &[], "").await.code(200);
        w.get(&w.maps("a")).await.code(200);
        w.delete(&dry, json!({"dryRun": ["All"]})).await.code(200);
        w.get(&w.maps("a")).await.code(200);
        w.delete(&dry, json!({})).await.code(200);
        w.get(&w.maps("a")).await.code(404);
    });
}
