//! The command line: one file per command, each from its arguments to an exit code.
//!
//! Invariant: standard output contains only the result; everything else is written to standard error.
//!
//! Deliberately absent: how syncing works. Commands use the API server; only `agent` and `dev` start the agent itself.

mod agent;
#[cfg(feature = "dev")]
mod bench;
mod build;
mod check;
mod connection;
mod crd;
mod deploy_key;
#[cfg(feature = "dev")]
mod dev;
mod error;
mod exit;
mod identity;
mod install;
mod lease_identity;
mod logs;
mod output;
mod pause;
mod status;
mod stop;
mod sync;
mod syncs;
mod uninstall;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use error::Error;
use exit::Exit;

/// Keeps a Kubernetes cluster on its Git repository: applies commits, prunes what left, reverts hand edits.
#[derive(Parser, Debug)]
#[command(name = "mainstay", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the agent, in a cluster or beside one
    Agent(agent::Arguments),
    /// Print everything that a cluster needs to follow a repository, for `kubectl apply -f -`
    Install(install::Arguments),
    /// Print the public half of the SSH key that the repository is opened with, and where to add it
    Identity(identity::Arguments),
    /// Try cluster, permissions and repositories as the agent would, and say what is wrong; exit code 2 when something is
    Check(check::Arguments),
    /// Take the agent out of the cluster; what it has applied stays
    Uninstall(uninstall::Arguments),
    /// Print the CustomResourceDefinitions as YAML, for `kubectl apply -f -`
    Crd,
    /// Ask for a sync now, wait for it, and print the commit and what came of it
    Sync(sync::Arguments),
    /// Show repository, commit, objects, failures, what was put back, and what is paused
    Status(status::Arguments),
    /// Run one container of a build Job
    #[command(hide = true)]
    Build(build::Arguments),
    /// Break glass: stop applying and putting back one object
    Pause(pause::Pause),
    /// End a break glass
    Resume(pause::Target),
    /// Try it out: an embedded cluster, kept on a repository of yours or on a demonstration
    #[cfg(feature = "dev")]
    Dev(dev::Arguments),
    /// Measure the agent and print one table; exit code 1 when a promise is missed
    #[cfg(feature = "dev")]
    Bench(bench::Arguments),
}

/// Threads for what blocks: far more than all that a remote can hold together, so that files, packs and the API server's
/// own name always find one. They exist only while they work.
const BLOCKING_THREADS: usize = 128;
const _: () = assert!(BLOCKING_THREADS >= 2 * crate::source::MAX_THREADS);

/// Reads the arguments of the process, runs the command and reports how it went: 0 fine, 1 differences or not in
/// sync, 2 failed.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .map_err(Error::Start);
    match runtime.and_then(|runtime| runtime.block_on(perform(arguments.command))) {
        Ok(exit) => exit.into(),
        Err(error) => exit::report(&error),
    }
}

async fn perform(command: Command) -> Result<Exit, Error> {
    match command {
        Command::Agent(arguments) => agent::run(arguments).await,
        Command::Install(arguments) => install::run(arguments),
        Command::Identity(arguments) => identity::run(arguments).await,
        Command::Check(arguments) => check::run(arguments).await,
        Command::Uninstall(arguments) => uninstall::run(arguments).await,
        Command::Crd => crd::run(),
        Command::Sync(arguments) => sync::run(&arguments).await,
        Command::Status(arguments) => status::run(&arguments).await,
        Command::Build(arguments) => build::run(arguments).await,
        Command::Pause(arguments) => pause::pause(&arguments).await,
        Command::Resume(target) => pause::resume(&target).await,
        #[cfg(feature = "dev")]
        Command::Dev(arguments) => dev::run(arguments).await,
        #[cfg(feature = "dev")]
        Command::Bench(arguments) => bench::run(arguments).await,
    }
}
