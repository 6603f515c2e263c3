//! An agent with a shard takes GitSyncs over and begins to lead, and continues its work for the others.

use std::time::Duration;

use serde_json::{Value, json};

use mainstay_cluster::Timing;
use mainstay_cluster::shards::Member;
use mainstay_testkit::world::{NAMESPACE, World, condition_of};

use super::shards::{agree, all_ready, edit, holders, owner, reverted, start_shard, syncs};

/// The surviving agent renews its Leases in time, also on a slow machine.
const TIMING: Timing =
    Timing { lease: Duration::from_secs(12), deadline: Duration::from_secs(10), retry: Duration::from_millis(500) };

const REPOSITORIES: (&str, &str) = ("serverless.kyma-project.io/v1alpha1", "gitrepositories");
const OURS: &str = "mainstay.dev/v1alpha1";

/// Waits until an agent holds the Lease of the leader.
async fn leads(world: &World, identity: &str) {
    world
        .until(&format!("{identity} leads"), |w| {
            let leases = w.server.objects("coordination.k8s.io/v1", "leases", Some(NAMESPACE));
            let is_held =
                |lease: &Value| lease["metadata"]["name"] == "mainstay" && lease["spec"]["holderIdentity"] == identity;
            leases.iter().any(|lease| is_held(lease))
        })
        .await;
}

/// Edits GitSyncs' ConfigMaps, and waits until they are reverted.
async fn all_reverted(world: &World, names: &[String]) {
    for name in names {
        edit(world, name);
    }
    for name in names {
        reverted(world, name, "1").await;
    }
}

/// Returns the condition of the Provider or Alert `chat`.
fn of_chat(world: &World, resource: &str) -> String {
    let found = world.get(OURS, resource, "chat");
    found.map_or_else(|| "absent".to_owned(), |found| condition_of(&found["status"], "Ready"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_leader_writes_the_states_that_it_saw_before_it_led() {
    let mut world = World::new().await;
    world.timing = TIMING;
    let one = start_shard(&mut world, "one");
    leads(&world, "one").await;
    let chat = |kind: &str, spec: Value| {
        let metadata = json!({"name": "chat", "namespace": NAMESPACE});
        json!({"apiVersion": OURS, "kind": kind, "metadata": metadata, "spec": spec})
    };
    world.create(OURS, "providers", NAMESPACE, chat("Provider", json!({"type": "unknown"})));
    let alert = json!({"providerRef": {"name": "chat"}, "eventSources": [{"kind": "Kustomization", "name": "*"}]});
    world.create(OURS, "alerts", NAMESPACE, chat("Alert", alert));
    let two = start_shard(&mut world, "two");
    agree(&world, 2).await;
    for resource in ["providers", "alerts"] {
        world.until(&format!("{resource} have a status"), |w| of_chat(w, resource) != "absent").await;
    }
    one.kill().await;
    for resource in ["providers", "alerts"] {
        world.edit(OURS, resource, "chat", json!({"spec": {"suspend": true}}));
    }
    for resource in ["providers", "alerts"] {
        world.until(&format!("{resource} are suspended"), |w| of_chat(w, resource).contains("suspended")).await;
    }
    leads(&world, "two").await;
    assert_eq!(two.deletions(), Vec::<String>::new());
}

/// Whether the Lease of an agent's shard names an expired Lease.
fn shows_expired(world: &World, identity: &str) -> bool {
    let leases = world.server.objects("coordination.k8s.io/v1", "leases", Some(NAMESPACE));
    let mut of_agent = leases.iter().filter(|lease| lease["spec"]["holderIdentity"] == identity);
    of_agent.any(|lease| {
        let view = lease["metadata"]["annotations"]["mainstay.dev/shard-view"].as_str();
        let view = view.and_then(|view| serde_json::from_str::<Value>(view).ok());
        view.is_some_and(|view| view["expired"].is_object())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_agent_takes_the_shard_whose_lease_another_one_shows_as_expired() {
    let mut world = World::new().await;
    world.timing = TIMING;
    let one = start_shard(&mut world, "one");
    leads(&world, "one").await;
    let two = start_shard(&mut world, "two");
    let shard_of = |held: &[(Member, String)], identity: &str| {
        held.iter().find(|(_, holder)| holder == identity).map(|(member, _)| *member)
    };
    let before = agree(&world, 2).await;
    one.kill().await;
    world.until("the Lease of the dead agent has expired", |w| shows_expired(w, "two")).await;
    let three = start_shard(&mut world, "three");
    world.until("the new agent has a shard", |w| shard_of(&holders(w), "three").is_some()).await;
    // Another shard is free, and the new agent itself has not observed the Lease for its duration.
    assert_eq!(shard_of(&holders(&world), "three"), shard_of(&before, "one"));
    world.until("no Lease counts as expired", |w| !shows_expired(w, "two")).await;
    assert_eq!((two.deletions(), three.deletions()), (Vec::new(), Vec::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_takes_over_and_leads_reads_only_the_inventories_that_it_takes_over() {
    let mut world = World::new().await;
    world.timing = TIMING;
    let names = syncs(&mut world);
    let one = start_shard(&mut world, "one");
    leads(&world, "one").await;
    let two = start_shard(&mut world, "two");
    agree(&world, 2).await;
    all_ready(&world, &names).await;
    let (theirs, own): (Vec<String>, Vec<String>) =
        names.iter().cloned().partition(|name| owner(&world, name) == "one");
    assert!(!theirs.is_empty() && !own.is_empty());
    // From then on, the tasks of its own GitSyncs have read their inventories.
    all_reverted(&world, &own).await;
    let before = two.gate.heard().len();
    one.kill().await;
    all_reverted(&world, &theirs).await;
    leads(&world, "two").await;
    // Only the leader writes the status of a GitRepository.
    world.repository("second", &world.remote.path().display().to_string());
    world
        .until("the leader's work has begun", |w| {
            w.get(REPOSITORIES.0, REPOSITORIES.1, "second").is_some_and(|found| found["status"].is_object())
        })
        .await;
    all_reverted(&world, &own).await;
    let heard = two.gate.heard().split_off(before);
    let reads = |name: &String| {
        let path = format!("/configmaps/mainstay-inventory-{name}-0");
        heard.iter().filter(|heard| heard.asked.starts_with("GET") && heard.asked.contains(&path)).count()
    };
    assert_eq!(theirs.iter().map(reads).collect::<Vec<_>>(), vec![1; theirs.len()], "those of the dead agent");
    assert_eq!(own.iter().map(reads).collect::<Vec<_>>(), vec![0; own.len()], "its own ones");
    assert_eq!(two.deletions(), Vec::<String>::new());
}
