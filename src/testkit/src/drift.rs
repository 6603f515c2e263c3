//! Helpers for tests of drift: a world with applied objects, and waiting for reverts.

use devcluster::{Action, Call, verbs::patch::Form};
use mainstay_engine::notification::Message;
use serde_json::{Value, json};

use super::world::{NAMESPACE, World, config_map};

/// Returns a world with a commit of these files, applied by a GitSync `demo`.
pub async fn synced(files: &[(&str, String)]) -> World {
    let mut world = World::new().await;
    // `fence` changes this object in order to wait until all earlier events are handled.
    world.remote.file("fence.yaml", config_map("fence", "1"));
    for (path, content) in files {
        world.remote.file(path, content);
    }
    world.remote.commit("one");
    world.synced(json!({})).await;
    world
}

/// Returns the next message about a revert of an object. Skips other messages.
pub async fn next_revert(world: &mut World, name: &str) -> Message {
    let revert = async {
        loop {
            let message = world.messages.recv().await.unwrap();
            if let Message::Reverted { object, .. } = &message
                && object.ends_with(name)
            {
                return message;
            }
        }
    };
    let message = tokio::time::timeout(crate::PATIENCE, revert).await;
    message.unwrap_or_else(|_| panic!("no revert of {name}"))
}

/// Returns the field manager and the fields of the next revert of an object.
pub async fn revert_of(world: &mut World, name: &str) -> (String, Vec<String>) {
    match next_revert(world, name).await {
        Message::Reverted { who, fields, .. } => (who, fields),
        other => panic!("{other:?}"),
    }
}

/// Waits until all earlier events of ConfigMaps are handled.
pub async fn fence(world: &World) {
    for _ in 0..2 {
        let edited = world.edit("v1", "configmaps", "fence", json!({"data": {"key": "changed"}}));
        world.until("the fence is reverted", |w| w.data("fence") == "1").await;
        assert_ne!(version(&edited), version(&world.get("v1", "configmaps", "fence").unwrap()));
    }
}

pub fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// Patches an object of the namespace as a field manager.
#[track_caller]
pub fn patch_as(world: &World, manager: &str, of: (&str, &str, &str), form: Form, patch: Value) -> Value {
    world.write_as(manager, Call::new(of.0, of.1, NAMESPACE, of.2, Action::Patch(form, patch)))
}
