//! `mainstay version`: the version of this program, and of the leading agent.
//!
//! The agent writes its version to an annotation of its Lease.

use serde_json::json;

use super::{Error, Exit, connection::HomeConnection, lease::Lease, output::OutputArgument};

/// Arguments of `version`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Print only the version of this program; no cluster is contacted
    #[arg(long)]
    client: bool,
    #[command(flatten)]
    output: OutputArgument,
    #[command(flatten)]
    connection: HomeConnection,
}

const OWN: &str = env!("CARGO_PKG_VERSION");

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let client = json!({ "version": OWN });
    if arguments.client {
        arguments.output.print(&json!({ "client": client }), || format!("client: {OWN}\n"))?;
        return Ok(Exit::Fine);
    }
    let found = match arguments.connection.connect().await {
        Ok(cluster) => Lease::find(&cluster, &arguments.connection.namespace).await,
        Err(error) => Err(error),
    };
    let lease = match found {
        Ok(lease) => lease,
        Err(error) => {
            arguments.output.print(&json!({ "client": client }), || format!("client: {OWN}\n"))?;
            return Err(error);
        }
    };
    let Lease { namespace, holder, version } = &lease;
    let agent = holder.as_ref().map(|holder| json!({ "version": version, "namespace": namespace, "identity": holder }));
    let exit = if agent.is_none() { Exit::Differs } else { Exit::Fine };
    arguments.output.print(&json!({ "client": client, "agent": agent }), || {
        let place = if lease.is_of_dev() { "of `mainstay dev`, ".to_owned() } else { String::new() };
        let agent = match (&agent, version) {
            (None, _) => format!("none leads in the namespace {namespace}"),
            (Some(_), Some(version)) => format!("{version} ({place}namespace {namespace})"),
            (Some(_), None) => format!("it does not say ({place}namespace {namespace})"),
        };
        format!("client: {OWN}\nagent:  {agent}\n")
    })?;
    Ok(exit)
}
