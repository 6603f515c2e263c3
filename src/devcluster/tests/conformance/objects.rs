//! Create, read, replace and delete.

use serde_json::{Value, json};

use crate::world::{claim, rv};

#[test]
fn a_created_object_has_the_metadata_of_the_server() {
    claim(async |w| {
        let sent = json!({"metadata": {"name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "labels": {"l": "v"}}, "data": {"k": "v"}});
        let made = w.post(&w.maps(""), sent).await.code(201).body;
        assert_eq!((&made["kind"], &made["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
        assert_eq!(made["metadata"]["namespace"], w.ns.as_str());
        assert_eq!(made["metadata"]["uid"].as_str().map(str::len), Some(36));
        assert!(!made["metadata"]["creationTimestamp"].as_str().unwrap().starts_with("2001"));
        assert!(rv(&made) > 0);
        assert_eq!(made["metadata"]["generation"], Value::Null);
        assert_eq!(made["data"], json!({"k": "v"}));
    });
}

#[test]
fn a_resource_version_on_create_is_a_500() {
    claim(async |w| {
        let body = json!({"metadata": {"name": "a", "resourceVersion": "1"}});
        let answer = w.post(&w.maps(""), body).await.code(500);
        assert_eq!(answer.message(), "resourceVersion should not be set on objects to be created");
    });
}

#[test]
fn creating_what_exists_is_a_409_already_exists() {
    claim(async |w| {
        w.map("a", json!({})).await;
        let body = json!({"metadata": {"name": "a"}});
        let answer = w.post(&w.maps(""), body).await.refused(409, "AlreadyExists", "configmaps \"a\" already exists");
        assert_eq!(answer.body["details"], json!({"name": "a", "kind": "configmaps"}));
    });
}

#[test]
fn group_resources_are_named_with_their_group_in_errors() {
    claim(async |w| {
        let path = format!("{}/x", w.path("apps/v1", "deployments"));
        let answer = w.get(&path).await.refused(404, "NotFound", "deployments.apps \"x\" not found");
        assert_eq!(answer.body["details"], json!({"name": "x", "group": "apps", "kind": "deployments"}));
        assert_eq!(answer.body["metadata"], json!({}));
    });
}

#[test]
fn creating_in_a_missing_namespace_is_a_404_of_the_namespace() {
    claim(async |w| {
        let missing = format!("{}-missing", w.ns);
        let path = format!("/api/v1/namespaces/{missing}/configmaps");
        let message = format!("namespaces \"{missing}\" not found");
        let answer = w.post(&path, json!({"metadata": {"name": "a"}})).await.refused(404, "NotFound", &message);
        assert_eq!(answer.body["details"]["kind"], "namespaces");
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        w.apply(&format!("{path}/a"), "m", config).await.refused(404, "NotFound", &message);
        assert_eq!(w.get(&path).await.ok()["items"], json!([]));
        w.get(&format!("{path}/a")).await.refused(404, "NotFound", "configmaps \"a\" not found");
    });
}

#[test]
fn the_namespace_of_the_body_must_be_that_of_the_url() {
    claim(async |w| {
        let body = json!({"metadata": {"name": "a", "namespace": "other"}});
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        w.post(&w.maps(""), body).await.refused(400, "BadRequest", message);
    });
}

#[test]
fn an_object_needs_a_name() {
    claim(async |w| {
        let message = "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required";
        let answer = w.post(&w.maps(""), json!({"data": {}})).await.refused(422, "Invalid", message);
        assert_eq!(
            answer.causes(),
            ["FieldValueRequired metadata.name: Required value: name or generateName is required"]
        );
        assert_eq!(answer.body["details"]["kind"], "ConfigMap");
    });
}

#[test]
fn a_name_must_be_a_dns_subdomain() {
    claim(async |w| {
        let answer = w.post(&w.maps(""), json!({"metadata": {"name": "A_b"}})).await;
        let start = "ConfigMap \"A_b\" is invalid: metadata.name: Invalid value: \"A_b\": ";
        answer.invalid("FieldValueInvalid", "metadata.name").refused_like(422, "Invalid", start);
    });
}

#[test]
fn generate_name_adds_five_characters() {
    claim(async |w| {
        let made = w.post(&w.maps(""), json!({"metadata": {"generateName": "a-"}})).await.code(201).body;
        let name = made["metadata"]["name"].as_str().unwrap();
        let tail = name.strip_prefix("a-").unwrap();
        assert_eq!(tail.len(), 5);
        assert!(tail.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "{name}");
        assert_eq!(made["metadata"]["generateName"], "a-");
    });
}

#[test]
fn a_body_of_another_kind_is_a_400() {
    claim(async |w| {
        let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
        w.post(&w.maps(""), body).await.refused_like(400, "BadRequest", "");
    });
}

#[test]
fn a_body_that_is_no_json_is_a_400() {
    claim(async |w| {
        let answer =
            w.send(reqwest::Method::POST, &w.maps(""), &[("Content-Type", "application/json")], "{\"metadata\":").await;
        answer.refused_like(400, "BadRequest", "");
    });
}

#[test]
fn a_field_of_the_wrong_type_is_a_400() {
    claim(async |w| {
        let body = json!({"metadata": {"name": "a"}, "data": {"n": 1}});
        let start = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: ";
        let answer = w.post(&w.maps(""), body).await.refused_like(400, "BadRequest", start);
        assert!(answer.message().contains("cannot unmarshal number"), "{}", answer.text);
    });
}

#[test]
fn yaml_bodies_are_understood() {
    claim(async |w| {
        let yaml = "metadata:\n  name: a\ndata:\n  k: v\n";
        let answer =
            w.send(reqwest::Method::POST, &w.maps(""), &[("Content-Type", "application/yaml")], yaml).await.code(201);
        assert_eq!(answer.body["data"]["k"], "v");
    });
}

#[test]
fn an_unknown_content_type_is_a_415() {
    claim(async |w| {
        let answer = w.send(reqwest::Method::POST, &w.maps(""), &[("Content-Type", "text/csv")], "a,b").await;
        let start = "the body of the request was in an unknown format - accepted media types include: ";
        answer.refused_like(415, "UnsupportedMediaType", start);
    });
}

#[test]
fn replacing_with_a_stale_version_is_a_409_conflict() {
    claim(async |w| {
        let old = w.map("a", json!({"k": "1"})).await;
        w.merge(&w.maps("a"), json!({"data": {"k": "2"}})).await.ok();
        let mut stale = old.clone();
        stale["data"]["k"] = "3".into();
        let message = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again";
        let answer = w.put(&w.maps("a"), stale).await.refused(409, "Conflict", message);
        assert_eq!(answer.body["details"], json!({"name": "a", "kind": "configmaps"}));
    });
}

#[test]
fn replacing_without_a_version_is_unconditional_for_config_maps() {
    claim(async |w| {
        let old = w.post(&w.maps(""), json!({"metadata": {"name": "a", "labels": {"x": "y"}}})).await.ok();
        let new = w.put(&w.maps("a"), json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await.code(200).body;
        assert!(rv(&new) > rv(&old));
        assert_eq!(new["metadata"]["uid"], old["metadata"]["uid"]);
        assert_eq!(new["metadata"]["creationTimestamp"], old["metadata"]["creationTimestamp"]);
        assert_eq!(new["metadata"]["labels"], Value::Null, "labels that were not sent are gone");
    });
}

#[test]
fn replacing_a_lease_needs_a_version() {
    claim(async |w| {
        let path = w.path("coordination.k8s.io/v1", "leases");
        w.post(&path, json!({"metadata": {"name": "l"}})).await.code(201);
        let answer = w.put(&format!("{path}/l"), json!({"metadata": {"name": "l"}})).await;
        let answer = answer.invalid("FieldValueInvalid", "metadata.resourceVersion");
        let end = "is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";
        assert!(answer.message().ends_with(end), "{}", answer.text);
    });
}

#[test]
fn replacing_with_the_same_changes_nothing() {
    claim(async |w| {
        let old = w.map("a", json!({"k": "v"})).await;
        let same = w.put(&w.maps("a"), old.clone()).await.code(200).body;
        assert_eq!(same, old);
        assert_eq!(w.get(&w.maps("a")).await.ok(), old);
    });
}

#[test]
fn replacing_what_is_not_there_is_a_404_for_config_maps_and_creates_leases() {
    claim(async |w| {
        let body = json!({"metadata": {"name": "x"}});
        w.put(&w.maps("x"), body.clone()).await.refused(404, "NotFound", "configmaps \"x\" not found");
        w.put(&format!("{}/x", w.path("coordination.k8s.io/v1", "leases")), body).await.code(201);
    });
}

#[test]
fn the_name_of_the_body_must_be_that_of_the_url() {
    claim(async |w| {
        w.map("a", json!({})).await;
        let body = json!({"metadata": {"name": "zzz"}});
        let message = "the name of the object (zzz) does not match the name on the URL (a)";
        w.put(&w.maps("a"), body).await.refused(400, "BadRequest", message);
    });
}

#[test]
fn replacing_with_another_uid_is_a_409() {
    claim(async |w| {
        w.map("a", json!({})).await;
        let body = json!({"metadata": {"name": "a", "uid": "00000000-0000-4000-8000-000000000000"}});
        w.put(&w.maps("a"), body).await.refused_like(
            409,
            "Conflict",
            "Operation cannot be fulfilled on configmaps \"a\": ",
        );
    });
}

#[test]
fn deleting_answers_a_success_status_with_the_uid() {
    claim(async |w| {
        let made = w.map("a", json!({})).await;
        let answer = w.delete(&w.maps("a"), json!({})).await.code(200);
        assert_eq!((&answer.body["kind"], &answer.body["status"]), (&json!("Status"), &json!("Success")));
        let expected = json!({"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]});
        assert_eq!(answer.body["details"], expected);
        w.get(&w.maps("a")).await.code(404);
        w.delete(&w.maps("a"), json!({})).await.refused(404, "NotFound", "configmaps \"a\" not found");
    });
}

#[test]
fn deleting_a_service_account_answers_the_object() {
    claim(async |w| {
        let path = w.path("v1", "serviceaccounts");
        w.post(&path, json!({"metadata": {"name": "s"}})).await.code(201);
        let answer = w.delete(&format!("{path}/s"), json!({})).await.code(200);
        assert_eq!((&answer.body["kind"], &answer.body["metadata"]["name"]), (&json!("ServiceAccount"), &json!("s")));
    });
}

#[test]
fn deleting_with_the_wrong_uid_is_a_409() {
    claim(async |w| {
        let made = w.map("a", json!({})).await;
        let uid = made["metadata"]["uid"].as_str().unwrap();
        let answer = w.delete(&w.maps("a"), json!({"preconditions": {"uid": "x"}})).await;
        let message = format!(
            "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (x) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        );
        let refused = answer.refused(409, "Conflict", &message);
        assert_eq!(refused.body["details"], json!({"name": "a", "kind": "ConfigMap"}));
        w.delete(&w.maps("a"), json!({"preconditions": {"uid": uid}})).await.code(200);
    });
}

#[test]
fn deleting_with_a_stale_version_is_a_409() {
    claim(async |w| {
        w.map("a", json!({})).await;
        let answer = w.delete(&w.maps("a"), json!({"preconditions": {"resourceVersion": "1"}})).await;
        answer.refused_like(409, "Conflict", "Operation cannot be fulfilled on ConfigMap \"a\": ");
    });
}

#[test]
fn a_finalizer_holds_an_object_until_it_is_removed() {
    claim(async |w| {
        w.post(&w.maps(""), json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})).await.code(201);
        let marked = w.delete(&w.maps("a"), json!({})).await.code(200).body;
        assert_eq!(marked["kind"], "ConfigMap");
        assert!(marked["metadata"]["deletionTimestamp"].is_string());
        assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
        let again = w.delete(&w.maps("a"), json!({})).await.code(200).body;
        assert_eq!(again, marked, "deleting a terminating object changes nothing");
        let changed = w.merge(&w.maps("a"), json!({"data": {"k": "v"}})).await.ok();
        assert_eq!(changed["data"]["k"], "v");
        let last = w.merge(&w.maps("a"), json!({"metadata": {"finalizers": null}})).await.code(200).body;
        assert_eq!(last["metadata"]["finalizers"], Value::Null);
        assert_eq!(rv(&last), rv(&changed), "the last answer carries the old version");
        w.get(&w.maps("a")).await.code(404);
    });
}

#[test]
fn creating_over_a_terminating_object_says_so() {
    claim(async |w| {
        w.post(&w.maps(""), json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})).await.code(201);
        w.delete(&w.maps("a"), json!({})).await.code(200);
        let message = "object is being deleted: configmaps \"a\" already exists";
        w.post(&w.maps(""), json!({"metadata": {"name": "a"}})).await.refused(409, "AlreadyExists", message);
        w.merge(&w.maps("a"), json!({"metadata": {"finalizers": []}})).await.code(200);
    });
}

#[test]
fn a_terminating_object_takes_no_new_finalizers() {
    claim(async |w| {
        w.post(&w.maps(""), json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})).await.code(201);
        w.delete(&w.maps("a"), json!({})).await.code(200);
        let patch = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
        let answer = w.merge(&w.maps("a"), patch).await.code(422);
        let why = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/more\"}";
        assert_eq!(answer.causes(), vec![format!("FieldValueForbidden {why}"); 2]);
        assert_eq!(answer.message(), format!("ConfigMap \"a\" is invalid: {why}"), "it is said once");
        w.merge(&w.maps("a"), json!({"metadata": {"finalizers": null}})).await.code(200);
    });
}

#[test]
fn deletion_cannot_be_undone_by_a_client() {
    claim(async |w| {
        w.post(&w.maps(""), json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})).await.code(201);
        let marked = w.delete(&w.maps("a"), json!({})).await.code(200).body;
        let after = w.merge(&w.maps("a"), json!({"metadata": {"deletionTimestamp": null}})).await.code(200).body;
        assert_eq!(after["metadata"]["deletionTimestamp"], marked["metadata"]["deletionTimestamp"]);
        w.merge(&w.maps("a"), json!({"metadata": {"finalizers": null}})).await.code(200);
    });
}

#[test]
fn an_unqualified_finalizer_is_refused() {
    claim(async |w| {
        let answer = w.post(&w.maps(""), json!({"metadata": {"name": "a", "finalizers": ["hold"]}})).await;
        let answer = answer.refused_like(422, "Invalid", "ConfigMap \"a\" is invalid: metadata.finalizers");
        assert!(answer.causes()[0].starts_with("FieldValueInvalid metadata.finalizers"), "{}", answer.text);
    });
}

#[test]
fn a_collection_is_deleted_by_selector_and_answers_the_list() {
    claim(async |w| {
        for (name, label) in [("a", "x"), ("b", "x"), ("c", "y")] {
            w.post(&w.maps(""), json!({"metadata": {"name": name, "labels": {"l": label}}})).await.code(201);
        }
        let answer = w.delete(&w.maps("?labelSelector=l%3Dx"), json!({})).await.code(200);
        assert_eq!(answer.body["kind"], "ConfigMapList");
        assert_eq!(answer.body["items"].as_array().map(Vec::len), Some(2));
        w.get(&w.maps("a")).await.code(404);
        w.get(&w.maps("c")).await.code(200);
    });
}

#[test]
fn namespaces_have_no_collection_deletion() {
    claim(async |w| {
        w.delete("/api/v1/namespaces?labelSelector=never%3Dever", json!({})).await.refused_like(
            405,
            "MethodNotAllowed",
            "",
        );
    });
}

#[test]
fn deletion_counts_as_a_generation_where_there_are_generations() {
    claim(async |w| {
        let custom = w.custom(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), json!({})).await;
        let mut widget = custom.widget("a", json!({}));
        widget["metadata"]["finalizers"] = json!(["example.com/hold"]);
        let made = w.post(&custom.path, widget).await.code(201).body;
        assert_eq!(made["metadata"]["generation"], 1);
        let marked = w.delete(&custom.at("a"), json!({})).await.code(200).body;
        assert_eq!(marked["metadata"]["generation"], 2);
        w.merge(&custom.at("a"), json!({"metadata": {"finalizers": null}})).await.code(200);
    });
}

#[test]
fn reading_a_future_version_times_out() {
    claim(async |w| {
        w.map("a", json!({})).await;
        let answer = w.get(&w.maps("a?resourceVersion=900000000000")).await;
        assert_eq!((answer.code, answer.reason()), (504, "Timeout"), "{}", answer.text);
        assert_eq!(answer.headers["retry-after"], "1");
        assert_eq!(answer.body["details"]["retryAfterSeconds"], 1);
    });
}

#[test]
fn empty_query_pairs_are_tolerated() {
    claim(async |w| {
        w.get(&w.maps("?")).await.code(200);
        w.get(&w.maps("?&limit=500&")).await.code(200);
        w.get(&w.maps("?unknownParameter=1")).await.code(200);
    });
}

#[test]
fn too_many_annotations_are_refused() {
    claim(async |w| {
        let body = json!({"metadata": {"name": "a", "annotations": {"a": "x".repeat(263_000)}}});
        let answer = w.post(&w.maps(""), body).await.code(422);
        assert_eq!(
            answer.causes(),
            ["FieldValueTooLong metadata.annotations: Too long: may not be more than 262144 bytes"]
        );
    });
}

#[test]
fn a_body_beyond_three_mebibytes_is_a_413() {
    claim(async |w| {
        let body = json!({"metadata": {"name": "a"}, "data": {"k": "x".repeat(3_300_000)}});
        let message = "Request entity too large: limit is 3145728";
        w.post(&w.maps(""), body).await.refused(413, "RequestEntityTooLarge", message);
    });
}

#[test]
fn a_collection_can_be_deleted_by_the_page() {
    claim(async |w| {
        for name in ["a", "b", "c"] {
            w.post(&w.maps(""), json!({"metadata": {"name": name, "labels": {"x": "y"}}})).await.code(201);
        }
        let names = |list: &Value| -> Vec<String> {
            let items = list["items"].as_array().unwrap();
            items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        let first = w.delete(&w.maps("?labelSelector=x%3Dy&limit=2"), json!({})).await.ok();
        assert_eq!(names(&first), ["a", "b"]);
        assert!(first["metadata"]["continue"].is_string());
        let rest = w.delete(&w.maps("?labelSelector=x%3Dy"), json!({})).await.ok();
        assert_eq!(names(&rest), ["c"]);
    });
}
