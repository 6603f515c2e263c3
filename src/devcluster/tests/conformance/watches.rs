//! Watches.

use serde_json::{Value, json};

use crate::world::{Answer, World, claim, rv};

/// Returns the resource version from which a watch shows only later events.
async fn now(w: &World) -> u64 {
    rv(&w.get(&w.maps("")).await.ok())
}

const MINE: &str = "labelSelector=mine";

fn mine(name: &str, data: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"mine": "1"}}, "data": {"k": data}})
}

#[test]
fn a_watch_replays_what_came_after_a_version_in_order() {
    claim(async |w| {
        let start = now(w).await;
        let made = w.post(&w.maps(""), mine("a", "1")).await.ok();
        let changed = w.merge(&w.maps("a"), json!({"data": {"k": "2"}})).await.ok();
        w.delete(&w.maps("a"), json!({})).await.code(200);
        w.post(&w.maps(""), mine("b", "1")).await.ok();
        let mut watch = w.watch(&w.maps(&format!("?watch=1&{MINE}&resourceVersion={start}"))).await;
        let seen = watch.expect(&[("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]).await;
        assert_eq!((rv(&seen[0]), rv(&seen[1])), (rv(&made), rv(&changed)));
        assert!(rv(&seen[2]) > rv(&changed), "a deletion has a version of its own");
        assert_eq!(seen[2]["data"]["k"], "2", "and carries the last state");
        assert_eq!(seen[0]["kind"], "ConfigMap", "watched objects have kind and apiVersion");
    });
}

#[test]
fn a_watch_without_a_version_begins_with_what_is_there() {
    claim(async |w| {
        w.post(&w.maps(""), mine("a", "1")).await.ok();
        w.post(&w.maps(""), mine("b", "1")).await.ok();
        for start in ["", "&resourceVersion=0"] {
            let mut watch = w.watch(&w.maps(&format!("?watch=true&{MINE}{start}"))).await;
            watch.expect(&[("ADDED", "a"), ("ADDED", "b")]).await;
        }
    });
}

#[test]
fn a_watch_is_answered_before_anything_happens() {
    claim(async |w| {
        let start = now(w).await;
        let mut watch = w.watch(&w.maps(&format!("?watch=1&{MINE}&resourceVersion={start}"))).await;
        w.post(&w.maps(""), mine("a", "1")).await.ok();
        watch.expect(&[("ADDED", "a")]).await;
    });
}

#[test]
fn leaving_a_selection_is_a_deletion_with_the_old_object_and_a_new_version() {
    claim(async |w| {
        let made = w.post(&w.maps(""), mine("a", "1")).await.ok();
        let start = rv(&made);
        let gone =
            w.merge(&w.maps("a"), json!({"metadata": {"labels": {"mine": null}}, "data": {"k": "2"}})).await.ok();
        let back = w.merge(&w.maps("a"), json!({"metadata": {"labels": {"mine": "1"}}})).await.ok();
        let mut watch = w.watch(&w.maps(&format!("?watch=1&{MINE}&resourceVersion={start}"))).await;
        let seen = watch.expect(&[("DELETED", "a"), ("ADDED", "a")]).await;
        assert_eq!(seen[0]["metadata"]["labels"], json!({"mine": "1"}));
        assert_eq!(seen[0]["data"]["k"], "1");
        assert_eq!((rv(&seen[0]), rv(&seen[1])), (rv(&gone), rv(&back)));
    });
}

#[test]
fn writes_that_change_nothing_are_not_seen() {
    claim(async |w| {
        let first = w.post(&w.maps(""), mine("a", "1")).await.ok();
        w.put(&w.maps("a"), first.clone()).await.code(200);
        w.merge(&w.maps("a"), json!({"data": {"k": "1"}})).await.code(200);
        w.merge(&w.maps("a?dryRun=All"), json!({"data": {"k": "9"}})).await.code(200);
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "1"}});
        let mut labelled = config.clone();
        labelled["metadata"]["labels"] = json!({"mine": "1"});
        let made = w.apply(&w.maps("c"), "m", labelled.clone()).await.ok();
        w.apply(&w.maps("c"), "m", labelled).await.code(200);
        w.apply(&w.maps("c?dryRun=All"), "n", config).await.code(200);
        w.post(&w.maps(""), mine("b", "1")).await.ok();
        let mut watch = w.watch(&w.maps(&format!("?watch=1&{MINE}&resourceVersion={}", rv(&made)))).await;
        watch.expect(&[("ADDED", "b")]).await;
    });
}

#[test]
fn a_finalizer_shows_as_modification_before_the_deletion() {
    claim(async |w| {
        let mut object = mine("a", "1");
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
        let made = w.post(&w.maps(""), object).await.ok();
        w.delete(&w.maps("a"), json!({})).await.code(200);
        w.merge(&w.maps("a"), json!({"metadata": {"finalizers": null}})).await.code(200);
        let mut watch = w.watch(&w.maps(&format!("?watch=1&{MINE}&resourceVersion={}", rv(&made)))).await;
        let seen = watch.expect(&[("MODIFIED", "a"), ("DELETED", "a")]).await;
        assert!(seen[0]["metadata"]["deletionTimestamp"].is_string());
        assert!(rv(&seen[1]) > rv(&seen[0]));
    });
}

#[test]
fn a_watch_ends_cleanly_after_its_timeout() {
    claim(async |w| {
        let start = now(w).await;
        let mut watch = w.watch(&w.maps(&format!("?watch=1&{MINE}&timeoutSeconds=1&resourceVersion={start}"))).await;
        assert_eq!(watch.next().await, None);
    });
}

#[test]
fn initial_events_end_with_a_bookmark() {
    claim(async |w| {
        let made = w.post(&w.maps(""), mine("a", "1")).await.ok();
        // With version 0 the initial events could be older than the object.
        let query = format!(
            "?watch=1&{MINE}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion={}",
            rv(&made)
        );
        let mut watch = w.watch(&w.maps(&query)).await;
        watch.expect(&[("ADDED", "a")]).await;
        let (kind, _, bookmark) = watch.event().await;
        assert_eq!(kind, "BOOKMARK");
        assert_eq!(bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        assert!(rv(&bookmark) > 0);
        let fields: Vec<&String> = bookmark.as_object().into_iter().flatten().map(|(name, _)| name).collect();
        assert_eq!(fields, ["apiVersion", "kind", "metadata"], "nothing else is in a bookmark");
        assert_eq!((&bookmark["kind"], &bookmark["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
        w.post(&w.maps(""), mine("b", "1")).await.ok();
        watch.expect(&[("ADDED", "b")]).await;
    });
}

#[test]
fn initial_events_need_a_match() {
    claim(async |w| {
        let start = "ListOptions.meta.k8s.io \"\" is invalid: ";
        w.get(&w.maps("?watch=1&sendInitialEvents=true")).await.refused_like(422, "Invalid", start);
        w.get(&w.maps("?watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1"))
            .await
            .refused_like(422, "Invalid", start);
    });
}

#[test]
fn a_watch_with_bookmarks_and_no_version_gets_a_bookmark_after_the_initial_events() {
    claim(async |w| {
        let made = w.post(&w.maps(""), mine("a", "1")).await.ok();
        let mut watch = w.watch(&w.maps(&format!("?watch=1&{MINE}&allowWatchBookmarks=true"))).await;
        watch.expect(&[("ADDED", "a")]).await;
        let (kind, _, bookmark) = watch.event().await;
        assert_eq!(kind, "BOOKMARK");
        assert_eq!(bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        assert!(rv(&bookmark) >= rv(&made));
    });
}

#[test]
fn a_watch_from_a_version_that_is_no_number_is_a_500() {
    claim(async |w| {
        let answer = w.get(&w.maps("?watch=1&resourceVersion=garbage")).await.code(500);
        assert_eq!(answer.body["kind"], "Status");
    });
}

#[test]
fn metadata_watches_carry_partial_objects() {
    claim(async |w| {
        w.post(&w.maps(""), mine("a", "1")).await.ok();
        let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let mut watch = w.watch_as(&w.maps(&format!("?watch=1&{MINE}")), accept).await;
        let seen = watch.expect(&[("ADDED", "a")]).await;
        assert_eq!(
            (&seen[0]["kind"], &seen[0]["apiVersion"]),
            (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1"))
        );
        assert_eq!(seen[0]["data"], Value::Null);
    });
}

#[test]
fn table_watches_carry_one_row_and_the_columns_once() {
    claim(async |w| {
        w.post(&w.maps(""), mine("a", "1")).await.ok();
        w.post(&w.maps(""), mine("b", "1")).await.ok();
        let mut watch =
            w.watch_as(&w.maps(&format!("?watch=1&{MINE}")), "application/json;as=Table;v=v1;g=meta.k8s.io").await;
        let (_, _, first) = watch.event().await;
        let (_, _, second) = watch.event().await;
        assert_eq!((&first["kind"], &first["rows"][0]["cells"][0]), (&json!("Table"), &json!("a")));
        assert_eq!(first["columnDefinitions"].as_array().map(Vec::len), Some(3));
        assert_eq!(second["rows"][0]["cells"][0], "b");
        assert_eq!(second["columnDefinitions"].as_array().map_or(0, Vec::len), 0);
    });
}

#[test]
fn status_writes_are_modifications_of_the_same_stream() {
    claim(async |w| {
        let path = w.path("policy/v1", "poddisruptionbudgets");
        let budget =
            json!({"metadata": {"name": "p"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
        w.post(&path, budget).await.code(201);
        let mut watch = w.watch(&format!("{path}?watch=1")).await;
        watch.expect(&[("ADDED", "p")]).await;
        w.merge(&format!("{path}/p/status"), json!({"status": {"expectedPods": 3}})).await.code(200);
        loop {
            let (kind, _, object) = watch.event().await;
            assert_eq!(kind, "MODIFIED");
            if object["status"]["expectedPods"] == 3 {
                break;
            }
        }
    });
}

#[test]
fn a_watch_over_all_namespaces_sees_this_one() {
    claim(async |w| {
        let start = now(w).await;
        w.post(&w.maps(""), mine("a", "1")).await.ok();
        let path = format!(
            "/api/v1/configmaps?watch=1&resourceVersion={start}&fieldSelector=metadata.namespace%3D{}&{MINE}",
            w.ns
        );
        let mut watch = w.watch(&path).await;
        watch.expect(&[("ADDED", "a")]).await;
    });
}

#[test]
fn a_watch_of_one_name_sees_only_that() {
    claim(async |w| {
        let start = now(w).await;
        w.map("a", json!({})).await;
        w.map("b", json!({})).await;
        let path = w.maps(&format!("?watch=1&resourceVersion={start}&fieldSelector=metadata.name%3Db"));
        w.watch(&path).await.expect(&[("ADDED", "b")]).await;
    });
}

#[test]
fn changing_a_definition_ends_the_watches_of_its_resource() {
    claim(async |w| {
        let custom = w.custom(json!({"type": "object", "properties": {"size": {"type": "integer"}}}), json!({})).await;
        let mut watch = w.watch(&format!("{}?watch=1", custom.path)).await;
        let patch = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/more", "value": {"type": "string"}}]);
        w.json_patch(&custom.crd, patch).await.code(200);
        assert_eq!(watch.next().await, None);
    });
}

#[test]
fn a_watch_without_initial_events_begins_with_what_comes() {
    claim(async |w| {
        w.map("old", json!({"k": "v"})).await;
        // A watch begins with the state of the cache, which follows the store with a delay.
        let is_old = |a: &Answer| {
            a.body["items"].as_array().is_some_and(|all| all.iter().any(|one| one["metadata"]["name"] == "old"))
        };
        w.until(&w.maps("?resourceVersion=0"), "the cache has it", is_old).await;
        let query = "?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0";
        let mut watch = w.watch(&w.maps(&format!("{query}&fieldSelector=metadata.name!%3Dkube-root-ca.crt"))).await;
        w.map("new", json!({"k": "v"})).await;
        watch.expect(&[("ADDED", "new")]).await;
    });
}

#[test]
fn the_old_paths_of_watches_are_served() {
    claim(async |w| {
        w.map("a", json!({})).await;
        w.map("b", json!({})).await;
        let below = |rest: &str| format!("/api/v1/watch/namespaces/{}/configmaps{rest}", w.ns);
        let mut all = w.watch(&below("?fieldSelector=metadata.name!%3Dkube-root-ca.crt")).await;
        all.expect(&[("ADDED", "a"), ("ADDED", "b")]).await;
        let mut one = w.watch(&below("/b?timeoutSeconds=1")).await;
        one.expect(&[("ADDED", "b")]).await;
        assert!(one.next().await.is_none());
        let mut namespace = w.watch(&format!("/api/v1/watch/namespaces/{}?timeoutSeconds=1", w.ns)).await;
        namespace.expect(&[("ADDED", &w.ns)]).await;
        w.get("/api/v1/watch/nope").await.refused(404, "NotFound", "the server could not find the requested resource");
        let message = "the server does not allow this method on the requested resource";
        w.post(&below(""), json!({})).await.refused(405, "MethodNotAllowed", message);
    });
}
