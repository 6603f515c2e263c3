//! Lost, damaged or forged inventories are rebuilt, and nothing is deleted because of them.

use devcluster::fault_injection::Fault;
use serde_json::json;

use mainstay_testkit::ownership::{LABEL, inventories, label_of};
use mainstay_testkit::world::{NAMESPACE, World, config_map};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_inventory_is_rebuilt_prunes_nothing_in_that_round_and_says_so() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("one");
    world.synced(json!({})).await;
    world.stop().await;
    for name in inventories(&world) {
        world.delete("v1", "configmaps", &name);
    }
    let copied = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "copied"},
        "metadata": {"name": "copied", "namespace": NAMESPACE, "labels": {LABEL: "mainstay-tests.demo"}, "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": world.uid("v1", "configmaps", "a"), "controller": true},
        ]},
    });
    world.create("v1", "configmaps", NAMESPACE, copied);
    world.remote.remove("b.yaml").commit("one goes");
    world.start();
    world.until("the status says so", |w| w.condition("demo", "Ready").contains("inventory was missing")).await;
    assert_eq!(world.config_maps(), ["a", "b", "copied"], "nothing is pruned in that round");
    assert_eq!(inventories(&world).len(), 1);
    world.ask("demo").await;
    world.ready("demo").await;
    assert_eq!(world.config_maps(), ["a", "copied"], "what only copied the label is not ours");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_inventory_is_rebuilt_and_deletes_nothing() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("one");
    world.synced(json!({})).await;
    for damage in ["AAAA", "H4sIAAAAAAAAA2NgAAAAAAD//w=="] {
        world.stop().await;
        let name = inventories(&world).remove(0);
        world.edit("v1", "configmaps", &name, json!({"binaryData": {"inventory": damage}}));
        world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
        world.start();
        world.until("what was changed is reverted", |w| w.data("a") == "1").await;
        world.until("the status says so", |w| w.condition("demo", "Ready").contains("damaged")).await;
        assert_eq!(world.config_maps(), ["a", "b"]);
        world.ask("demo").await;
        world.ready("demo").await;
        assert!(!world.condition("demo", "Ready").contains("damaged"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_inventory_deletes_nothing_that_is_not_ours() {
    let mut world = World::new().await;
    // The best forgery replaces an inventory by the inventory of another GitSync: all of its entries are valid.
    world.remote.file("left/l.yaml", config_map("l", "1")).file("right/r.yaml", config_map("r", "1")).commit("one");
    world.sync("left", json!({"baseDir": "/left"}));
    world.sync("right", json!({"baseDir": "/right"}));
    world.start();
    world.ready("left").await;
    world.ready("right").await;
    let uid = world.uid("v1", "configmaps", "r");
    world.stop().await;
    let theirs = world.get("v1", "configmaps", "mainstay-inventory-right-0").unwrap()["binaryData"].clone();
    world.edit("v1", "configmaps", "mainstay-inventory-left-0", json!({"binaryData": theirs}));
    world.start();
    world.ask("left").await;
    world.ready("left").await;
    world.ask("right").await;
    world.ready("right").await;
    assert_eq!((world.config_maps(), world.uid("v1", "configmaps", "r")), (vec!["l".to_owned(), "r".to_owned()], uid));
    assert_eq!(
        (label_of(&world, "l"), label_of(&world, "r")),
        ("mainstay-tests.left".into(), "mainstay-tests.right".into())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inventory_that_was_refused_after_a_revert_is_written_with_the_next_status() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    let name = inventories(&world).remove(0);
    let inventory = |world: &World| world.get("v1", "configmaps", &name).unwrap()["binaryData"].clone();
    let before = inventory(&world);
    world.fail_next("apply", "configmaps", &name, 403, 1);
    world.delete("v1", "configmaps", "a");
    world.until("the deletion is in the status", |w| w.status("demo")["reverted"] == 1).await;
    assert_eq!(inventory(&world), before, "the new UID could not be written");
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("the edit is in the status", |w| w.status("demo")["reverted"] == 2).await;
    assert_ne!(inventory(&world), before, "a status is written after the inventory");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_created_only_after_the_inventory_lists_them() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    let name = inventories(&world).remove(0);
    world.fail_next("apply", "configmaps", &name, 403, 1000);
    world.remote.file("b.yaml", config_map("b", "1"));
    world.try_commit("demo", "two").await;
    assert!(world.condition("demo", "Ready").starts_with("False"), "{}", world.condition("demo", "Ready"));
    for _ in 0..2 {
        world.ask("demo").await;
        assert_eq!(world.data("b"), "absent");
    }
    world.levers().clear_faults();
    world.ask("demo").await;
    world.ready("demo").await;
    assert_eq!(world.data("b"), "1");
}

/// A list by label makes the API server scan all ConfigMaps of the namespace, for each GitSync.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inventories_are_read_by_name_even_if_their_watch_fails_at_first() {
    let mut world = World::new().await;
    let names: Vec<_> = (0..6).map(|number| format!("team-{number}")).collect();
    for name in &names {
        world.remote.file(&format!("{name}/map.yaml"), config_map(name, "1"));
    }
    world.remote.commit("one");
    for name in &names {
        world.sync(name, json!({"baseDir": format!("/{name}")}));
    }
    world.start();
    for name in &names {
        world.ready(name).await;
    }
    world.stop().await;
    for name in &names {
        world.edit("v1", "configmaps", name, json!({"data": {"key": "changed"}}));
    }
    world.levers().fail_next(Fault {
        verb: "watch".into(),
        resource: "configmaps".into(),
        query: "labelSelector=mainstay.dev%2Finventory".into(),
        code: 503,
        times: 2,
        ..Fault::default()
    });
    world.gate.record();
    world.start();
    world.until("all edits are reverted", |w| names.iter().all(|name| w.data(name) == "1")).await;
    let heard = world.gate.heard();
    let asked = |text: &str| heard.iter().filter(|heard| heard.asked.contains(text)).count();
    assert_eq!(asked("mainstay.dev%2Finventory%3D"), 0, "no list for one GitSync");
    assert!(asked("mainstay.dev%2Finventory&") >= 3, "the watch failed twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_agent_writes_an_inventory_for_a_new_commit_only_if_its_files_moved() {
    let mut world = World::new().await;
    for name in ["still", "moved"] {
        world.remote.file(&format!("{name}/map.yaml"), config_map(name, "1"));
    }
    world.remote.commit("one");
    for name in ["still", "moved"] {
        world.sync(name, json!({"baseDir": format!("/{name}")}));
    }
    world.start();
    for name in ["still", "moved"] {
        world.ready(name).await;
    }
    world.stop().await;
    let version = |w: &World, name: &str| {
        let map = w.get("v1", "configmaps", &format!("mainstay-inventory-{name}-0")).unwrap();
        map["metadata"]["resourceVersion"].clone()
    };
    let before = ["still", "moved"].map(|name| version(&world, name));
    world.remote.remove("moved/map.yaml").file("moved/other.yaml", config_map("moved", "1"));
    let commit = world.remote.commit("two");
    world.start();
    for name in ["still", "moved"] {
        world.ready_at(name, &commit).await;
    }
    assert_eq!(version(&world, "still"), before[0]);
    assert_ne!(version(&world, "moved"), before[1], "`trace` names the new file");
}
