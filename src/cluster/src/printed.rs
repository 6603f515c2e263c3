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
/// A table only: without one, the API server has to send whole objects.
const TABLE_ONLY: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
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

/// A table without objects.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cells {
    column_definitions: Vec<PrintedColumn>,
    #[serde(default)]
    rows: Option<Vec<CellsRow>>,
}

#[derive(Deserialize)]
struct CellsRow {
    cells: Vec<Value>,
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

    /// Returns the names of at most `most` objects of a selection. Their metadata is not read: an annotation may have a copy of
    /// the object.
    pub async fn print_names(&self, kind: &Kind, selection: &Selection, most: usize) -> Result<Vec<String>, Error> {
        let mut path = selection.path(kind);
        and(&mut path, "limit", &most.to_string());
        and(&mut path, "includeObject", "None");
        let mut call = Call::collection(Attempt::List, Verb::List, kind, selection.namespace(), path);
        call.accept = TABLE_ONLY;
        let answer = self.ask(&call).await?;
        let table: Cells = serde_json::from_slice(&answer).map_err(|error| call.failed(error))?;
        let column = table.column_definitions.iter().position(|column| column.name == "Name");
        let rows = table.rows.unwrap_or_default().into_iter().take(most);
        let name = |row: CellsRow| Some(row.cells.get(column?)?.as_str()?.to_owned());
        Ok(rows.filter_map(name).collect())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake;
    use crate::kind::Scope;

    #[tokio::test]
    async fn names_are_read_without_the_objects() {
        let (cluster, mut server) = fake::cluster();
        let kind = Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced);
        let selection = Selection::default().within("shop");
        let (names, ()) = tokio::join!(cluster.print_names(&kind, &selection, 2), async {
            let asked = server.next().await;
            assert_eq!(asked.line(), "GET /api/v1/namespaces/shop/secrets?limit=2&includeObject=None");
            assert_eq!(asked.request.headers()["accept"], TABLE_ONLY);
            let columns = json!([{"name": "Type", "priority": 1}, {"name": "Name"}]);
            let row = |name: &str| json!({"cells": ["Opaque", name], "object": null});
            let rows = json!([row("a"), row("b"), row("c")]);
            asked.json(200, &json!({"kind": "Table", "columnDefinitions": columns, "rows": rows})).await;
        });
        assert_eq!(names.expect("names"), ["a", "b"]);
    }
}
