//! `mainstay tree`: GitSyncs, their managed objects, and the children of these objects, each with its health.
//!
//! Invariant: the number of objects to read is limited, and a note reports the omitted objects.
//!
//! Not here: children of kinds that neither the controllers of Kubernetes nor the agent create.

mod children;
mod live;
mod node;
mod objects;
mod render;

use serde_json::json;

pub(super) use self::node::{Node, State};
pub(super) use self::objects::RemoteClusters;
use self::objects::{Extent, Forest};
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

/// Maximum memory of the objects of a tree on a web page, and of all trees of the command, in bytes.
const OF_PAGE: usize = 4 << 20;
/// Maximum memory of an inventory on a web page, in bytes: about 27 000 objects.
const INVENTORY_OF_PAGE: usize = 8 << 20;
const OF_COMMAND: usize = 512 << 20;

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
    let remote_clusters = RemoteClusters::Read(arguments.connection.connection.dev_run().egress());
    let extent =
        Extent { with_children: !arguments.no_children, remote_clusters, bytes: OF_COMMAND, inventory: OF_COMMAND };
    let mut forest = Forest::new(&cluster, extent);
    let mut trees = Vec::new();
    for sync in syncs::select(&cluster, &kind, &selection).await? {
        trees.push(forest.tree(&sync).await?);
    }
    let notes = forest.notes();
    let items = trees.iter().map(render::facts).collect::<Vec<_>>();
    let facts = json!({ "items": items, "notes": notes });
    arguments.output.print(&facts, || render::text(&trees, &notes))?;
    Ok(if trees.iter().all(Node::is_healthy) { Exit::Fine } else { Exit::Differs })
}

/// Returns the tree of one GitSync for a web page, and notes about missing parts of the tree.
pub(super) async fn of(
    cluster: &Cluster,
    sync: &GitSync,
    with_children: bool,
    remote_clusters: RemoteClusters,
) -> Result<(Node, Vec<String>), Error> {
    let extent = Extent { with_children, remote_clusters, bytes: OF_PAGE, inventory: INVENTORY_OF_PAGE };
    let mut forest = Forest::new(cluster, extent);
    let root = forest.tree(sync).await?;
    Ok((root, forest.notes()))
}
