//! `mainstay dev`: an embedded cluster, a repository and the agent in one process, to try things out.
//!
//! The agent talks to the embedded cluster as to any other: over HTTP, with the kubeconfig that is written for people.
//!
//! Invariant: nothing is reachable from other machines unless `--listen` and `--token` say so.
//!
//! Deliberately absent: persistence. The cluster is gone with the process; the demonstration repository stays.

mod demonstration;
mod embedded;
mod git;
mod install;
mod kubeconfig;
mod messages;
mod registry;
mod repository;

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use tokio::task::JoinSet;

use super::{Error as CommandError, Exit, logs, output, stop};
use crate::{
    agent,
    cluster::{Cluster, Origin},
    function,
    listener::Limits,
    liveness,
    notification::Emitter,
    receiver::BaseUrl,
    source,
};
pub(super) use embedded::BUILDER;
use embedded::PodMode;
pub(super) use registry::secret as registry_secret;
use repository::FollowedRepository;

/// Directory of mirrors and the demonstration repository, beside the kubeconfig.
const DIRECTORY: &str = ".mainstay";
/// Namespace of the GitSync, which is the agent's own, so that it may apply everything.
const NAMESPACE: &str = "default";

/// Arguments of `dev`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Repository to follow: a directory or an address; by default a demonstration is created
    #[arg(value_name = "PATH-OR-URL")]
    repository: Option<String>,
    /// Branch (or tag, commit, full ref name) to follow; by default the repository's HEAD
    #[arg(long, value_name = "B")]
    branch: Option<String>,
    /// Directory in the repository that holds the manifests; by default the one that PATH names
    #[arg(long, value_name = "D")]
    base_dir: Option<String>,
    /// Address at which webhooks for Receivers are received; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    receive: SocketAddr,
    /// Where to write the kubeconfig of the embedded cluster
    #[arg(long, value_name = "FILE", default_value = ".mainstay/kubeconfig")]
    kubeconfig: PathBuf,
    /// Address of the embedded cluster; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Bearer token that clients must present; needed to listen on other than loopback addresses
    #[arg(long, value_name = "TOKEN", env = "MAINSTAY_DEV_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Enforce RBAC in the embedded cluster; clients without a token of their own stay administrators
    #[arg(long)]
    rbac: bool,
    /// Run Functions of a remote repository as local processes; by default their pods are simulated. Functions of a local
    /// repository always run
    #[arg(long, conflicts_with = "cluster_only")]
    run_code: bool,
    /// Only the embedded cluster, without repository and agent
    #[arg(long, conflicts_with_all = ["repository", "branch"])]
    cluster_only: bool,
    /// Output format: text for people, or one JSON object per line
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    output: messages::Format,
}

/// A failed attempt of `dev`.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("could not serve the embedded cluster on {listen}")]
    Serve {
        listen: SocketAddr,
        #[source]
        cause: io::Error,
    },
    #[error("could not write the kubeconfig")]
    Kubeconfig(#[source] kubeconfig::Error),
    #[error("could not write {path}", path = .path.display())]
    Write {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("could not make the demonstration repository")]
    Demonstrate(#[source] demonstration::Error),
    #[error("could not use the repository")]
    Repository(#[source] repository::Error),
    #[error(transparent)]
    Directory(source::Error),
    #[error("{0}")]
    NoDirectory(source::MissingDirectory),
    #[error("could not watch the repository")]
    Watch(#[source] source::Error),
}

impl Error {
    /// The hint.
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::Kubeconfig(kubeconfig::Error::Foreign(_)) => Some("--kubeconfig FILE names another place".into()),
            Self::Serve { listen, .. } if !listen.ip().is_loopback() => {
                Some("--token TOKEN (or MAINSTAY_DEV_TOKEN) guards a listener that others reach".into())
            }
            Self::Serve { .. } => Some("--listen 127.0.0.1:0 takes a free port".into()),
            Self::Repository(repository::Error::NotARepository(path, _)) => {
                Some(format!("git init {0} && cd {0} && git add . && git commit", path.display()))
            }
            Self::NoDirectory(_) => Some(
                "--base-dir D names a directory of the commit; what is only in the work tree does not count".into(),
            ),
            _ => None,
        }
    }
}

pub(super) async fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    // Messages are printed below.
    logs::start(logs::Format::Text, "warn,mainstay::agent::announce=off");
    let stop = stop::on_signal()?;
    let mut followed =
        if arguments.cluster_only { None } else { Some(followed_repository(arguments.repository.as_deref())?) };
    if !arguments.cluster_only || arguments.kubeconfig.starts_with(DIRECTORY) {
        prepare_directory()?;
    }
    let mut source = source::Settings::new(Path::new(DIRECTORY).join("mirrors"));
    source.allow_local = true;
    let reference = arguments.branch.as_deref().unwrap_or("HEAD");
    if let Some(followed) = &mut followed {
        // A remote is fetched for this only if somebody named a directory of it.
        let is_named = arguments.base_dir.is_some();
        followed.base_dir = arguments.base_dir.clone().unwrap_or_else(|| followed.base_dir.clone());
        if followed.local.is_some() || is_named {
            let missing = repository::missing_directory(followed, reference, &source).await;
            if let Some(missing) = missing.map_err(Error::Directory)? {
                return Err(Error::NoDirectory(missing).into());
            }
        }
    }
    let pods = pods(followed.as_ref(), arguments.run_code);
    let directory = Path::new(DIRECTORY).join("cluster");
    let embedded = embedded::start(embedded::EmbeddedOptions {
        listen: arguments.listen,
        token: arguments.token.as_deref(),
        kubeconfig: &arguments.kubeconfig,
        pods,
        rbac: arguments.rbac,
        directory: Path::new(DIRECTORY).exists().then_some(&*directory),
    })
    .await?;
    let server = embedded.serving.url();
    let receive = if followed.is_some() { Some(receive(arguments.receive)?) } else { None };
    let receivers = receive.as_ref().and_then(|receive| receive.base.known()).map(str::to_owned);
    let started = messages::Started { receivers, server, kubeconfig: arguments.kubeconfig.clone(), followed, pods };
    let Some(followed) = &started.followed else {
        output::print(&arguments.output.started(&started))?;
        stop.cancelled().await;
        return Ok(Exit::Fine);
    };
    let origin = Origin::Kubeconfig { path: Some(arguments.kubeconfig.clone()), context: None };
    let cluster = Cluster::from_origin(&origin).await?;
    install::install(&cluster, followed, reference).await?;

    let registry = registry::create_secrets(cluster.clone(), embedded.serving.address(), arguments.token, stop.clone());
    let emitter = Emitter::default();
    let mut tasks: JoinSet<Result<(), CommandError>> = JoinSet::new();
    output::print(&arguments.output.started(&started))?;
    tasks.spawn(registry);
    let services = embedded.server.clone();
    let urls = move |namespace: &str, name: &str| services.service_urls(namespace, name);
    tasks.spawn(messages::print(emitter.subscribe(), arguments.output, urls, stop.clone()));
    let settings = agent::Settings {
        namespace: NAMESPACE.to_owned(),
        allow_namespaces: Vec::new(),
        identity: "mainstay-dev".to_owned(),
        pod: None,
        listen: None,
        receive,
        limits: Limits::default(),
        source,
        functions: functions(),
        elect: false,
        stuck_after: liveness::STUCK_AFTER,
        nudge: agent::Nudge::default(),
    };
    let nudge = settings.nudge.clone();
    let commits = followed.local.as_deref().map(|path| source::watch_local(path, move || nudge.look_now()));
    let _watch = commits.transpose().map_err(Error::Watch)?;
    tasks.spawn(run_agent(settings, cluster, emitter, stop.clone()));
    // When one task ends, the others are stopped.
    let first = tasks.join_next().await;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    match first {
        Some(Ok(result)) => result.map(|()| Exit::Fine),
        Some(Err(panicked)) => Err(CommandError::Task(panicked)),
        None => Ok(Exit::Fine),
    }
}

/// The listener for webhooks; its address is known here.
fn receive(address: SocketAddr) -> Result<agent::Receive, CommandError> {
    let mut receive = agent::Receive::bind(address, BaseUrl::Unknown)?;
    receive.base = receive.address().map_or(BaseUrl::Unknown, |at| BaseUrl::Known(format!("http://{at}")));
    Ok(receive)
}

/// Functions run with the programs of this machine.
fn functions() -> function::Settings {
    let base_images = [("*".to_owned(), function::BaseImage::Scratch)].into();
    function::Settings { base_images, builder_image: embedded::BUILDER.to_owned(), ..function::Settings::default() }
}

async fn run_agent(
    settings: agent::Settings,
    cluster: Cluster,
    emitter: Emitter,
    stop: tokio_util::sync::CancellationToken,
) -> Result<(), CommandError> {
    Ok(agent::run(settings, cluster, emitter, stop).await?)
}

/// How pods run: code of a remote repository runs only with `--run-code`.
fn pods(followed: Option<&FollowedRepository>, run_code: bool) -> PodMode {
    let remote = followed.is_some_and(|followed| followed.local.is_none());
    if remote && !run_code { PodMode::Simulated } else { PodMode::Processes }
}

/// The repository to follow; the default is the demonstration.
fn followed_repository(repository: Option<&str>) -> Result<FollowedRepository, Error> {
    let Some(text) = repository else {
        let directory = Path::new(DIRECTORY).join("demo");
        demonstration::prepare(&directory).map_err(Error::Demonstrate)?;
        return repository::local(&directory).map_err(Error::Repository);
    };
    repository::followed(text).map_err(Error::Repository)
}

/// Creates `.mainstay/`, and keeps it out of the user's own repository.
fn prepare_directory() -> Result<(), Error> {
    let path = Path::new(DIRECTORY).join(".gitignore");
    let written = fs::create_dir_all(DIRECTORY).and_then(|()| fs::write(&path, "*\n"));
    written.map_err(|cause| Error::Write { path, cause })
}
