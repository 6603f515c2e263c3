//! `mainstay install`: prints all objects for following a repository, as one YAML stream for `kubectl apply -f -`.
//!
//! Invariant: the same flags and files result in the same output, for any cluster. No Git server is contacted.
//! Invariant: no private key, password or token is printed: the agent creates SSH keys, and credentials stay in
//! Secrets.
//!
//! The command writes nothing to a cluster. If it can reach one, it reads the Deployments of an earlier installation
//! and reports settings that will be removed.
//!
//! Not here: the agent's use of these objects (`agent::bootstrap`, `agent::ssh_keys`).

mod agent;
mod arguments;
mod choice;
mod compare;
mod kinds;
mod label;
mod manifests;
mod newer;
mod objects;
mod parts;
mod pod_flags;
mod pods;
mod registry;
mod request;
mod restricted;
mod schema;
mod table;
mod values;

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
    time::Duration,
};

use serde_json::Value;

use super::{Error, Exit, output};
use mainstay_cluster::{Cause, Cluster, Kind, Scope};
use mainstay_object::failure::chain;

pub(super) use arguments::Arguments;

use values::{File, Given};

/// Maximum size of a file with host keys, in bytes.
const MAX_KNOWN_HOSTS: u64 = 256 << 10;
/// Maximum size of a values file, in bytes. It may contain host keys.
const MAX_VALUES: u64 = 1 << 20;
/// Maximum time to read from the cluster.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn run(arguments: Arguments) -> Result<Exit, Error> {
    let known_hosts = arguments.known_hosts.as_deref().map(read_known_hosts).transpose()?;
    let files = arguments.values.iter().map(|path| read_values(path)).collect::<Result<Vec<_>, _>>()?;
    let what = if arguments.values.is_empty() { "flags" } else { "values" };
    let refused = |problems| Error::Install { what, problems };
    let given = Given::merge(&arguments, files, known_hosts.as_deref()).map_err(refused)?;
    let (installation, notes) = request::resolve(&arguments, &given).map_err(refused)?;
    let objects = objects::all(&installation)?;
    let stream = objects::stream(&objects)?;
    // The comparison is finished before the stream is printed, because `kubectl apply` may be waiting for the stream.
    let dropped = dropped(&arguments, &objects, &given).await;
    output::print(&stream)?;
    let warnings = request::image_warning(&installation).into_iter().chain(dropped);
    for warning in warnings {
        output::note(&format!("warning: {warning}\n"));
    }
    for note in notes.into_iter().chain(parts::notes(&installation)?) {
        output::note(&format!("note: {note}\n"));
    }
    Ok(Exit::Fine)
}

/// Returns notes about settings of an existing installation that will be removed. A cluster is contacted only if it is
/// configured.
async fn dropped(arguments: &Arguments, objects: &[Value], given: &Given) -> Vec<String> {
    let compared = async {
        let cluster = arguments.cluster.connect().await?;
        let mut notes = Vec::new();
        for new in objects.iter().filter(|object| object["kind"] == "Deployment") {
            if let Some(live) = deployment(&cluster, new).await? {
                notes.extend(compare::notes(&live, new, given));
            }
        }
        Ok::<_, Error>(notes)
    };
    let why = match tokio::time::timeout(PATIENCE, compared).await {
        Ok(Ok(notes)) => return notes,
        Ok(Err(Error::Cluster(error))) if matches!(*error.cause, Cause::Configuration(_)) => {
            let is_meant = arguments.cluster.origin().names_cluster();
            if !is_meant {
                return Vec::new();
            }
            chain(&error)
        }
        Ok(Err(error)) => chain(&error),
        Err(_) => format!("it did not respond within {} s", PATIENCE.as_secs()),
    };
    vec![format!(
        "the removed parts of an earlier installation are not known, because the cluster cannot be read: {why}"
    )]
}

async fn deployment(cluster: &Cluster, new: &Value) -> Result<Option<Value>, Error> {
    let deployments = Kind::fixed("apps/v1", "Deployment", "deployments", Scope::Namespaced);
    let metadata = &new["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    Ok(cluster.get(&deployments, metadata["namespace"].as_str(), name).await?)
}

fn read_known_hosts(path: &Path) -> Result<String, Error> {
    let failed = |cause| Error::ReadFile { path: path.to_owned(), cause };
    if fs::metadata(path).map_err(failed)?.len() > MAX_KNOWN_HOSTS {
        return Err(failed(io::Error::other(
            "it is larger than 256 KiB; keep only the lines of the Git server's host",
        )));
    }
    fs::read_to_string(path).map_err(failed)
}

/// Reads a values file; `-` is standard input.
fn read_values(path: &Path) -> Result<File, Error> {
    let is_stdin = path == Path::new("-");
    let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
    let failed = |cause| Error::ReadFile { path: Path::new(&name).to_owned(), cause };
    let source: Box<dyn io::Read> =
        if is_stdin { Box::new(io::stdin().lock()) } else { Box::new(fs::File::open(path).map_err(failed)?) };
    let mut text = String::new();
    source.take(MAX_VALUES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_VALUES {
        return Err(failed(io::Error::other("it is larger than 1 MiB; values are a few lines of YAML")));
    }
    let values = values::parse(&text).map_err(|cause| Error::ReadYaml { path: Path::new(&name).to_owned(), cause })?;
    Ok(File { name, values })
}
