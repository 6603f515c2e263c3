//! The embedded cluster on a socket, with a node, an image registry and a kubeconfig.

use std::{
    env, fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use devcluster::{FrontOptions, Gateway, NodeOptions, Options, RegistryOptions, Serving, Simulation};
use serde_json::Value;

use super::{Error, issue, kubeconfig};
use crate::cli::dev_run::DevRun;
use crate::cli::private_directory;
use mainstay_api::build::TERMINATION_LOG_ENV;
use mainstay_function::admission::{Version, convert};
use mainstay_function::runtimes::{SOCKET_ENV, libraries};

/// Image with the programs of this machine, including this one.
pub(in crate::cli) const BUILDER: &str = "mainstay.localhost/builder:dev";
/// Default ports of the gateway.
const GATEWAY_PORT: u16 = 8080;
const SECURE_PORT: u16 = 8443;
/// File with the gateway's CA certificate for clients, beside the kubeconfig.
const AUTHORITY: &str = "gateway-ca.pem";
/// Port of the Functions' servers.
const FUNCTION_PORT: u16 = 8080;
/// The build container that reports the image.
const PUSH: &str = "push";

/// How pods of Functions run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodMode {
    /// As processes of the current user.
    Processes,
    /// Simulated, like the builds.
    Simulated,
}

/// A running cluster. It stops when this is dropped.
pub(super) struct Embedded {
    pub(super) serving: Serving,
    pub(super) server: devcluster::Cluster,
    /// The gateway, which serves the hosts of APIRules.
    pub(super) gateway: Gateway,
    /// The gateway's HTTPS address, and the file with its CA certificate for clients.
    pub(super) secure: SocketAddr,
    pub(super) authority: PathBuf,
    _directory: Option<tempfile::TempDir>,
    _sockets: tempfile::TempDir,
    /// Open files, which are held so that no other run overwrites them.
    _kubeconfig: fs::File,
    _authority: fs::File,
}

/// The options of the cluster.
pub(super) struct EmbeddedOptions<'a> {
    pub(super) listen: SocketAddr,
    /// Address of the gateway; with `None`, the default port, or a free port if the default is in use.
    pub(super) gateway: Option<SocketAddr>,
    /// Address of the gateway for HTTPS; `None` has the same meaning.
    pub(super) secure: Option<SocketAddr>,
    /// Token issuers in the cluster and on this machine that the gateway may contact.
    pub(super) issuers: &'a [String],
    pub(super) token: &'a str,
    pub(super) kubeconfig: &'a Path,
    /// The facts that other commands read from the kubeconfig.
    pub(super) run: &'a DevRun,
    pub(super) pods: PodMode,
    /// Whether RBAC is enforced.
    pub(super) rbac: bool,
    /// Whether Knative Serving is installed.
    pub(super) knative: bool,
    /// Why webhooks with URLs are not called, except those of the agent.
    pub(super) refused_webhooks: Option<&'static str>,
    /// Directory of pods and images; `None` selects a temporary directory.
    pub(super) directory: Option<&'a Path>,
}

/// Starts a new, empty cluster.
pub(super) async fn start(arguments: EmbeddedOptions<'_>) -> Result<Embedded, Error> {
    let EmbeddedOptions { listen, gateway, secure, issuers, token, kubeconfig, run, pods, .. } = arguments;
    let EmbeddedOptions { rbac, knative, refused_webhooks, directory, .. } = arguments;
    let (path, held) = if let Some(path) = directory {
        (path.to_owned(), None)
    } else {
        let held = private_directory::create().map_err(|cause| Error::Write { path: env::temp_dir(), cause })?;
        (held.path().to_owned(), Some(held))
    };
    // A temporary directory is used, because the paths of sockets must be short.
    let sockets = private_directory::create().map_err(|cause| Error::Write { path: env::temp_dir(), cause })?;
    let options = options(&path, sockets.path(), pods).map_err(|cause| Error::Write { path, cause })?;
    let server =
        devcluster::Cluster::new(Options { rbac, knative, converter: Some(converted), refused_webhooks, ..options });
    if knative {
        server.install_knative().map_err(|status| Error::Knative(status.message))?;
    }
    if pods == PodMode::Simulated {
        let message = Some(r#"{"digest":"{digest}"}"#.to_owned());
        let built = Simulation { exit_code: 0, termination_message: message, after: Duration::from_millis(200) };
        server.simulate_container(BUILDER, PUSH, built);
    }
    // The controllers stop only when the process ends.
    drop(server.start_controllers());
    let serving = server.serve(listen, Some(token.to_owned())).await;
    let serving = serving.map_err(|cause| Error::Serve { listen, cause })?;
    let mut gateway = gateway_at(&server, gateway, issuers, kubeconfig).await?;
    let (secure, certificate) = secure_at(&mut gateway, secure).await?;
    let text = run.add(&serving.kubeconfig(Some(token)));
    let authority = kubeconfig.with_file_name(AUTHORITY);
    let kubeconfig = kubeconfig::write(kubeconfig, &text).map_err(Error::Kubeconfig)?;
    // The same rules as for the kubeconfig apply.
    let held_authority = kubeconfig::write(&authority, &certificate).map_err(Error::Authority)?;
    Ok(Embedded {
        serving,
        server,
        gateway,
        secure,
        authority,
        _directory: held,
        _sockets: sockets,
        _kubeconfig: kubeconfig,
        _authority: held_authority,
    })
}

/// Starts the gateway for hosts of APIRules, with the token issuer whose key is beside the kubeconfig.
async fn gateway_at(
    server: &devcluster::Cluster,
    named: Option<SocketAddr>,
    issuers: &[String],
    kubeconfig: &Path,
) -> Result<Gateway, Error> {
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, GATEWAY_PORT));
    let address = named.unwrap_or(usual);
    let issuer = || issue::beside(kubeconfig).map_err(Error::Issuer);
    let served = match Gateway::start_with(server, address, Some(issuer()?), issuers).await {
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::AddrInUse => {
            Gateway::start_with(server, free(), Some(issuer()?), issuers).await
        }
        served => served,
    };
    served.map_err(|cause| Error::Gateway { address, cause })
}

/// Adds HTTPS to the gateway.
async fn secure_at(gateway: &mut Gateway, named: Option<SocketAddr>) -> Result<(SocketAddr, String), Error> {
    let address = named.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, SECURE_PORT)));
    let served = match gateway.secure(address).await {
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::AddrInUse => gateway.secure(free()).await,
        served => served,
    };
    served.map_err(|cause| Error::Gateway { address, cause })
}

fn free() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// Converts Functions, as the agent's webhook does in other clusters.
fn converted(object: &mut Value, to: &str) {
    if let Some(version) = Version::of(to) {
        convert(object, version);
    }
}

fn options(directory: &Path, sockets: &Path, pods: PodMode) -> io::Result<Options> {
    let mut options = Options { mark_simulated: true, ..Options::default() };
    if pods == PodMode::Simulated {
        return Ok(options);
    }
    let images = directory.join("images");
    if let Err(error) = fs::remove_dir_all(&images)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    fs::create_dir_all(&images)?;
    let own: PathBuf = env::current_exe()?;
    let mut node = NodeOptions::new(std::path::absolute(directory.join("node"))?)
        .host_image(BUILDER, [("mainstay".to_owned(), own)]);
    let libraries = std::path::absolute(libraries::place(env::var_os(libraries::VARIABLE).map(PathBuf::from)))?;
    node.host_env = vec![(libraries::VARIABLE.to_owned(), libraries.to_string_lossy().into_owned())];
    let variables = [
        ("FUNC_HOST", "{podIP}"),
        // No delay is needed, because the cluster's proxy notices terminating pods immediately.
        ("FUNC_DRAIN_DELAY", "0"),
        (TERMINATION_LOG_ENV, "{terminationLog}"),
        // The install script needs the path of its mount, because paths in scripts are not rewritten.
        ("MAINSTAY_PACKAGE_REGISTRY", "/package-registry"),
    ];
    node.env = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let (variable, directory) = (SOCKET_ENV.to_owned(), sockets.to_owned());
    node.front = Some(FrontOptions { variable, port: FUNCTION_PORT, directory });
    options.node = Some(node);
    options.registry = Some(RegistryOptions { directory: images });
    Ok(options)
}
