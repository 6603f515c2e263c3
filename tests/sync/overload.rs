//! More GitSyncs than the agent has memory for: the oldest are applied and stay applied, the others cost no requests
//! until memory is free.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use mainstay_testkit::world::{NAMESPACE, World, condition_of, config_map};

/// Memory limit with which about ten of the GitSyncs fit.
const MEMORY: usize = 740_000;
/// Numbers of older and of younger GitSyncs. The names of the older ones come last.
const OLDER: usize = 10;
const YOUNGER: usize = 30;

fn names() -> Vec<String> {
    let older = (0..OLDER).map(|number| format!("old-{number:02}"));
    older.chain((0..YOUNGER).map(|number| format!("new-{number:02}"))).collect()
}

fn git_sync(world: &World, name: &str) -> Value {
    (*world.get("mainstay.dev/v1alpha1", "gitsyncs", name).unwrap()).clone()
}

fn ready(world: &World, name: &str) -> String {
    condition_of(&git_sync(world, name)["status"], "Ready")
}

/// Returns the applied GitSyncs, and the other GitSyncs with their resource versions, once each status is decided.
async fn settled(world: &World, names: &[String]) -> (Vec<String>, BTreeMap<String, String>) {
    let is_settled = |name: &String| {
        let ready = ready(world, name);
        ready.starts_with("True") || ready.starts_with("False MemoryExhausted")
    };
    let shown = || names.iter().map(|name| format!("{name}: {}", ready(world, name))).collect::<Vec<_>>().join("\n");
    world.until_or("each is applied or refused", |_| names.iter().all(is_settled), shown).await;
    let (applied, refused): (Vec<_>, Vec<_>) = names.iter().partition(|name| ready(world, name).starts_with("True"));
    let version = |name: &String| git_sync(world, name)["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    (applied.into_iter().cloned().collect(), refused.into_iter().map(|name| (name.clone(), version(name))).collect())
}

/// Checks that each of these objects is reverted.
async fn are_protected(world: &World, names: &[String]) {
    for name in names {
        world.edit("v1", "configmaps", name, json!({"data": {"key": "changed"}}));
    }
    let values = || names.iter().map(|name| format!("{name}: {}", world.data(name))).collect::<Vec<_>>().join("\n");
    world.until_or("each edit is reverted", |w| names.iter().all(|name| w.data(name) == "1"), values).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_git_syncs_are_applied_and_the_others_cost_nothing_until_there_is_room() {
    let mut world = World::new().await;
    world.patience *= 3;
    world.memory = MEMORY;
    let names = names();
    for name in &names {
        world.remote.file(&format!("{name}/a.yaml"), config_map(name, "1"));
    }
    world.remote.commit("all");
    world.start();
    for name in &names[..OLDER] {
        world.sync(name, json!({"baseDir": format!("/{name}")}));
    }
    settled(&world, &names[..OLDER]).await;
    let then = Timestamp::now().as_second();
    world.until("they are older", |_| Timestamp::now().as_second() > then).await;
    for name in &names[OLDER..] {
        world.sync(name, json!({"baseDir": format!("/{name}")}));
    }
    let (applied, refused) = settled(&world, &names).await;
    println!("{applied:?} of {}: {}", names.len(), git_sync(&world, &applied[0]));
    assert!((6..=14).contains(&applied.len()), "{applied:?}");
    assert_eq!(applied, names[..applied.len()], "the oldest");
    for name in refused.keys() {
        let ready = ready(&world, name);
        assert!(ready.contains("KiB") && ready.contains("limits.memory of at least"), "{name}: {ready}");
    }
    assert_eq!(world.config_maps().iter().filter(|name| names.contains(name)).count(), applied.len());

    // The applied GitSyncs are reverted and looked up, and no request is about the others.
    let reads = |world: &World| {
        let requests = world.requests().into_iter().filter(|(what, _)| what.starts_with("get gitsyncs"));
        requests.map(|(_, count)| count).sum::<u64>()
    };
    let before = reads(&world);
    are_protected(&world, &applied).await;
    world.look();
    are_protected(&world, &applied).await;
    assert_eq!(reads(&world), before);
    assert_eq!(settled(&world, &names).await, (applied.clone(), refused.clone()));

    // A new agent keeps the same GitSyncs applied, although the names of the other GitSyncs come first.
    world.kill().await;
    world.start();
    are_protected(&world, &applied).await;
    let (again, _) = settled(&world, &names).await;
    assert_eq!(again, applied);

    // The oldest of the others gets the memory of two GitSyncs that are deleted.
    let next = &names[applied.len()];
    for name in &applied[..2] {
        world.delete("mainstay.dev/v1alpha1", "gitsyncs", name);
    }
    world.ready(next).await;
    assert_eq!(world.get("v1", "configmaps", next).unwrap()["metadata"]["namespace"], NAMESPACE);
}
