//! `mainstay function`: converts a directory to a Function and back.
//!
//! `config.yaml` and the files beside it are a workspace ([`workspace`]). [`shape`] is the table of the file's fields,
//! and [`config`] represents its content. [`objects`] and [`companions`] create the objects, and [`fetched`] converts
//! back.

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
mod page_files;
mod page_secrets;
mod process;
mod project;
mod rules;
mod run;
mod shape;
mod sync;
mod templates;
mod values;
mod watch;
pub(super) mod words;
mod workspace;

pub(super) use page_files::files_reader;
pub(super) use rules::page_rules;

use super::{Error, Exit};

/// Arguments of `function`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Write the files of a new Function into a directory: config.yaml, a handler and a dependency file. No cluster is
    /// needed. If one of them exists with other content, nothing is written, unless --overwrite is given
    Init(init::Arguments),
    /// Apply the Function of a directory, or print its manifests for a commit. Objects that a GitSync manages are
    /// refused, unless --force is given. The namespace is that of config.yaml, else that of --namespace
    Apply(apply::Arguments),
    /// Write a Function of the cluster into a directory. Existing files of this Function are replaced
    Sync(sync::Arguments),
    /// Run the Function of a directory with the local Node.js or Python and the server that pods use; restart it when a
    /// file is saved. Variables from ConfigMaps and Secrets are read from the cluster of --kubeconfig, --context,
    /// --cluster or --user; without one of these flags, no cluster is contacted
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
