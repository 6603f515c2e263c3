//! Deletion of a GitSync: its objects are released, or pruned on request.

use devcluster::{Action, Call, verbs::delete::DeleteOptions};
use serde_json::{Value, json};

use mainstay_testkit::ownership::{LABEL, are_released, delete_sync, inventories, prune_on_delete, sync_is_gone};
use mainstay_testkit::world::{World, config_map, deployment, git_sync};

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
    are_released(&world).await;
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
async fn deleting_a_sync_with_on_delete_prune_deletes_within_the_guards() {
    let mut world = World::new().await;
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: mainstay-tests-shop}\n";
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).file("n.yaml", namespace);
    world.remote.file("c.yaml", config_map("c", "1")).commit("one");
    world.synced(json!({})).await;
    let keep = |annotation: &str, value: &str| json!({"metadata": {"annotations": {annotation: value}}});
    world.edit("v1", "configmaps", "b", keep("mainstay.dev/prune", "disabled"));
    world.edit("v1", "configmaps", "c", keep("helm.sh/resource-policy", "keep"));
    // Deleted immediately, perhaps before the finalizer is set.
    world.annotate_sync("demo", "mainstay.dev/on-delete", "prune");
    delete_sync(&world, "demo");
    sync_is_gone(&world, "demo").await;
    are_released(&world).await;
    assert_eq!((world.data("a").as_str(), world.data("b").as_str()), ("absent", "1"));
    assert_eq!(world.data("c"), "1", "what another tool was told to keep");
    let namespace = world.server.object("v1", "namespaces", "", "mainstay-tests-shop").unwrap();
    assert!(namespace["metadata"]["labels"].get(LABEL).is_none());
}

fn finalizers(world: &World) -> Value {
    world
        .get("mainstay.dev/v1alpha1", "gitsyncs", "demo")
        .map(|s| s["metadata"]["finalizers"].clone())
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finalizer_comes_and_goes_with_the_annotation_and_needless_ones_are_taken_off() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("demo", json!({}));
    let old = json!({"metadata": {"finalizers": ["example.org/theirs", "mainstay.dev/git-sync"]}});
    world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", old);
    world.start();
    world.until("the needless one is off", |w| finalizers(w) == json!(["example.org/theirs"])).await;
    world.ready("demo").await;
    prune_on_delete(&world, "demo").await;
    assert_eq!(finalizers(&world), json!(["example.org/theirs", "mainstay.dev/git-sync"]));
    let off = json!({"metadata": {"annotations": {"mainstay.dev/on-delete": null}}});
    world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", off);
    world.until("it is off again", |w| finalizers(w) == json!(["example.org/theirs"])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_with_a_git_sync_can_be_deleted_without_an_agent() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.create(
        "v1",
        "namespaces",
        "",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mainstay-tests-shop"}}),
    );
    let url = world.remote.path().display().to_string();
    let repository = json!({
        "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
        "metadata": {"name": "repo", "namespace": "mainstay-tests-shop"}, "spec": {"url": url},
    });
    world.create("serverless.kyma-project.io/v1alpha1", "gitrepositories", "mainstay-tests-shop", repository);
    let sync = json!({
        "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
        "metadata": {"name": "demo", "namespace": "mainstay-tests-shop"}, "spec": {"gitRepository": "repo"},
    });
    world.create("mainstay.dev/v1alpha1", "gitsyncs", "mainstay-tests-shop", sync);
    world.start();
    let applied = |w: &World| w.server.object("v1", "configmaps", "mainstay-tests-shop", "a").is_some();
    world.until("the object is applied", applied).await;
    world.kill().await;
    let delete = Action::Delete(DeleteOptions::default());
    world.try_as("kubectl", Call::new("v1", "namespaces", "", "mainstay-tests-shop", delete)).unwrap();
    world
        .until("the namespace is gone", |w| w.server.object("v1", "namespaces", "", "mainstay-tests-shop").is_none())
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_a_sync_that_is_deleted_without_an_agent_have_no_owner() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("one");
    world.synced(json!({})).await;
    world.stop().await;
    delete_sync(&world, "demo");
    world.until("its inventory goes with it", |w| inventories(w).is_empty()).await;
    world.edit("v1", "configmaps", "b", json!({"data": {"key": "mine now"}}));
    // Another GitSync with that name, which wants only one of the objects.
    world.remote.remove("b.yaml");
    world.remote.commit("two");
    world.synced(json!({})).await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("what it wants is kept", |w| w.data("a") == "1").await;
    assert_eq!(world.data("b"), "mine now", "neither reverted nor deleted");
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

/// Returns whether a GitSync exists and is not terminating.
fn is_alive(world: &World, name: &str) -> bool {
    let sync = world.get("mainstay.dev/v1alpha1", "gitsyncs", name);
    sync.is_some_and(|sync| sync["metadata"]["deletionTimestamp"].is_null())
}

/// Creates a GitSync `demo` that manages itself with three ConfigMaps, and whose objects are pruned with it.
async fn managing_itself() -> World {
    let mut world = World::new().await;
    for name in ["a", "b", "c"] {
        world.remote.file(&format!("{name}.yaml"), config_map(name, "1"));
    }
    world.remote.file("own.yaml", git_sync("demo", "/")).commit("one");
    world.synced(json!({})).await;
    world.until("it has our finalizer", |w| finalizers(w) == json!(["mainstay.dev/git-sync"])).await;
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_leaves_its_own_repository_is_held_with_its_objects() {
    let mut world = managing_itself().await;
    world.remote.remove("own.yaml");
    world.commit("demo", "it leaves itself").await;
    assert!(is_alive(&world, "demo"));
    assert_eq!(world.config_maps(), ["a", "b", "c"]);
    let held = world.status("demo")["held"].to_string();
    assert!(held.contains("GitSync.mainstay.dev mainstay-tests/demo: deleting the GitSync itself"), "{held}");
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("its work goes on", |w| w.data("a") == "1").await;
    world.annotate_sync("demo", "mainstay.dev/allow-prune", &world.remote.head());
    sync_is_gone(&world, "demo").await;
    assert!(world.config_maps().is_empty(), "that was allowed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_manages_itself_and_is_deleted_goes_with_its_objects() {
    let world = managing_itself().await;
    delete_sync(&world, "demo");
    sync_is_gone(&world, "demo").await;
    assert!(world.config_maps().is_empty());
    world.until("the inventory is gone", |w| inventories(w).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_whose_objects_go_with_it_is_held_when_it_leaves_the_repository_of_another_one() {
    let mut world = World::new().await;
    world.remote.file("root/child.yaml", git_sync("child", "/child")).file("root/a.yaml", config_map("a", "1"));
    world.remote.file("child/b.yaml", config_map("b", "1")).commit("one");
    world.synced(json!({"baseDir": "/root"})).await;
    world.ready("child").await;
    world.remote.remove("root/child.yaml").commit("the child leaves");
    world.look();
    let held = |w: &World| w.status("demo")["held"].to_string();
    let why = "GitSync.mainstay.dev mainstay-tests/child: deleting it deletes everything that it has applied";
    world.until("it is held", |w| held(w).contains(why)).await;
    world.ready("demo").await;
    assert!(is_alive(&world, "child"));
    assert_eq!(world.data("b"), "1");
    world.allow_prune("demo", &world.remote.head()).await;
    sync_is_gone(&world, "child").await;
    assert_eq!((world.data("a").as_str(), world.data("b").as_str()), ("1", "absent"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_syncs_that_manage_each_other_do_not_wait_for_each_other() {
    let mut world = World::new().await;
    world.remote.file("left/right.yaml", git_sync("right", "/right")).file("left/l.yaml", config_map("l", "1"));
    world.remote.file("right/left.yaml", git_sync("left", "/left")).file("right/r.yaml", config_map("r", "1"));
    world.remote.commit("one");
    world.sync("left", json!({"baseDir": "/left"}));
    world.start();
    world.ready("left").await;
    world.ready("right").await;
    for name in ["left", "right"] {
        prune_on_delete(&world, name).await;
    }
    world.stop().await;
    for name in ["left", "right"] {
        delete_sync(&world, name);
    }
    world.start();
    sync_is_gone(&world, "left").await;
    sync_is_gone(&world, "right").await;
    assert!(world.config_maps().is_empty());
}
