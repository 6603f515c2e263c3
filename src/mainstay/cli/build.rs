//! `mainstay build`: the programs of a build Job's containers. Each program writes one JSON object as its termination
//! message.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use super::{Error, Exit, output};
use mainstay_api::build::{BuildFailure, FailureReason, FetchReport, TERMINATION_LOG, TERMINATION_LOG_ENV};
use mainstay_api::git_repository::AuthType;
use mainstay_function::build::fetch::{self, InGit, SourceOf};
use mainstay_function::build::install::Platform;
use mainstay_function::runtimes::{self, Runtime, libraries};

mod push;

#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    step: Step,
}

#[derive(Subcommand, Debug)]
enum Step {
    /// Fetch a Function's source and prepare the installation of its dependencies
    Fetch(Fetch),
    /// Build an image of source and dependencies, and push it
    Push(push::Push),
}

#[derive(Args, Debug)]
struct Fetch {
    /// Runtime of the Function, such as nodejs22
    #[arg(long, value_name = "NAME")]
    runtime: String,
    /// Directory shared by the containers of the Job
    #[arg(long, value_name = "DIRECTORY")]
    workspace: PathBuf,
    /// Directory with the files `source` and `dependencies`, instead of a repository
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "url", required_unless_present = "url")]
    inline: Option<PathBuf>,
    /// Address of the repository
    #[arg(long, requires_all = ["commit", "tree", "reference"])]
    url: Option<String>,
    /// Resolved commit
    #[arg(long, value_name = "ID", requires = "url")]
    commit: Option<String>,
    /// Id of the directory in that commit
    #[arg(long, value_name = "ID", requires = "url")]
    tree: Option<String>,
    /// Reference that the commit was resolved from
    #[arg(long, requires = "url")]
    reference: Option<String>,
    /// Directory of the Function in the repository
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    base_dir: String,
    /// Authentication: basic or key; by default none
    #[arg(long, value_name = "TYPE", value_parser = auth_type, requires = "credentials")]
    auth: Option<AuthType>,
    /// Directory with the keys of the Secret
    #[arg(long, value_name = "DIRECTORY", requires = "auth")]
    credentials: Option<PathBuf>,
    /// Directory with the keys of the proxy's Secret
    #[arg(long, value_name = "DIRECTORY", requires = "url")]
    proxy: Option<PathBuf>,
    /// Host keys for all repositories, in the format of known_hosts, instead of the built-in ones
    #[arg(long, value_name = "LINES", requires = "url")]
    known_hosts: Option<String>,
    /// Also fetch submodules
    #[arg(long, requires = "url")]
    submodules: bool,
    /// Also fetch files in Git LFS
    #[arg(long, requires = "url")]
    lfs: bool,
    /// Also read local repositories
    #[arg(long)]
    allow_local: bool,
    /// Base image that the dependencies are installed in
    #[arg(long, value_name = "IMAGE", default_value = "scratch")]
    base: String,
    /// Operating system and architecture of the image
    #[arg(long, value_name = "OS/ARCHITECTURE", default_value = "linux/amd64")]
    platform: String,
    /// Digest of the dependency files of the previous image; unchanged dependencies are not installed again
    #[arg(long, value_name = "HEX")]
    known_dependencies: Option<String>,
    /// Also write a Dockerfile and the files that it copies, for Kaniko
    #[arg(long)]
    kaniko: bool,
    /// Directory of the packages of the runtime servers; by default that of the image, else of the user's cache
    #[arg(long, value_name = "DIRECTORY", env = libraries::VARIABLE, hide_env_values = true)]
    libraries: Option<PathBuf>,
}

fn auth_type(text: &str) -> Result<AuthType, String> {
    match text {
        "basic" => Ok(AuthType::Basic),
        "key" => Ok(AuthType::Key),
        _ => Err("`basic` or `key`".to_owned()),
    }
}

pub(super) async fn run(arguments: Arguments) -> Result<Exit, Error> {
    let outcome = match arguments.step {
        Step::Fetch(arguments) => fetch(arguments).await,
        Step::Push(arguments) => push::run(arguments).await,
    };
    if let Err(failure) = &outcome {
        report(failure);
    }
    outcome.map(|()| Exit::Fine).map_err(Error::Build)
}

async fn fetch(arguments: Fetch) -> Result<(), BuildFailure> {
    let request = request(arguments)?;
    let fetched = fetch::fetch(&request).await.map_err(|error| error.failure())?;
    let from = fetched.commit.map(|commit| format!(" of commit {commit}")).unwrap_or_default();
    let dependencies = match (fetched.dependencies.as_str(), fetched.reused) {
        ("", _) => "no dependencies".to_owned(),
        (digest, true) => format!("the dependencies {digest} of the previous image"),
        (digest, false) => format!("the dependencies {digest} to install"),
    };
    // The log is informational, so a failure to write this line is ignored.
    let _ = output::print(&format!("{} files{from}; {dependencies}\n", fetched.files));
    report(&FetchReport { dependencies: fetched.dependencies, reused: fetched.reused });
    Ok(())
}

fn request(arguments: Fetch) -> Result<fetch::Request, BuildFailure> {
    let runtime = runtime(&arguments.runtime)?;
    let source = match &arguments.inline {
        Some(directory) => SourceOf::Inline(directory.clone()),
        None => SourceOf::Git(Box::new(in_git(&arguments).map_err(|error| fetch::Error::from(error).failure())?)),
    };
    Ok(fetch::Request {
        runtime,
        workspace: arguments.workspace,
        source,
        on: Platform { base: arguments.base, platform: arguments.platform },
        known_dependencies: arguments.known_dependencies,
        is_installed: false,
        for_kaniko: arguments.kaniko.then(|| libraries::place(arguments.libraries)),
        bounds: fetch::Bounds::default(),
    })
}

fn in_git(arguments: &Fetch) -> Result<InGit, mainstay_git::Error> {
    // A missing value becomes an empty string, which fails to parse. The argument parser has already checked it.
    let text = |argument: &Option<String>| argument.clone().unwrap_or_default();
    Ok(InGit {
        url: text(&arguments.url).parse()?,
        commit: text(&arguments.commit).parse()?,
        tree: text(&arguments.tree).parse()?,
        reference: text(&arguments.reference).parse()?,
        base_dir: arguments.base_dir.parse()?,
        auth: arguments.auth.zip(arguments.credentials.clone()),
        proxy: arguments.proxy.clone(),
        known_hosts: arguments.known_hosts.clone(),
        submodules: arguments.submodules,
        lfs: arguments.lfs,
        allow_local: arguments.allow_local,
    })
}

fn runtime(name: &str) -> Result<&'static Runtime, BuildFailure> {
    runtimes::find(name).ok_or_else(|| internal(&format!("there is no runtime {name}")))
}

fn internal(message: &str) -> BuildFailure {
    BuildFailure {
        reason: FailureReason::Internal,
        message: message.to_owned(),
        retry: false,
        waits_for_registry: false,
    }
}

/// Writes the termination message. Machines without the directory of that file skip this step.
fn report(message: &impl Serialize) {
    let named = env::var_os(TERMINATION_LOG_ENV);
    let path = named.as_ref().map_or(Path::new(TERMINATION_LOG), Path::new);
    let opened = OpenOptions::new().write(true).truncate(true).create(named.is_some()).open(path);
    if let (Ok(mut file), Ok(text)) = (opened, serde_json::to_vec(message)) {
        // Write errors are ignored: the exit code and the log still report the result.
        let _ = file.write_all(&text);
    }
}
