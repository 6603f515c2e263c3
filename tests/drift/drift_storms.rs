//! Many simultaneous edits: sharing of reverts between owners, and behaviour on an overloaded server.

use devcluster::fault_injection::Fault;
use serde_json::json;

use mainstay_testkit::world::{World, config_map};

/// Creates a world with this many Secrets of the GitSync `storm` and the ConfigMap `a` of the GitSync `calm`.
async fn two_owners(count: usize) -> World {
    let mut world = World::new().await;
    for number in 0..count {
        let secret = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s{number}}}\ndata: {{key: b25l}}\n");
        world.remote.file(&format!("storm/{number}.yaml"), secret);
    }
    world.remote.file("calm/a.yaml", config_map("a", "1")).commit("one");
    world.sync("storm", json!({"baseDir": "/storm"}));
    world.sync("calm", json!({"baseDir": "/calm"}));
    world.start();
    world.ready("storm").await;
    world.ready("calm").await;
    world
}

/// Edits every Secret.
fn storm(world: &World, count: usize) {
    for number in 0..count {
        world.edit("v1", "secrets", &format!("s{number}"), json!({"data": {"key": "dHdv"}}));
    }
}

/// Returns the number of Secrets that match the branch.
fn back(world: &World, count: usize) -> usize {
    let key = |number: usize| world.get("v1", "secrets", &format!("s{number}")).map(|s| s["data"]["key"].clone());
    (0..count).filter(|number| key(*number) == Some(json!("b25l"))).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_whose_reverts_hang_does_not_hold_up_the_single_edit_of_another_owner() {
    let world = two_owners(60).await;
    let hang = Fault {
        verb: "apply".into(),
        resource: "secrets".into(),
        delay_millis: 600_000,
        times: 60,
        ..Fault::default()
    };
    world.levers().fail_next(hang);
    storm(&world, 60);
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("the single edit is reverted", |w| w.data("a") == "1").await;
    assert!(back(&world, 60) < 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_on_an_overloaded_server_is_reverted_completely() {
    let world = two_owners(60).await;
    for code in [429, 503, 500] {
        let away = Fault { verb: "apply".into(), resource: "secrets".into(), code, times: 15, ..Fault::default() };
        let wishes = Fault { retry_after: Some(1), ..away.clone() };
        world.levers().fail_next(if code == 500 { away } else { wishes });
    }
    storm(&world, 60);
    world.until("everything is reverted", |w| back(w, 60) == 60).await;
}
