//! `mainstay tree`: GitSyncs, their managed objects, and the children of these objects, each with its health.
//!
//! Invariant: the number of objects to read is limited, and a note reports the omitted objects.
//!
//! Not here: children of kinds that neither the controllers of Kubernetes nor the agent create.

mod live;
mod objects;
mod render;

use serde_json::json;

use self::objects::Forest;
pub(super) use self::objects::{Node, RemoteClusters, State};
use clap_complete::engine::ArgValueCompleter;

use super::{
    Error, Exit, completion,
    connection::{WideConnection, own_kind},
    output::OutputArgument,
    suspend::git_sync_name,
    syncs,
};
use mainstay_api::GitSync;
use mainstay_cluster::Cluster;

/// Arguments of `tree`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Name of the GitSync; by default all in the namespace
    #[arg(value_parser = git_sync_name, add = ArgValueCompleter::new(completion::git_syncs))]
    name: Option<String>,
    /// Show only managed objects, without their children
    #[arg(long)]
    no_children: bool,
    #[command(flatten)]
    output: OutputArgument,
    #[command(flatten)]
    connection: WideConnection,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let cluster = arguments.connection.connection.connect().await?;
    let kind = own_kind::<GitSync>(&cluster).await?;
    let selection = arguments.connection.selection(&cluster, arguments.name.as_deref());
    let mut forest = Forest::new(&cluster, !arguments.no_children, RemoteClusters::Read);
    let mut trees = Vec::new();
    for sync in syncs::select(&cluster, &kind, &selection).await? {
        trees.push(forest.tree(&sync).await?);
    }
    let notes = forest.notes();
    let items = trees.iter().map(render::facts).collect::<Vec<_>>();
    let facts = json!({ "items": items, "notes": notes });
    arguments.output.print(&facts, || render::text(&trees, &notes))?;
    Ok(if trees.iter().all(objects::Node::is_healthy) { Exit::Fine } else { Exit::Differs })
}

/// Returns the tree of one GitSync, and notes about missing parts of the tree.
pub(super) async fn of(
    cluster: &Cluster,
    sync: &GitSync,
    remote_clusters: RemoteClusters,
) -> Result<(Node, Vec<String>), Error> {
    let mut forest = Forest::new(cluster, true, remote_clusters);
    let root = forest.tree(sync).await?;
    Ok((root, forest.notes()))
}
