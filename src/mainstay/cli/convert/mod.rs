//! `mainstay convert`: prints GitRepositories, GitSyncs, Receivers, Providers and Alerts for the objects of Flux or
//! Argo CD, and reports what is lost or different.
//!
//! - [`flux`], [`argocd`]: the kinds of each tool
//! - [`fields`]: each field of an object is converted or reported
//! - [`comments`]: comments move with their fields
//! - [`sequence`]: how live objects are handed over

mod application;
mod application_set;
mod argocd;
mod comments;
mod converted;
mod document;
mod fields;
mod flux;
mod helm_chart;
mod helm_release;
mod helm_values;
mod images;
mod known;
mod kustomization;
mod live;
mod notification;
mod oci_repository;
mod plain;
mod receiver;
mod references;
mod refused;
mod report;
mod repositories;
mod repository;
mod sequence;

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use ignore::WalkBuilder;

use super::connection::{ClusterArguments, HEADING};
use super::{Error, Exit, output};
use application_set::Tree;
use document::Document;
use fields::Fate;
use mainstay_git::thread_time;
use mainstay_manifest::Limits;
use report::Judged;

/// Maximum size of standard input in bytes.
const INPUT: u64 = 64 << 20;

/// Arguments of `convert`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Tool whose objects are converted
    #[arg(value_name = "TOOL", value_enum)]
    tool: Tool,
    /// File or directory with the objects, or `-` for standard input
    #[arg(value_name = "PATH", required_unless_present = "live")]
    path: Option<PathBuf>,
    /// Read the objects of the cluster instead, and print how they change hands
    #[arg(long, conflicts_with = "path")]
    live: bool,
    /// Namespace of the printed objects; by default those of the objects that they replace
    #[arg(short, long, value_name = "NS", help_heading = HEADING)]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tool {
    Flux,
    Argocd,
}

impl Tool {
    fn group(self) -> &'static str {
        match self {
            Self::Flux => flux::GROUP,
            Self::Argocd => argocd::GROUP,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Flux => "Flux",
            Self::Argocd => "Argo CD",
        }
    }
}

/// Prints the objects. The exit code is 1 if anything is lost.
pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let Read { documents, tree, plain } = match &arguments.path {
        Some(path) => read(path, arguments.tool)?,
        None => Read::of(live::read(&arguments.cluster.connect().await?, arguments.tool.group()).await?),
    };
    if documents.is_empty() {
        let place = arguments.path.as_ref().map_or("the cluster".to_owned(), |path| match path.to_str() {
            Some("-") => "standard input".to_owned(),
            _ => path.display().to_string(),
        });
        return Err(Error::NothingToConvert { place, tool: arguments.tool.title() });
    }
    let target = arguments.namespace.as_deref();
    let mut conversion = match arguments.tool {
        Tool::Flux => flux::convert(&documents, target),
        Tool::Argocd => argocd::convert(&documents, target, &tree),
    };
    conversion.judged.extend(plain);
    let mut text = String::new();
    for object in &conversion.objects {
        text.push_str("---\n");
        text.push_str(&object.yaml().map_err(Error::WriteYaml)?);
    }
    output::print(&text)?;
    output::note(&conversion.text());
    if arguments.live {
        output::note(&sequence::text(&documents, &conversion));
    }
    if target.is_none() {
        output::note(&conversion.confinement());
    }
    Ok(if conversion.count(Fate::Lost) > 0 { Exit::Differs } else { Exit::Fine })
}

/// The input of a conversion.
struct Read {
    documents: Vec<Document>,
    /// The directories of the repository.
    tree: Tree,
    /// Notes about objects of no tool.
    plain: Vec<Judged>,
}

impl Read {
    /// Returns objects without a directory.
    fn of(documents: Vec<Document>) -> Self {
        Self { documents, tree: Tree::default(), plain: Vec::new() }
    }
}

/// Reads the objects of a file, a directory or standard input, and lists the directories of their repository.
fn read(path: &Path, tool: Tool) -> Result<Read, Error> {
    let limits = Limits::new(thread_time);
    let mut documents = Vec::new();
    let mut add = |file: &str, text: &str| {
        let read = document::read(file, text, &[tool.group()], &limits);
        documents.extend(read.map_err(|why| Error::Convert { file: file.to_owned(), why })?);
        Ok::<(), Error>(())
    };
    if path == Path::new("-") {
        let mut text = String::new();
        let read = io::stdin().lock().take(INPUT).read_to_string(&mut text);
        read.map_err(|cause| Error::ReadFile { path: path.to_owned(), cause })?;
        add("", &text)?;
        return Ok(Read::of(documents));
    }
    let unread = |path: &Path| {
        let path = path.to_owned();
        move |cause: io::Error| Error::ReadFile { path, cause }
    };
    let whole = fs::canonicalize(path).map_err(unread(path))?;
    let root = whole.ancestors().find(|above| above.join(".git").exists()).unwrap_or(&whole).to_owned();
    let mut files = Vec::new();
    let mut tree = Tree::default();
    let mut walk = WalkBuilder::new(&root);
    walk.hidden(false).follow_links(false).filter_entry(|entry| entry.file_name() != ".git");
    for found in walk.build() {
        let found = found
            .map_err(|error| unread(path)(error.into_io_error().unwrap_or_else(|| io::ErrorKind::Other.into())))?;
        let below = found.path().strip_prefix(&root).unwrap_or(found.path()).to_string_lossy().into_owned();
        let kind = found.file_type();
        if kind.is_some_and(|kind| kind.is_dir()) && !below.is_empty() {
            tree.directories.push(below);
        } else if kind.is_some_and(|kind| kind.is_file()) && found.path().starts_with(&whole) {
            files.push(found.into_path());
        }
    }
    files.sort();
    tree.directories.sort();
    files.retain(|file| *file == whole || file.extension().is_some_and(|end| end == "yaml" || end == "yml"));
    for file in &files {
        let text = String::from_utf8_lossy(&fs::read(file).map_err(unread(file))?).into_owned();
        let name = if *file == whole { path } else { file.strip_prefix(&whole).unwrap_or(file) };
        add(&name.display().to_string(), &text)?;
    }
    let plain = match tool {
        Tool::Flux if whole.is_dir() => plain::judged(&documents, &whole, &files, &limits),
        _ => Vec::new(),
    };
    Ok(Read { documents, tree, plain })
}

#[cfg(test)]
mod tests;
