//! One cluster that several GitSyncs reach: from two clusters, through two Secrets, or as their own cluster.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn two_clusters_whose_git_syncs_have_one_name_do_not_share_a_third_one() {
    let (world, other) = applied(json!({})).await;
    let mut second = World::new().await;
    second.set_secret("other", json!({"value": other.kubeconfig(CANARY)}));
    second.remote.file("a.yaml", config_map("a", "9")).commit("one");
    second.sync("demo", to("other"));
    second.start();
    let home = world.server.object("v1", "namespaces", "", "kube-system").unwrap()["metadata"]["uid"].clone();
    second.condition_is("demo", "Ready", "False OwnershipConflict: another GitSync mainstay-tests/demo").await;
    let said = second.condition("demo", "Ready");
    assert!(said.contains(home.as_str().unwrap()) && said.contains("give one of them a different name"), "{said}");
    assert_eq!(other.data("a"), "1");
    assert_eq!(other.inventories().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_leads_back_causes_no_conflict() {
    let mut world = World::new().await;
    let serving = world.server.embedded().serve(free_address(), Some(CANARY.to_owned())).await.unwrap();
    world.set_secret("self", json!({"value": serving.kubeconfig(Some(CANARY))}));
    world.remote.file("a/a.yaml", config_map("a", "1")).file("b/b.yaml", config_map("b", "1"));
    world.remote.file("both/a.yaml", config_map("a", "2")).file("both/c.yaml", config_map("c", "2")).commit("one");
    let through = |directory: &str| json!({"baseDir": directory, "kubeConfig": to("self")["kubeConfig"]});
    world.sync("there", through("b"));
    world.synced(json!({"baseDir": "a"})).await;
    world.ready("there").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "edited"}}));
    world.edit("v1", "configmaps", "b", json!({"data": {"key": "edited"}}));
    world.until("both are reverted", |w| w.data("a") == "1" && w.data("b") == "1").await;
    world.sync("both", through("both"));
    world.condition_is("both", "Ready", "False OwnershipConflict").await;
    assert_eq!((world.data("a"), world.data("c")), ("1".into(), "2".into()));
    // Changing from one connection to the other keeps the inventory.
    world.change("there", json!({"kubeConfig": null})).await;
    world.ready("there").await;
    assert!(!world.get("v1", "configmaps", "b").unwrap()["metadata"]["labels"][LABEL].is_null());
    assert_eq!(world.status("there")["cluster"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_secrets_that_lead_to_one_cluster_lead_to_the_same_objects() {
    let (world, other) = applied(json!({})).await;
    world.set_secret("again", json!({"value": other.kubeconfig(CANARY)}));
    world.sync("second", to("again"));
    world.condition_is("second", "Ready", "False OwnershipConflict").await;
    let failure = world.failure("second", "ConfigMap mainstay-tests/a");
    assert!(failure.contains("mainstay-tests/demo"), "{failure}");
    let before = other.server.object("v1", "configmaps", NAMESPACE, "a").unwrap()["metadata"].clone();
    world.change("demo", to("again")).await;
    world.ready("demo").await;
    let after = other.server.object("v1", "configmaps", NAMESPACE, "a").unwrap()["metadata"].clone();
    assert_eq!((&after["uid"], &after["labels"][LABEL]), (&before["uid"], &before["labels"][LABEL]));
    assert_eq!(after["resourceVersion"], before["resourceVersion"], "nothing was written");
    other.edit("a", "edited");
    world.until("it is reverted", |_| other.data("a") == "1").await;
}
