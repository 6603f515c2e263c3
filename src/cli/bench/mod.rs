//! `mainstay bench`: what the agent costs, measured from outside, as one Markdown table.
//!
//! The embedded cluster and the agent run as processes of their own. The load is a Git repository; every change is made
//! and seen through a client that the agent knows nothing of. What a GitSync costs and what Functions cost are two
//! measurements with a table each.
//!
//! Invariant: nothing of what is printed comes from the agent's own clock.
//!
//! Deliberately absent: profiles and comparisons over time.

mod counters;
mod functions;
mod observer;
mod process;
mod stand;
mod syncs;
mod table;

use std::{
    io::{self, Write as _},
    path::PathBuf,
};

use super::{Error as CommandError, Exit, logs, output};

/// Arguments of `bench`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Kubeconfig of another cluster to measure on; by default an embedded one is started
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// How many ConfigMaps of 1 KiB the repository holds, 100 to 100000
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    objects: u32,
    /// Measure Functions instead of a GitSync: how they are built and served, and what this many of them cost, 1 to 2000 (1000 when no number is given)
    #[arg(
        long, value_name = "N", num_args = 0..=1, default_missing_value = "1000", conflicts_with_all = ["objects", "kubeconfig"],
        value_parser = clap::value_parser!(u32).range(1..=2_000),
    )]
    functions: Option<u32>,
    /// Measure only syncs and single changes, storms of edits, or restarts
    #[arg(long, value_name = "PART", value_enum, conflicts_with = "functions")]
    only: Option<syncs::Part>,
    /// How long the agent is watched doing nothing, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    idle: u64,
}

/// What the measurement attempted in vain.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("could not make a temporary directory")]
    Directory(#[source] io::Error),
    #[error("could not start a process")]
    Start(#[source] io::Error),
    #[error("a process did not start; what it said is above")]
    NotStarted,
    #[error("could not read what Linux says of a process")]
    Measure(#[source] io::Error),
    #[error("could not write the load")]
    Load(#[source] io::Error),
    #[error("could not commit the load")]
    Commit(#[source] git2::Error),
    #[error("could not read the kubeconfig")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    #[error("could not ask the cluster")]
    Ask(#[source] kube::Error),
    #[error("could not read the counters")]
    Count(#[source] reqwest::Error),
    #[error("could not understand the counters")]
    Counts(#[source] serde_json::Error),
    #[error("{missing} objects were not as the branch says after {seconds} s")]
    NotReached { missing: usize, seconds: u64 },
    #[error("the agent did not act on a request within {seconds} s")]
    NotHandled { seconds: u64 },
    #[error("could not tell the embedded cluster what to simulate")]
    Simulate(#[source] reqwest::Error),
    #[error("could not ask the registry")]
    Registry(#[source] reqwest::Error),
    #[error("no runtime has this name")]
    NoRuntime,
    #[error("could not understand the address of a function")]
    Address(#[source] http::uri::InvalidUri),
    #[error("could not call a function")]
    Call(#[source] hyper_util::client::legacy::Error),
    #[error("a function answered {0}")]
    Answer(http::StatusCode),
    #[error("could not read the answer of a function")]
    Read(#[source] io::Error),
}

pub(super) async fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    logs::start(logs::Format::Text, "warn");
    if cfg!(debug_assertions) {
        tracing::warn!("this is a debug build, whose numbers say little: cargo run --release -- bench");
    }
    let (rows, load) = if let Some(count) = arguments.functions {
        let load = format!("{count} Functions of one repository");
        (functions::measure(count, arguments.idle).await?, load)
    } else {
        let load = format!("{} ConfigMaps of 1 KiB in one GitSync", arguments.objects);
        (
            syncs::measure(arguments.kubeconfig.as_deref(), arguments.objects, arguments.only, arguments.idle).await?,
            load,
        )
    };
    output::print(&table::markdown(&rows, &load))?;
    let held = rows.iter().all(table::Row::held);
    // The targets are promises about the embedded cluster; another one has its own speed.
    Ok(if held || arguments.kubeconfig.is_some() { Exit::Fine } else { Exit::Differs })
}

/// Says on standard error what is being measured.
fn progress(what: &str) {
    // Progress that nobody can see is no reason to stop.
    let _ = writeln!(io::stderr(), "measuring: {what}");
}
