//! Namespaces: initial objects, and deletion of the contents.

use serde_json::json;

use crate::world::{claim, condition};

#[test]
fn a_new_namespace_gets_its_service_account_and_authority() {
    claim(async |w| {
        let account = format!("{}/default", w.path("v1", "serviceaccounts"));
        w.until(&account, "the default service account", |a| a.code == 200).await;
        let authority = w.until(&w.maps("kube-root-ca.crt"), "the authority", |a| a.code == 200).await.body;
        assert!(authority["data"]["ca.crt"].is_string());
    });
}

#[test]
fn a_namespace_takes_its_contents_along_and_waits_for_finalizers() {
    claim(async |w| {
        let name = format!("{}-inner", w.ns);
        let path = format!("/api/v1/namespaces/{name}");
        w.forget_later(&path);
        w.post("/api/v1/namespaces", json!({"metadata": {"name": name}})).await.code(201);
        let maps = format!("{path}/configmaps");
        w.post(&maps, json!({"metadata": {"name": "plain"}})).await.code(201);
        w.post(&maps, json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}})).await.code(201);
        let marked = w.delete(&path, json!({})).await.code(200).body;
        assert_eq!(marked["status"]["phase"], "Terminating");
        assert!(marked["metadata"]["deletionTimestamp"].is_string());
        w.until(&format!("{maps}/plain"), "the contents are deleted", |a| a.code == 404).await;
        let waits = |a: &crate::world::Answer| condition(&a.body, "NamespaceFinalizersRemaining") == "True";
        let waiting = w.until(&path, "the namespace reports what holds it", waits).await.body;
        let found = waiting["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["type"] == "NamespaceFinalizersRemaining")
            .unwrap();
        assert_eq!(
            found["message"],
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
        );
        assert_eq!(condition(&waiting, "NamespaceContentRemaining"), "True");
        assert_eq!(condition(&waiting, "NamespaceDeletionContentFailure"), "False");
        w.merge(&format!("{maps}/held"), json!({"metadata": {"finalizers": null}})).await.code(200);
        w.until(&path, "the namespace is gone", |a| a.code == 404).await;
    });
}
