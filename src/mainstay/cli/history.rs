//! `mainstay history`: prints the last applied commits of GitSyncs, newest first, and those of one GitSync with the
//! objects that they changed.
//!
//! Not here: failed attempts and reverts, which `mainstay events` shows.

use clap_complete::engine::ArgValueCompleter;
use jiff::Timestamp;
use mainstay_api::GitSync;
use mainstay_api::git_sync::AppliedCommit;
use mainstay_api::short_id;
use mainstay_object::printable;
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
    /// Name of the GitSync, whose changed objects are listed, too; by default all in the namespace
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
    let print = || {
        let table = text(&rows, Timestamp::now(), width);
        if arguments.name.is_some() { with_objects(&table, &rows) } else { table }
    };
    arguments.output.print(&json!({ "items": facts }), print)?;
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

/// Returns the table with the changed objects below the line of each commit.
fn with_objects(table: &str, rows: &[Row<'_>]) -> String {
    let mut text = String::with_capacity(table.len());
    // The first line is the heading.
    for (at, line) in table.lines().enumerate() {
        text.push_str(line);
        text.push('\n');
        let Some(Row { applied, .. }) = at.checked_sub(1).and_then(|at| rows.get(at)) else { continue };
        for one in &applied.objects {
            text.push_str(&format!("  {} {}\n", one.change.word(), printable(&one.object)));
        }
        if applied.not_named() > 0 {
            text.push_str(&format!("  and {} more\n", applied.not_named()));
        }
    }
    text
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
    use mainstay_api::git_sync::{ChangedObject, ObjectChange};

    use super::*;

    fn applied(created: i64, objects: Vec<ChangedObject>) -> AppliedCommit {
        let entry = json!({
            "commit": "a".repeat(40), "when": "2030-01-01T00:00:00Z", "durationMs": 40,
            "created": created, "changed": 0, "unchanged": 3, "pruned": 1,
        });
        AppliedCommit { objects, ..serde_json::from_value(entry).unwrap() }
    }

    #[test]
    fn objects_are_below_their_commit_and_the_others_are_counted() {
        let object = |change, object: &str| ChangedObject { object: format!("ConfigMap shop/{object}"), change };
        let named = vec![object(ObjectChange::Created, "a\u{1b}[31m"), object(ObjectChange::Pruned, "b")];
        let all = [applied(33, named), applied(7, Vec::new())];
        let rows: Vec<Row<'_>> = all.iter().map(|applied| Row { sync: "shop/web".to_owned(), applied }).collect();
        let table = text(&rows, Timestamp::UNIX_EPOCH, None);
        let shown = with_objects(&table, &rows);
        let lines: Vec<&str> = shown.lines().collect();
        // An entry of an earlier version has no objects.
        assert_eq!(lines.len(), 6, "{shown}");
        assert_eq!(
            lines[2..5],
            ["  created ConfigMap shop/a\\u{1b}[31m", "  pruned ConfigMap shop/b", "  and 32 more"]
        );
        assert!(lines[1].starts_with("shop/web ") && lines[5].starts_with("shop/web "), "{shown}");
        let empty = text(&[], Timestamp::UNIX_EPOCH, None);
        assert_eq!(with_objects(&empty, &[]), empty);
    }

    #[test]
    fn durations_have_the_unit_that_fits() {
        for (millis, text) in [(40, "40 ms"), (999, "999 ms"), (1340, "1.3 s"), (61_000, "61 s"), (180_000, "3 min")] {
            assert_eq!(took(millis), text);
        }
    }
}
