//! `mainstay function`: from a directory to a Function and back.
//!
//! `config.yaml` and the files beside it are a workspace ([`workspace`]); [`shape`] is the table of what the file may hold,
//! [`config`] what it says, [`objects`] and [`companions`] what becomes of that, and [`fetched`] the way back.

mod apply;
mod check;
mod companions;
mod config;
mod descendants;
mod document;
mod environment;
pub(super) mod error;
mod fetched;
mod fields;
mod init;
mod live;
mod machine;
mod manifest;
mod objects;
mod process;
mod project;
mod run;
mod shape;
mod sync;
mod templates;
mod values;
mod watch;
pub(super) mod words;
mod workspace;

use super::{Error, Exit};

/// Arguments of `function`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Write the files of a new Function into a directory: config.yaml, a handler and a dependency file. No cluster is needed.
    /// Files that are there are kept, unless --overwrite is given
    Init(init::Arguments),
    /// Apply the Function of a directory, or print it, ready to be committed. What a GitSync manages is refused, unless --force
    /// is given. Its namespace is the one of config.yaml, or of --namespace if that names none
    Apply(apply::Arguments),
    /// Write a Function of the cluster into a directory. The files of this Function that are there are replaced
    Sync(sync::Arguments),
    /// Run the Function of a directory on the Node.js or Python of this machine, by the server that pods have, again whenever
    /// a file is saved. Values of variables that are in ConfigMaps and Secrets are read from the cluster of --kubeconfig,
    /// --context, --cluster or --user; without one of these no cluster is asked
    Run(run::Arguments),
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    match &arguments.command {
        Command::Init(arguments) => init::run(arguments).await,
        Command::Apply(arguments) => apply::run(arguments).await,
        Command::Sync(arguments) => sync::run(arguments).await,
        Command::Run(arguments) => run::run(arguments).await,
    }
}
