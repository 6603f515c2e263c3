//! An agent with a shard takes GitSyncs over and begins to lead, and continues its work for the others.

use std::time::Duration;

use mainstay_cluster::Timing;
use mainstay_testkit::world::{NAMESPACE, World};

use super::shards::{agree, all_ready, edit, owner, reverted, start_shard, syncs};

/// The surviving agent renews its Leases in time, also on a slow machine.
const TIMING: Timing =
    Timing { lease: Duration::from_secs(12), deadline: Duration::from_secs(10), retry: Duration::from_millis(500) };

const REPOSITORIES: (&str, &str) = ("serverless.kyma-project.io/v1alpha1", "gitrepositories");

/// Waits until an agent holds the Lease of the leader.
async fn leads(world: &World, identity: &str) {
    world
        .until(&format!("{identity} leads"), |w| {
            let leases = w.server.objects("coordination.k8s.io/v1", "leases", Some(NAMESPACE));
            let is_held = |lease: &serde_json::Value| {
                lease["metadata"]["name"] == "mainstay" && lease["spec"]["holderIdentity"] == identity
            };
            leases.iter().any(|lease| is_held(lease))
        })
        .await;
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
    let before = two.gate.heard().len();
    one.kill().await;
    for name in &theirs {
        edit(&world, name);
    }
    for name in &theirs {
        reverted(&world, name, "1").await;
    }
    leads(&world, "two").await;
    // Only the leader writes the status of a GitRepository.
    world.repository("second", &world.remote.path().display().to_string());
    world
        .until("the leader's work has begun", |w| {
            w.get(REPOSITORIES.0, REPOSITORIES.1, "second").is_some_and(|found| found["status"].is_object())
        })
        .await;
    for name in &own {
        edit(&world, name);
    }
    for name in &own {
        reverted(&world, name, "1").await;
    }
    let heard = two.gate.heard().split_off(before);
    let reads = |name: &String| {
        let path = format!("/configmaps/mainstay-inventory-{name}-0");
        heard.iter().filter(|heard| heard.asked.starts_with("GET") && heard.asked.contains(&path)).count()
    };
    assert_eq!(theirs.iter().map(reads).collect::<Vec<_>>(), vec![1; theirs.len()], "those of the dead agent");
    assert_eq!(own.iter().map(reads).collect::<Vec<_>>(), vec![0; own.len()], "its own ones");
    assert_eq!(two.deletions(), Vec::<String>::new());
}
