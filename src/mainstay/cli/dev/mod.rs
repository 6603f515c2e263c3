//! `mainstay dev`: an embedded cluster, a repository and the agent in one process, for trying things out.
//!
//! The agent accesses the embedded cluster like any other cluster: over HTTP, with the kubeconfig for users.
//!
//! Invariant: other machines can connect only with `--listen` and `--token`.
//! Invariant: access to the cluster allows running code as this user. So the token is in a file that only this user
//! can read.
//!
//! Not here: persistence. The cluster exists only while the process runs. The demonstration repository stays.

mod demonstration;
mod embedded;
mod eventing;
mod git;
mod install;
mod issue;
mod kubeconfig;
mod messages;
mod programs;
mod registry;
mod repository;
mod room;
pub(super) mod snapshot;
mod token;
mod trust;
mod work_tree;

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    Error as CommandError, Exit,
    dev_run::DevRun,
    exposure::Exposure,
    lease_identity,
    local_directory::{self, LocalDirectory},
    logs,
    output::OutputArgument,
    overlays::{self, Overlays},
    stop,
    work_tree::WorkTree,
};
use crate::agent;
pub(super) use embedded::BUILDER;
use embedded::PodMode;
pub(super) use install::webhooks_at;
use loopback::Reach;
use mainstay_cluster::listener::Limits;
use mainstay_cluster::liveness;
use mainstay_cluster::{Cluster, Origin};
use mainstay_engine::notification::Emitter;
use mainstay_function::runtimes::libraries;
use mainstay_gitsync::receiver::BaseUrl;
use mainstay_manifest::render::Words;
use mainstay_object::failure::chain;
use mainstay_object::names::DomainName;
pub(super) use registry::secret as registry_secret;
use repository::FollowedRepository;
use room::Room;
use trust::Trust;

/// Directory name of the demonstration repository.
const DEMONSTRATION: &str = "demo";
/// Namespace of the GitSync. It is the agent's own namespace, so that the GitSync may apply everything.
const NAMESPACE: &str = "default";

/// Default domain for the hosts of APIRules. This domain resolves to this machine.
const DOMAIN: &str = "localhost";

/// Memory limit of the agent, in bytes, suitable for a developer's machine.
const MEMORY: usize = 2 << 30;

/// Arguments of `dev`.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Option<Subcommand>,
    /// Repository to follow: a directory or an address; by default a demonstration is created
    #[arg(value_name = "PATH-OR-URL")]
    repository: Option<String>,
    /// Branch, tag, commit or full reference name to follow; by default the repository's HEAD
    #[arg(long, value_name = "B")]
    branch: Option<String>,
    /// Directory of the manifests in the repository; by default the one that PATH names
    #[arg(long, value_name = "D")]
    base_dir: Option<String>,
    /// Address for the webhooks of Receivers; port 0 chooses a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    receive: SocketAddr,
    /// Follow the saved files of the work tree instead of commits; PATH then need not be a repository
    #[arg(long, conflicts_with_all = ["branch", "cluster_only"])]
    work_tree: bool,
    /// File for the kubeconfig of the embedded cluster [default: .mainstay/kubeconfig, or, while another `dev` of this
    /// directory has that, .mainstay/2/kubeconfig and so on]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Address of the embedded cluster; port 0 chooses a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Loopback address for the hosts of APIRules [default: 127.0.0.1:8080, or a free port if that is taken]
    #[arg(long, value_name = "ADDR")]
    gateway: Option<SocketAddr>,
    /// Loopback address for the hosts of APIRules over HTTPS [default: 127.0.0.1:8443, or a free port if that is taken]
    #[arg(long, value_name = "ADDR")]
    gateway_tls: Option<SocketAddr>,
    #[command(flatten)]
    exposure: Exposure,
    /// Bearer token that clients must present; by default a random one in the kubeconfig. Required to listen on other
    /// than loopback addresses
    #[arg(
        long, value_name = "TOKEN", env = "MAINSTAY_DEV_TOKEN", hide_env_values = true,
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    token: Option<String>,
    /// Enforce RBAC in the embedded cluster; the kubeconfig's user stays its administrator
    #[arg(long)]
    rbac: bool,
    /// Also serve Functions in v1alpha2, the version of Kyma 2.6 and later; kubectl prefers it
    #[arg(long)]
    v1alpha2: bool,
    /// Provide Knative Serving in the embedded cluster, for Functions with the label mainstay.dev/serving=knative
    #[arg(long)]
    knative: bool,
    /// Run Functions of a remote repository as local processes; by default their pods are simulated. Functions of a local
    /// repository always run
    #[arg(long, conflicts_with = "cluster_only")]
    run_code: bool,
    /// Start only the embedded cluster, without repository and agent
    #[arg(long, conflicts_with_all = ["repository", "branch"])]
    cluster_only: bool,
    #[command(flatten)]
    output: OutputArgument,
}

/// Returns the settings for APIRules: APIRules may use hosts below `localhost`, and the gateway's own issuer.
fn exposure(arguments: Exposure, port: u16, trust: Trust) -> mainstay_exposure::Settings {
    let own = devcluster::gateway::issuer::ISSUER;
    let mut settings = arguments.settings(DomainName::parse(DOMAIN).ok());
    settings.written_endpoints.extend(trust.written_endpoints());
    settings.allowed_issuers.extend([own.parse().ok(), format!("{own}:{port}").parse().ok()].into_iter().flatten());
    settings
}

/// A command that runs instead of the cluster.
#[derive(clap::Subcommand, Debug)]
enum Subcommand {
    /// Print a token of the gateway's own issuer in an embedded cluster
    Token {
        #[command(flatten)]
        arguments: issue::Arguments,
        #[command(flatten)]
        output: OutputArgument,
    },
}

/// The reason why `dev` failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("could not serve the embedded cluster on {listen}")]
    Serve {
        listen: SocketAddr,
        #[source]
        cause: io::Error,
    },
    #[error("could not serve the gateway on {address}")]
    Gateway {
        address: SocketAddr,
        #[source]
        cause: io::Error,
    },
    #[error(transparent)]
    Events(#[from] eventing::Error),
    #[error("could not install Knative Serving in the embedded cluster: {0}")]
    Knative(String),
    #[error("there is no issuer of tokens")]
    Issuer(#[source] issue::Error),
    #[error("could not write the certificate of the gateway")]
    Authority(#[source] kubeconfig::Error),
    #[error("{0} listens beyond loopback without authentication")]
    Unguarded(SocketAddr),
    #[error("this machine provides no random bytes for a token")]
    NoToken,
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
    Directory(mainstay_git::Error),
    #[error("{0}")]
    NoDirectory(mainstay_git::MissingDirectory),
    #[error("{0}")]
    ManyOverlays(Overlays),
    #[error("could not watch the repository")]
    Watch(#[source] mainstay_git::Error),
    #[error("--work-tree is for a directory of this machine, not for {0}")]
    NoWorkTree(String),
    #[error("could not follow the work tree")]
    WorkTree(#[source] work_tree::Error),
}

impl Error {
    /// Returns a hint about how to fix the error, if there is one.
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::Kubeconfig(kubeconfig::Error::Foreign(_) | kubeconfig::Error::InUse(_)) => {
                Some("--kubeconfig FILE selects a different path".into())
            }
            Self::Unguarded(_) => {
                Some("set --token TOKEN (or MAINSTAY_DEV_TOKEN), or listen on a loopback address".into())
            }
            Self::NoToken => Some("--token TOKEN (or MAINSTAY_DEV_TOKEN) names one".into()),
            Self::Serve { .. } => Some("--listen 127.0.0.1:0 takes a free port".into()),
            Self::Gateway { .. } => Some("--gateway 127.0.0.1:0 and --gateway-tls 127.0.0.1:0 take free ports".into()),
            Self::Issuer(error) => error.hint(),
            Self::Authority(_) => Some(
                "--kubeconfig FILE selects a different path; the certificate is written beside the kubeconfig".into(),
            ),
            Self::Repository(repository::Error::NotARepository(path, _)) => Some(format!(
                "git init {0} && cd {0} && git add . && git commit, or --work-tree, which needs no repository",
                path.display()
            )),
            Self::NoWorkTree(_) => Some("run git clone, and name the directory of the clone".into()),
            Self::ManyOverlays(overlays) => Some(overlays.hint()),
            Self::NoDirectory(_) => {
                Some("--base-dir must name a directory in the commit, not only in the work tree".into())
            }
            _ => None,
        }
    }
}

pub(super) async fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    if let Some(Subcommand::Token { arguments, output }) = &arguments.command {
        local_directory::check(arguments.kubeconfig())?;
        let (token, facts) = issue::token(arguments).map_err(Error::Issuer)?;
        output.print(&facts, || format!("{token}\n"))?;
        return Ok(Exit::Fine);
    }
    // The log excludes messages, because they are printed below.
    let log = logs::start_with_file("warn,mainstay::agent::notify::log=off");
    let stop = stop::on_signal()?;
    let mut prepared = prepare(&arguments).await?;
    let kubeconfig = arguments.kubeconfig.clone().unwrap_or_else(|| prepared.place().join("kubeconfig"));
    local_directory::check(&kubeconfig)?;
    let token = token(&arguments)?;
    if prepared.pods() == PodMode::Processes {
        fetch_libraries().await;
    }
    let run = prepared.facts();
    if let Some(path) = &run.log {
        log.begin(path).map_err(|cause| Error::Write { path: path.clone(), cause })?;
    }
    let embedded = embedded::start(embedded::EmbeddedOptions {
        run: &run,
        listen: arguments.listen,
        gateway: arguments.gateway,
        secure: arguments.gateway_tls,
        issuers: &arguments.exposure.issuers(),
        token: &token,
        kubeconfig: &kubeconfig,
        pods: prepared.pods(),
        rbac: arguments.rbac,
        knative: arguments.knative,
        refused_webhooks: prepared.trust.refused_webhooks(),
        directory: prepared.room.is_some().then(|| prepared.place().join("cluster")).as_deref(),
    })
    .await?;
    let receive = prepared.followed.as_ref().map(|_| receive(arguments.receive)).transpose()?;
    let started = messages::Started {
        server: embedded.serving.url(),
        gateway: embedded.gateway.address(),
        secure: (embedded.secure, embedded.authority.clone()),
        kubeconfig,
        pods: prepared.pods(),
        receivers: receive.as_ref().and_then(|receive| receive.base.known()).map(str::to_owned),
        other_room: prepared.other_room(),
        is_work_tree: arguments.work_tree,
        followed: prepared.followed.take(),
    };
    if started.followed.is_none() {
        messages::started(arguments.output, &started)?;
        stop.cancelled().await;
        return Ok(Exit::Fine);
    }
    follow(arguments, prepared, &embedded, &started, receive, token, stop).await
}

/// The directories and the repository of a run.
struct Prepared {
    /// The directory that only this run uses; `None` if it needs none.
    room: Option<Room>,
    /// The directory that a run uses unless another run has it.
    usual: Option<PathBuf>,
    /// The repository to follow, if any.
    followed: Option<FollowedRepository>,
    /// The saved files to follow instead of commits.
    work_tree: Option<WorkTree>,
    source: mainstay_git::Settings,
    trust: Trust,
}

impl Prepared {
    fn place(&self) -> &Path {
        self.room.as_ref().map_or(Path::new(""), Room::path)
    }

    fn other_room(&self) -> Option<PathBuf> {
        self.room.as_ref().map(Room::path).filter(|path| self.usual.as_deref() != Some(*path)).map(Path::to_owned)
    }

    /// Returns how pods of Functions run.
    fn pods(&self) -> PodMode {
        match self.trust {
            Trust::User => PodMode::Processes,
            Trust::Stranger => PodMode::Simulated,
        }
    }

    /// Returns the facts for other commands of this machine.
    fn facts(&self) -> DevRun {
        let Some(followed) = &self.followed else { return DevRun::default() };
        DevRun {
            repository: followed.local.is_some().then(|| followed.url.clone().into()),
            log: std::path::absolute(self.place().join("agent.log")).ok(),
        }
    }
}

/// Takes the directory of the run, and chooses the repository and its directory of manifests.
async fn prepare(arguments: &Arguments) -> Result<Prepared, CommandError> {
    let local = if needs_directory(arguments) { Some(LocalDirectory::open()?) } else { None };
    let mut followed = match &local {
        Some(local) if !arguments.cluster_only => Some(followed_repository(arguments, local)?),
        _ => None,
    };
    let usual = local.as_ref().map(|local| local.path().to_owned());
    let room = local.map(Room::take).transpose()?;
    let place = room.as_ref().map_or(Path::new(""), Room::path).to_owned();
    let work_tree = match &mut followed {
        Some(followed) if arguments.work_tree => Some(follow_work_tree(followed, &place)?),
        _ => None,
    };
    let mut source = mainstay_git::Settings::new(place.join("mirrors"));
    let trust = Trust::of(followed.as_ref(), arguments.run_code);
    let url = followed.as_ref().map_or("", |followed| followed.url.as_str());
    trust.limit(&mut source, &trust::addresses(url).await);
    if let Some(followed) = &mut followed {
        choose_directory(followed, arguments.base_dir.as_deref(), reference(arguments), &source).await?;
        if arguments.base_dir.is_none() && followed.local.is_some() {
            choose_overlay(followed, reference(arguments), &source).await?;
        }
    }
    Ok(Prepared { room, usual, followed, work_tree, source, trust })
}

/// Returns the reference to follow.
fn reference(arguments: &Arguments) -> &str {
    arguments.branch.as_deref().unwrap_or("HEAD")
}

/// Installs the agent's objects, and runs the agent until `stop` or until a part of it ends.
async fn follow(
    arguments: Arguments,
    prepared: Prepared,
    embedded: &embedded::Embedded,
    started: &messages::Started,
    receive: Option<agent::Receive>,
    token: String,
    stop: CancellationToken,
) -> Result<Exit, CommandError> {
    let Some(followed) = &started.followed else { return Ok(Exit::Fine) };
    let cluster = Cluster::from_origin(&Origin::of_file(&started.kubeconfig)).await?;
    let admit = agent::Admit::bind(SocketAddr::from(([127, 0, 0, 1], 0)), Reach::SameUser)?;
    install::install(&cluster, followed, reference(&arguments), arguments.v1alpha2).await?;
    if let Some(address) = admit.address() {
        embedded.server.permit_webhooks(address);
    }
    install::webhooks(&cluster, &admit).await?;
    let events = eventing::Events::bind(prepared.place().join("eventing")).map_err(Error::Events)?;
    events.install(&cluster, DOMAIN).await.map_err(Error::Events)?;
    let functions = functions(events.publisher()).await;
    let registry = registry::create_secrets(cluster.clone(), embedded.serving.address(), token, stop.clone());
    let emitter = Emitter::default();
    let mut tasks: JoinSet<Result<(), CommandError>> = JoinSet::new();
    messages::started(arguments.output, started)?;
    tasks.spawn(registry);
    tasks.spawn(messages::print(emitter.subscribe(), arguments.output, embedded.server.clone(), stop.clone()));
    let exposure = exposure(arguments.exposure, started.gateway.port(), prepared.trust);
    let written_endpoints = exposure.written_endpoints.clone();
    let delivering = events.run(cluster.clone(), embedded.server.clone(), written_endpoints, stop.clone());
    tasks.spawn(async { Ok(delivering.await.map_err(Error::Events)?) });
    let settings = agent::Settings { receive, admit: Some(admit), exposure, ..settings(prepared.source, functions) };
    let nudge = settings.nudge.clone();
    let look = move || nudge.look_now();
    let _watch = match (prepared.work_tree, followed.local.as_deref()) {
        (Some(work_tree), _) => {
            work_tree::watch(work_tree, look).map_err(Error::WorkTree)?;
            None
        }
        (None, Some(path)) => Some(mainstay_git::watch_local(path, look).map_err(Error::Watch)?),
        (None, None) => None,
    };
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

/// Returns the agent's settings without its listeners.
fn settings(source: mainstay_git::Settings, functions: mainstay_function::Settings) -> agent::Settings {
    agent::Settings {
        namespace: NAMESPACE.to_owned(),
        allow_namespaces: Vec::new(),
        default_service_account: None,
        identity: lease_identity::DEV.to_owned(),
        pod: None,
        listen: None,
        receive: None,
        admit: None,
        limits: Limits::default(),
        source,
        functions,
        components: crate::Components::default(),
        profile: agent::Profile::Full,
        namespaces: Vec::new(),
        exposure: mainstay_exposure::Settings::default(),
        // Other commands detect the agent by its Lease.
        elect: true,
        shards: None,
        timing: mainstay_cluster::Timing::default(),
        stuck_after: liveness::STUCK_AFTER,
        memory: MEMORY,
        nudge: agent::Nudge::default(),
        audit: agent::AUDIT,
        renderer: None,
        // Statuses show full messages, because their readers have access to the files.
        words: Words::Full,
    }
}

/// Fetches the packages of the runtime servers at the first run on this machine, before a build needs them. A failure
/// affects only builds of Functions.
async fn fetch_libraries() {
    let named = std::env::var_os(libraries::VARIABLE).map(PathBuf::from);
    let fetched = tokio::task::spawn_blocking(|| libraries::fetch_all(&libraries::place(named))).await;
    if let Ok(Err(error)) = fetched {
        tracing::warn!("{}; builds of Functions fail until `mainstay runtimes fetch` has succeeded", chain(&error));
    }
}

/// Binds the listener for webhooks. Its URL consists of the bound address.
fn receive(address: SocketAddr) -> Result<agent::Receive, CommandError> {
    let mut receive = agent::Receive::bind(address, Reach::of(address), BaseUrl::Unknown)?;
    receive.base = receive.address().map_or(BaseUrl::Unknown, |at| BaseUrl::Known(format!("http://{at}")));
    Ok(receive)
}

/// Returns the administrator's token. A listener for other machines requires an explicit token.
fn token(arguments: &Arguments) -> Result<String, Error> {
    match &arguments.token {
        Some(token) => Ok(token.clone()),
        None if arguments.listen.ip().is_loopback() => token::random().ok_or(Error::NoToken),
        None => Err(Error::Unguarded(arguments.listen)),
    }
}

/// Returns the settings for Functions, which run with the programs of this machine.
async fn functions(publisher: String) -> mainstay_function::Settings {
    mainstay_function::Settings {
        node_programs: Some(programs::installed().await),
        builder_image: embedded::BUILDER.to_owned(),
        publisher,
        ..mainstay_function::Settings::default()
    }
}

async fn run_agent(
    settings: agent::Settings,
    cluster: Cluster,
    emitter: Emitter,
    stop: CancellationToken,
) -> Result<(), CommandError> {
    Ok(agent::run(settings, cluster, emitter, stop).await?)
}

/// Returns the repository to follow; by default, the demonstration.
fn followed_repository(arguments: &Arguments, local: &LocalDirectory) -> Result<FollowedRepository, CommandError> {
    let Some(text) = arguments.repository.as_deref() else {
        let mut directory = local.directory(DEMONSTRATION)?;
        // An existing repository belongs to the user.
        if !demonstration::is_there(directory.path()) {
            directory = local.plain_directory(DEMONSTRATION)?;
        }
        let directory = directory.path();
        demonstration::prepare(directory).map_err(Error::Demonstrate)?;
        return Ok(repository::local(directory).map_err(Error::Repository)?);
    };
    let followed = match repository::followed(text) {
        Err(repository::Error::NotARepository(path, _)) if arguments.work_tree => Ok(repository::plain(path)),
        followed => followed,
    };
    let followed = followed.map_err(Error::Repository)?;
    if arguments.work_tree && followed.local.is_none() {
        return Err(Error::NoWorkTree(followed.shown).into());
    }
    Ok(followed)
}

/// Returns whether this run uses the local directory.
fn needs_directory(arguments: &Arguments) -> bool {
    let usual = Path::new(local_directory::KUBECONFIG).parent().unwrap_or(Path::new(""));
    !arguments.cluster_only || arguments.kubeconfig.as_ref().is_none_or(|path| path.starts_with(usual))
}

/// Follows a repository of saved files instead of the user's own repository.
fn follow_work_tree(followed: &mut FollowedRepository, place: &Path) -> Result<WorkTree, Error> {
    let directory = place.join("work-tree.git");
    let root = followed.local.clone().unwrap_or_default();
    let tree = WorkTree::new(&root, &directory).map_err(|error| Error::WorkTree(error.into()))?;
    let directory = directory.canonicalize().map_err(|cause| Error::Write { path: directory, cause })?;
    followed.url = directory.display().to_string();
    Ok(tree)
}

/// Selects the directory that the user named. Fails if the commit does not contain the directory.
async fn choose_directory(
    followed: &mut FollowedRepository,
    named: Option<&str>,
    reference: &str,
    source: &mainstay_git::Settings,
) -> Result<(), Error> {
    if let Some(named) = named {
        named.clone_into(&mut followed.base_dir);
    }
    // A remote repository is fetched for this check only if the user named a directory.
    if followed.local.is_none() && named.is_none() {
        return Ok(());
    }
    let missing = repository::missing_directory(followed, reference, source).await;
    missing.map_err(Error::Directory)?.map_or(Ok(()), |missing| Err(Error::NoDirectory(missing)))
}

/// Lets the user choose if the directory contains a base and overlays, which would all be built.
async fn choose_overlay(
    followed: &mut FollowedRepository,
    reference: &str,
    source: &mainstay_git::Settings,
) -> Result<(), Error> {
    let found = repository::kustomizations(followed, reference, source).await;
    let Some(overlays) = overlays::among(&followed.base_dir, &found) else { return Ok(()) };
    followed.base_dir = overlays::ask(&overlays).ok_or(Error::ManyOverlays(overlays))?;
    Ok(())
}
