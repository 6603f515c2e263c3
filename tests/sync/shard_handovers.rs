//! Objects that move between GitSyncs of two agents, and return or cannot be applied.

use devcluster::fault_injection::Fault;
use serde_json::{Value, json};

use mainstay_testkit::{
    gate::Heard,
    world::{World, config_map},
};

use super::shards::{add_maps, agree, all_ready, holders, owner, start_shard, syncs};

/// Returns the version at which a request applies a ConfigMap that was read before.
fn applied_version(heard: &Heard, name: &str) -> Option<i64> {
    let is_apply = heard.asked.starts_with("PATCH") && heard.asked.contains(&format!("/configmaps/{name}?"));
    let sent: Value = serde_json::from_slice(&heard.sent).unwrap_or_default();
    let version = sent["metadata"]["resourceVersion"].as_str()?.parse::<i64>().ok()?;
    // An apply of a new object has the largest version.
    (is_apply && version != i64::MAX).then_some(version)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_returns_while_its_new_owner_applies_it_stays() {
    let mut world = World::new().await;
    let names = syncs(&mut world);
    world.remote.file("app-00/moves.yaml", config_map("moves", "1")).commit("one more");
    let agents = ["one", "two"].map(|identity| start_shard(&mut world, identity));
    let agreed = agree(&world, 2).await;
    all_ready(&world, &names).await;
    let to = names.iter().find(|name| owner(&world, name) != owner(&world, "app-00")).unwrap();
    let taker = agents.iter().find(|agent| agent.identity == owner(&world, to)).unwrap();
    let label = |world: &World| {
        let map = world.get("v1", "configmaps", "moves").unwrap();
        map["metadata"]["labels"]["mainstay.dev/sync"].clone()
    };
    let before = (world.uid("v1", "configmaps", "moves"), label(&world));
    // Twice, so that an object that is offered again stays, too.
    for round in 0..2 {
        let held = taker.gate.hold(|heard| applied_version(heard, "moves").is_some());
        world.remote.remove("app-00/moves.yaml");
        world.remote.file(&format!("{to}/moves.yaml"), config_map("moves", "1")).commit(&format!("moved, {round}"));
        world.look();
        held.reached().await;
        world.remote.remove(&format!("{to}/moves.yaml"));
        world.remote.file("app-00/moves.yaml", config_map("moves", "1")).commit(&format!("returned, {round}"));
        world.look();
        world.ready("app-00").await;
        // The new owner applies it only now, with the version from before the return.
        drop(held);
        all_ready(&world, &names).await;
        assert_eq!((world.uid("v1", "configmaps", "moves"), label(&world)), before);
    }
    assert!(agents.iter().all(|agent| agent.deletions().is_empty()));
    assert_eq!(holders(&world), agreed);
}

/// Whether a request rewrites the `managedFields` of a ConfigMap.
fn is_rewrite(heard: &Heard, name: &str) -> bool {
    let is_patch = heard.asked.starts_with("PATCH") && heard.asked.contains(&format!("/configmaps/{name}?"));
    is_patch && String::from_utf8_lossy(&heard.sent).contains("/metadata/managedFields")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_returns_while_its_new_owner_gives_up_ignored_fields_stays() {
    let mut world = World::new().await;
    let names = syncs(&mut world);
    world.remote.file("app-00/moves.yaml", config_map("moves", "1")).commit("one more");
    let agents = ["one", "two"].map(|identity| start_shard(&mut world, identity));
    agree(&world, 2).await;
    all_ready(&world, &names).await;
    let to = names.iter().find(|name| owner(&world, name) != owner(&world, "app-00")).unwrap();
    let taker = agents.iter().find(|agent| agent.identity == owner(&world, to)).unwrap();
    world.change(to, json!({"ignore": [{"paths": ["/data/key"]}]})).await;
    let label = |world: &World| {
        let map = world.get("v1", "configmaps", "moves").unwrap();
        map["metadata"]["labels"]["mainstay.dev/sync"].clone()
    };
    let before = (world.uid("v1", "configmaps", "moves"), label(&world));
    let held = taker.gate.hold(|heard| is_rewrite(heard, "moves"));
    world.remote.remove("app-00/moves.yaml");
    world.remote.file(&format!("{to}/moves.yaml"), config_map("moves", "1")).commit("moved");
    world.look();
    held.reached().await;
    let version = |world: &World| {
        let map = world.get("v1", "configmaps", "moves").unwrap();
        map["metadata"]["resourceVersion"].as_str().unwrap().parse::<i64>().unwrap()
    };
    let offered = version(&world);
    world.remote.remove(&format!("{to}/moves.yaml"));
    world.remote.file("app-00/moves.yaml", config_map("moves", "1")).commit("returned");
    world.look();
    world.ready("app-00").await;
    assert!(version(&world) > offered, "the return changes the version");
    // The new owner reads the object again after the conflict, and gives up fields of the new version. Its apply has the
    // version from before the return, so that it is refused.
    drop(held);
    let applies = || {
        let heard = taker.gate.heard().into_iter();
        let applies = heard.filter_map(|heard| Some((applied_version(&heard, "moves")?, heard.answer())));
        applies.collect::<Vec<_>>()
    };
    let is_answered = || applies().iter().any(|(_, answer)| !answer.is_empty());
    world.until("the new owner has tried to apply it", |_| is_answered()).await;
    all_ready(&world, &names).await;
    assert_eq!((world.uid("v1", "configmaps", "moves"), label(&world)), before);
    for (version, answer) in applies() {
        assert!(version == offered && !answer.contains("\"kind\":\"ConfigMap\""), "{version}, {offered}: {answer}");
    }
    assert!(agents.iter().all(|agent| agent.deletions().is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_the_new_owner_cannot_apply_do_not_stop_the_handover_of_others() {
    let mut world = World::new().await;
    let names = syncs(&mut world);
    let moving = add_maps(&mut world, 45);
    let agents = ["one", "two"].map(|identity| start_shard(&mut world, identity));
    let agreed = agree(&world, 2).await;
    all_ready(&world, &names).await;
    let to = names.iter().find(|name| owner(&world, name) != owner(&world, "app-00")).unwrap();
    let taker = agents.iter().find(|agent| agent.identity == owner(&world, to)).unwrap();
    // As many as a status lists. The old owner offers those with the last names first.
    let (movable, failing) = moving.split_at(25);
    for name in failing {
        let (verb, resource, name) = ("apply".to_owned(), "configmaps".to_owned(), name.clone());
        taker.gate.levers().fail_next(Fault { verb, resource, name, code: 500, times: 1000, ..Fault::default() });
    }
    let uids: Vec<String> = moving.iter().map(|name| world.uid("v1", "configmaps", name)).collect();
    for name in &moving {
        world.remote.remove(&format!("app-00/{name}.yaml"));
        world.remote.file(&format!("{to}/{name}.yaml"), config_map(name, "2"));
    }
    world.remote.commit("moved");
    world.look();
    world.until("the others have moved", |w| movable.iter().all(|name| w.data(name) == "2")).await;
    assert!(failing.iter().all(|name| world.data(name) == "1"));
    assert_eq!(moving.iter().map(|name| world.uid("v1", "configmaps", name)).collect::<Vec<_>>(), uids);
    assert!(agents.iter().all(|agent| agent.deletions().is_empty()));
    assert_eq!(holders(&world), agreed);
}
