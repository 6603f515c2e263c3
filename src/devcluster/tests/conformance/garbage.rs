//! Garbage collection: dependents of deleted owners.

use serde_json::{Value, json};

use crate::world::{World, claim};

fn owned_by(owner: &Value, name: &str) -> Value {
    json!({
        "metadata": {"name": name, "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": true,
        }]},
    })
}

async fn gone(w: &World, name: &str) {
    w.until(&w.maps(name), &format!("{name} is gone"), |a| a.code == 404).await;
}

#[test]
fn dependents_follow_their_owner() {
    claim(async |w| {
        let owner = w.map("owner", json!({})).await;
        let child = w.post(&w.maps(""), owned_by(&owner, "child")).await.code(201).body;
        w.post(&w.maps(""), owned_by(&child, "grandchild")).await.code(201);
        w.delete(&w.maps("owner"), json!({"propagationPolicy": "Background"})).await.code(200);
        w.get(&w.maps("owner")).await.code(404);
        gone(w, "child").await;
        gone(w, "grandchild").await;
    });
}

#[test]
fn an_orphaned_dependent_stays_without_its_reference() {
    claim(async |w| {
        let owner = w.map("owner", json!({})).await;
        w.post(&w.maps(""), owned_by(&owner, "child")).await.code(201);
        let marked = w.delete(&w.maps("owner"), json!({"propagationPolicy": "Orphan"})).await.code(200).body;
        assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
        gone(w, "owner").await;
        let child = w.get(&w.maps("child")).await.ok();
        assert_eq!(child["metadata"]["ownerReferences"], Value::Null);
    });
}

#[test]
fn foreground_deletion_waits_for_dependents() {
    claim(async |w| {
        let owner = w.map("owner", json!({})).await;
        let mut child = owned_by(&owner, "child");
        child["metadata"]["finalizers"] = json!(["example.com/hold"]);
        w.post(&w.maps(""), child).await.code(201);
        let marked = w.delete(&w.maps("owner"), json!({"propagationPolicy": "Foreground"})).await.code(200).body;
        assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
        let deleted = |a: &crate::world::Answer| a.body["metadata"]["deletionTimestamp"].is_string();
        w.until(&w.maps("child"), "the dependent is deleted first", deleted).await;
        w.get(&w.maps("owner")).await.code(200);
        w.merge(&w.maps("child"), json!({"metadata": {"finalizers": null}})).await.code(200);
        gone(w, "child").await;
        gone(w, "owner").await;
    });
}

#[test]
fn an_owner_is_known_by_uid_not_by_name() {
    claim(async |w| {
        let owner = w.map("owner", json!({})).await;
        let mut child = owned_by(&owner, "child");
        child["metadata"]["ownerReferences"][0]["uid"] = "00000000-0000-4000-8000-000000000000".into();
        w.post(&w.maps(""), child).await.code(201);
        gone(w, "child").await;
        w.get(&w.maps("owner")).await.code(200);
    });
}

#[test]
fn one_of_two_owners_leaving_only_removes_its_reference() {
    claim(async |w| {
        let one = w.map("one", json!({})).await;
        let two = w.map("two", json!({})).await;
        let mut child = owned_by(&one, "child");
        let second = owned_by(&two, "child")["metadata"]["ownerReferences"][0].clone();
        child["metadata"]["ownerReferences"].as_array_mut().unwrap().push(second);
        w.post(&w.maps(""), child).await.code(201);
        w.delete(&w.maps("one"), json!({"propagationPolicy": "Background"})).await.code(200);
        let left = |a: &crate::world::Answer| a.body["metadata"]["ownerReferences"].as_array().map(Vec::len) == Some(1);
        let child = w.until(&w.maps("child"), "one reference is left", left).await.body;
        assert_eq!(child["metadata"]["ownerReferences"][0]["uid"], two["metadata"]["uid"]);
    });
}
