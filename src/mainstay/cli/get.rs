//! `mainstay get`: prints Mainstay's resources like `kubectl get`.
//!
//! The API server formats the tables, so that both programs print the same columns.
//!
//! Not here: other kinds, custom columns and Go templates, which `kubectl get` supports.

mod json_path;
mod query;
pub(super) mod resource;
mod watch;

use clap_complete::engine::ArgValueCompleter;
use serde_json::json;

use self::{
    query::{Form, Format, Layout, Output, Places, Query},
    resource::Asked,
};
use super::{Error, Exit, completion, connection::WideConnection, output, table};

/// Arguments of `get`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Kinds, separated by commas: gitsyncs, gitrepositories, functions, receivers, providers, alerts, apirules or all
    #[arg(value_name = "KIND", default_value = "gitsyncs", value_parser = resource::asked, add = ArgValueCompleter::new(completion::kinds))]
    asked: Asked,
    /// Names; by default all in the namespace
    #[arg(id = "name", value_name = "NAME", add = ArgValueCompleter::new(completion::names_of_kind))]
    names: Vec<String>,
    /// Label selector, such as team=shop
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "name")]
    selector: Option<String>,
    /// Print each changed object again, until Ctrl-C
    #[arg(short, long)]
    watch: bool,
    /// Omit the column headers
    #[arg(long)]
    no_headers: bool,
    /// Output format: text, wide, json, yaml, name, or jsonpath=TEMPLATE as for kubectl
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = query::output, add = ArgValueCompleter::new(completion::formats))]
    output: Output,
    #[command(flatten)]
    connection: WideConnection,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let cluster = arguments.connection.connection.connect().await?;
    let is_wide = arguments.connection.all_namespaces;
    let namespace = (!is_wide).then(|| arguments.connection.connection.namespace(&cluster));
    let names: Vec<String> = arguments.asked.name.iter().chain(&arguments.names).cloned().collect();
    if !names.is_empty() && arguments.selector.is_some() {
        return Err(Error::NameAndSelector);
    }
    if !names.is_empty() && arguments.asked.resources.len() > 1 {
        return Err(Error::SeveralKinds);
    }
    let mut queries = Vec::new();
    for resource in &arguments.asked.resources {
        match cluster.preferred_kind(resource.group, resource.kind).await? {
            Some(kind) => queries.push(Query {
                cluster: &cluster,
                kind,
                namespace: namespace.clone(),
                names: &names,
                labels: arguments.selector.as_deref(),
            }),
            None if arguments.asked.is_all => {}
            None => return Err(Error::NotInstalled { kind: resource.kind.to_owned() }),
        }
    }
    let layout = |format| Layout {
        format,
        places: if namespace.is_some() { Places::One } else { Places::All },
        titles: !arguments.no_headers,
        width: table::width().filter(|_| format == Format::Text),
    };
    if arguments.watch {
        let [query] = &queries[..] else { return Err(Error::WatchSeveral) };
        return watch::follow(query, &arguments.output, layout).await;
    }
    let missing = match &arguments.output {
        Output::Rows(format) => tables(&queries, layout(*format)).await?,
        Output::Objects(form) => documents(&queries, form).await?,
    };
    missing.map_or(Ok(Exit::Fine), |what| Err(Error::Missing { what }))
}

/// Prints tables or names. Returns the message for an object that does not exist, if there is one.
async fn tables(queries: &[Query<'_>], layout: Layout) -> Result<Option<String>, Error> {
    let (mut texts, mut missing) = (Vec::new(), None);
    for query in queries {
        let (printed, lacks) = query.print().await?;
        missing = missing.or(lacks);
        if printed.rows.is_empty() {
            continue;
        }
        texts.push(query.text(&printed, queries.len() > 1, layout));
    }
    if texts.is_empty() && missing.is_none() {
        let place = queries.first().and_then(|query| query.namespace.as_deref());
        let place = place.map(|namespace| format!(" in {namespace} namespace")).unwrap_or_default();
        output::note(&format!("No resources found{place}.\n"));
    }
    output::print(&texts.join(if layout.format == Format::Name { "" } else { "\n" }))?;
    Ok(missing)
}

/// Prints whole objects: a single named object, or a List. Returns the message for an object that does not exist, if
/// there is one.
async fn documents(queries: &[Query<'_>], form: &Form) -> Result<Option<String>, Error> {
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
    output::print(&match form {
        Form::Json => output::json(&facts)?,
        Form::Yaml => output::yaml(&facts)?,
        Form::JsonPath(template) => template.render(&facts),
    })?;
    Ok(missing)
}
