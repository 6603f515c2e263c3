//! A query for the objects of one kind: as a table, or as whole objects.

use std::sync::Arc;

use futures::TryStreamExt as _;
use serde_json::Value;

use super::json_path::Template;
use crate::cli::{
    Error,
    completion::FORMATS,
    ids::{self, ID},
    table::Table,
};
use mainstay_cluster::{Cluster, Kind, LabelSelector, Printed, Selection};
use mainstay_object::hide_logins;

/// The result: rows of the API server, or whole objects.
#[derive(Clone, Debug)]
pub(super) enum Output {
    Rows(Format),
    Objects(Form),
}

/// The format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// A table.
    Text,
    /// A table with more columns, without truncation.
    Wide,
    /// A line for each object, such as `gitsync.mainstay.dev/shop`.
    Name,
}

/// The form of objects: the object with the requested name, or a List.
#[derive(Clone, Debug)]
pub(super) enum Form {
    Json,
    Yaml,
    JsonPath(Template),
}

/// Prefix of a template.
const JSON_PATH: &str = "jsonpath=";

/// Parses the value of `--output`.
pub(super) fn output(text: &str) -> Result<Output, String> {
    Ok(match text {
        "text" => Output::Rows(Format::Text),
        "wide" => Output::Rows(Format::Wide),
        "name" => Output::Rows(Format::Name),
        "json" => Output::Objects(Form::Json),
        "yaml" => Output::Objects(Form::Yaml),
        other => match other.strip_prefix(JSON_PATH) {
            Some(template) => Output::Objects(Form::JsonPath(Template::parse(template)?)),
            None => return Err(format!("it is none of {}…", FORMATS.join(", "))),
        },
    })
}

/// A kind, and the selection of its objects to print.
pub(super) struct Query<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) kind: Arc<Kind>,
    /// The namespace; `None` for all namespaces.
    pub(super) namespace: Option<String>,
    pub(super) names: &'a [String],
    /// Label selector, as the user wrote it.
    pub(super) labels: Option<&'a str>,
}

/// The layout of rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) format: Format,
    pub(super) places: Places,
    /// Whether the titles of columns are printed.
    pub(super) titles: bool,
    pub(super) width: Option<usize>,
}

/// The namespaces to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Places {
    /// One namespace.
    One,
    /// All namespaces, with a column for them.
    All,
}

impl Query<'_> {
    pub(super) fn selection(&self) -> Selection {
        let namespace = self.namespace.as_deref();
        let within = namespace.map_or_else(Selection::default, |name| Selection::default().within(name));
        match self.labels {
            Some(labels) => within.with_labels(LabelSelector::written(labels)),
            None => within,
        }
    }

    /// Returns the rows, or only the names.
    pub(super) fn text(&self, printed: &Printed, with_kind: bool, layout: Layout) -> String {
        if layout.format == Format::Name {
            let prefix = self.prefix();
            return printed.rows.iter().flat_map(|row| [&prefix, "/", &row.name, "\n"]).collect();
        }
        text(printed, with_kind.then(|| self.prefix()).as_deref(), layout)
    }

    /// Returns the prefix of names, such as `gitsync.mainstay.dev`.
    pub(super) fn prefix(&self) -> String {
        format!("{}.{}", self.kind.singular, self.kind.group)
    }

    fn missing(&self, name: &str) -> String {
        format!("{} {}/{name}", self.kind.kind, self.namespace.as_deref().unwrap_or_default())
    }

    /// Reads the table of the objects. Also returns the message for an object that does not exist, if there is one.
    pub(super) async fn print(&self) -> Result<(Printed, Option<String>), Error> {
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

    /// Reads the objects as they are printed. Also returns the message for an object that does not
    /// exist, if there is one.
    pub(super) async fn read(&self) -> Result<(Vec<Value>, Option<String>), Error> {
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
        for object in &mut all {
            as_printed(object);
        }
        Ok((all, missing))
    }
}

/// Removes `managedFields`, like kubectl. The rest stays as it is, because a printed object may be applied again.
pub(super) fn as_printed(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
}

/// Formats the table. With `prefix`, each name begins with its kind.
fn text(printed: &Printed, prefix: Option<&str>, layout: Layout) -> String {
    let Layout { format, places, titles, width } = layout;
    let is_shown = |column: usize| format == Format::Wide || printed.columns[column].priority == 0;
    let shown: Vec<usize> = (0..printed.columns.len()).filter(|&column| is_shown(column)).collect();
    let heading = shown.iter().map(|&column| printed.columns[column].name.to_uppercase());
    let namespace = |text: &str| (places == Places::All).then(|| text.to_owned());
    let heading: Vec<String> = namespace("NAMESPACE").into_iter().chain(heading).collect();
    let mut table = Table::new(&heading.iter().map(String::as_str).collect::<Vec<_>>());
    for row in &printed.rows {
        let mut cells: Vec<String> = shown
            .iter()
            .map(|&column| row.cells.get(column).map_or_else(String::new, |cell| hide_logins(cell).into_owned()))
            .collect();
        if format == Format::Text {
            shorten(&mut cells);
        }
        if let (Some(prefix), Some(name)) = (prefix, cells.first_mut()) {
            *name = format!("{prefix}/{name}");
        }
        table.row(namespace(row.namespace.as_deref().unwrap_or_default()).into_iter().chain(cells).collect());
    }
    let text = table.render(width);
    if titles { text } else { text.split_once('\n').map_or_else(String::new, |(_, rows)| rows.to_owned()) }
}

/// Shortens ids. An id with its own column is not repeated in another column.
fn shorten(cells: &mut [String]) {
    let own: Vec<String> = cells.iter().filter(|cell| ids::is_id(cell) || ids::is_short(cell)).cloned().collect();
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
                cells: ["shop", "True", &COMMIT[..12], &message, COMMIT].map(str::to_owned).to_vec(),
            }],
        };
        let text = |prefix, places, format, titles| {
            let layout = Layout { format, places, titles, width: None };
            written(&text(&printed, prefix, layout), false, str::to_owned)
        };
        assert_eq!(
            text(None, Places::One, Format::Text, true),
            "NAME   READY   COMMIT         MESSAGE\nshop   True    0123456789ab   applied; was 9123456789ab\n"
        );
        let wide = text(Some("gitsync.mainstay.dev"), Places::All, Format::Wide, true);
        assert_eq!(
            text(None, Places::One, Format::Text, false),
            "shop   True    0123456789ab   applied; was 9123456789ab\n"
        );
        assert!(wide.starts_with("NAMESPACE   NAME "), "{wide}");
        assert!(wide.contains("gitsync.mainstay.dev/shop   True ") && wide.contains(&message), "{wide}");
        assert!(wide.ends_with(&format!(" {COMMIT}\n")), "{wide}");
    }

    #[test]
    fn a_table_has_no_login_of_a_url_and_an_object_is_whole() {
        let url = "https://user:hunter2@host/shop";
        let mut object = serde_json::json!({
            "metadata": {"managedFields": [1], "annotations": {"copy": format!("{{\"url\":\"{url}\"}}")}}, "spec": {"url": url},
        });
        as_printed(&mut object);
        assert_eq!(object["spec"]["url"], url);
        assert!(object["metadata"].get("managedFields").is_none(), "{object}");
        let printed = Printed {
            columns: vec![PrintedColumn { name: "URL".to_owned(), priority: 0 }],
            rows: vec![PrintedRow { namespace: None, name: "shop".to_owned(), cells: vec![url.to_owned()] }],
        };
        let layout = Layout { format: Format::Wide, places: Places::One, titles: true, width: None };
        assert!(!text(&printed, None, layout).contains("hunter2"));
    }

    #[test]
    fn parses_the_output_formats_of_kubectl() {
        assert!(matches!(output("wide"), Ok(Output::Rows(Format::Wide))));
        assert!(matches!(output("json"), Ok(Output::Objects(Form::Json))));
        assert!(matches!(output("jsonpath={.metadata.name}"), Ok(Output::Objects(Form::JsonPath(_)))));
        for text in ["", "jsonpath", "go-template={{.metadata}}", "jsonpath={.a"] {
            assert!(output(text).is_err(), "{text}");
        }
        for format in FORMATS {
            assert!(output(format).is_ok(), "{format}");
        }
    }
}
