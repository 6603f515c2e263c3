//! `mainstay version`: of this program, and of the agent that leads.
//!
//! The agent writes its version to an annotation of its Lease.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Error, Exit, connection::HomeConnection, output::OutputArgument, uninstall::is_held};
use mainstay_api::names;
use mainstay_cluster::{Kind, Scope};

/// Arguments of `version`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Only of this program; no cluster is asked
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
    let namespace = &arguments.connection.namespace;
    let leases = Kind::fixed("coordination.k8s.io/v1", "Lease", "leases", Scope::Namespaced);
    let lease = match arguments.connection.connect().await {
        Ok(cluster) => cluster.get(&leases, Some(namespace), names::LEASE).await.map_err(Error::from),
        Err(error) => Err(error),
    };
    let lease = match lease {
        Ok(lease) => lease.unwrap_or_default(),
        Err(error) => {
            arguments.output.print(&json!({ "client": client }), || format!("client: {OWN}\n"))?;
            return Err(error);
        }
    };
    let agent = agent(&lease, namespace, Timestamp::now());
    let exit = if agent.is_null() { Exit::Differs } else { Exit::Fine };
    arguments.output.print(&json!({ "client": client, "agent": agent }), || {
        let agent = match agent["version"].as_str() {
            _ if agent.is_null() => format!("none leads in the namespace {namespace}"),
            Some(version) => format!("{version} (namespace {namespace})"),
            None => format!("it does not say (namespace {namespace})"),
        };
        format!("client: {OWN}\nagent:  {agent}\n")
    })?;
    Ok(exit)
}

/// The agent that holds the Lease.
fn agent(lease: &Value, namespace: &str, now: Timestamp) -> Value {
    if !is_held(&lease["spec"], now) {
        return Value::Null;
    }
    let version = &lease["metadata"]["annotations"][names::VERSION];
    json!({ "version": version, "namespace": namespace, "identity": lease["spec"]["holderIdentity"] })
}
