//! A GitSync that is deleted lets go of its objects, or deletes them where that was asked for.

use devcluster::{Action, Call, verbs::delete::DeleteOptions};
use serde_json::{Value, json};

use crate::ownership::{LABEL, delete_sync, inventories, sync_is_gone};
use crate::support::world::{World, config_map, deployment};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_sync_leaves_its_objects_without_our_label_and_ownership_and_changes_nothing_else() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("web.yaml", deployment("web", "nginx:1", 2)).commit("one");
    world.synced(json!({})).await;
    let theirs = json!({"data": {"theirs": "x"}, "metadata": {"labels": {"team": "blue"}}});
    world.edit("v1", "configmaps", "a", theirs);
    let (map, web) = (world.get("v1", "configmaps", "a").unwrap(), world.get("apps/v1", "deployments", "web").unwrap());
    delete_sync(&world, "demo");
    sync_is_gone(&world, "demo").await;
    for (api, resource, before) in [("v1", "configmaps", map), ("apps/v1", "deployments", web)] {
        let name = before["metadata"]["name"].as_str().unwrap();
        let after = world.get(api, resource, name).unwrap();
        let managers = after["metadata"]["managedFields"].to_string();
        assert!(!managers.contains("\"mainstay\""), "{managers}");
        let bare = |object: &Value| {
            let mut object = object.clone();
            let metadata = object["metadata"].as_object_mut().unwrap();
            metadata.remove("managedFields");
            metadata.remove("resourceVersion");
            if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
                labels.remove(LABEL);
                if labels.is_empty() {
                    metadata.remove("labels");
                }
            }
            object
        };
        assert_eq!(bare(&after), bare(&before));
        assert!(after["metadata"]["labels"].get(LABEL).is_none());
    }
    world.until("the inventory is gone", |w| inventories(w).is_empty()).await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "mine now"}}));
    world.sync("other", json!({"baseDir": "/nowhere"}));
    world.condition_is("other", "Ready", "False").await;
    assert_eq!(world.data("a"), "mine now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_sync_with_on_delete_prune_deletes_what_the_guards_let_go() {
    let mut world = World::new().await;
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: mainstay-tests-shop}\n";
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).file("n.yaml", namespace);
    world.remote.commit("one");
    world.synced(json!({})).await;
    let keep = json!({"metadata": {"annotations": {"mainstay.dev/prune": "disabled"}}});
    world.edit("v1", "configmaps", "b", keep);
    world.annotate_sync("demo", "mainstay.dev/on-delete", "prune");
    delete_sync(&world, "demo");
    sync_is_gone(&world, "demo").await;
    assert_eq!((world.data("a").as_str(), world.data("b").as_str()), ("absent", "1"));
    let namespace = world.server.object("v1", "namespaces", "", "mainstay-tests-shop").unwrap();
    assert!(namespace["metadata"]["labels"].get(LABEL).is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_the_definition_of_git_sync_leaves_all_workloads() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("web.yaml", deployment("web", "nginx:1", 2)).commit("one");
    world.synced(json!({})).await;
    world.annotate_sync("demo", "mainstay.dev/on-delete", "prune");
    let delete = Action::Delete(DeleteOptions::default());
    let definition =
        Call::new("apiextensions.k8s.io/v1", "customresourcedefinitions", "", "gitsyncs.mainstay.dev", delete);
    world.try_as("kubectl", definition).unwrap();
    world
        .until("the definition is gone", |w| {
            w.server
                .object("apiextensions.k8s.io/v1", "customresourcedefinitions", "", "gitsyncs.mainstay.dev")
                .is_none()
        })
        .await;
    assert_eq!(world.data("a"), "1");
    assert!(world.get("apps/v1", "deployments", "web").is_some());
}
