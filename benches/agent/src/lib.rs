//! `mainstay bench`: measures the agent's cost from outside and prints a Markdown table.
//!
//! The embedded cluster and the agent are separate processes. The load is a Git repository. Changes are made and
//! observed by an independent client. There are nine benchmarks: one GitSync, many GitSyncs, Functions, remotes,
//! Functions on real nodes, the console, events, events under kills, and agents with shards.
//!
//! Invariant: no printed value comes from the agent's own clock.
//!
//! Not here: profiles and comparisons over time.

#![cfg_attr(test, allow(clippy::unwrap_used))]
#![expect(clippy::disallowed_methods, reason = "it starts processes, waits for them and measures time")]

mod api;
mod choices;
mod commit;
mod console;
mod counters;
mod embedded;
mod error;
mod events;
mod functions;
mod git_server;
mod many_syncs;
mod memory_limit;
mod nodes;
mod observer;
mod process;
mod product;
mod progress;
mod ready_syncs;
mod remotes;
mod reserved;
mod shards;
mod stand;
mod syncs;
mod table;
mod watchdog;

use std::{path::PathBuf, time::Duration};

pub use self::error::Error;
pub use self::product::Product;
use self::progress::progress;

/// Number of GitSyncs of agents with shards, if none is given.
const SHARED: u32 = 60;

/// Number of events per second under kills, if none is given.
const RATE: u32 = 2000;

/// Arguments of `mainstay bench`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Kubeconfig of another cluster to measure on; by default an embedded one is started
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Number of ConfigMaps of 1 KiB in the repository, 100 to 100000
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    objects: u32,
    /// Measure building and serving this many Functions, and their cost, instead of a GitSync; 1 to 2000 (1000 when no number is given)
    #[arg(
        long, value_name = "N", num_args = 0..=1, default_missing_value = "1000", conflicts_with_all = ["objects", "kubeconfig"],
        value_parser = clap::value_parser!(u32).range(1..=2_000),
    )]
    functions: Option<u32>,
    /// Measure this many remotes instead of a GitSync, polled each minute, half of them over SSH, 2 to 5000 (1000 when no number is given), and repositories with many references and files
    #[arg(
        long, value_name = "N", num_args = 0..=1, default_missing_value = "1000",
        conflicts_with_all = ["objects", "kubeconfig", "functions"], value_parser = clap::value_parser!(u32).range(2..=5_000),
    )]
    remotes: Option<u32>,
    /// Measure this many GitSyncs of one repository, with four objects each, instead of one with many, 2 to 20000 (1000 when no number is given), and a kustomization; with several numbers, how the cost grows from each to the next
    #[arg(
        long, value_name = "N", num_args = 0..=1, default_missing_value = "1000", value_delimiter = ',',
        conflicts_with_all = ["objects", "functions", "remotes"], value_parser = clap::value_parser!(u32).range(2..=20_000),
    )]
    syncs: Vec<u32>,
    /// Memory of the agent, for --syncs, or of each agent of --shards; the agent's default when not given
    #[arg(long, value_name = "SIZE", requires = "syncs")]
    memory: Option<String>,
    /// Let each GitSync of --syncs render one Helm chart with values of its own, instead of plain manifests
    #[arg(long, requires = "syncs")]
    charts: bool,
    /// Measure single Functions on the nodes of the cluster of --kubeconfig, where Mainstay is installed with a registry; prints a time line of each
    #[arg(long, requires = "kubeconfig", conflicts_with_all = ["objects", "functions", "remotes", "syncs", "only"])]
    node: bool,
    /// GitRepository in the namespace `default` whose directory `hello` holds a Function of Node.js, to measure as well
    #[arg(long, value_name = "NAME", requires = "node")]
    git_repository: Option<String>,
    /// Measure the console with 20 viewers of this many GitSyncs instead of the agent, 100 to 20000 (2000 when no number is given)
    #[arg(
        long, value_name = "N", num_args = 0..=1, default_missing_value = "2000",
        conflicts_with_all = ["objects", "kubeconfig", "functions", "remotes", "syncs", "only"],
        value_parser = clap::value_parser!(u32).range(100..=20_000),
    )]
    console: Option<u32>,
    /// Measure this many events of 1 KiB, with 1 and 10 subscribers, on NATS and in a journal, compared with a NATS server without Mainstay, 100 to 20000 (5000 when no number is given); requires nats-server
    #[arg(
        long, value_name = "N", num_args = 0..=1, default_missing_value = "5000",
        conflicts_with_all = ["objects", "kubeconfig", "functions", "remotes", "syncs", "only", "console"],
        value_parser = clap::value_parser!(u32).range(100..=20_000),
    )]
    events: Option<u32>,
    /// Kill publishers, dispatchers and one of three NATS servers at random while --events are published, this many times, 1 to 200 (20 when no number is given), and account for each event, instead of a comparison; fails if an accepted event is lost or is delivered without a grant
    #[arg(
        long, value_name = "N", num_args = 0..=1, default_missing_value = "20", requires = "events",
        value_parser = clap::value_parser!(u32).range(1..=200),
    )]
    kills: Option<u32>,
    /// Events per second for --kills, 10 to 10000; 2000 when not given
    #[arg(long, value_name = "N", requires = "kills", value_parser = clap::value_parser!(u32).range(10..=10_000))]
    rate: Option<u32>,
    /// Seed of --kills, to repeat the kills of an earlier run; a new one, which is printed, when not given
    #[arg(long, value_name = "SEED", requires = "kills")]
    seed: Option<u64>,
    /// Measure this many agents with shards that are killed while objects change, 2 to 16 (3 when no number is given), with 60 GitSyncs or the number of --syncs, of 10 ConfigMaps each; fails if a target is missed, on any cluster
    #[arg(
        long, value_name = "N", num_args = 0..=1, default_missing_value = "3",
        conflicts_with_all = ["objects", "functions", "remotes", "charts", "node", "console", "events", "only"],
        value_parser = clap::value_parser!(u8).range(2..=16),
    )]
    shards: Option<u8>,
    /// Time for which agents of --shards are killed, one every 20 s, 1 to 600; 1 when not given
    #[arg(long, value_name = "MINUTES", requires = "shards", value_parser = clap::value_parser!(u64).range(1..=600))]
    minutes: Option<u64>,
    /// Deaths of the agents of --shards: their pods are replaced, their containers restart in their pods, or both in turn; both when not given
    #[arg(long, value_name = "KIND", value_enum, requires = "shards")]
    deaths: Option<shards::Deaths>,
    /// Audit log of the API server of --kubeconfig, for --shards: a file with the writes of the ServiceAccounts of the namespace `mainstay-bench`, those of ConfigMaps with responses, as the policy `tests/real/audit-shards.yaml` selects them
    #[arg(long, value_name = "FILE", requires = "shards", requires = "kubeconfig")]
    audit: Option<PathBuf>,
    /// Also fetch a repository of 1 GiB; requires 4 GiB of space for temporary files
    #[arg(long, requires = "remotes")]
    large: bool,
    /// Part to measure: syncs and single changes, storms of edits, restarts, or Events
    #[arg(long, value_name = "PART", value_enum, conflicts_with_all = ["functions", "remotes", "syncs"])]
    only: Option<syncs::Part>,
    /// Time for which the idle agent is watched, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    idle: u64,
}

/// The result of a benchmark.
#[derive(Clone, Debug)]
pub struct Report {
    /// A Markdown table with a row per situation.
    pub table: String,
    /// Whether every target was met. Targets for the embedded cluster do not apply to another cluster; targets for
    /// nodes do.
    pub held: bool,
}

/// Runs the requested benchmark.
pub async fn run(product: &Product, arguments: &Arguments) -> Result<Report, Error> {
    if let (true, Some(kubeconfig)) = (arguments.node, &arguments.kubeconfig) {
        let nodes::Measured { table, held } = nodes::measure(kubeconfig, arguments.git_repository.as_deref()).await?;
        return Ok(Report { table, held });
    }
    if let Some(shards) = arguments.shards {
        return with_shards(product, arguments, shards).await;
    }
    if let (Some(events), Some(kills)) = (arguments.events, arguments.kills) {
        return with_kills(product, arguments, events, kills).await;
    }
    let (rows, load) = if let Some(count) = arguments.functions {
        let load = format!("{count} Functions of one repository");
        (functions::measure(product, count, arguments.idle).await?, load)
    } else if let Some(count) = arguments.console {
        let load = format!("{count} GitSyncs; of the agent means of the console");
        (console::measure(product, count, arguments.idle).await?, load)
    } else if let Some(count) = arguments.events {
        let load = format!("{count} events of 1 KiB; of the agent means of the processes of events");
        (events::measure(product, count).await?, load)
    } else if let Some(count) = arguments.remotes {
        let load = format!("{count} repositories on loopback, each followed by a GitSync");
        (remotes::measure(product, count, arguments.idle, arguments.large).await?, load)
    } else if !arguments.syncs.is_empty() {
        let counts: Vec<_> = arguments.syncs.iter().map(u32::to_string).collect();
        let form = if arguments.charts { many_syncs::Form::Charts } else { many_syncs::Form::Manifests };
        let load = format!("{} GitSyncs of one repository{}", counts.join(", "), form.described());
        let (kubeconfig, memory) = (arguments.kubeconfig.clone(), arguments.memory.clone());
        let place = many_syncs::Place { kubeconfig, memory, form };
        (many_syncs::measure(product, &place, &arguments.syncs, arguments.idle).await?, load)
    } else {
        let load = format!("{} ConfigMaps of 1 KiB in one GitSync", arguments.objects);
        let kubeconfig = arguments.kubeconfig.as_deref();
        (syncs::measure(product, kubeconfig, arguments.objects, arguments.only, arguments.idle).await?, load)
    };
    let held = rows.iter().all(table::Row::held);
    // The targets apply to the embedded cluster only.
    Ok(Report { table: table::markdown(&rows, &load), held: held || arguments.kubeconfig.is_some() })
}

/// Runs the benchmark of events under kills. Its targets do not depend on the machine, except for the rate.
async fn with_kills(product: &Product, arguments: &Arguments, events: u32, kills: u32) -> Result<Report, Error> {
    let rate = arguments.rate.unwrap_or(RATE);
    let seed = arguments.seed.unwrap_or_else(|| jiff::Timestamp::now().as_millisecond().unsigned_abs());
    let plan = events::kills::Plan { events, kills, rate, seed };
    let events::kills::Measured { table, held } = events::kills::measure(product, plan).await?;
    let load = format!("{rate} events of 1 KiB per second for 2 namespaces, {kills} kills with the seed {seed}");
    Ok(Report { table: format!("\n{load}.\n{table}"), held })
}

/// Runs the benchmark of agents with shards. Its targets apply to any cluster.
async fn with_shards(product: &Product, arguments: &Arguments, shards: u8) -> Result<Report, Error> {
    let syncs = match arguments.syncs[..] {
        [] => SHARED,
        [count] => count,
        _ => return Err(Error::OneNumber),
    };
    let minutes = arguments.minutes.unwrap_or(1);
    let plan = shards::Plan {
        kubeconfig: arguments.kubeconfig.clone(),
        audit: arguments.audit.clone(),
        shards,
        syncs: syncs as usize,
        memory: arguments.memory.clone(),
        deaths: arguments.deaths.unwrap_or_default(),
        length: Duration::from_secs(60 * minutes),
    };
    let shards::Measured { table, held } = shards::measure(product, &plan).await?;
    let (of, killed) = (shards::OBJECTS, plan.deaths.described());
    let load = format!(
        "{syncs} GitSyncs of {of} ConfigMaps, {} agents with shards, {minutes} min of kills of {killed}",
        plan.shards
    );
    Ok(Report { table: format!("\n{load}; requests without watches and Leases.\n{table}"), held })
}
