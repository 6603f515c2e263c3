//! Deletion: preconditions, finalizers and responses.

use crate::world::{MAPS, World, version};
use serde_json::json;

#[tokio::test]
async fn gone_at_once_is_a_success() {
    let world = World::new();
    let made = world.map("a", json!({})).await;
    let path = format!("{MAPS}/a");
    world.delete(&path, json!({"preconditions": {"uid": "x"}})).await.refused(
        409,
        "Conflict",
        "the UID in the precondition (x) does not match the UID in record",
    );
    let gone = world.delete(&path, json!({})).await.expect(200);
    let details = json!({"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]});
    assert_eq!((&gone["status"], &gone["details"]), (&json!("Success"), &details));
    world.delete(&path, json!({})).await.refused(404, "NotFound", "configmaps \"a\" not found");
}

#[tokio::test]
async fn finalizers_keep_an_object_until_the_last_is_cleared() {
    let world = World::new();
    let path = format!("{MAPS}/a");
    let body = json!({"metadata": {"name": "a", "finalizers": ["a.b/c"]}});
    world.post(MAPS, body.clone()).await.expect(201);
    let mut watch = world.watch(&format!("{MAPS}?watch=1&resourceVersion={}", world.server.store().version())).await;
    let marked = world.delete(&path, json!({})).await.expect(200);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(watch.short().await, "MODIFIED a");
    let again = world.delete(&path, json!({})).await.expect(200);
    assert_eq!(version(&again), version(&marked));
    world.post(MAPS, body).await.refused(
        409,
        "AlreadyExists",
        "object is being deleted: configmaps \"a\" already exists",
    );
    world.merge(&path, json!({"metadata": {"finalizers": ["a.b/c", "d.e/f"]}})).await.refused(
        422,
        "Invalid",
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{\"d.e/f\"}",
    );
    let changed = world.merge(&path, json!({"metadata": {"deletionTimestamp": null}, "data": {"k": "w"}})).await;
    assert!(changed.expect(200)["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(watch.short().await, "MODIFIED a");
    let last = world.merge(&path, json!({"metadata": {"finalizers": null}})).await.expect(200);
    assert_eq!(version(&last), version(&marked) + 1);
    assert_eq!(watch.short().await, "DELETED a");
    world.get(&path).await.expect(404);
}

#[tokio::test]
async fn namespaces_are_marked_and_take_nothing_new() {
    let world = World::new();
    world.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await.expect(201);
    world.post("/api/v1/namespaces/n/configmaps", json!({"metadata": {"name": "a"}})).await.expect(201);
    let marked = world.delete("/api/v1/namespaces/n", json!({})).await.expect(200);
    assert_eq!((&marked["kind"], &marked["status"]["phase"]), (&json!("Namespace"), &json!("Terminating")));
    let late = world.post("/api/v1/namespaces/n/configmaps", json!({"metadata": {"name": "b"}})).await;
    late.refused(
        403,
        "Forbidden",
        "configmaps \"b\" is forbidden: unable to create new content in namespace n because it is being terminated",
    );
    assert_eq!(late.json()["details"]["causes"][0]["reason"], "NamespaceTerminating");
    world.merge("/api/v1/namespaces/n/configmaps/a", json!({"data": {"k": "v"}})).await.expect(200);
    let mut live = world.get("/api/v1/namespaces/n").await.expect(200);
    live["spec"]["finalizers"] = json!([]);
    world.put("/api/v1/namespaces/n/finalize", live).await.expect(200);
    world.get("/api/v1/namespaces/n").await.expect(404);
    world.delete("/api/v1/namespaces/default", json!({})).await.refused(403, "Forbidden", "may not be deleted");
}

#[tokio::test]
async fn jobs_orphan_their_pods_by_default_and_say_so() {
    let world = World::new();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}],
    }}}});
    world.post(jobs, job).await.expect(201);
    let deleted = world.delete(&format!("{jobs}/j"), json!({})).await;
    assert_eq!(deleted.expect(200)["metadata"]["finalizers"], json!(["orphan"]));
    assert!(deleted.headers["warning"].to_str().unwrap().contains("child pods are preserved by default"));
    let odd = world.delete(&format!("{jobs}/j"), json!({"propagationPolicy": "Odd"})).await;
    odd.refused(422, "Invalid", "DeleteOptions.meta.k8s.io");
}

#[tokio::test]
async fn collections_answer_what_they_deleted() {
    let world = World::new();
    world.map("a", json!({"x": "1"})).await;
    world.map("b", json!({"x": "2"})).await;
    let list = world.delete(&format!("{MAPS}?labelSelector=x%3D1"), json!({})).await.expect(200);
    assert_eq!((list["kind"].as_str(), list["items"].as_array().map(Vec::len)), (Some("ConfigMapList"), Some(1)));
    world.get(&format!("{MAPS}/a")).await.expect(404);
    world.get(&format!("{MAPS}/b")).await.expect(200);
}
