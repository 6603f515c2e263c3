//! Helpers for tests of ownership: labels, inventories and the deletion of GitSyncs.

use serde_json::{Value, json};

use super::world::{NAMESPACE, World, config_map};

pub const LABEL: &str = "mainstay.dev/sync";

pub fn label_of(world: &World, name: &str) -> Value {
    world.get("v1", "configmaps", name).unwrap()["metadata"]["labels"][LABEL].clone()
}

/// Returns the names of the inventories' ConfigMaps in the namespace.
pub fn inventories(world: &World) -> Vec<String> {
    let all = world.server.objects("v1", "configmaps", Some(NAMESPACE));
    let names = all.iter().map(|map| map["metadata"]["name"].as_str().unwrap().to_owned());
    names.filter(|name| name.starts_with("mainstay-inventory-")).collect()
}

pub fn delete_sync(world: &World, name: &str) {
    world.delete("mainstay.dev/v1alpha1", "gitsyncs", name);
}

/// Sets a GitSync to prune its objects on deletion, and waits for its finalizer.
pub async fn prune_on_delete(world: &World, name: &str) {
    world.annotate_sync(name, "mainstay.dev/on-delete", "prune");
    world
        .until("the GitSync has our finalizer", |w| {
            let sync = w.get("mainstay.dev/v1alpha1", "gitsyncs", name).unwrap();
            sync["metadata"]["finalizers"].to_string().contains("mainstay.dev/git-sync")
        })
        .await;
}

pub async fn sync_is_gone(world: &World, name: &str) {
    world.until("the GitSync is gone", |w| w.get("mainstay.dev/v1alpha1", "gitsyncs", name).is_none()).await;
}

/// Returns a world with two directories and a GitSync for each, with one object each.
pub async fn two_directories() -> World {
    let mut world = World::new().await;
    world.remote.file("left/l.yaml", config_map("l", "1")).file("right/r.yaml", config_map("r", "1"));
    world.remote.file("left/moving.yaml", config_map("moving", "1")).commit("one");
    world.sync("left", json!({"baseDir": "/left"}));
    world.sync("right", json!({"baseDir": "/right"}));
    world.start();
    world.ready("left").await;
    world.ready("right").await;
    world
}

/// Waits until no object has Mainstay's label any longer.
pub async fn are_released(world: &World) {
    let labelled = |w: &World| {
        let kinds = [("v1", "configmaps"), ("apps/v1", "deployments"), ("v1", "namespaces")];
        let all = kinds.into_iter().flat_map(|(api, resource)| w.server.objects(api, resource, None));
        all.filter(|object| object["metadata"]["labels"].get(LABEL).is_some()).count()
    };
    world.until("everything is let go", |w| labelled(w) == 0).await;
}
