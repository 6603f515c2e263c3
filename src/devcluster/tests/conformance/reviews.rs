//! Access reviews and identity reviews.

use serde_json::{Value, json};

use crate::world::claim;

const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";

#[test]
fn a_question_about_access_without_attributes_is_a_422() {
    claim(async |w| {
        let none = "FieldValueInvalid spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified";
        let path = format!("{AUTHORIZATION}/selfsubjectaccessreviews");
        for body in [json!({}), json!({"spec": {}})] {
            let answer = w.post(&path, body).await;
            assert_eq!((answer.code, answer.reason()), (422, "Invalid"), "{}", answer.text);
            assert_eq!(answer.causes(), [none]);
            assert_eq!(answer.body["details"]["group"], "authorization.k8s.io");
        }
        let answer = w.post(&format!("{AUTHORIZATION}/subjectaccessreviews"), json!({"spec": {}})).await;
        let user = "FieldValueInvalid spec.user: Invalid value: \"\": at least one of user or group must be specified";
        assert_eq!(answer.causes(), [none, user], "{}", answer.text);
    });
}

#[test]
fn a_question_about_access_with_both_attributes_is_a_422() {
    claim(async |w| {
        let spec =
            json!({"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"verb": "get", "path": "/"}});
        let answer = w.post(&format!("{AUTHORIZATION}/selfsubjectaccessreviews"), json!({"spec": spec})).await;
        answer.invalid("FieldValueInvalid", "spec.nonResourceAttributes");
    });
}

#[test]
fn a_local_question_is_about_its_own_namespace() {
    claim(async |w| {
        let path = w.path("authorization.k8s.io/v1", "localsubjectaccessreviews");
        let attributes = json!({"verb": "get", "resource": "pods", "namespace": "elsewhere"});
        let spec = json!({"user": "alice", "resourceAttributes": attributes});
        let answer = w.post(&path, json!({"metadata": {"namespace": w.ns}, "spec": spec})).await;
        answer.invalid("FieldValueInvalid", "spec.resourceAttributes.namespace");
    });
}

#[test]
fn a_user_has_the_rights_that_a_review_reports() {
    claim(async |w| {
        let attributes = json!({"verb": "delete", "resource": "configmaps", "namespace": w.ns});
        let body = json!({"spec": {"resourceAttributes": attributes}});
        let answer = w.post(&format!("{AUTHORIZATION}/selfsubjectaccessreviews"), body).await.code(201);
        assert_eq!(answer.body["status"]["allowed"], true);
        assert_eq!(answer.body["kind"], "SelfSubjectAccessReview");
        let body = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/healthz"}}});
        let answer = w.post(&format!("{AUTHORIZATION}/selfsubjectaccessreviews"), body).await.code(201);
        assert_eq!(answer.body["status"]["allowed"], true);
    });
}

#[test]
fn a_review_of_a_token_needs_one() {
    claim(async |w| {
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let message = "token is required for TokenReview in authentication";
        w.post(path, json!({"spec": {}})).await.refused(400, "BadRequest", message);
        let answer = w.post(path, json!({"spec": {"token": "nonsense"}})).await.code(201);
        assert_ne!(answer.body["status"]["authenticated"], true);
        assert_eq!(answer.body["status"]["user"], json!({}));
    });
}

#[test]
fn everyone_can_ask_who_he_is() {
    claim(async |w| {
        let answer = w.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({})).await.code(201);
        let user = &answer.body["status"]["userInfo"];
        assert!(user["username"].as_str().is_some_and(|name| !name.is_empty()), "{}", answer.text);
        let groups = user["groups"].as_array().cloned().unwrap_or_default();
        assert!(groups.contains(&Value::from("system:authenticated")), "{}", answer.text);
    });
}

#[test]
fn questions_about_oneself_are_answered_without_being_repeated() {
    claim(async |w| {
        let me = w.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({})).await.code(201).body;
        assert!(me["metadata"]["creationTimestamp"].is_string(), "{me}");
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let rules = w.post(path, json!({"spec": {"namespace": w.ns}})).await.code(201).body;
        assert_eq!(rules["spec"], json!({}));
        let message = "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"x\"}, Extra:map[string][]string(nil)} without impersonating a user name";
        let answer = w.send(reqwest::Method::GET, &w.maps(""), &[("Impersonate-Group", "x")], "").await;
        answer.refused(400, "BadRequest", message);
    });
}
