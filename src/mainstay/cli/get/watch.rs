//! `mainstay get --watch`: prints objects, and prints each object again when it changes.
//!
//! Invariant: after a lost connection, only objects that have changed in the meantime are printed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use futures::StreamExt as _;
use serde_json::Value;

use super::query::{Form, Format, Layout, Output, Query, as_printed};
use crate::cli::{
    Error, Exit,
    output::{self, OutputArgument},
    stop,
};
use mainstay_cluster::reflector::{Delta, Shown, name_of};
use mainstay_cluster::{Printed, Selection};
use mainstay_object::failure::chain;

/// Resource versions by namespace and name.
type Versions = BTreeMap<(String, String), String>;

/// Prints the objects of the query, and each object that changes, until Ctrl-C.
pub(super) async fn follow(
    query: &Query<'_>,
    output: &Output,
    layout: impl Fn(Format) -> Layout,
) -> Result<Exit, Error> {
    let stop = stop::on_signal()?;
    let selection = match query.names {
        [] => query.selection(),
        [name] => Selection::named(query.namespace.as_deref(), name),
        _ => return Err(Error::WatchSeveral),
    };
    let mut events = query.cluster.watch(&query.kind, selection);
    let mut printer = match output {
        Output::Rows(format) => {
            let layout = layout(*format);
            Printer::Rows { query, layout, has_titles: layout.titles }
        }
        Output::Objects(form) => Printer::Objects(form),
    };
    let mut known = Versions::new();
    let (mut shown, mut listed) = (Shown::default(), Vec::new());
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return Ok(Exit::Fine),
            event = events.next() => event,
        };
        let Some(event) = event else { return Ok(Exit::Fine) };
        let changed = match shown.take(event, name_of) {
            Some(Delta::Listed(name, object)) => {
                listed.push((name, object));
                continue;
            }
            Some(Delta::Complete(list)) => {
                let all = std::mem::take(&mut listed).into_iter().filter(|(name, _)| !list.lacks(name));
                all.map(|(_, object)| object).collect()
            }
            Some(Delta::Changed(_, object)) => vec![object],
            Some(Delta::Unreadable(_, _, error)) => return Err(error.into()),
            Some(Delta::Failed(error)) => {
                output::note(&format!("not connected, trying again: {}\n", chain(&error)));
                continue;
            }
            Some(Delta::Gone(..) | Delta::Resumed) | None => continue,
        };
        let changed = Vec::into_iter(changed).filter(|object| is_another(&mut known, object)).collect();
        if printer.print(changed).await?.is_break() {
            return Ok(Exit::Fine);
        }
    }
}

/// Records the state of an object. Returns whether the state differs from the last one.
fn is_another(known: &mut Versions, object: &Value) -> bool {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let version = text("resourceVersion");
    known.insert((text("namespace"), text("name")), version.clone()).as_ref() != Some(&version)
}

/// Prints states of objects.
enum Printer<'a> {
    Rows {
        query: &'a Query<'a>,
        layout: Layout,
        /// Whether the titles are still to print.
        has_titles: bool,
    },
    Objects(&'a Form),
}

impl Printer<'_> {
    async fn print(&mut self, objects: Vec<Value>) -> Result<ControlFlow<()>, Error> {
        match self {
            Self::Rows { query, layout, has_titles } => print_rows(query, *layout, has_titles, &objects).await,
            Self::Objects(form) => {
                for mut object in objects {
                    as_printed(&mut object);
                    let printed = print_object(form, &object)?;
                    if printed.is_break() {
                        return Ok(printed);
                    }
                }
                Ok(ControlFlow::Continue(()))
            }
        }
    }
}

fn print_object(form: &Form, object: &Value) -> Result<ControlFlow<()>, Error> {
    let output = match form {
        Form::JsonPath(template) => return output::write(&template.render(object)),
        Form::Json => output::Format::Json,
        Form::Yaml => output::Format::Yaml,
    };
    OutputArgument { output }.print_next(object, String::new)
}

/// Prints rows from the API server, with one request per object. Objects that were deleted in the meantime are skipped.
async fn print_rows(
    query: &Query<'_>,
    layout: Layout,
    has_titles: &mut bool,
    objects: &[Value],
) -> Result<ControlFlow<()>, Error> {
    let mut all = Printed::default();
    for metadata in objects.iter().map(|object| &object["metadata"]) {
        let (namespace, name) = (metadata["namespace"].as_str(), metadata["name"].as_str().unwrap_or_default());
        if let Some(one) = query.cluster.print_one(&query.kind, namespace, name).await? {
            all.columns = one.columns;
            all.rows.extend(one.rows);
        }
    }
    if all.rows.is_empty() {
        return Ok(ControlFlow::Continue(()));
    }
    let layout = Layout { titles: std::mem::take(has_titles), ..layout };
    output::write(&query.text(&all, false, layout))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_state_that_was_printed_is_not_printed_again() {
        let mut known = Versions::new();
        let mut is_another = |name: &str, version: &str| {
            let metadata = json!({ "namespace": "apps", "name": name, "resourceVersion": version });
            is_another(&mut known, &json!({ "metadata": metadata }))
        };
        assert!(is_another("a", "1") && is_another("b", "1") && is_another("a", "2"));
        assert!(!is_another("a", "2") && !is_another("b", "1"), "read again after a lost connection");
    }
}
