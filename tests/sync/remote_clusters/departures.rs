//! GitSyncs that leave a remote cluster, or are deleted: their objects are orphaned or deleted.

use devcluster::fault_injection::Fault;

use mainstay_testkit::world::git_sync;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_leads_to_another_cluster_leaves_everything_in_the_first_one() {
    let (mut world, first) = applied(json!({})).await;
    let second = Other::new().await;
    world.set_secret("other", json!({"value": second.kubeconfig(CANARY)}));
    world.until("it is applied there", |_| second.data("a") == "1" && second.data("b") == "1").await;
    let system = second.server.object("v1", "namespaces", "", "kube-system").unwrap()["metadata"]["uid"].clone();
    world.until("the status says so", |w| w.status("demo")["cluster"] == system).await;
    world.remote.remove("b.yaml");
    world.commit("demo", "two").await;
    world.until("what left is gone there", |_| second.data("b") == "absent").await;
    assert_eq!([first.data("a"), first.data("b")], ["1", "1"], "nothing is deleted where it was left");
    let said = std::iter::from_fn(|| world.messages.try_recv().ok()).map(|message| message.to_string());
    let said: Vec<_> = said.filter(|text| text.contains("are orphaned")).collect();
    assert!(said.len() == 1 && said[0].contains("its Secret now contains a different cluster"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_stay_without_an_owner_in_a_cluster_that_a_git_sync_leaves() {
    let (mut world, other) = worlds().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    let label = |w: &World| w.get("v1", "configmaps", "a").unwrap()["metadata"]["labels"][LABEL].clone();
    assert!(!label(&world).is_null());
    world.change("demo", to("other")).await;
    world.until("it is applied there", |_| other.data("a") == "1").await;
    world.ready("demo").await;
    assert_eq!((world.data("a"), label(&world)), ("1".into(), Value::Null));
    assert!(!other.label("a").is_null());
    world.change("demo", json!({"kubeConfig": null})).await;
    world.until("it is kept here again", |w| !label(w).is_null()).await;
    world.ready("demo").await;
    assert_eq!((other.data("a"), other.label("a")), ("1".into(), Value::Null));
    assert_eq!(world.status("demo")["cluster"], Value::Null);
    assert_eq!(other.inventories().len(), 0);
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "edited"}}));
    world.until("it is reverted", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_sync_that_is_deleted_lets_go_of_its_objects_or_takes_them_with_it() {
    let (mut world, other) = worlds().await;
    world.remote.file("stays/a.yaml", config_map("a", "1")).file("goes/b.yaml", config_map("b", "1"));
    let mut goes: Value = serde_json::from_str(&git_sync("goes", "goes")).unwrap();
    goes["metadata"]["namespace"] = json!(NAMESPACE);
    goes["spec"]["kubeConfig"] = to("other")["kubeConfig"].clone();
    world.remote.commit("one");
    world.create(SYNCS.0, SYNCS.1, NAMESPACE, goes);
    let mut stays = to("other");
    stays["baseDir"] = json!("stays");
    world.synced(stays).await;
    world.ready("goes").await;
    world.delete(SYNCS.0, SYNCS.1, "demo");
    world.delete(SYNCS.0, SYNCS.1, "goes");
    world.until("both are gone", |w| w.get(SYNCS.0, SYNCS.1, "goes").is_none() && other.inventories().is_empty()).await;
    assert_eq!((other.data("a"), other.label("a"), other.data("b")), ("1".into(), Value::Null, "absent".into()));
}

/// A GitSync whose remote cluster is lost can still be deleted.
async fn goes_without(lose: impl FnOnce(&mut Other)) {
    let (mut world, mut other) = worlds().await;
    world.remote.file("goes/b.yaml", config_map("b", "1")).commit("one");
    let mut goes: Value = serde_json::from_str(&git_sync("goes", "goes")).unwrap();
    goes["metadata"]["namespace"] = json!(NAMESPACE);
    goes["spec"]["kubeConfig"] = to("other")["kubeConfig"].clone();
    goes["spec"]["timeout"] = json!("2s");
    world.create(SYNCS.0, SYNCS.1, NAMESPACE, goes);
    world.start();
    world.ready("goes").await;
    lose(&mut other);
    world.delete(SYNCS.0, SYNCS.1, "goes");
    world.until("it is let go", |w| w.get(SYNCS.0, SYNCS.1, "goes").is_none()).await;
    assert_eq!(other.data("b"), "1");
    let said = async { while !world.messages.recv().await.unwrap().to_string().contains("are orphaned") {} };
    tokio::time::timeout(mainstay_testkit::PATIENCE, said).await.expect("what becomes of the objects is said");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_gone_for_ever_keeps_no_git_sync_from_being_deleted() {
    goes_without(Other::close).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_in_whose_place_everything_is_refused_keeps_no_git_sync_from_being_deleted() {
    let refusal = Fault { code: 503, message: "no backend".into(), times: 1_000_000, ..Fault::default() };
    goes_without(|other| other.server.faults().fail_next(refusal)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_let_go_of_where_they_are_when_their_git_sync_cannot_go_where_it_should() {
    let (mut world, other) = worlds().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    world.sync("there", to("other"));
    world.ready("there").await;
    world.change("demo", to("nobody")).await;
    world.condition_is("demo", "Ready", "False SecretNotFound: Secret nobody").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "edited"}}));
    world.until("it is kept where it is", |w| w.data("a") == "1").await;
    // In the order of `kubectl delete -f`: the Secret is deleted first.
    world.delete("v1", "secrets", "other");
    world.condition_is("there", "Ready", "False SecretNotFound: Secret other with the kubeconfig does not exist").await;
    other.edit("a", "edited");
    world.until("the last credentials do as long as the agent has them", |_| other.data("a") == "1").await;
    world.delete(SYNCS.0, SYNCS.1, "demo");
    world.delete(SYNCS.0, SYNCS.1, "there");
    let own = |w: &World| w.get("v1", "configmaps", "a").unwrap()["metadata"]["labels"][LABEL].clone();
    world.until("both have let go", |w| own(w).is_null() && other.label("a").is_null()).await;
    assert_eq!((world.data("a"), other.data("a")), ("1".into(), "1".into()));
}
