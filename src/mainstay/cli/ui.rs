//! `mainstay ui`: the web page, on a port of this machine.
//!
//! Invariant: the link is printed before anything else is, and can open only one session.
//!
//! Not here: the pages, and their security (`mainstay_console`).

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::Stdio,
    sync::Arc,
};

use serde_json::json;

use super::{
    Error, Exit,
    connection::Connection,
    function, lease, object_rules,
    output::{self, OutputArgument},
    stop, trace,
    tree::{self, Node, RemoteClusters, State},
};
use loopback::{Listener, Reach};
use mainstay_api::GitSync;
use mainstay_cluster::Cluster;
use mainstay_console::{Children, Console, FilesReader, Mark, Presence, Readers, Settings, Tree, Users};
use mainstay_object::{Health, Key, failure::chain};

/// Arguments of `ui`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Port of this machine; by default a free one
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Print the link only, without opening a browser
    #[arg(long)]
    no_open: bool,
    #[command(flatten)]
    output: OutputArgument,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let cluster = arguments.connection.connect().await?;
    let namespace = arguments.connection.namespace(&cluster);
    let stop = stop::on_signal()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port));
    let listen = |cause| Error::Listen { address, cause };
    let listener = Listener::bind(address, Reach::SameUser).map_err(listen)?;
    let cluster_name = arguments.connection.context_name().unwrap_or_default();
    let run = arguments.connection.dev_run();
    // The users of the cluster choose the addresses of remote clusters.
    let remote_clusters = RemoteClusters::Read(run.egress());
    let files = function::files_reader(run)?;
    let settings = Settings {
        users: Users::Own(cluster),
        cluster_name,
        namespace,
        readers: readers(Some(files), remote_clusters),
    };
    let console = Console::new(settings, listener, stop).map_err(listen)?;
    let link = console.link().map_err(listen)?;
    let text = || {
        format!(
            "Open {link}\nThe link works once, for a browser of this machine. Ctrl-C ends the page.\n\
             If the browser does not find the host, replace it with 127.0.0.1.\n"
        )
    };
    let _ = arguments.output.print_next(&json!({ "url": link }), text)?;
    if !arguments.no_open && !open(&link) {
        output::note("no browser could be started; open the link yourself\n");
    }
    console.serve(None).await;
    Ok(Exit::Fine)
}

/// Starts the user's browser. Returns whether the start succeeded.
fn open(link: &str) -> bool {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = std::process::Command::new(program);
    command.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}

/// Returns the readers for a console. `files` reads the files of Functions in Git.
pub(super) fn readers(files: Option<FilesReader>, remote_clusters: RemoteClusters) -> Readers {
    Readers {
        tree: Arc::new(
            move |cluster: Cluster, sync: GitSync, children: Children| -> futures::future::BoxFuture<'static, _> {
                Box::pin(async move { read_tree(&cluster, &sync, children, remote_clusters).await })
            },
        ),
        trace: Arc::new(|cluster: Cluster, key: Key| -> futures::future::BoxFuture<'static, _> {
            Box::pin(async move { trace::page::of(&cluster, key).await.map_err(|error| chain(&error)) })
        }),
        part: Arc::new(trace::page::manifest_part),
        functions: function::page_rules(),
        rules: object_rules::page_rules(),
        agent: Arc::new(|cluster: Cluster| -> futures::future::BoxFuture<'static, _> {
            Box::pin(async move { lease::agent(&cluster).await })
        }),
        files,
    }
}

/// Reads the tree of a GitSync, as `mainstay tree` does, but within the memory of a page.
async fn read_tree(
    cluster: &Cluster,
    sync: &GitSync,
    children: Children,
    remote_clusters: RemoteClusters,
) -> Result<Tree, String> {
    let tree = tree::of(cluster, sync, children == Children::Read, remote_clusters).await;
    let (root, notes) = tree.map_err(|error| chain(&error))?;
    Ok(Tree { objects: root.children.into_iter().map(node).collect(), notes })
}

fn node(node: Node) -> mainstay_console::Node {
    let presence = match &node.state {
        State::There(_) | State::Terminating | State::Ended => Presence::AsExpected,
        State::Absent => Presence::Missing,
        State::Unknown(why) => Presence::NotChecked(why.clone()),
    };
    let (mark, state) = match node.state {
        State::There(Health::Healthy) => (Mark::Healthy, String::new()),
        State::There(Health::Progressing(why)) | State::Unknown(why) => (Mark::Waiting, why),
        State::There(Health::Failed(why)) => (Mark::Failed, why),
        State::Terminating => (Mark::Waiting, "is being deleted".to_owned()),
        State::Absent => (Mark::Failed, "does not exist".to_owned()),
        State::Ended => (Mark::Healthy, "ended, and is gone".to_owned()),
    };
    mainstay_console::Node {
        key: node.key,
        mark,
        state,
        created: node.created,
        presence,
        facts: node.facts,
        children: node.children.into_iter().map(self::node).collect(),
    }
}
