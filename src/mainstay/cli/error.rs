//! Errors of commands.

use std::{io, path::PathBuf};

use super::get::resource::counterpart_hint;

/// A failed attempt of a command. The error source is the cause.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("could not start the runtime")]
    Start(#[source] io::Error),
    #[error("could not write to standard output")]
    Print(#[source] io::Error),
    #[error("could not write JSON")]
    WriteJson(#[source] serde_json::Error),
    #[error("could not write YAML")]
    WriteYaml(#[source] serde_yaml::Error),
    #[error("the definition of Functions is not the one that v1alpha2 is served with")]
    Component(#[source] json_patch::PatchError),
    #[error(
        "could not serve the socket; agent and renderer share the directory of --shared, and both write to `socket` in it"
    )]
    Renderer(#[source] io::Error),
    #[error("could not read the certificates of --admit-client-ca from {}", path.display())]
    ClientAuthorities {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("could not listen at {address}")]
    Listen {
        address: std::net::SocketAddr,
        #[source]
        cause: io::Error,
    },
    #[error("could not start the guard of the registry")]
    Guard(#[from] mainstay_function::registry::guard::ServeError),
    #[error("{place} has no objects of {tool}")]
    NothingToConvert { place: String, tool: &'static str },
    #[error("could not read {}: {why}", if file.is_empty() { "standard input" } else { file })]
    Convert { file: String, why: String },
    #[error("could not start traces (--otlp-endpoint, --otlp-traces-endpoint)")]
    Traces(#[source] mainstay_traces::StartError),
    #[error("could not listen for signals")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Cluster(#[from] mainstay_cluster::Error),
    #[error("could not decode {what}")]
    Understand {
        what: String,
        #[source]
        cause: serde_json::Error,
    },
    #[error("the cluster does not serve the kind {kind}")]
    NotInstalled { kind: String },
    #[error("the cluster serves no kind named {0}")]
    UnknownKind(String),
    #[error("expected a kind and a name, not {:?}", format!("{kind}{}", name.as_ref().map(|name| format!(" {name}")).unwrap_or_default()))]
    NotAnObject { kind: String, name: Option<String> },
    #[error("{what} is not a GitSync, and only GitSyncs can be suspended")]
    NotAGitSync { what: String },
    #[error("no pod of the agent has started in the namespace {namespace}")]
    NoAgentPod { namespace: String },
    #[error("the agent of `mainstay dev` has no pod: its log is in the terminal of `mainstay dev`")]
    AgentOfDev,
    #[error("a name and --selector exclude each other")]
    NameAndSelector,
    #[error("--watch accepts one kind, with at most one name")]
    WatchSeveral,
    #[error("names are accepted only with a single kind")]
    SeveralKinds,
    #[error("{what} does not exist")]
    Missing { what: String },
    #[error("no GitSync manages {what}{}", notes.iter().flat_map(|note| ["; ", note]).collect::<String>())]
    NotManaged { what: String, notes: Vec<String> },
    #[error("there is no GitSync in {}", namespace.as_ref().map_or("the cluster".to_owned(), |namespace| format!("the namespace {namespace}")))]
    NoSync { namespace: Option<String> },
    #[error("these environment variables cannot be used:\n{}", .0.iter().map(|refused| format!("  {refused}")).collect::<Vec<_>>().join("\n"))]
    Settings(Vec<mainstay_function::InvalidVariable>),
    #[error("these {what} cannot be used:\n{}", .problems.iter().map(|wrong| format!("  {wrong}")).collect::<Vec<_>>().join("\n"))]
    Install {
        /// The source of the problems: flags or values files.
        what: &'static str,
        problems: Vec<String>,
    },
    #[error("--components: {0}")]
    Components(&'static str),
    #[error("could not read {}", path.display())]
    ReadFile {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("could not read {}", path.display())]
    ReadYaml {
        path: PathBuf,
        #[source]
        cause: serde_yaml::Error,
    },
    #[error("could not read the work tree")]
    WorkTree(#[source] super::work_tree::Error),
    #[cfg(feature = "dev")]
    #[error("could not use the snapshot")]
    Snapshot(#[from] super::dev::snapshot::Error),
    #[error("could not compute the changes")]
    NoPreview(#[from] mainstay_gitsync::NoPreview),
    #[error(
        "GitRepository {repository} is a local path of the agent's machine, as with `mainstay dev DIR`; this command \
         does not read it"
    )]
    PathOfAgent { repository: String },
    #[error("the files of {repository} are in the agent and in its registry; this command reads neither")]
    PreviewArtifact { repository: String },
    #[error("--output markdown needs a preview, such as with --path or --revision")]
    NoComment,
    #[error("could not read the manifests")]
    Manifests(#[source] mainstay_git::Error),
    #[error("could not find the revision")]
    Revision(#[source] mainstay_git::Error),
    #[error("there is no SSH key after {seconds} s: {missing}")]
    NoKey { missing: String, seconds: u64 },
    #[error("GitRepository {repository} does not use an SSH key")]
    NotKeyed { repository: String },
    #[error("several GitRepositories in the namespace {namespace} use an SSH key: {all}")]
    SeveralRepositories { namespace: String, all: String },
    #[error("the key in Secret {secret} was not made by the agent, so it is not replaced")]
    NotOurKey { secret: String },
    #[error("the SSH key cannot be used")]
    Key(#[source] mainstay_git::Error),
    #[error("{what} holds data that is not in base64")]
    NotBase64 { what: String },
    #[error("nothing was changed: Mainstay is not installed in the namespace {here}, but in {there}")]
    InstalledElsewhere { here: String, there: String },
    #[error("nothing was changed: not confirmed")]
    NotConfirmed,
    #[error("the delivery of events stopped")]
    Eventing(#[from] mainstay_eventing::Error),
    #[error("the console has no certificate")]
    Console(#[from] mainstay_console::CertificateError),
    #[error("could not deliver again")]
    Replay(#[from] mainstay_eventing::ReplayError),
    #[error("could not use the dead letters on NATS")]
    Letters(#[from] mainstay_eventing::LettersError),
    #[error("the agent stopped")]
    Agent(#[from] crate::agent::Error),
    #[cfg(feature = "dev")]
    #[error("a task panicked")]
    Task(#[source] tokio::task::JoinError),
    #[cfg(feature = "dev")]
    #[error(transparent)]
    Dev(#[from] super::dev::Error),
    #[cfg(feature = "dev")]
    #[error(transparent)]
    Bench(#[from] mainstay_bench::Error),
    #[error(transparent)]
    Function(#[from] super::function::error::Error),
    #[error(transparent)]
    Libraries(mainstay_function::runtimes::libraries::Error),
    #[error("{}", .0.message)]
    Build(mainstay_api::build::BuildFailure),
    #[error(transparent)]
    LocalDirectory(#[from] super::local_directory::Error),
    #[error("no agent has performed the request within {seconds} s")]
    NotAnswered { seconds: u64 },
}

impl Error {
    /// Returns a hint about how to fix the error, if there is one.
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::LocalDirectory(error) => error.hint(),
            Self::NotInstalled { .. } => Some("install it: mainstay install --git-url URL | kubectl apply -f -; or \
                                               only the CRDs: mainstay crd | kubectl apply -f -".into()),
            Self::NotAnObject { .. } => Some("as in: mainstay pause deploy/web, or: mainstay pause deploy web".into()),
            Self::NotAGitSync { what } => counterpart_hint(what).or_else(|| Some(format!("mainstay pause {what} stops the reverts of one object"))),
            Self::NoAgentPod { .. } => Some("--agent-namespace NS selects a different one".into()),
            Self::AgentOfDev => Some("RUST_LOG=info mainstay dev prints more of it".into()),
            Self::WatchSeveral => Some("as in: mainstay get gitsyncs --watch".into()),
            Self::SeveralKinds => Some("as in: mainstay get gitsyncs shop".into()),
            Self::NotManaged { .. } => Some("mainstay tree -A lists the objects of GitSyncs".into()),
            Self::UnknownKind(kind) => {
                counterpart_hint(kind).or_else(|| Some("kubectl api-resources lists the kinds".into()))
            }
            Self::Missing { .. } | Self::NoSync { namespace: Some(_) } => {
                Some("-n NAMESPACE looks in another namespace; mainstay status -A lists all GitSyncs".into())
            }
            Self::NoKey { .. } => Some("is an agent running in that namespace? its Lease: kubectl get lease -A".into()),
            Self::SeveralRepositories { .. } => Some("name one: mainstay identity NAME".into()),
            Self::NotKeyed { .. } => Some("its spec.auth needs `type: key` and the name of a Secret".into()),
            Self::NotOurKey { .. } => Some("put a new key into the Secret yourself".into()),
            Self::InstalledElsewhere { there, .. } => Some(format!("-n {there}")),
            Self::PathOfAgent { .. } => Some(
                "name the directory yourself: `mainstay diff NAME --path DIR` for its work tree, or `mainstay diff NAME --revision main \
                 --repository DIR` for a commit"
                    .into(),
            ),
            Self::PreviewArtifact { .. } => Some("unpack the artifact, and name its directory: `mainstay diff NAME --path DIR`".into()),
            Self::NoComment => Some("as in: mainstay diff NAME --path . --output markdown".into()),
            Self::NotConfirmed => Some("--yes confirms without a terminal".into()),
            Self::Install { what: "values", .. } => {
                Some("mainstay install --help; manifests/chart/values.yaml has all values".into())
            }
            Self::Install { .. } => Some("mainstay install --help".into()),
            Self::NotAnswered { .. } => Some("is an agent running? its Lease: kubectl get lease -A".into()),
            Self::Cluster(error) if matches!(*error.cause, mainstay_cluster::Cause::Configuration(_)) => {
                Some("select the cluster with --kubeconfig FILE or KUBECONFIG=FILE, and one of its contexts with \
                      --context NAME".into())
            }
            Self::Function(error) => error.hint().map(str::to_owned),
            #[cfg(feature = "dev")]
            Self::Dev(error) => error.hint(),
            _ => None,
        }
    }
}
