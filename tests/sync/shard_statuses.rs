//! With shards, statuses that only name a new commit have turns. A task whose status cannot be written stays idle.

use std::time::Duration;

use devcluster::fault_injection::Fault;

use mainstay_testkit::{
    PATIENCE,
    listener::metrics,
    world::{World, config_map, free_address},
};

use super::shards::{Started, agree, all_ready, start_shard, syncs};

/// The GitSync whose status cannot be written.
const REFUSED: &str = "app-03";

/// Returns the number of status writes of this GitSync.
fn writes(agent: &Started) -> usize {
    let path = format!("/gitsyncs/{REFUSED}/status");
    let heard = agent.gate.heard();
    heard.iter().filter(|heard| heard.asked.starts_with("PATCH") && heard.asked.contains(&path)).count()
}

/// Returns the number of reconciles of all GitSyncs so far.
async fn reconciles(world: &World) -> u64 {
    let text = metrics(world).await;
    let count = text.lines().find_map(|line| line.strip_prefix("mainstay_reconciles_total ")).unwrap();
    count.parse().unwrap()
}

/// Refuses the status of a GitSync with this code after a commit that changes another one, and asserts that its task is
/// idle meanwhile.
async fn is_idle_while_its_status_is_refused(code: u16) {
    let mut world = World::new().await;
    world.listen = Some(free_address());
    let names = syncs(&mut world);
    let one = start_shard(&mut world, "one");
    agree(&world, 1).await;
    all_ready(&world, &names).await;
    world.quiet().await;
    let (verb, resource) = ("patch".to_owned(), "gitsyncs.mainstay.dev/status".to_owned());
    let fault = Fault { verb, resource, name: REFUSED.to_owned(), code, times: 1_000_000, ..Fault::default() };
    one.gate.levers().fail_next(fault);
    let (before, reconciled) = (writes(&one), reconciles(&world).await);
    let commit = world.remote.file("app-00/map.yaml", config_map("app-00", "2")).commit("one directory");
    world.look();
    let is_refused = async {
        while writes(&one) == before {
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_refused).await.expect("the status is refused");
    world.quiet().await;
    let (written, reconciled) = (writes(&one) - before, reconciles(&world).await - reconciled);
    assert!(written < 20 && reconciled < 300, "{written} writes and {reconciled} reconciles after {code}");
    one.gate.levers().clear_faults();
    world.look();
    world.until("the status names the commit", |w| w.status(REFUSED)["appliedCommit"] == *commit).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_status_is_not_written_without_a_pause() {
    is_idle_while_its_status_is_refused(500).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_whose_write_says_that_the_git_sync_is_gone_is_not_written_without_a_pause() {
    is_idle_while_its_status_is_refused(404).await;
}
