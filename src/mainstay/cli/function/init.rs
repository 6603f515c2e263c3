//! `mainstay function init`: creates a directory with the files of a new Function.

use std::path::PathBuf;

use super::{
    check::supported,
    config::{Config, GitSource, Schema, Source},
    error::Error,
    templates,
    workspace::{CONFIG, Workspace},
};
use crate::cli::{Exit, connection::Connection, output};
use mainstay_function::runtimes;
use mainstay_object::{printable, syntax};

/// Arguments of `function init`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Name of the Function; by default that of the directory, else first-function
    #[arg(long)]
    name: Option<String>,
    /// Directory of the files, created if it is missing; by default the current one
    #[arg(short, long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Runtime: nodejs10 to nodejs26 (even numbers), python38 to python314
    #[arg(short, long, default_value = runtimes::DEFAULT)]
    runtime: String,
    /// Base image by digest, instead of that of the runtime
    #[arg(long, value_name = "IMAGE")]
    runtime_image_override: Option<String>,
    /// Address of the Git repository of the code; only config.yaml is then written into the directory
    #[arg(long)]
    url: Option<String>,
    /// With --url: name of the GitRepository; by default that of the Function
    #[arg(long, value_name = "NAME", requires = "url")]
    repository_name: Option<String>,
    /// With --url: branch, tag or commit to follow
    #[arg(long, default_value = "main")]
    reference: String,
    /// With --url: directory of the repository with the handler and the dependency file
    #[arg(long, value_name = "DIR", default_value = "/")]
    base_dir: String,
    /// Format of subscriptions in config.yaml: v0 (filters) or v1 (a source and types)
    #[arg(long, value_enum, value_name = "VERSION", hide_possible_values = true)]
    schema_version: Option<Schema>,
    /// Replace existing files
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, crate::cli::Error> {
    let namespace = arguments.connection.namespace_without_cluster().await?;
    let root = create(arguments, namespace)?;
    output::print(&format!("- Project generated in {}\n", printable(&root.to_string_lossy())))?;
    Ok(Exit::Fine)
}

/// Writes the files. Returns the path of their directory.
fn create(arguments: &Arguments, namespace: String) -> Result<PathBuf, Error> {
    let runtime = runtimes::find(&arguments.runtime)
        .ok_or_else(|| Error::Runtime { given: syntax::shown(&arguments.runtime), supported: supported() })?;
    let directory = arguments.dir.clone().unwrap_or_else(|| PathBuf::from("."));
    let named = std::path::absolute(&directory).unwrap_or_else(|_| directory.clone());
    let own = named.components().next_back().and_then(|last| last.as_os_str().to_str());
    let name = arguments.name.clone().unwrap_or_else(|| templates::name(own));
    if let Some(words) = syntax::dns_label(&name).into_iter().next() {
        return Err(Error::Name { name: syntax::shown(&name), words });
    }
    let source = match &arguments.url {
        None => Source::default(),
        Some(url) => Source::Git(GitSource {
            url: Some(url.clone()),
            repository: Some(arguments.repository_name.clone().unwrap_or_else(|| name.clone())),
            reference: Some(arguments.reference.clone()),
            base_dir: Some(arguments.base_dir.clone()),
            ..GitSource::default()
        }),
    };
    let config = Config {
        name: name.clone(),
        namespace,
        runtime: runtime.name.to_owned(),
        runtime_image_override: arguments.runtime_image_override.clone(),
        source,
        schema_version: arguments.schema_version,
        ..Config::default()
    };
    let mut files = vec![(CONFIG.to_owned(), config.text().map_err(Error::Text)?)];
    if arguments.url.is_none() {
        files.extend(templates::files(&name, runtime));
    }
    let workspace = Workspace::create(&directory)?;
    workspace.write(&files, arguments.overwrite)?;
    Ok(workspace.root().to_owned())
}
