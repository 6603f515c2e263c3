//! `mainstay function sync`: writes a Function of the cluster to the files of a directory.
//!
//! Invariant: a `config.yaml` that already matches the cluster is not changed, so its comments are kept.

use std::path::{Path, PathBuf};

use super::{
    check::supported,
    config::{Config, Schema, Source},
    error::Error,
    fetched::{Fetched, fetched},
    fields::text_at,
    live,
    objects::{Code, objects},
    workspace::{CONFIG, Workspace},
};
use crate::cli::{
    Exit,
    connection::{Connection, own_kind},
    output,
    syncs::understand,
};
use mainstay_api::{Function, own_repository::OwnRepository};
use mainstay_object::{printable, syntax};

/// Arguments of `function sync`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Name of the Function
    name: String,
    /// Directory of the files, created if it is missing; by default the current one
    #[arg(short, long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Format of subscriptions that the cluster has in both versions: v0 (filters) or v1 (a source and types)
    #[arg(long, value_enum, value_name = "VERSION", hide_possible_values = true)]
    schema_version: Option<Schema>,
    /// Also replace existing files that are not those of this Function
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, crate::cli::Error> {
    let cluster = arguments.connection.connect().await?;
    let namespace = arguments.connection.namespace(&cluster);
    let directory = arguments.dir.as_deref().unwrap_or(Path::new("."));
    let kind = own_kind::<Function>(&cluster).await?;
    let found = cluster.get(&kind, Some(&namespace), &arguments.name).await?;
    let what = || kind.key(Some(&namespace), &arguments.name).to_string();
    let function: Function = understand(found.ok_or_else(|| Error::Missing { what: what() })?)?;
    let present = Present::read(directory, &namespace, &arguments.name);
    let schema = arguments.schema_version.or(present.as_ref().and_then(|present| present.config.schema_version));
    let referring = live::referring(&cluster, &namespace, &arguments.name, schema.unwrap_or_default()).await?;
    let referring: Vec<_> = referring.into_iter().map(|(_, object)| object).collect();
    let repository = match function.spec.kind.as_deref() {
        Some("git") if function.spec.own_repository().is_some() => {
            function.spec.own_repository().map(OwnRepository::spec)
        }
        Some("git") => live::repository(&cluster, &namespace, &function.spec.source).await?,
        _ => None,
    };
    let mut fetched = fetched(&function, repository.as_ref(), &referring);
    fetched.config.schema_version = fetched.config.schema_version.or(schema);
    let may_replace = arguments.overwrite || present.is_some();
    let files = files(&fetched, present.as_ref())?;
    let workspace = Workspace::create(directory)?;
    workspace.write(&files, may_replace)?;
    if !fetched.left_out.is_empty() {
        let all = fetched.left_out.join(", ");
        output::note(&format!("! config.yaml does not contain, and `apply` does not change: {all}\n"));
    }
    output::print(&format!("- Function synchronised in {}\n", printable(&workspace.root().to_string_lossy())))?;
    Ok(Exit::Fine)
}

/// An existing workspace of the same Function.
struct Present {
    workspace: Workspace,
    config: Config,
}

impl Present {
    fn read(directory: &Path, namespace: &str, name: &str) -> Option<Self> {
        let workspace = Workspace::at(directory).ok()?;
        let config = Config::read(&workspace.read(CONFIG).ok()?, None).ok()?;
        (config.name == name && config.namespace == namespace).then_some(Self { workspace, config })
    }

    /// Returns the directory of the source files, relative to the workspace.
    fn source_directory(&self) -> Result<PathBuf, Error> {
        let source = self.workspace.source(self.config.source.path())?;
        Ok(source.root().strip_prefix(self.workspace.root()).unwrap_or(Path::new("")).to_owned())
    }
}

/// Returns the files of a Function. Files of an existing workspace keep their paths.
fn files(fetched: &Fetched, present: Option<&Present>) -> Result<Vec<(String, String)>, Error> {
    let mut config = fetched.config.clone();
    let mut directory = PathBuf::new();
    if let Some(present) = present
        && let (Source::Inline { .. }, Source::Inline { .. }) = (&config.source, &present.config.source)
    {
        config.source = present.config.source.clone();
        directory = present.source_directory()?;
    }
    let mut files = Vec::new();
    if !present.is_some_and(|present| says_the_same(&present.config, &config, &fetched.code)) {
        files.push((CONFIG.to_owned(), config.text().map_err(Error::Text)?));
    }
    if let Source::Inline { .. } = &config.source {
        let unsupported = || Error::Runtime { given: syntax::shown(&config.runtime), supported: supported() };
        let [handler, dependencies] = config.files().ok_or_else(unsupported)?;
        let Code { source, dependencies: listed } = &fetched.code;
        for (name, text) in [(handler, source), (dependencies, listed)] {
            files.push((directory.join(name).to_string_lossy().into_owned(), text.clone()));
        }
    }
    Ok(files)
}

/// Returns whether two configurations create the same objects, regardless of their order.
fn says_the_same(one: &Config, other: &Config, code: &Code) -> bool {
    let sorted = |config: &Config| {
        objects(config, code).map(|mut objects| {
            objects.sort_by_cached_key(|object| {
                (text_at(object, "/kind").to_owned(), text_at(object, "/metadata/name").to_owned())
            });
            objects
        })
    };
    match (sorted(one), sorted(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}
