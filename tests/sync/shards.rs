//! Agents with shards divide the GitSyncs among themselves.

use std::time::Duration;

use devcluster::fault_injection::Fault;
use serde_json::{Value, json};

use mainstay_cluster::Timing;
use mainstay_cluster::shards::{Member, Members};
use mainstay_testkit::{
    gate::{Gate, Heard},
    remote::Remote,
    webhooks::{deliver, listening, push},
    world::{Agent, NAMESPACE, World, config_map},
};

/// For tests that wait for the duration of a Lease. Other tests use longer Leases, which a slow machine renews in time.
const SHORT: Timing =
    Timing { lease: Duration::from_secs(6), deadline: Duration::from_secs(4), retry: Duration::from_millis(500) };

const TOKEN: &str = "a-token-of-enough-bytes";

/// A running agent with its requests.
pub(super) struct Started {
    pub(super) identity: &'static str,
    pub(super) gate: Gate,
    agent: Agent,
}

impl Started {
    /// Returns the number of applies of a ConfigMap so far.
    fn applies(&self, name: &str) -> usize {
        let path = format!("/configmaps/{name}?");
        let is_apply = |asked: &str| asked.starts_with("PATCH") && asked.contains(&path) && !asked.contains("dryRun");
        self.gate.heard().iter().filter(|heard| is_apply(&heard.asked)).count()
    }

    /// Kills the agent.
    pub(super) async fn kill(self) {
        self.agent.kill().await;
    }

    /// Returns the deleted objects, without Leases.
    pub(super) fn deletions(&self) -> Vec<String> {
        let heard = self.gate.heard().into_iter().map(|heard| heard.asked);
        heard.filter(|asked| asked.starts_with("DELETE")).collect()
    }
}

/// Starts an agent beside the running ones.
fn start(world: &mut World, identity: &'static str) -> Started {
    let gate = Gate::default();
    gate.record();
    world.gate = gate.clone();
    world.start_as(identity, true);
    Started { identity, gate, agent: world.detach() }
}

pub(super) fn start_shard(world: &mut World, identity: &'static str) -> Started {
    world.shards = Some(3);
    start(world, identity)
}

/// Creates GitSyncs with a ConfigMap each, which has the name of the GitSync.
pub(super) fn syncs(world: &mut World) -> Vec<String> {
    let names: Vec<String> = (0..10).map(|number| format!("app-{number:02}")).collect();
    change(world, &names, "1");
    for name in &names {
        world.sync(name, json!({"baseDir": format!("/{name}")}));
    }
    names
}

/// Commits further ConfigMaps of the first GitSync. Returns their names.
pub(super) fn add_maps(world: &mut World, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("moves-{number:02}")).collect();
    for name in &names {
        world.remote.file(&format!("app-00/{name}.yaml"), config_map(name, "1"));
    }
    world.remote.commit("more");
    names
}

/// Commits a value of all ConfigMaps.
fn change(world: &mut World, names: &[String], value: &str) {
    for name in names {
        world.remote.file(&format!("{name}/map.yaml"), config_map(name, value));
    }
    world.remote.commit(value);
}

pub(super) async fn all_ready(world: &World, names: &[String]) {
    world.look();
    for name in names {
        world.ready(name).await;
    }
}

/// Returns the held shards, each with the identity of its agent and the members that its Lease shows; `None` if it shows
/// no view yet.
fn shards(world: &World) -> Vec<(Member, String, Option<Vec<String>>)> {
    let leases = world.server.objects("coordination.k8s.io/v1", "leases", Some(NAMESPACE));
    let shard = |lease: &Value| {
        let member = Member::parse(lease["metadata"]["name"].as_str()?.strip_prefix("mainstay-")?)?;
        let holder = lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?;
        let view = lease["metadata"]["annotations"]["mainstay.dev/shard-view"].as_str();
        let view = view.map(|view| serde_json::from_str::<Value>(view).unwrap());
        let members = view.map(|view| {
            let members = view["members"].as_array().cloned().unwrap_or_default();
            members.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
        });
        Some((member, holder.to_owned(), members))
    };
    leases.iter().filter_map(|lease| shard(lease)).collect()
}

/// Returns the held shards, each with the identity of its agent.
pub(super) fn holders(world: &World) -> Vec<(Member, String)> {
    shards(world).into_iter().map(|(member, holder, _)| (member, holder)).collect()
}

/// Waits until so many agents have published the same members, and returns the holders. From then on, none of them works
/// for a GitSync that it has lost.
pub(super) async fn agree(world: &World, count: usize) -> Vec<(Member, String)> {
    world
        .until(&format!("{count} agents agree"), |w| {
            let shards = shards(w);
            let all: Vec<String> = shards.iter().map(|(member, ..)| member.to_string()).collect();
            shards.len() == count && shards.iter().all(|(_, _, members)| members.as_ref() == Some(&all))
        })
        .await;
    holders(world)
}

/// Returns the identity of the agent that owns a GitSync.
pub(super) fn owner(world: &World, name: &str) -> String {
    let shards = shards(world);
    let members: Members = shards.iter().map(|(member, ..)| *member).collect();
    let owner = members.owner(NAMESPACE, name, None).unwrap();
    shards.into_iter().find(|(member, ..)| *member == owner).unwrap().1
}

pub(super) fn edit(world: &World, name: &str) {
    world.edit("v1", "configmaps", name, json!({"data": {"key": "edited"}}));
}

pub(super) async fn reverted(world: &World, name: &str, value: &str) {
    world.until(&format!("{name} is reverted"), |w| w.data(name) == value).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_git_sync_is_reverted_and_applied_by_its_agent_only() {
    let mut world = World::new().await;
    let names = syncs(&mut world);
    let agents = ["one", "two", "three"].map(|identity| start_shard(&mut world, identity));
    let agreed = agree(&world, 3).await;
    all_ready(&world, &names).await;
    let count = |name: &String| agents.iter().map(|agent| agent.applies(name)).collect::<Vec<_>>();
    let before: Vec<_> = names.iter().map(count).collect();
    for name in &names {
        edit(&world, name);
    }
    for name in &names {
        reverted(&world, name, "1").await;
    }
    change(&mut world, &names, "2");
    all_ready(&world, &names).await;
    for (name, before) in names.iter().zip(before) {
        let owner = owner(&world, name);
        for (agent, (before, after)) in agents.iter().zip(before.into_iter().zip(count(name))) {
            // The revert, and the commit.
            let is_expected = if agent.identity == owner { after - before >= 2 } else { after == before };
            assert!(is_expected, "{name} of {owner}, by {}: {before}, {after}", agent.identity);
        }
    }
    assert!(agents.iter().all(|agent| agent.deletions().is_empty()));
    assert_eq!(holders(&world), agreed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_share_of_a_dead_agent_is_taken_over() {
    let mut world = World::new().await;
    world.timing = SHORT;
    let names = syncs(&mut world);
    let [one, two] = ["one", "two"].map(|identity| start_shard(&mut world, identity));
    agree(&world, 2).await;
    all_ready(&world, &names).await;
    let (theirs, own): (Vec<String>, Vec<String>) =
        names.iter().cloned().partition(|name| owner(&world, name) == "one");
    assert!(!theirs.is_empty() && !own.is_empty());
    one.agent.kill().await;
    // The edit of its own GitSync does not wait for the Lease of the other agent.
    for name in &names {
        edit(&world, name);
    }
    for name in &names {
        reverted(&world, name, "1").await;
    }
    change(&mut world, &names, "2");
    all_ready(&world, &names).await;
    assert_eq!(two.deletions(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_joins_takes_its_share_without_a_write() {
    let mut world = World::new().await;
    let names = syncs(&mut world);
    let one = start_shard(&mut world, "one");
    all_ready(&world, &names).await;
    let version = |world: &World, name: &str| {
        let map = world.get("v1", "configmaps", name).unwrap();
        (map["metadata"]["uid"].clone(), map["metadata"]["resourceVersion"].clone())
    };
    let before: Vec<_> = names.iter().map(|name| version(&world, name)).collect();
    let applied: Vec<_> = names.iter().map(|name| one.applies(name)).collect();
    let two = start_shard(&mut world, "two");
    let agreed = agree(&world, 2).await;
    world
        .until("the second agent works for a GitSync", |_| {
            let is_status = |asked: &str| asked.starts_with("GET") && asked.contains("/configmaps/mainstay-inventory-");
            two.gate.heard().iter().any(|heard| is_status(&heard.asked) || heard.asked.contains("/configmaps?"))
        })
        .await;
    assert_eq!(names.iter().map(|name| version(&world, name)).collect::<Vec<_>>(), before);
    change(&mut world, &names, "2");
    all_ready(&world, &names).await;
    for (name, applied) in names.iter().zip(applied) {
        let expected = if owner(&world, name) == "one" { (1, 0) } else { (0, 1) };
        assert_eq!((one.applies(name) - applied, two.applies(name)), expected, "{name}");
    }
    assert!(one.deletions().is_empty() && two.deletions().is_empty());
    assert_eq!(holders(&world), agreed);
}

/// Whether a request releases a ConfigMap: it removes Mainstay's label.
fn is_release(heard: &Heard, name: &str) -> bool {
    let is_patch = heard.asked.starts_with("PATCH") && heard.asked.contains(&format!("/configmaps/{name}?"));
    let sent: Value = serde_json::from_slice(&heard.sent).unwrap_or_default();
    let removal = json!({"op": "remove", "path": "/metadata/labels/mainstay.dev~1sync"});
    is_patch && sent.as_array().is_some_and(|operations| operations.contains(&removal))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_takes_long_does_not_stop_a_handover() {
    let mut world = World::new().await;
    let names = syncs(&mut world);
    let one = start_shard(&mut world, "one");
    all_ready(&world, &names).await;
    // The GitSyncs that the second agent takes over.
    let members: Members = (0..2).filter_map(Member::new).collect();
    let is_second = |name: &&String| members.owner(NAMESPACE, name, None) == Member::new(1);
    let moving: Vec<String> = names.iter().filter(is_second).cloned().collect();
    let [deleted, moved, ..] = &moving[..] else { panic!("{moving:?}") };
    let released = deleted.clone();
    let held = one.gate.hold(move |heard| is_release(heard, &released));
    world.delete("mainstay.dev/v1alpha1", "gitsyncs", deleted);
    held.reached().await;
    let two = start_shard(&mut world, "two");
    let agreed = agree(&world, 2).await;
    let applied = two.applies(moved);
    edit(&world, moved);
    reverted(&world, moved, "1").await;
    assert!(two.applies(moved) > applied);
    assert_eq!(world.data(deleted), "1");
    assert!(one.deletions().is_empty() && two.deletions().is_empty());
    assert_eq!(holders(&world), agreed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pinned_git_sync_is_that_of_its_agent() {
    let mut world = World::new().await;
    world.timing = SHORT;
    let names = syncs(&mut world);
    for name in &names {
        let label = json!({"metadata": {"labels": {"mainstay.dev/shard": "shard-1"}}});
        world.edit("mainstay.dev/v1alpha1", "gitsyncs", name, label);
    }
    let agents = ["one", "two"].map(|identity| start_shard(&mut world, identity));
    let agreed = agree(&world, 2).await;
    all_ready(&world, &names).await;
    let pinned = shards(&world).into_iter().find(|(member, ..)| member.to_string() == "shard-1").unwrap().1;
    let before: Vec<Vec<usize>> =
        agents.iter().map(|agent| names.iter().map(|name| agent.applies(name)).collect()).collect();
    change(&mut world, &names, "2");
    all_ready(&world, &names).await;
    for (agent, before) in agents.iter().zip(before) {
        let expected = usize::from(agent.identity == pinned);
        for (name, before) in names.iter().zip(before) {
            assert_eq!(agent.applies(name) - before, expected, "{name} by {}", agent.identity);
        }
    }
    // The pin is removed: the former agent stops, and the new one begins after the Lease duration.
    let moved = names.iter().find(|name| owner(&world, name) != pinned).unwrap();
    let other = agents.iter().find(|agent| agent.identity != pinned).unwrap();
    let reads = || {
        let is_of_inventory = |asked: &str| asked.contains("/configmaps") && asked.contains(&**moved);
        let heard = other.gate.heard();
        heard.iter().filter(|heard| heard.asked.starts_with("GET") && is_of_inventory(&heard.asked)).count()
    };
    let (before, applied) = (reads(), other.applies(moved));
    let label = json!({"metadata": {"labels": {"mainstay.dev/shard": null}}});
    world.edit("mainstay.dev/v1alpha1", "gitsyncs", moved, label);
    world.until("the new agent has read the inventory", |_| reads() > before).await;
    edit(&world, moved);
    reverted(&world, moved, "2").await;
    change(&mut world, std::slice::from_ref(moved), "3");
    world.look();
    world.ready(moved).await;
    assert!(other.applies(moved) > applied);
    assert_eq!(holders(&world), agreed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_moves_between_git_syncs_of_two_agents_without_a_deletion() {
    let mut world = World::new().await;
    let names = syncs(&mut world);
    world.remote.file("app-00/moves.yaml", config_map("moves", "1")).commit("one more");
    let agents = ["one", "two"].map(|identity| start_shard(&mut world, identity));
    let agreed = agree(&world, 2).await;
    all_ready(&world, &names).await;
    let to = names.iter().find(|name| owner(&world, name) != owner(&world, "app-00")).unwrap();
    let uid = world.uid("v1", "configmaps", "moves");
    world.remote.remove("app-00/moves.yaml");
    world.remote.file(&format!("{to}/moves.yaml"), config_map("moves", "2")).commit("moved");
    all_ready(&world, &names).await;
    assert_eq!((world.data("moves"), world.uid("v1", "configmaps", "moves")), ("2".to_owned(), uid));
    assert!(agents.iter().all(|agent| agent.deletions().is_empty()));
    assert_eq!(holders(&world), agreed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_moves_stays_while_its_new_owner_cannot_apply_it() {
    let mut world = World::new().await;
    let names = syncs(&mut world);
    world.remote.file("app-00/moves.yaml", config_map("moves", "1")).commit("one more");
    let agents = ["one", "two"].map(|identity| start_shard(&mut world, identity));
    let agreed = agree(&world, 2).await;
    all_ready(&world, &names).await;
    let to = names.iter().find(|name| owner(&world, name) != owner(&world, "app-00")).unwrap();
    let taker = agents.iter().find(|agent| agent.identity == owner(&world, to)).unwrap();
    for (verb, name) in [("create", ""), ("apply", "moves")] {
        let (verb, resource, name) = (verb.to_owned(), "configmaps".to_owned(), name.to_owned());
        taker.gate.levers().fail_next(Fault { verb, resource, name, code: 500, times: 1000, ..Fault::default() });
    }
    let uid = world.uid("v1", "configmaps", "moves");
    world.remote.remove("app-00/moves.yaml");
    world.remote.file(&format!("{to}/moves.yaml"), config_map("moves", "2")).commit("moved");
    world.look();
    let object = format!("ConfigMap {NAMESPACE}/moves");
    world.until("the new owner reports it", |w| w.failure(to, &object).starts_with("ApplyFailed")).await;
    let handover = format!("{object}: handover to GitSync {NAMESPACE}/{to} ");
    let is_given = |held: &Value| held.as_str().is_some_and(|held| held.starts_with(&handover));
    world
        .until("the old owner hands it over", |w| {
            w.status("app-00")["held"].as_array().is_some_and(|held| held.iter().any(is_given))
        })
        .await;
    assert_eq!((world.data("moves"), world.uid("v1", "configmaps", "moves")), ("1".to_owned(), uid.clone()));
    taker.gate.levers().clear_faults();
    all_ready(&world, &names).await;
    assert_eq!((world.data("moves"), world.uid("v1", "configmaps", "moves")), ("2".to_owned(), uid));
    assert!(agents.iter().all(|agent| agent.deletions().is_empty()));
    assert_eq!(holders(&world), agreed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_moves_with_a_change_of_the_repository_stays() {
    let mut world = World::new().await;
    let names = syncs(&mut world);
    world.remote.file("app-00/moves.yaml", config_map("moves", "1")).commit("one more");
    let agents = ["one", "two"].map(|identity| start_shard(&mut world, identity));
    let agreed = agree(&world, 2).await;
    all_ready(&world, &names).await;
    let to = names.iter().find(|name| owner(&world, name) != owner(&world, "app-00")).unwrap();
    let taker = agents.iter().find(|agent| agent.identity == owner(&world, to)).unwrap();
    // The status of the new owner still shows its plan for the former repository.
    let (verb, resource, name) = ("patch".to_owned(), "gitsyncs.mainstay.dev/status".to_owned(), to.clone());
    taker.gate.levers().fail_next(Fault { verb, resource, name, code: 500, times: 1000, ..Fault::default() });
    let uid = world.uid("v1", "configmaps", "moves");
    let mut next = Remote::new();
    for name in &names {
        next.file(&format!("{name}/map.yaml"), config_map(name, "2"));
    }
    next.file(&format!("{to}/moves.yaml"), config_map("moves", "2")).commit("moved");
    let _former = std::mem::replace(&mut world.remote, next);
    let spec = json!({"spec": {"url": world.remote.path().display().to_string()}});
    world.edit("serverless.kyma-project.io/v1alpha1", "gitrepositories", "repo", spec);
    let waits = format!("ConfigMap {NAMESPACE}/moves: waits for GitSync {NAMESPACE}/{to}, ");
    let is_waiting = |held: &Value| held.as_str().is_some_and(|held| held.starts_with(&waits));
    world
        .until("the old owner waits for the plan of the new one", |w| {
            w.status("app-00")["held"].as_array().is_some_and(|held| held.iter().any(is_waiting))
        })
        .await;
    taker.gate.levers().clear_faults();
    all_ready(&world, &names).await;
    assert_eq!((world.data("moves"), world.uid("v1", "configmaps", "moves")), ("2".to_owned(), uid));
    assert!(agents.iter().all(|agent| agent.deletions().is_empty()));
    assert_eq!(holders(&world), agreed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_objects_than_a_status_lists_move_between_git_syncs_of_two_agents() {
    let mut world = World::new().await;
    let names = syncs(&mut world);
    let moving = add_maps(&mut world, 60);
    let agents = ["one", "two"].map(|identity| start_shard(&mut world, identity));
    let agreed = agree(&world, 2).await;
    all_ready(&world, &names).await;
    let to = names.iter().find(|name| owner(&world, name) != owner(&world, "app-00")).unwrap();
    let uids: Vec<String> = moving.iter().map(|name| world.uid("v1", "configmaps", name)).collect();
    for name in &moving {
        world.remote.remove(&format!("app-00/{name}.yaml"));
        world.remote.file(&format!("{to}/{name}.yaml"), config_map(name, "2"));
    }
    world.remote.commit("moved");
    all_ready(&world, &names).await;
    for (name, uid) in moving.iter().zip(uids) {
        assert_eq!((world.data(name), world.uid("v1", "configmaps", name)), ("2".to_owned(), uid), "{name}");
    }
    assert!(agents.iter().all(|agent| agent.deletions().is_empty()));
    assert_eq!(holders(&world), agreed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_object_does_not_stall_a_dependant_of_another_agent() {
    let mut world = World::new().await;
    let names = syncs(&mut world);
    world.remote.file("app-00/leaves.yaml", config_map("leaves", "1")).commit("one more");
    for identity in ["one", "two"] {
        start_shard(&mut world, identity);
    }
    let agreed = agree(&world, 2).await;
    all_ready(&world, &names).await;
    let dependant = names.iter().find(|name| owner(&world, name) != owner(&world, "app-00")).unwrap();
    world.change(dependant, json!({"dependsOn": [{"name": "app-00"}]})).await;
    world.remote.remove("app-00/leaves.yaml");
    change(&mut world, &names, "2");
    all_ready(&world, &names).await;
    assert_eq!((world.data("leaves").as_str(), world.data(dependant).as_str()), ("absent", "2"));
    // An object that moves to the dependant is handed over, too.
    world.remote.file("app-00/moves.yaml", config_map("moves", "1"));
    change(&mut world, &names, "3");
    all_ready(&world, &names).await;
    let uid = world.uid("v1", "configmaps", "moves");
    world.remote.remove("app-00/moves.yaml");
    world.remote.file(&format!("{dependant}/moves.yaml"), config_map("moves", "2"));
    change(&mut world, &names, "4");
    all_ready(&world, &names).await;
    assert_eq!((world.data("moves"), world.uid("v1", "configmaps", "moves")), ("2".to_owned(), uid));
    assert_eq!(holders(&world), agreed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_a_git_sync_of_another_agent_is_not_taken() {
    let mut world = World::new().await;
    let names = syncs(&mut world);
    let agents = ["one", "two"].map(|identity| start_shard(&mut world, identity));
    let agreed = agree(&world, 2).await;
    all_ready(&world, &names).await;
    let first = &names[0];
    let second = names.iter().find(|name| owner(&world, name) != owner(&world, first)).unwrap();
    world.remote.file(&format!("{second}/other.yaml"), config_map(first, "other")).commit("both want it");
    world.look();
    let (object, why) =
        (format!("ConfigMap {NAMESPACE}/{first}"), format!("managed by GitSync {NAMESPACE}/{first} too"));
    world.until("the second one reports it", |w| w.failure(second, &object).contains(&why)).await;
    world.ready(first).await;
    assert_eq!(world.data(first), "1");
    let other = agents.iter().find(|agent| agent.identity == owner(&world, second)).unwrap();
    assert!(other.deletions().is_empty());
    assert_eq!(holders(&world), agreed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_with_shards_wait_for_the_end_of_an_agent_without() {
    let mut world = World::new().await;
    world.timing = SHORT;
    let names = syncs(&mut world);
    let old = start(&mut world, "old");
    all_ready(&world, &names).await;
    let leases = world.server.objects("coordination.k8s.io/v1", "leases", Some(NAMESPACE));
    assert!(leases.iter().all(|lease| lease["metadata"]["labels"]["mainstay.dev/shard-lease"].is_null()));
    assert!(shards(&world).is_empty());
    let new = ["one", "two"].map(|identity| start_shard(&mut world, identity));
    // Both act by a view without members.
    world
        .until("both have published an empty view", |w| {
            let shards = shards(w);
            shards.len() == 2 && shards.iter().all(|(_, _, members)| members.as_ref().is_some_and(Vec::is_empty))
        })
        .await;
    change(&mut world, &names, "2");
    all_ready(&world, &names).await;
    assert!(new.iter().all(|agent| names.iter().all(|name| agent.applies(name) == 0)));
    old.agent.kill().await;
    let agreed = agree(&world, 2).await;
    change(&mut world, &names, "3");
    all_ready(&world, &names).await;
    for name in &names {
        let applies: Vec<usize> = new.iter().map(|agent| agent.applies(name)).collect();
        assert_eq!(applies.iter().sum::<usize>(), 1, "{name}: {applies:?}");
    }
    assert_eq!(holders(&world), agreed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_at_the_leader_wakes_the_git_syncs_of_all_agents() {
    let mut world = World::new().await;
    let names = syncs(&mut world);
    world.set_secret("hook", json!({"token": TOKEN}));
    world.receiver("hook", json!({}));
    for identity in ["one", "two"] {
        world.receive = Some(listening());
        start_shard(&mut world, identity);
    }
    let agreed = agree(&world, 2).await;
    all_ready(&world, &names).await;
    assert!(["one", "two"].iter().all(|identity| names.iter().any(|name| owner(&world, name) == *identity)));
    let url = world.receiver_url("hook").await;
    change(&mut world, &names, "2");
    // Each GitSync has an interval of an hour.
    let body = push(&world.remote.path().display().to_string(), "refs/heads/main");
    assert_eq!(deliver(&url, TOKEN, &body).await.0, 200);
    for name in &names {
        world.ready(name).await;
    }
    assert_eq!(holders(&world), agreed);
}
