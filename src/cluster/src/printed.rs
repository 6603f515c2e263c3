//! Tables of objects, as `kubectl get` prints them. The API server creates the tables.
//!
//! Not here: the width of a table.

use serde::Deserialize;
use serde_json::Value;

use super::connect::Cluster;
use super::count::Verb;
use super::error::{Attempt, Error};
use super::kind::Kind;
use super::request::Call;
use super::selection::{Selection, and};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
/// Page size.
const PAGE: &str = "500";

/// A table of objects of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Printed {
    /// The columns.
    pub columns: Vec<PrintedColumn>,
    /// The objects.
    pub rows: Vec<PrintedRow>,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PrintedColumn {
    /// The title of the column.
    pub name: String,
    /// 0 for a column that is always shown; higher if only `-o wide` shows the column.
    #[serde(default)]
    pub priority: i32,
}

/// One object.
#[derive(Clone, Debug, PartialEq)]
pub struct PrintedRow {
    /// Namespace of the object.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
    /// The texts of the columns.
    pub cells: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    #[serde(default)]
    metadata: Metadata,
    column_definitions: Vec<PrintedColumn>,
    #[serde(default)]
    rows: Option<Vec<Row>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    #[serde(rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Row {
    cells: Vec<Value>,
    #[serde(default)]
    object: Object,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Identity,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Identity {
    name: String,
    namespace: Option<String>,
}

impl Cluster {
    /// Returns the table of a selection.
    pub async fn print(&self, kind: &Kind, selection: &Selection) -> Result<Printed, Error> {
        let mut printed = Printed::default();
        let mut next = String::new();
        loop {
            let mut path = selection.path(kind);
            and(&mut path, "limit", PAGE);
            if !next.is_empty() {
                and(&mut path, "continue", &next);
            }
            let namespace = selection.namespace();
            next = self
                .print_into(&mut printed, Call::collection(Attempt::List, Verb::List, kind, namespace, path))
                .await?;
            if next.is_empty() {
                return Ok(printed);
            }
        }
    }

    /// Returns the table of one object; `None` if it does not exist.
    pub async fn print_one(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<Printed>, Error> {
        let mut printed = Printed::default();
        let call = Call::object(Attempt::Read, Verb::Get, kind, namespace, name, None)?;
        match self.print_into(&mut printed, call).await {
            Ok(_) => Ok(Some(printed)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds the rows of a response. Returns the token of the next page, or an empty string.
    async fn print_into(&self, printed: &mut Printed, mut call: Call) -> Result<String, Error> {
        call.accept = TABLE;
        let answer = self.ask(&call).await?;
        let body: Body = serde_json::from_slice(&answer).map_err(|error| call.failed(error))?;
        printed.columns = body.column_definitions;
        printed.rows.extend(body.rows.unwrap_or_default().into_iter().map(|row| PrintedRow {
            namespace: row.object.metadata.namespace,
            name: row.object.metadata.name,
            cells: row.cells.iter().map(text).collect(),
        }));
        Ok(body.metadata.next)
    }
}

/// Formats a cell as kubectl does.
fn text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
