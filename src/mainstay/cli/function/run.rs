//! `mainstay function run`: runs the Function with this machine's Node.js or Python and the server of the pods.
//!
//! Invariant: when the command ends, all processes that the command has started end, within the limits of the module
//! `process`.

use std::{net::Ipv4Addr, path::PathBuf, sync::Arc, time::Duration};

use loopback::{Front, Listener, Reach};
use notify::{EventKind, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use super::{descendants, error::Error, machine::Machine, process::Group, project::Project, values};
use crate::cli::{Exit, connection::ClusterArguments, output, private_directory, stop};
use mainstay_cluster::Cluster;
use mainstay_object::failure::chain;

/// Time without changes before the Function is restarted.
const QUIET: Duration = Duration::from_millis(100);
/// Extensions of the watched files.
const WATCHED: [&str; 7] = ["js", "mjs", "cjs", "json", "py", "txt", "yaml"];

/// Arguments of `function run`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Configuration file of the Function
    #[arg(short, long, value_name = "FILE", default_value = "./config.yaml")]
    filename: PathBuf,
    /// Directory of the handler and the dependency file; by default source.sourcePath, else that of the configuration
    #[arg(short = 'd', long, value_name = "DIR")]
    source_dir: Option<PathBuf>,
    /// Port on 127.0.0.1; 0 chooses a free one, which stays the same until the command ends
    #[arg(short, long, default_value_t = 8080)]
    port: u16,
    /// Let a debugger attach at 127.0.0.1:9229 (the inspector of Node.js) or 127.0.0.1:5678 (debugpy, which is fetched)
    #[arg(long)]
    debug: bool,
    /// File with one NAME=VALUE per line: overrides variables of config.yaml and of the cluster, including those that
    /// refer to ConfigMaps and Secrets
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, crate::cli::Error> {
    let stop = stop::on_signal()?;
    descendants::adopt();
    let room = private_directory::create().map_err(|cause| Error::Write { path: std::env::temp_dir(), cause })?;
    let cluster = values::source(&arguments.cluster).await?;
    let first = read(arguments, cluster.as_ref()).await?;
    let listener =
        Listener::bind((Ipv4Addr::LOCALHOST, arguments.port).into(), Reach::SameUser).map_err(Error::Port)?;
    let port = listener.local_addr().map_err(Error::Port)?.port();
    let mut machine = Machine::new(room.path(), port, arguments.debug);
    // The front listens on the port until the command ends, even while the Function restarts.
    let _front = Front::waiting(listener, machine.socket());
    if arguments.debug {
        output::note(
            "! until this command ends, other users of this machine can reach the debugger and run code as you\n",
        );
    }
    machine.server(first.runtime).await?;
    // Changes while the Function restarts count as one change.
    let changed = Arc::<Notify>::default();
    let _watcher = watch(&first.directories, arguments.env_file.as_ref(), Arc::clone(&changed))?;
    let mut project = Some(first);
    loop {
        let mut group = match project.take() {
            Some(project) => machine.start(&project, &stop).await?,
            None => None,
        };
        let is_changed = loop {
            tokio::select! {
                () = stop.cancelled() => break false,
                () = changed.notified() => break true,
                ended = ended(&mut group) => {
                    output::note(&format!("! the Function has ended ({ended}); it restarts when a file is saved\n"));
                    group = None;
                }
            }
        };
        if let Some(mut group) = group {
            group.end().await;
        }
        if !is_changed {
            return Ok(Exit::Fine);
        }
        while tokio::time::timeout(QUIET, changed.notified()).await.is_ok() {}
        match read(arguments, cluster.as_ref()).await {
            Ok(next) => {
                output::print("- Saved; it restarts\n")?;
                project = Some(next);
            }
            Err(error) => output::note(&format!("! {}\n", chain(&error))),
        }
    }
}

/// Reads the project from its current files, with values from the cluster.
async fn read(arguments: &Arguments, cluster: Option<&Cluster>) -> Result<Project, crate::cli::Error> {
    let project = Project::read(&arguments.filename, arguments.source_dir.as_deref(), arguments.env_file.as_deref())?;
    let Some(cluster) = cluster else { return Ok(project) };
    let found = values::fetch(cluster, &project).await?;
    Ok(project.with(&found))
}

/// Waits for the end of the Function, and returns its status; waits forever if no Function runs.
async fn ended(group: &mut Option<Group>) -> String {
    match group {
        None => std::future::pending().await,
        Some(group) => match group.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        },
    }
}

/// Notifies whenever a file in these directories may have been saved, until the returned watcher is dropped.
fn watch(
    directories: &[PathBuf],
    env_file: Option<&PathBuf>,
    changed: Arc<Notify>,
) -> Result<notify::RecommendedWatcher, Error> {
    let variables = env_file.and_then(|file| file.file_name()).map(ToOwned::to_owned);
    let is_ours = move |path: &PathBuf| {
        let is_code = path.extension().is_some_and(|end| WATCHED.iter().any(|watched| end == *watched));
        is_code || variables.is_some() && path.file_name() == variables.as_deref()
    };
    let failed = |cause| Error::Watch { path: directories.first().cloned().unwrap_or_default(), cause };
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let matters = match &event {
            Ok(event) => !matches!(event.kind, EventKind::Access(_)) && event.paths.iter().any(&is_ours),
            // An error may hide any change.
            Err(_) => true,
        };
        if matters {
            changed.notify_one();
        }
    })
    .map_err(failed)?;
    for directory in directories {
        watcher.watch(directory, RecursiveMode::NonRecursive).map_err(failed)?;
    }
    Ok(watcher)
}
