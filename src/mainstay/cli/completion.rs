//! `mainstay completion`: prints the completion script of a shell, and completes names from the cluster.
//!
//! The script runs this program at each completion ([`answer`]).
//!
//! Invariant: a completion takes at most two seconds, and is empty if the cluster cannot be reached.

use std::{ffi::OsStr, sync::OnceLock, time::Duration};

use clap::{ArgMatches, FromArgMatches as _};
use clap_complete::{CompleteEnv, Shell, engine::CompletionCandidate, env::Shells};
use futures::{StreamExt as _, TryStreamExt as _};

use super::{
    Error, Exit,
    connection::ClusterArguments,
    get::resource::{self, GIT_SYNCS, Resource},
    output,
};
use mainstay_cluster::{Cluster, Selection};

/// Environment variable that the script sets.
const VARIABLE: &str = "COMPLETE";
/// Maximum time of a completion.
const WITHIN: Duration = Duration::from_secs(2);
/// Maximum number of completed names.
const MOST: usize = 500;

/// Arguments of `completion`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Name of the shell
    shell: Shell,
}

/// Creates the commands.
type Factory = fn() -> clap::Command;

/// The completed commands, needed to complete names.
static COMMANDS: OnceLock<Factory> = OnceLock::new();

/// Prints completions and ends the process, if a shell's completion script has called this program.
pub(super) fn answer(commands: Factory) {
    // Setting the value fails only if it is set already, but each process calls this function only once.
    let _ = COMMANDS.set(commands);
    CompleteEnv::with_factory(commands).var(VARIABLE).complete();
}

/// Prints the script for a shell.
pub(super) fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let program = std::env::args().next().unwrap_or_default();
    // If the program is not on the PATH, the script uses its full path.
    let program = if program.contains('/') {
        std::path::absolute(&program).map_or(program, |path| path.to_string_lossy().into_owned())
    } else {
        "mainstay".to_owned()
    };
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let shell = shells.completer(&arguments.shell.to_string());
    let written = shell.map(|shell| shell.write_registration(VARIABLE, "mainstay", "mainstay", &program, &mut script));
    written.transpose().map_err(Error::Print)?;
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Fine)
}

/// Completes names of GitSyncs.
pub(super) fn git_syncs(current: &OsStr) -> Vec<CompletionCandidate> {
    names(GIT_SYNCS, current)
}

/// Completes the kinds of `get`.
pub(super) fn kinds(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning(resource::words().map(str::to_owned), current)
}

/// The output formats of `get`.
pub(super) const FORMATS: [&str; 6] = ["text", "wide", "json", "yaml", "name", "jsonpath="];

/// Completes the output formats of `get`.
pub(super) fn formats(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning(FORMATS.iter().map(|format| (*format).to_owned()), current)
}

/// Completes names of objects of the kind that the `get` command specifies.
pub(super) fn names_of_kind(current: &OsStr) -> Vec<CompletionCandidate> {
    let kinds = words().and_then(|words| words.try_get_one::<resource::Asked>("asked").ok().flatten().cloned());
    match kinds.as_ref().map(|asked| &asked.resources[..]) {
        Some([one]) => names(*one, current),
        _ => Vec::new(),
    }
}

fn beginning(words: impl Iterator<Item = String>, current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    words.filter(|word| word.starts_with(&*current)).map(CompletionCandidate::new).collect()
}

/// Parses the words of the line so far, with the command that they contain.
fn words() -> Option<ArgMatches> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    let mut matches = COMMANDS.get()?().ignore_errors(true).try_get_matches_from(words).ok()?;
    while let Some((_, sub)) = matches.remove_subcommand() {
        matches = sub;
    }
    Some(matches)
}

/// Completes names of a kind, in the cluster and the namespace that the line specifies.
fn names(resource: Resource, current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(words) = words() else { return Vec::new() };
    let namespace = words.try_get_one::<String>("namespace").ok().flatten().cloned();
    let cluster = ClusterArguments::from_arg_matches(&words).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let found = runtime.ok().and_then(|runtime| {
        let listing = async { tokio::time::timeout(WITHIN, list(&cluster, namespace, resource)).await };
        runtime.block_on(listing).ok()?.ok()
    });
    beginning(found.unwrap_or_default().into_iter(), current)
}

async fn list(
    arguments: &ClusterArguments,
    namespace: Option<String>,
    resource: Resource,
) -> Result<Vec<String>, Error> {
    let cluster: Cluster = arguments.connect().await?;
    let namespace = namespace.unwrap_or_else(|| cluster.default_namespace());
    let Some(kind) = cluster.preferred_kind(resource.group, resource.kind).await? else { return Ok(Vec::new()) };
    let found = cluster.list_metadata(&kind, Selection::default().within(&namespace)).take(MOST);
    let found: Vec<_> = found.try_collect().await?;
    Ok(found.into_iter().filter_map(|metadata| metadata.name).collect())
}
