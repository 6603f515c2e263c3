//! `mainstay console`: the web page, for all users of a cluster.
//!
//! Invariant: requests to the API server carry the token of a user. The process has no credentials of its own.
//! Invariant: no object of a cluster decides where the process connects, because tenants write objects.
//!
//! Not here: the pages, sessions, and their security (`mainstay_console`).

use std::{net::SocketAddr, path::PathBuf};

use http::Uri;

use super::{Error, Exit, connection::ClusterArguments, logs, output, stop, tree::RemoteClusters, ui};
use loopback::{Listener, Reach};
use mainstay_cluster::ApiServer;
use mainstay_console::{Certificate, Console, IssuerAddress, IssuerSettings, Settings, Users, WebOrigin};

/// Arguments of `console`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Address at which browsers or the proxy connect
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// URL that users open, such as https://console.example.com; may be repeated. Requests for another host are refused
    #[arg(long = "url", value_name = "URL", default_values = ["http://mainstay-console.localhost:8080", "http://localhost:8080"])]
    urls: Vec<WebOrigin>,
    /// Directory with tls.crt and tls.key, which are read again when they change; without it, a proxy terminates TLS
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
    /// Origin of a user's token
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    sign_in: SignIn,
    /// URL of the API server; by default that of the kubeconfig, whose credentials are not used
    #[arg(long, value_name = "URL", conflicts_with_all = ["kubeconfig", "context", "cluster"])]
    server: Option<Uri>,
    /// CA bundle of the API server; by default that of the machine
    #[arg(long, value_name = "FILE", requires = "server")]
    certificate_authority: Option<PathBuf>,
    /// Name of the cluster on each page; by default the host of --server, or the context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    cluster_name: Option<String>,
    /// Namespace to show to users who may not list objects in all namespaces, until they select another one
    #[arg(short, long, value_name = "NS", default_value = "default")]
    namespace: String,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    log_format: logs::Format,
    #[command(flatten)]
    oidc: Oidc,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// The origin of a user's token.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default)]
enum SignIn {
    /// The user pastes it into a form
    #[default]
    Form,
    /// A proxy in front sends it with each request, as `Authorization: Bearer`
    Proxy,
    /// An issuer of OpenID Connect signs the user in; the API server must trust the same issuer
    Oidc,
}

/// The issuer of `--sign-in oidc`.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "OpenID Connect")]
#[expect(clippy::struct_field_names, reason = "the names of the flags follow from those of the fields")]
struct Oidc {
    /// URL of the issuer, exactly as in the settings of the API server
    #[arg(long, value_name = "URL", required_if_eq("sign_in", "oidc"))]
    oidc_issuer: Option<IssuerAddress>,
    /// ID of the client at the issuer, which is the audience of its ID tokens. Its redirect URL is the URL of the page
    /// with the path /sign-in/callback
    #[arg(long, value_name = "ID", required_if_eq("sign_in", "oidc"))]
    oidc_client_id: Option<String>,
    /// Scope to request beside `openid`, such as email or groups; may be repeated
    #[arg(long = "oidc-scope", value_name = "SCOPE", requires = "oidc_issuer")]
    oidc_scopes: Vec<String>,
    /// Directory with the files client-secret and ca.crt, both optional. They are read again when they change; without
    /// the latter, the issuer's certificate is verified with the CA bundle of the machine
    #[arg(long, value_name = "DIR", requires = "oidc_issuer")]
    oidc_credentials: Option<PathBuf>,
}

impl Oidc {
    /// Returns the settings, if there are the two that `--sign-in oidc` requires.
    fn settings(&self) -> Option<IssuerSettings> {
        Some(IssuerSettings {
            url: self.oidc_issuer.clone()?,
            client_id: self.oidc_client_id.clone()?,
            scopes: self.oidc_scopes.clone(),
            credentials: self.oidc_credentials.clone(),
        })
    }
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    logs::start(arguments.log_format, "info");
    let stop = stop::on_signal()?;
    let server = server(arguments).await?;
    let certificate = arguments.tls.as_deref().map(Certificate::read).transpose()?;
    let address = arguments.listen;
    let listen = |cause| Error::Listen { address, cause };
    // Clients without the proxy gain nothing, because each request needs a token of the cluster.
    let listener = Listener::bind(address, Reach::Anyone).map_err(listen)?;
    let bound = listener.local_addr().map_err(listen)?;
    let urls = arguments.urls.clone();
    let users = match (arguments.sign_in, arguments.oidc.settings()) {
        (SignIn::Oidc, Some(issuer)) => Users::Issuer(server, urls, issuer),
        (SignIn::Form | SignIn::Oidc, _) => Users::Tokens(server, urls),
        (SignIn::Proxy, _) => Users::Proxy(server, urls),
    };
    let cluster_name = cluster_name(arguments);
    let readers = ui::readers(None, RemoteClusters::Omit);
    let settings = Settings { users, cluster_name, namespace: arguments.namespace.clone(), readers };
    let console = Console::new(settings, listener, stop).map_err(listen)?;
    tracing::info!(address = %bound, "the console accepts connections");
    if arguments.log_format == logs::Format::Text {
        output::print(&format!("Listening at {bound}\n"))?;
    }
    console.serve(certificate).await;
    Ok(Exit::Fine)
}

/// Returns the name in the flag, the host of the API server, or the context of the kubeconfig. The host that pods use has
/// the same name in all clusters, so it is left out.
fn cluster_name(arguments: &Arguments) -> String {
    match (&arguments.cluster_name, &arguments.server) {
        (Some(name), _) => name.clone(),
        (None, Some(url)) => {
            url.host().filter(|host| !host.starts_with("kubernetes.default")).unwrap_or_default().to_owned()
        }
        (None, None) => arguments.cluster.origin().context_name().unwrap_or_default(),
    }
}

async fn server(arguments: &Arguments) -> Result<ApiServer, Error> {
    let Some(url) = &arguments.server else { return Ok(ApiServer::from_origin(&arguments.cluster.origin()).await?) };
    let read = |path: &PathBuf| std::fs::read(path).map_err(|cause| Error::ReadFile { path: path.clone(), cause });
    let authorities = arguments.certificate_authority.as_ref().map(read).transpose()?;
    Ok(ApiServer::at(url, authorities.as_deref())?)
}
