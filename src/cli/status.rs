//! `mainstay status`: what a GitSync follows, what it applied, what fails, what was put back, what is paused.

use super::{
    Error, Exit,
    connection::{Connection, own_kind},
    output,
    syncs::{self, short},
};
use crate::{
    api::{GitRepository, GitSync, GitSyncStatus, conditions},
    source::RemoteUrl,
};

/// Arguments of `status`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Name of the GitSync; by default all of the namespace
    name: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let cluster = arguments.connection.connect().await?;
    let namespace = arguments.connection.namespace(&cluster);
    let kind = own_kind::<GitSync>(&cluster).await?;
    let repositories = own_kind::<GitRepository>(&cluster).await?;
    let mut exit = Exit::Fine;
    for sync in syncs::read(&cluster, &kind, &namespace, arguments.name.as_deref()).await? {
        let repository = cluster.get(&repositories, Some(&namespace), &sync.spec.git_repository).await?;
        let repository = repository.map(syncs::understand::<GitRepository>).transpose()?;
        output::print(&describe(&sync, repository.as_ref(), jiff::Timestamp::now()))?;
        exit = exit.max(if in_sync(&sync) { Exit::Fine } else { Exit::Differs });
    }
    Ok(exit)
}

fn in_sync(sync: &GitSync) -> bool {
    let status = sync.status.as_ref();
    let ready = status.and_then(|status| conditions::status(&status.conditions, conditions::Type::Ready));
    ready.is_some_and(|ready| ready.status == "True") && !sync.spec.suspend
}

/// The whole report about one GitSync.
fn describe(sync: &GitSync, repository: Option<&GitRepository>, now: jiff::Timestamp) -> String {
    let spec = &sync.spec;
    let status = sync.status.clone().unwrap_or_default();
    let mut text = format!("{}\n", syncs::name(sync));
    let mut row = |label: &str, value: String| text.push_str(&format!("  {label:<11} {value}\n"));
    let address = match repository {
        None => format!("(GitRepository {} does not exist)", spec.git_repository),
        // An address may carry a password; what parses is shown without.
        Some(repository) => RemoteUrl::parse(&repository.spec.url)
            .map_or_else(|_| "(the address cannot be read)".to_owned(), |url| url.to_string()),
    };
    row("repository", format!("{address}, {}, {}", spec.reference, spec.base_dir));
    row("commit", commits(&status));
    row("objects", format!("{} managed, {} healthy, {} failed", status.objects, status.healthy, status.failed));
    row("put back", times(status.reverted));
    if spec.suspend {
        row("suspended", "yes: nothing is applied, nothing is put back".into());
    }
    for condition in &status.conditions {
        if condition.type_ == "Ready" || (condition.status == "True" && condition.type_ != "Healthy") {
            let message = condition.message.replace('\n', "\n              ");
            row(&condition.type_.to_lowercase(), format!("{}, {}: {message}", condition.status, condition.reason));
        }
    }
    text.push_str(&failures(&status));
    text.push_str(&reverts(&status, now));
    text.push_str(&section("Paused", status.paused.iter().map(|pause| match &pause.until {
        Some(until) => format!("{} until {until}", pause.object),
        None => format!("{} until it is resumed", pause.object),
    })));
    text.push_str(&section("Held back from deletion", status.held.iter().cloned()));
    text
}

fn commits(status: &GitSyncStatus) -> String {
    match (&status.applied_commit, &status.attempted_commit) {
        (Some(applied), Some(attempted)) if applied != attempted => {
            format!("{} applied; {} attempted and not applied in full", short(applied), short(attempted))
        }
        (Some(applied), _) => applied.clone(),
        (None, Some(attempted)) => format!("{} attempted and not applied in full", short(attempted)),
        (None, None) => "none yet".into(),
    }
}

fn failures(status: &GitSyncStatus) -> String {
    section("Failing", status.failures.iter().map(|f| format!("{}: {}: {}", f.object, f.reason, f.message)))
}

fn reverts(status: &GitSyncStatus, now: jiff::Timestamp) -> String {
    section("Put back, newest first", status.last_reverts.iter().map(|revert| {
        let ago = ago(now.duration_since(revert.when.0).as_secs());
        let mut text = format!(
            "{ago} ago, {} ms after {} changed {}: {}",
            revert.latency_ms,
            revert.who,
            revert.object,
            revert.fields.join(", ")
        );
        for change in &revert.changes {
            text.push_str(&format!("\n      {}: {} → {}", change.field, change.found, change.restored));
        }
        text
    }))
}

fn section(title: &str, rows: impl Iterator<Item = String>) -> String {
    let rows: Vec<String> = rows.map(|row| format!("    {row}\n")).collect();
    if rows.is_empty() { String::new() } else { format!("  {title}:\n{}", rows.concat()) }
}

fn times(number: i64) -> String {
    match number {
        0 => "never".into(),
        1 => "once".into(),
        n => format!("{n} times"),
    }
}

/// A length of time as people say it.
fn ago(seconds: i64) -> String {
    match seconds.max(0) {
        s @ 0..=119 => format!("{s} s"),
        s @ 120..=7199 => format!("{} min", s / 60),
        s @ 7200..=172_799 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}
