//! Simulates agents with up to 1 000 000 objects, without a cluster: `cargo run --release -p mainstay-engine --example
//! scale`. Numbers after `--` replace the numbers of GitSyncs.
//!
//! The store, the writer and the drift loop are the product's. They send their requests to modelled API servers, in
//! virtual time. One agent is in memory at a time; the figures of all agents are multiples of its figures.
//!
//! | file | content |
//! |---|---|
//! | [`fleet`] | the GitSyncs and their objects |
//! | [`agent`] | one agent: commits, rest and restart |
//! | [`server`] | the modelled API server |
//! | [`measure`] | bytes on the heap and CPU time of the agent |
//! | [`virtual_time`] | clock of the process, as in the schedules of `tests/model` |
//!
//! Not here: fetches, renders, and the parts of the agent outside the engine. Their memory is a parameter.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a simulation has its own clock and prints a table"
)]

mod agent;
mod fleet;
mod measure;
mod server;
#[path = "../../../../tests/model/virtual_time.rs"]
mod virtual_time;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::managed::kept_within;
use tokio::time::{Instant, sleep};

use agent::{Agent, Target};
use fleet::Fleet;
use server::{Pace, Server};

#[global_allocator]
static HEAP: measure::Counting = measure::Counting;

/// Numbers of GitSyncs.
const SIZES: [usize; 4] = [1_000, 5_000, 10_000, 50_000];
/// Numbers of clusters. With one, the agents are in the cluster that they apply to; otherwise in another cluster.
const CLUSTERS: [usize; 3] = [1, 50, 500];
/// Objects of each GitSync.
const OBJECTS: usize = 20;
/// Memory limits of an agent in MiB.
const LIMITS: [usize; 2] = [160, 640];
const MIB: usize = 1 << 20;

/// Pages of the program and its libraries, in bytes, from `bench --syncs` with Kubernetes 1.36.
const PROGRAM: usize = 36 * MIB;
/// Memory of a GitSync besides its objects, in bytes, as `mainstay install --expect-gitsyncs` counts it.
const GIT_SYNC: usize = 24 << 10;
/// Memory of an object of 1 KiB, in bytes, as `mainstay install --expect-objects` counts it.
const OBJECT: usize = 2 << 10;
/// Memory of a remote cluster, in bytes, as the agent counts it.
const CLUSTER: usize = 512 << 10;

/// Service time of a request.
const SERVICE: Duration = Duration::from_millis(6);
/// Requests that an API server executes concurrently. With the service time, this makes 1 333 requests a second;
/// `bench --syncs` had 1 190 applies a second of a bare client, with Kubernetes 1.36 on two cores.
const PARALLEL: u32 = 8;
/// Interval of audits: the default of the agent.
const AUDIT: Duration = Duration::from_secs(3600);
/// Measured time at rest.
const REST: Duration = Duration::from_secs(600);
/// Requests a second of the Lease of an agent.
const LEASE: f64 = 0.5;

/// The share of one agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    /// Number of all agents.
    agents: usize,
    syncs: usize,
    /// Clusters that the agent applies to.
    clusters: usize,
    /// Number of agents that apply to the same cluster.
    sharing: usize,
    /// Whether the agent runs in a different cluster.
    is_remote: bool,
}

impl Share {
    /// Returns the share with the least number of agents whose budgets accept all GitSyncs.
    fn of(syncs: usize, clusters: usize, limit: usize) -> Self {
        let is_remote = clusters > 1;
        let share = |agents: usize| Self {
            agents,
            syncs: syncs.div_ceil(agents),
            clusters: clusters.div_ceil(agents),
            sharing: agents.div_ceil(clusters),
            is_remote,
        };
        // A namespace that is alone can use the budget except for an eighth.
        let budget = kept_within(limit * MIB) / 8 * 7;
        (1..=syncs).map(share).find(|share| share.counted() <= budget).expect("one GitSync fits")
    }

    /// Returns the bytes that the agent counts in its budget.
    fn counted(self) -> usize {
        self.besides_objects() + self.syncs * OBJECTS * OBJECT
    }

    /// Returns the bytes of GitSyncs and remote clusters.
    fn besides_objects(self) -> usize {
        let clusters = if self.is_remote { self.clusters } else { 0 };
        self.syncs * GIT_SYNC + clusters * CLUSTER
    }
}

/// Heads of the tables.
const MEMORY: &str = "\
| GitSyncs | objects | clusters | agents of 160 MiB | agents of 640 MiB | bytes per object | an agent of 160 MiB at rest | at the peak of the commit |
|---|---|---|---|---|---|---|---|
";
const TIMES: &str = "\
| GitSyncs | clusters | requests a second at rest | commit: requests | time | CPU of an agent | restart: inventories read | watches opened | time | CPU of an agent |
|---|---|---|---|---|---|---|---|---|---|
";

type Requests = BTreeMap<&'static str, usize>;

/// The result of one phase of an agent.
#[derive(Clone, Debug)]
struct Phase {
    requests: Requests,
    virtual_time: Duration,
    cpu: Duration,
}

impl Phase {
    fn count(&self, verb: &str) -> usize {
        self.requests.get(verb).copied().unwrap_or_default()
    }

    /// Returns the numbers of applies, inventories and statuses.
    fn writes(&self) -> [usize; 3] {
        ["apply", "inventory", "status"].map(|verb| self.count(verb))
    }
}

/// The figures of one agent.
#[derive(Clone, Debug)]
struct Figures {
    /// Bytes of the engine on the heap at rest, and at the peak of the commit.
    heap: [usize; 2],
    commit: Phase,
    rest: Phase,
    restart: Phase,
}

impl Figures {
    /// Checks that requests are sent for changes only, and that the memory is within what `mainstay install` sets.
    fn check(&self, share: Share) {
        assert!(self.heap[0] <= share.counted(), "{share:?}: {:?} bytes, counted {}", self.heap, share.counted());
        let of = |phase: &Phase| (phase.writes(), phase.count("get"), phase.count("other"));
        assert_eq!(of(&self.commit), ([share.syncs; 3], 0, 0), "{:?}", self.commit);
        assert_eq!(of(&self.rest), ([0; 3], 0, 0), "{:?}", self.rest);
        assert_eq!(of(&self.restart), ([0; 3], share.syncs, 0), "{:?}", self.restart);
    }
}

/// The servers of one agent.
struct Servers {
    home: Server,
    targets: Vec<Target>,
}

impl Servers {
    fn new(fleet: &Arc<Fleet>, share: Share) -> Self {
        let (each, more) = (share.syncs / share.clusters, share.syncs % share.clusters);
        let mut next = 0;
        let targets = (0..share.clusters).map(|cluster| {
            let syncs = next..next + each + usize::from(cluster < more);
            next = syncs.end;
            (Server::new(fleet, syncs.clone()), syncs)
        });
        let targets = targets.collect::<Vec<_>>();
        let home = if share.is_remote { Server::new(fleet, 0..0) } else { targets[0].0.clone() };
        Self { home, targets }
    }

    /// Sets the pace of servers that the other agents use simultaneously.
    fn set_pace(&self, share: Share) {
        let pace = |agents: usize| Pace {
            service: SERVICE,
            spacing: SERVICE / PARALLEL * u32::try_from(agents).unwrap_or(u32::MAX),
        };
        self.home.set_pace(pace(share.agents));
        self.targets.iter().for_each(|(server, _)| server.set_pace(pace(share.sharing)));
    }

    fn all(&self) -> impl Iterator<Item = &Server> {
        let targets = self.targets.iter().map(|(server, _)| server);
        // In one cluster, the home is the target.
        targets.chain([&self.home])
    }

    fn take_requests(&self) -> Requests {
        let mut all = Requests::new();
        for (verb, count) in self.all().flat_map(Server::take_requests) {
            *all.entry(verb).or_default() += count;
        }
        all
    }

    /// Returns the bytes on the heap without those of the servers.
    fn heap_besides(&self, bytes: usize) -> usize {
        let kept = self.targets.iter().map(|(server, _)| server.kept()).sum();
        bytes.saturating_sub_signed(kept)
    }

    /// Measures a phase until `work` ends.
    async fn phase(&self, work: impl Future<Output = ()>) -> Phase {
        self.take_requests();
        let (began, cpu) = (Instant::now(), measure::cpu());
        work.await;
        Phase { virtual_time: began.elapsed(), cpu: measure::cpu().saturating_sub(cpu), requests: self.take_requests() }
    }
}

/// Simulates one agent: the first commit, a commit that changes the image of each Deployment, rest, and a restart.
async fn simulate(share: Share) -> Figures {
    let fleet = Arc::new(Fleet::new(OBJECTS));
    let servers = Servers::new(&fleet, share);
    let before = measure::heap();
    let start = || Agent::start(&fleet, &servers.home, &servers.targets, AUDIT);
    let mut agent = start();
    agent.commit(0).await;
    // The watches show the events of the commit.
    sleep(Duration::from_secs(60)).await;
    let at_rest = servers.heap_besides(measure::heap()) - before;
    servers.set_pace(share);
    measure::peak();
    let commit = servers.phase(agent.commit(1)).await;
    sleep(Duration::from_secs(60)).await;
    let at_peak = servers.heap_besides(measure::peak()) - before;
    let rest = servers.phase(sleep(REST)).await;
    agent.kill().await;
    let mut agent = start();
    let restart = servers.phase(agent.resume(1)).await;
    agent.kill().await;
    let running = servers.targets.iter().map(|(server, _)| server.running(1)).sum::<usize>();
    assert_eq!(running, share.syncs, "Deployments with the image of the commit");
    let figures = Figures { heap: [at_rest, at_peak], commit, rest, restart };
    figures.check(share);
    figures
}

fn main() {
    let sizes = std::env::args().skip(1).map(|size| size.parse().expect("each argument is a number of GitSyncs"));
    let sizes = sizes.collect::<Vec<usize>>();
    let sizes = if sizes.is_empty() { SIZES.to_vec() } else { sizes };
    print_parameters();
    let runtime = virtual_time::start(1);
    let mut tables = [MEMORY.to_owned(), TIMES.to_owned()];
    for syncs in sizes {
        for clusters in CLUSTERS {
            let [share, large] = LIMITS.map(|limit| Share::of(syncs, clusters, limit));
            let figures = runtime.block_on(simulate(share));
            tables[0] += &memory_row((syncs, clusters), share, large, &figures);
            tables[1] += &times_row((syncs, clusters), share, &figures);
        }
    }
    println!("{}", tables.join("\n"));
}

fn print_parameters() {
    let build = if cfg!(debug_assertions) { "a development build" } else { "a release" };
    println!("Parameters, not measured in this run:");
    println!("- objects of a GitSync: {OBJECTS}, of 1 KiB each");
    println!("- memory of the program: {} MiB", PROGRAM / MIB);
    println!(
        "- memory of a GitSync besides its objects: {} KiB; of a remote cluster: {} KiB",
        GIT_SYNC >> 10,
        CLUSTER >> 10
    );
    println!("- service time of a request: {} ms, {PARALLEL} at a time in each cluster", SERVICE.as_millis());
    println!("- objects of a list: {} a second", server::LISTED);
    println!("- requests of the Lease: {LEASE} a second for each agent");
    println!("- all agents work at the same time, in the commit and in the restart");
    println!("Measured in this run, {build}: bytes on the heap, requests, virtual time, CPU time\n");
}

/// Returns a row of the first table.
fn memory_row((syncs, clusters): (usize, usize), share: Share, large: Share, figures: &Figures) -> String {
    let [heap, peak] = figures.heap;
    let memory = |heap: usize| format!("{} MiB", (PROGRAM + share.besides_objects() + heap).div_ceil(MIB));
    line(&[
        spaced(syncs),
        spaced(syncs * OBJECTS),
        clusters.to_string(),
        share.agents.to_string(),
        large.agents.to_string(),
        spaced(heap / (share.syncs * OBJECTS)),
        memory(heap),
        memory(peak),
    ])
}

/// Returns a row of the second table. Requests are those of all agents.
fn times_row((syncs, clusters): (usize, usize), share: Share, figures: &Figures) -> String {
    let of_all = |count: usize| count * syncs / share.syncs;
    let at_rest = of_all(figures.rest.requests.values().sum()) as f64 / REST.as_secs_f64();
    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    line(&[
        spaced(syncs),
        clusters.to_string(),
        format!("{:.1}", at_rest + LEASE * share.agents as f64),
        spaced(of_all(figures.commit.writes().iter().sum())),
        seconds(figures.commit.virtual_time),
        seconds(figures.commit.cpu),
        spaced(of_all(figures.restart.count("get"))),
        spaced(of_all(figures.restart.count("watch"))),
        seconds(figures.restart.virtual_time),
        seconds(figures.restart.cpu),
    ])
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// Formats a number with spaces between thousands.
fn spaced(number: usize) -> String {
    if number < 1000 { number.to_string() } else { format!("{} {:03}", spaced(number / 1000), number % 1000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because a process has one virtual time.
    #[test]
    fn an_agent_takes_the_counted_memory_and_sends_requests_for_changes_only() {
        let runtime = virtual_time::start(1);
        for (clusters, sharing) in [(1, 5), (3, 2)] {
            let share = Share { agents: 5, syncs: 30, clusters, sharing, is_remote: clusters > 1 };
            let figures = runtime.block_on(simulate(share));
            assert!(figures.heap[1] >= figures.heap[0], "{:?}", figures.heap);
            // An hour has 600 audits; the hash of each key decides which of them are in ten minutes.
            assert!((60..=140).contains(&figures.rest.count("dry run")), "{:?}", figures.rest);
            // The requests of four other agents are between those of this agent in one shared cluster.
            let least = if clusters == 1 { SERVICE / PARALLEL * 5 * 89 } else { SERVICE };
            assert!(figures.commit.virtual_time >= least, "{:?}", figures.commit);
        }
    }

    #[test]
    fn agents_are_as_many_as_their_budgets_need() {
        let agents = |syncs, clusters, limit| Share::of(syncs, clusters, limit).agents;
        assert_eq!(agents(672, 1, 160), 1, "as `mainstay install` counts: 64 KiB each in 42 MiB");
        assert_eq!(agents(673, 1, 160), 2);
        assert_eq!(agents(2688, 1, 640), 1);
        assert!(agents(672, 50, 160) > 1, "remote clusters take memory, too");
    }
}
