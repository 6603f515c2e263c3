//! `mainstay get`: Mainstay's resources, as `kubectl get` prints them.
//!
//! The tables are those of the API server, so that both programs show the same columns.
//!
//! Deliberately absent: other kinds, selectors and watches, which `kubectl get` has.

pub(super) mod resource;

use std::sync::Arc;

use clap_complete::engine::ArgValueCompleter;
use futures::TryStreamExt as _;
use serde_json::{Value, json};

use self::resource::Asked;
use super::{
    Error, Exit, completion,
    connection::WideConnection,
    ids::{self, ID},
    output,
    table::{self, Table},
};
use mainstay_cluster::{Cluster, Kind, Printed, Selection};

/// Arguments of `get`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Kind: gitsyncs, gitrepositories, functions, receivers, apirules or all; several are separated by commas
    #[arg(value_name = "KIND", value_parser = resource::asked, add = ArgValueCompleter::new(completion::kinds))]
    asked: Asked,
    /// Names; by default all of the namespace
    #[arg(id = "name", value_name = "NAME", add = ArgValueCompleter::new(completion::names_of_kind))]
    names: Vec<String>,
    /// Format of the result: text, wide, json, yaml or name
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value = "text", hide_possible_values = true)]
    output: Format,
    #[command(flatten)]
    connection: WideConnection,
}

/// The format of the result.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// A table
    Text,
    /// A table with more columns, and nothing cut
    Wide,
    /// A JSON document: the object, or a List
    Json,
    /// The same in YAML
    Yaml,
    /// A line for each object, such as gitsync.mainstay.dev/shop
    Name,
}

/// One kind, and which of its objects are printed.
struct Query<'a> {
    cluster: &'a Cluster,
    kind: Arc<Kind>,
    /// `None` for all namespaces.
    namespace: Option<String>,
    names: &'a [String],
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let cluster = arguments.connection.connection.connect().await?;
    let is_wide = arguments.connection.all_namespaces;
    let namespace = (!is_wide).then(|| arguments.connection.connection.namespace(&cluster));
    let names: Vec<String> = arguments.asked.name.iter().chain(&arguments.names).cloned().collect();
    if !names.is_empty() && arguments.asked.resources.len() > 1 {
        return Err(Error::SeveralKinds);
    }
    let mut queries = Vec::new();
    for resource in &arguments.asked.resources {
        match cluster.preferred_kind(resource.group, resource.kind).await? {
            Some(kind) => queries.push(Query { cluster: &cluster, kind, namespace: namespace.clone(), names: &names }),
            None if arguments.asked.is_all => {}
            None => return Err(Error::NotInstalled { kind: resource.kind.to_owned() }),
        }
    }
    let missing = match arguments.output {
        Format::Text | Format::Wide | Format::Name => tables(&queries, arguments.output).await?,
        Format::Json | Format::Yaml => documents(&queries, arguments.output).await?,
    };
    missing.map_or(Ok(Exit::Fine), |what| Err(Error::Missing { what }))
}

/// Prints tables or names. What does not exist, if anything.
async fn tables(queries: &[Query<'_>], format: Format) -> Result<Option<String>, Error> {
    let (mut texts, mut missing) = (Vec::new(), None);
    let width = table::width().filter(|_| format == Format::Text);
    for query in queries {
        let (printed, lacks) = query.print().await?;
        missing = missing.or(lacks);
        if printed.rows.is_empty() {
            continue;
        }
        texts.push(if format == Format::Name {
            let names = printed.rows.iter().map(|row| format!("{}/{}", query.prefix(), row.name));
            names.collect::<Vec<_>>().join("\n") + "\n"
        } else {
            let prefix = (queries.len() > 1).then(|| query.prefix());
            let places = if query.namespace.is_some() { Places::One } else { Places::All };
            text(&printed, prefix.as_deref(), places, format, width)
        });
    }
    if texts.is_empty() && missing.is_none() {
        let place = queries.first().and_then(|query| query.namespace.as_deref());
        let place = place.map(|namespace| format!(" in {namespace} namespace")).unwrap_or_default();
        output::note(&format!("No resources found{place}.\n"));
    }
    output::print(&texts.join(if format == Format::Name { "" } else { "\n" }))?;
    Ok(missing)
}

/// Prints whole objects: one that is named, or a List. What does not exist, if anything.
async fn documents(queries: &[Query<'_>], format: Format) -> Result<Option<String>, Error> {
    let (mut items, mut missing) = (Vec::new(), None);
    for query in queries {
        let (found, lacks) = query.read().await?;
        items.extend(found);
        missing = missing.or(lacks);
    }
    let is_one = matches!(queries, [Query { names: [_], .. }]);
    let facts = match (&mut items[..], is_one) {
        ([], true) => return Ok(missing),
        ([one], true) => one.take(),
        _ => json!({ "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items }),
    };
    output::print(&if format == Format::Json { output::json(&facts)? } else { output::yaml(&facts)? })?;
    Ok(missing)
}

/// Which namespaces are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Places {
    /// One.
    One,
    /// All, so that each row has to say which.
    All,
}

impl Query<'_> {
    fn selection(&self) -> Selection {
        self.namespace.as_deref().map_or_else(Selection::default, |name| Selection::default().within(name))
    }

    /// `gitsync.mainstay.dev`.
    fn prefix(&self) -> String {
        format!("{}.{}", self.kind.singular, self.kind.group)
    }

    fn missing(&self, name: &str) -> String {
        format!("{} {}/{name}", self.kind.kind, self.namespace.as_deref().unwrap_or_default())
    }

    /// The table of the objects, and one that does not exist.
    async fn print(&self) -> Result<(Printed, Option<String>), Error> {
        if self.names.is_empty() {
            return Ok((self.cluster.print(&self.kind, &self.selection()).await?, None));
        }
        let (mut all, mut missing) = (Printed::default(), None);
        for name in self.names {
            match self.cluster.print_one(&self.kind, self.namespace.as_deref(), name).await? {
                Some(one) => {
                    all.columns = one.columns;
                    all.rows.extend(one.rows);
                }
                None => missing = missing.or_else(|| Some(self.missing(name))),
            }
        }
        Ok((all, missing))
    }

    /// The objects without `managedFields`, as kubectl prints them, and one that does not exist.
    async fn read(&self) -> Result<(Vec<Value>, Option<String>), Error> {
        let (mut all, mut missing) = (Vec::new(), None);
        if self.names.is_empty() {
            all = self.cluster.list(&self.kind, self.selection()).try_collect().await?;
        }
        for name in self.names {
            match self.cluster.get(&self.kind, self.namespace.as_deref(), name).await? {
                Some(one) => all.push(one),
                None => missing = missing.or_else(|| Some(self.missing(name))),
            }
        }
        for metadata in all.iter_mut().filter_map(|object| object["metadata"].as_object_mut()) {
            metadata.remove("managedFields");
        }
        Ok((all, missing))
    }
}

/// The table; with `prefix`, each name begins with its kind.
fn text(printed: &Printed, prefix: Option<&str>, places: Places, format: Format, width: Option<usize>) -> String {
    let is_shown = |column: usize| format == Format::Wide || printed.columns[column].priority == 0;
    let shown: Vec<usize> = (0..printed.columns.len()).filter(|&column| is_shown(column)).collect();
    let titles = shown.iter().map(|&column| printed.columns[column].name.to_uppercase());
    let namespace = |text: &str| (places == Places::All).then(|| text.to_owned());
    let heading: Vec<String> = namespace("NAMESPACE").into_iter().chain(titles).collect();
    let mut table = Table::new(&heading.iter().map(String::as_str).collect::<Vec<_>>());
    for row in &printed.rows {
        let mut cells: Vec<String> =
            shown.iter().map(|&column| row.cells.get(column).cloned().unwrap_or_default()).collect();
        if format == Format::Text {
            shorten(&mut cells);
        }
        if let (Some(prefix), Some(name)) = (prefix, cells.first_mut()) {
            *name = format!("{prefix}/{name}");
        }
        table.row(namespace(row.namespace.as_deref().unwrap_or_default()).into_iter().chain(cells).collect());
    }
    table.render(width)
}

/// Cuts ids. One that has a column is not said again in another.
fn shorten(cells: &mut [String]) {
    let own: Vec<String> = cells.iter().filter(|cell| ids::is_id(cell)).cloned().collect();
    for cell in cells {
        if ids::is_id(cell) {
            cell.truncate(ID);
        } else {
            *cell = own.iter().fold(std::mem::take(cell), |text, id| ids::without(&text, id));
            *cell = ids::shortened(cell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::style::written;
    use mainstay_cluster::{PrintedColumn, PrintedRow};

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn prints_an_id_once_and_cut_unless_everything_is_asked_for() {
        let column = |name: &str, priority| PrintedColumn { name: name.to_owned(), priority };
        let message = format!("applied commit {COMMIT}; was {}", COMMIT.replace('0', "9"));
        let printed = Printed {
            columns: vec![
                column("Name", 0),
                column("Ready", 0),
                column("Commit", 0),
                column("Message", 0),
                column("More", 1),
            ],
            rows: vec![PrintedRow {
                namespace: Some("apps".to_owned()),
                name: "shop".to_owned(),
                cells: ["shop", "True", COMMIT, &message, "x"].map(str::to_owned).to_vec(),
            }],
        };
        let text =
            |prefix, places, format| written(&text(&printed, prefix, places, format, None), false, str::to_owned);
        assert_eq!(
            text(None, Places::One, Format::Text),
            "NAME   READY   COMMIT         MESSAGE\nshop   True    0123456789ab   applied; was 9123456789ab\n"
        );
        let wide = text(Some("gitsync.mainstay.dev"), Places::All, Format::Wide);
        assert!(wide.starts_with("NAMESPACE   NAME "), "{wide}");
        assert!(wide.contains("gitsync.mainstay.dev/shop   True ") && wide.contains(&message), "{wide}");
    }
}
