//! `mainstay registry`: commands for containers of the registry's pod. `sweep` runs in an init container, and `guard`
//! in a container beside the registry.
//!
//! Invariant: `sweep` always exits with 0, because the registry starts only after a success. Problems are in the
//! report. Invariant: without a fresh policy for this pod, `sweep` deletes nothing. Invariant: a sweep begins at most
//! once. This matters because the successor of a deleted pod may start while that pod still serves requests.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::{Error, Exit, logs, output, stop};
use loopback::{Listener, Reach};
use mainstay_function::registry::guard;
use mainstay_function::registry::retention::{Policy, Report};
use mainstay_function::registry::storage::Storage;
use mainstay_object::failure::chain;
use mainstay_object::printable;

/// The file in the storage with the ID of the last sweep.
const BEGUN: &str = ".mainstay-sweep";
/// Maximum length of a problem in bytes, so that the whole report fits into a termination message.
const MAX_PROBLEM: usize = 2000;

#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Remove images that the agent's policy does not keep from the storage of a stopped registry
    Sweep(Sweep),
    /// Limit each login to its own repositories, in front of a registry without access control
    Guard(Guard),
}

#[derive(Args, Debug)]
struct Sweep {
    /// The `rootdirectory` of the registry
    #[arg(long, value_name = "DIRECTORY")]
    storage: PathBuf,
    /// Policy; without one, nothing is removed
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Sweep that this pod was started for; without one, nothing is removed
    #[arg(long, value_name = "ID", env = "MAINSTAY_SWEEP", default_value = "", hide_env_values = true)]
    id: String,
    /// File for the report
    #[arg(long, value_name = "FILE", default_value = mainstay_api::build::TERMINATION_LOG)]
    report: PathBuf,
    /// File that is created if `registry garbage-collect` is needed
    #[arg(long, value_name = "FILE")]
    marker: PathBuf,
}

#[derive(Args, Debug)]
struct Guard {
    /// Address to serve at, over TLS, and over plain HTTP for reads of nodes through a loopback address
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Address of the registry
    #[arg(long, value_name = "ADDRESS:PORT")]
    registry: SocketAddr,
    /// Directory of the Secret's files `username`, `password`, `namespaceKey`, `tls.crt` and `tls.key`
    #[arg(long, value_name = "DIRECTORY")]
    login: PathBuf,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    log_format: logs::Format,
}

pub(super) async fn run(arguments: Arguments) -> Result<Exit, Error> {
    match arguments.what {
        What::Sweep(arguments) => sweep(arguments).await,
        What::Guard(arguments) => serve(arguments).await,
    }
}

async fn serve(arguments: Guard) -> Result<Exit, Error> {
    logs::start(arguments.log_format, "info");
    let stop = stop::on_signal()?;
    let listener = Listener::bind(arguments.listen, Reach::Anyone)
        .map_err(|cause| Error::Listen { address: arguments.listen, cause })?;
    let options = guard::Options { registry: arguments.registry, files: arguments.login };
    guard::serve(options, listener, stop).await?;
    Ok(Exit::Fine)
}

async fn sweep(sweep: Sweep) -> Result<Exit, Error> {
    let (marker, to, id) = (sweep.marker.clone(), sweep.report.clone(), sweep.id.clone());
    let swept = tokio::task::spawn_blocking(move || perform(&sweep)).await;
    let report = swept.unwrap_or_else(|panicked| {
        Some(Report { policy: id, problem: Some(panicked.to_string()), ..Report::default() })
    });
    let Some(mut report) = report else {
        output::print("no removal of unused images was requested\n")?;
        return Ok(Exit::Fine);
    };
    if let Some(problem) = &mut report.problem {
        let mut text = printable(problem).into_owned();
        text.truncate(
            (0..=MAX_PROBLEM.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default(),
        );
        *problem = text;
    }
    // The marker requests garbage collection, which also frees blobs of earlier sweeps.
    if (report.manifests > 0 || report.bytes.is_some_and(|bytes| bytes > 0))
        && let Err(cause) = std::fs::write(&marker, "")
    {
        report
            .problem
            .get_or_insert(format!("the blobs stay, because {} cannot be written: {cause}", marker.display()));
    }
    let text = serde_json::to_string(&report).map_err(Error::WriteJson)?;
    // The registry starts even if the report cannot be written.
    let _ = output::print(&format!("{text}\n"));
    let _ = std::fs::write(&to, text);
    Ok(Exit::Fine)
}

/// Performs the sweep. Returns `None` if no sweep was requested.
fn perform(sweep: &Sweep) -> Option<Report> {
    let failed =
        |refusal: String| Some(Report { policy: sweep.id.clone(), problem: Some(refusal), ..Report::default() });
    if sweep.id.is_empty() {
        return None;
    }
    let text = match read(&sweep.policy) {
        Ok(text) => text,
        Err(cause) => return failed(format!("the policy cannot be read: {}", chain(&cause))),
    };
    let now = Timestamp::now();
    let policy = match Policy::read(&text).and_then(|policy| policy.check(&sweep.id, now).map(|()| policy)) {
        Ok(policy) => policy,
        Err(refusal) => return failed(refusal.to_string()),
    };
    let begun = sweep.storage.join(BEGUN);
    if read(&begun).is_ok_and(|id| id == sweep.id) {
        return failed("an earlier pod already started it".to_owned());
    }
    match std::fs::write(&begun, &sweep.id) {
        // A full volume accepts no pushes, so the sweep is safe and has to free space.
        Err(cause) if cause.kind() != std::io::ErrorKind::StorageFull => {
            failed(format!("{} cannot be written: {cause}", begun.display()))
        }
        _ => Some(Storage::new(&sweep.storage).sweep(&policy, now)),
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    // The read is limited. The limit is above the maximum size of a ConfigMap.
    std::fs::File::open(path)?.take(2 << 20).read_to_string(&mut text)?;
    Ok(text)
}
