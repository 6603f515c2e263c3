//! `mainstay history`: prints the last applied commits of GitSyncs, newest first.
//!
//! Not here: failed attempts and reverts, which `mainstay events` shows.

use clap_complete::engine::ArgValueCompleter;
use jiff::Timestamp;
use mainstay_api::GitSync;
use mainstay_api::git_sync::AppliedCommit;
use mainstay_api::short_id;
use serde_json::{Value, json};

use super::{
    Error, Exit, completion,
    connection::{WideConnection, own_kind},
    output::{Format, OutputArgument},
    suspend::git_sync_name,
    syncs::{self, ago},
    table::{self, Table},
};

/// Arguments of `history`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Name of the GitSync; by default all in the namespace
    #[arg(value_parser = git_sync_name, add = ArgValueCompleter::new(completion::git_syncs))]
    name: Option<String>,
    #[command(flatten)]
    output: OutputArgument,
    #[command(flatten)]
    connection: WideConnection,
}

/// An applied commit of a GitSync.
struct Row<'a> {
    sync: String,
    applied: &'a AppliedCommit,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let cluster = arguments.connection.connection.connect().await?;
    let kind = own_kind::<GitSync>(&cluster).await?;
    let selection = arguments.connection.selection(&cluster, arguments.name.as_deref());
    let syncs = syncs::select(&cluster, &kind, &selection).await?;
    let rows = rows(&syncs);
    let facts: Vec<Value> = rows.iter().map(facts).collect();
    let width = table::width().filter(|_| arguments.output.output == Format::Text);
    arguments.output.print(&json!({ "items": facts }), || text(&rows, Timestamp::now(), width))?;
    Ok(Exit::Fine)
}

/// Returns the applied commits of all GitSyncs, newest first.
fn rows(syncs: &[GitSync]) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for sync in syncs {
        let history = sync.status.iter().flat_map(|status| &status.history);
        rows.extend(history.map(|applied| Row { sync: name(sync), applied }));
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.applied.when.0));
    rows
}

/// Returns the name of a GitSync as `namespace/name`.
fn name(sync: &GitSync) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", part(&sync.metadata.namespace), part(&sync.metadata.name))
}

fn facts(row: &Row<'_>) -> Value {
    let mut facts = serde_json::to_value(row.applied).unwrap_or_default();
    facts["gitSync"] = json!(row.sync);
    facts
}

fn text(rows: &[Row<'_>], now: Timestamp, width: Option<usize>) -> String {
    if rows.is_empty() {
        return "no commit was applied yet\n".to_owned();
    }
    let mut table = Table::new(&["GITSYNC", "COMMIT", "APPLIED", "TOOK", "CREATED", "CHANGED", "PRUNED", "SUBJECT"]);
    for Row { sync, applied } in rows {
        table.row(vec![
            sync.clone(),
            short_id(&applied.commit),
            format!("{} ago", ago(now.duration_since(applied.when.0).as_secs())),
            took(applied.duration_ms),
            applied.created.to_string(),
            applied.changed.to_string(),
            applied.pruned.to_string(),
            applied.subject.clone(),
        ]);
    }
    table.render(width)
}

/// Formats a duration in milliseconds, such as `40 ms` or `1.3 s`.
fn took(millis: i64) -> String {
    match millis {
        ..1000 => format!("{millis} ms"),
        1000..10_000 => format!("{}.{} s", millis / 1000, millis / 100 % 10),
        _ => ago(millis / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_unit_that_fits() {
        for (millis, text) in [(40, "40 ms"), (999, "999 ms"), (1340, "1.3 s"), (61_000, "61 s"), (180_000, "3 min")] {
            assert_eq!(took(millis), text);
        }
    }
}
