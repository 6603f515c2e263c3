//! Kills an agent after each of its writes, and lets another one continue. At no point is an object lost, leaked or
//! wrongly deleted.

use std::collections::BTreeMap;

use devcluster::{Action, Call, fault_injection::Fault};
use serde_json::{Value, json};

use mainstay_testkit::ownership::{inventories, prune_on_delete, two_directories};
use mainstay_testkit::{
    gate::after_every_write,
    remote::Remote,
    world::{NAMESPACE, World, config_map},
};

/// Returns all ConfigMaps in the namespace, without metadata that the server assigns.
fn state(world: &World) -> BTreeMap<String, Value> {
    let all = world.server.objects("v1", "configmaps", Some(NAMESPACE));
    let mine = all.iter().filter(|map| !map["metadata"]["name"].as_str().unwrap().starts_with("mainstay-inventory-"));
    mine.map(|map| {
        let metadata = &map["metadata"];
        (metadata["name"].to_string(), json!([map["data"], metadata["labels"], metadata["finalizers"]]))
    })
    .collect()
}

/// Kills the agent after this many writes, during a first sync and two commits. Returns whether it was killed.
async fn killed_after(writes: u64) -> bool {
    let mut world = World::new().await;
    let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "x"},
        "metadata": {"name": "foreign", "namespace": NAMESPACE, "labels": {"mainstay.dev/sync": "mainstay-tests.demo"}}});
    world.create("v1", "configmaps", NAMESPACE, foreign);
    for name in ["a", "b", "c"] {
        world.remote.file(&format!("{name}.yaml"), config_map(name, "1"));
    }
    world.remote.commit("one");
    world.gate.shut_after(writes);
    world.sync("demo", json!({}));
    world.start();
    let commits = [
        ("two", vec![("a", Some("2")), ("b", None), ("d", Some("1"))]),
        ("three", vec![("c", None), ("b", Some("3"))]),
    ];
    let mut cut = world.cut_off_or(async |w| w.ready("demo").await).await;
    for (message, files) in commits {
        for (name, value) in files {
            let path = format!("{name}.yaml");
            match value {
                Some(value) => world.remote.file(&path, config_map(name, value)),
                None => world.remote.remove(&path),
            };
        }
        world.remote.commit(message);
        world.request("demo");
        cut |= world.cut_off_or(async |w| w.ready("demo").await).await;
    }
    world.ready("demo").await;
    let map = |value: &str| json!([{"key": value}, {"mainstay.dev/sync": "mainstay-tests.demo"}, null]);
    let wanted =
        BTreeMap::from([("a", "2"), ("b", "3"), ("d", "1")].map(|(name, value)| (format!("\"{name}\""), map(value))));
    let mut wanted = wanted;
    wanted.insert("\"foreign\"".into(), map("x"));
    wanted.insert("\"kube-root-ca.crt\"".into(), state(&world)["\"kube-root-ca.crt\""].clone());
    assert_eq!(state(&world), wanted, "killed after write {writes}");
    // The end is cut off, too: no request of the agent may remain.
    world.kill().await;
    cut
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_killed_between_any_two_writes_leaves_nothing_behind() {
    after_every_write(killed_after, 12).await;
}

async fn deleted_and_killed_after(writes: u64, prune: bool) -> bool {
    let mut world = World::new().await;
    for name in ["a", "b", "c"] {
        world.remote.file(&format!("{name}.yaml"), config_map(name, "1"));
    }
    world.remote.commit("one");
    world.synced(json!({})).await;
    if prune {
        prune_on_delete(&world, "demo").await;
    }
    world.gate.shut_after(writes);
    world.delete("mainstay.dev/v1alpha1", "gitsyncs", "demo");
    let gone = |w: &World| w.get("mainstay.dev/v1alpha1", "gitsyncs", "demo").is_none() && inventories(w).is_empty();
    if prune {
        let cut = world.cut_off_or(async |w| w.until("the GitSync and its inventory are gone", &gone).await).await;
        assert!(world.config_maps().is_empty(), "killed after write {writes}");
        return cut;
    }
    let released = |w: &World| {
        ["a", "b", "c"].iter().all(|name| {
            let metadata = w.get("v1", "configmaps", name).map(|map| map["metadata"].clone()).unwrap_or_default();
            metadata["labels"].get("mainstay.dev/sync").is_none()
                && !metadata["managedFields"].to_string().contains("\"mainstay\"")
        })
    };
    let gate = world.gate.clone();
    let cut = tokio::select! {
        () = gate.shut() => true,
        () = world.until("everything is let go", |w| gone(w) && released(w)) => false,
    };
    if cut {
        // Objects that the agent did not release keep their label, but have no owner.
        world.kill().await;
        gate.open();
        world.start();
        world.until("the GitSync and its inventory are gone", gone).await;
        world.edit("v1", "configmaps", "c", json!({"data": {"key": "mine now"}}));
        world.remote.file("marker.yaml", config_map("marker", "1")).remove("a.yaml").remove("b.yaml").remove("c.yaml");
        world.remote.commit("two");
        world.sync("other", json!({}));
        world.ready("other").await;
    }
    assert_eq!(world.config_maps(), if cut { vec!["a", "b", "c", "marker"] } else { vec!["a", "b", "c"] });
    assert_eq!(world.data("c"), if cut { "mine now" } else { "1" }, "killed after write {writes}");
    cut
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_killed_while_a_sync_is_deleted_lets_go_of_everything_in_the_end() {
    after_every_write(|writes| deleted_and_killed_after(writes, false), 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_killed_while_a_sync_is_deleted_with_its_objects_deletes_all_of_them_in_the_end() {
    after_every_write(|writes| deleted_and_killed_after(writes, true), 5).await;
}

async fn moved_and_killed_after(writes: u64) -> bool {
    let mut world = two_directories().await;
    let uid = world.uid("v1", "configmaps", "moving");
    world.gate.shut_after(writes);
    world.remote.remove("left/moving.yaml").file("right/moving.yaml", config_map("moving", "2"));
    let commit = world.remote.commit("move");
    world.look();
    let moved = |w: &World| {
        let applied =
            |sync: &str| w.condition(sync, "Ready").starts_with("True") && w.status(sync)["appliedCommit"] == *commit;
        applied("left") && applied("right")
    };
    let cut = world.cut_off_or(async |w| w.until("the object moved", &moved).await).await;
    assert_eq!(world.uid("v1", "configmaps", "moving"), uid, "killed after write {writes}");
    let moving = world.get("v1", "configmaps", "moving").unwrap();
    assert_eq!(
        moving["metadata"]["labels"]["mainstay.dev/sync"], "mainstay-tests.right",
        "killed after write {writes}"
    );
    assert_eq!((world.data("moving").as_str(), world.config_maps().len()), ("2", 3));
    cut
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_killed_while_an_object_moves_never_deletes_it() {
    after_every_write(moved_and_killed_after, 4).await;
}

/// Creates a state in which `there` has taken over `moving`, and the agent was killed before `here` recorded that. Both
/// inventories list the object.
async fn handed_over_and_killed() -> (World, Remote, String) {
    let mut world = World::new().await;
    let mut other = Remote::new();
    world.repository("other", &other.path().display().to_string());
    world.remote.file("a.yaml", config_map("a", "1")).file("moving.yaml", config_map("moving", "1")).commit("one");
    other.file("b.yaml", config_map("b", "1")).commit("one");
    world.sync("here", json!({}));
    world.sync("there", json!({"gitRepository": "other"}));
    world.start();
    world.ready("here").await;
    world.ready_at("there", &other.head()).await;
    // `here` has more work in the commit that gives up the object, and is killed before it records that.
    let slow =
        Fault { verb: "apply".into(), resource: "secrets".into(), delay_millis: 600_000, times: 1, ..Fault::default() };
    world.levers().fail_next(slow);
    let wanted = other.file("moving.yaml", config_map("moving", "2")).commit("wanted");
    world
        .remote
        .file("s.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n")
        .remove("moving.yaml")
        .commit("given up");
    world.look();
    world.ready_at("there", &wanted).await;
    world.kill().await;
    world.levers().clear_faults();
    (world, other, wanted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handed_over_object_with_our_label_is_released_once_it_is_corrected() {
    let (mut world, _other, wanted) = handed_over_and_killed().await;
    world.edit(
        "v1",
        "configmaps",
        "moving",
        json!({"metadata": {"labels": {"mainstay.dev/sync": "mainstay-tests.here"}}}),
    );
    // `here` examines the object before `there` has corrected it.
    let slow = Fault {
        verb: "apply".into(),
        resource: "configmaps".into(),
        name: "moving".into(),
        delay_millis: 3000,
        times: 1,
        ..Fault::default()
    };
    world.levers().fail_next(slow);
    world.start();
    let head = world.remote.head();
    world.ready_at("here", &head).await;
    world.ready_at("there", &wanted).await;
    assert_eq!(
        (world.config_maps(), world.data("moving")),
        (vec!["a".into(), "b".into(), "moving".into()], "2".into())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_leaves_while_the_agent_that_handed_it_over_is_dead_is_deleted() {
    let (mut world, mut other, _) = handed_over_and_killed().await;
    // The object leaves before the next agent starts, which cannot read the desired objects of `here`.
    let (version, repositories) = ("serverless.kyma-project.io/v1alpha1", "gitrepositories");
    let known = world.get(version, repositories, "repo").unwrap()["spec"]["url"].clone();
    world.edit(version, repositories, "repo", json!({"spec": {"url": "/nowhere/to/be/found"}}));
    let gone = other.remove("moving.yaml").commit("it goes");
    world.start();
    world.condition_is("here", "Ready", "False").await;
    world.until("the commit is seen", |w| w.status("there")["attemptedCommit"] == *gone).await;
    world.edit(version, repositories, "repo", json!({"spec": {"url": known}}));
    world.ready("here").await;
    world.ready_at("there", &gone).await;
    assert_eq!(world.config_maps(), ["a", "b"]);
}

async fn adopted_and_killed_after(writes: u64) -> bool {
    let mut world = World::new().await;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "old", "stale": "x"},
        "metadata": {"name": "a", "namespace": NAMESPACE, "labels": {"stale": "x"}, "finalizers": ["example.org/keep"]},
    });
    let create = Call::new("v1", "configmaps", NAMESPACE, "", Action::Create(map));
    world.try_as("kubectl-client-side-apply", create).unwrap();
    let uid = world.uid("v1", "configmaps", "a");
    world.remote.file("a.yaml", config_map("a", "new")).commit("one");
    world.gate.shut_after(writes);
    world.sync("demo", json!({}));
    world.start();
    let head = world.remote.head();
    let ready =
        |w: &World| w.condition("demo", "Ready").starts_with("True") && w.status("demo")["appliedCommit"] == *head;
    let cut = world.cut_off_or(async |w| w.until("the object is adopted", &ready).await).await;
    let map = world.get("v1", "configmaps", "a").unwrap();
    assert_eq!(map["data"], json!({"key": "new"}), "killed after write {writes}");
    assert_eq!(
        map["metadata"]["labels"],
        json!({"mainstay.dev/sync": "mainstay-tests.demo"}),
        "killed after write {writes}"
    );
    assert_eq!(
        (map["metadata"]["finalizers"].clone(), map["metadata"]["uid"].clone()),
        (json!(["example.org/keep"]), uid.into())
    );
    cut
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_killed_while_it_adopts_an_object_leaves_nothing_stale_in_it() {
    after_every_write(adopted_and_killed_after, 5).await;
}

async fn recreated_and_killed_after(writes: u64) -> bool {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("one");
    world.synced(json!({})).await;
    world.gate.shut_after(writes);
    world.delete("v1", "configmaps", "a");
    let gate = world.gate.clone();
    let mut cut = tokio::select! {
        () = gate.shut() => true,
        () = world.until("created again", |w| w.data("a") == "1") => false,
    };
    world.remote.remove("a.yaml");
    let commit = world.remote.commit("it goes after all");
    if cut {
        world.kill().await;
        gate.open();
        world.start();
    } else {
        world.look();
    }
    let applied =
        |w: &World| w.condition("demo", "Ready").starts_with("True") && w.status("demo")["appliedCommit"] == *commit;
    cut |= world.cut_off_or(async |w| w.until("the commit is applied", &applied).await).await;
    assert_eq!(world.config_maps(), ["b"], "killed after write {writes}");
    cut
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_killed_after_it_created_an_object_again_still_knows_it_as_its_own() {
    after_every_write(recreated_and_killed_after, 4).await;
}

async fn forgotten_and_killed_after(writes: u64) -> bool {
    // Two repositories have no common commit, so the repository that gives up the object comes first.
    let mut world = World::new().await;
    let mut other = Remote::new();
    world.repository("other", &other.path().display().to_string());
    world.remote.file("a.yaml", config_map("a", "1")).file("moving.yaml", config_map("moving", "1")).commit("one");
    other.file("moving.yaml", config_map("moving", "2")).commit("one");
    world.sync("here", json!({}));
    world.start();
    world.ready("here").await;
    world.sync("there", json!({"gitRepository": "other"}));
    world.condition_is("there", "Ready", "False OwnershipConflict").await;
    let uid = world.uid("v1", "configmaps", "moving");
    world.gate.shut_after(writes);
    world.remote.remove("moving.yaml").commit("given up");
    world.look();
    let taken = |w: &World| {
        let label =
            |w: &World| w.get("v1", "configmaps", "moving").unwrap()["metadata"]["labels"]["mainstay.dev/sync"].clone();
        w.get("v1", "configmaps", "moving").is_some() && label(w) == "mainstay-tests.there" && w.data("moving") == "2"
    };
    let cut = world.cut_off_or(async |w| w.until("the object is handed over", &taken).await).await;
    assert_eq!(world.uid("v1", "configmaps", "moving"), uid, "killed after write {writes}");
    cut
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_killed_while_one_repository_hands_an_object_to_another_never_deletes_it() {
    after_every_write(forgotten_and_killed_after, 3).await;
}
