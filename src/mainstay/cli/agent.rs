//! `mainstay agent`: runs the agent, in a cluster or outside of one, until a signal or a failure.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use super::{
    Error, Exit, connection::Connection, environment::variables, exposure::Exposure, lease_identity::LeaseIdentity,
    local_directory, logs, stop,
};
use crate::{Component, Components, agent};
use loopback::Reach;
use mainstay_api::Span;
use mainstay_cluster::ServiceAccount;
use mainstay_cluster::listener::Limits;
use mainstay_cluster::liveness;
use mainstay_cluster::shards::MOST;
use mainstay_engine::notification::Emitter;
use mainstay_gitsync::receiver::BaseUrl;
use mainstay_manifest::render::Words;
use mainstay_object::names::DomainName;
use mainstay_traces::Endpoint;

/// Minimum and maximum audit interval. A shorter interval causes useless load, and a longer interval finds drift too
/// late.
const LEAST_INTERVAL: Duration = Duration::from_secs(60);
const MOST_INTERVAL: Duration = Duration::from_secs(168 * 3600);

/// Arguments of `agent`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// Namespace, besides the agent's own, whose GitSyncs may manage any object; may be repeated; by default none
    #[arg(long = "allow-namespace", value_name = "NS")]
    allow_namespaces: Vec<String>,
    /// ServiceAccount to impersonate for GitSyncs that name none, in the GitSync's namespace; not for the agent's own
    /// namespace and those of --allow-namespace. By default such GitSyncs use the agent's permissions, and may manage
    /// objects of their own namespace only
    #[arg(long, value_name = "NAME", value_parser = service_account)]
    default_service_account: Option<String>,
    /// Private network, such as 10.20.0.0/16, that repositories of tenants may use; may be repeated;
    /// by default none. Tenants are all namespaces but the agent's own and those of --allow-namespace
    #[arg(long = "allow-network", value_name = "CIDR")]
    allow_networks: Vec<mainstay_object::egress::Network>,
    /// Parts to run, separated by commas: sync, functions, eventing, exposure, console. By default all of them, each
    /// as soon as its definitions exist. `eventing` and `console` are processes of their own
    #[arg(long, value_name = "NAMES", value_enum, value_delimiter = ',')]
    components: Vec<Component>,
    /// Permissions of the agent. With `restricted`, each GitSync must name a ServiceAccount, because the agent itself
    /// may not apply objects
    #[arg(long, value_name = "PROFILE", value_enum, default_value = "full")]
    profile: agent::Profile,
    /// Namespaces, besides its own, that the agent lists and watches, separated by commas; by default all
    #[arg(long, value_name = "NS", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// Address for /healthz, /readyz and /metrics, such as 0.0.0.0:8080; by default none
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Address for the webhooks of Receivers, such as 0.0.0.0:9292; by default none
    #[arg(long, value_name = "ADDR")]
    receive: Option<SocketAddr>,
    /// URL at which Git hosts reach the address of --receive, such as https://hooks.example.com; shown in the status of
    /// Receivers
    #[arg(long, value_name = "URL", env = "MAINSTAY_RECEIVER_URL", requires = "receive")]
    receiver_url: Option<BaseUrl>,
    /// Address for the API server's admission webhooks over HTTPS, such as 0.0.0.0:9443; by default none
    #[arg(long, value_name = "ADDR")]
    admit: Option<SocketAddr>,
    /// PEM file with the CA bundle of the API servers' client certificates; admission webhooks then refuse all other
    /// clients. By default no client certificate is required
    #[arg(long, value_name = "FILE", requires = "admit")]
    admit_client_ca: Option<PathBuf>,
    /// Directory of the Git mirrors; only this process may write to it
    #[arg(long, value_name = "DIR", default_value = local_directory::AGENT)]
    data: PathBuf,
    /// Maximum total size of Git mirrors, such as 900Mi or 5Gi; the least recently used are evicted. Leave 256Mi of the
    /// volume free for unpacking
    #[arg(long, value_name = "SIZE", default_value = "1792Mi", value_parser = bytes)]
    mirror_budget: u64,
    /// Memory of the agent, such as 160Mi, or in bytes. Three tenths are for the objects of GitSyncs, inventories and
    /// sources of Functions; anything beyond that is refused with a message
    #[arg(long, value_name = "SIZE", env = "MAINSTAY_MEMORY", default_value = "160Mi", value_parser = memory)]
    memory: usize,
    /// Identity of this agent in the Lease, unique among processes, such as the pod's uid; by default one stored in the
    /// data directory
    #[arg(long, value_name = "NAME", env = "MAINSTAY_IDENTITY")]
    identity: Option<String>,
    /// Name of the agent's own pod; it is labelled while the agent leads, so that it gets the deliveries to Receivers
    #[arg(long, value_name = "NAME", env = "MAINSTAY_POD")]
    pod: Option<String>,
    /// Number of agents that share the GitSyncs, from 1 to 64; each of them needs the same number. By default one agent
    /// looks after all GitSyncs, and others stand by
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST)))]
    shards: Option<u8>,
    /// Directory shared with `mainstay renderer`, which renders kustomizations and charts; by default the agent renders
    /// them with the tools on the PATH
    #[arg(long, value_name = "DIR", env = "MAINSTAY_RENDERER")]
    renderer: Option<PathBuf>,
    /// Interval at which each managed object is audited by a dry run of its apply, such as 1h; finds drift that no watch
    /// has shown. From 1m to 168h; 0 turns it off
    #[arg(long, value_name = "DURATION", env = "MAINSTAY_AUDIT_INTERVAL", default_value = "1h", value_parser = audit_interval)]
    audit_interval: Duration,
    /// Default domain of APIRules, such as example.com; completes hosts without a dot, and permits hosts below it
    #[arg(long, value_name = "DOMAIN", env = "MAINSTAY_DEFAULT_DOMAIN", value_parser = DomainName::parse)]
    default_domain: Option<DomainName>,
    #[command(flatten)]
    exposure: Exposure,
    /// URL of an OpenTelemetry collector, such as http://collector.monitoring:4318, for traces of commits, reverts and
    /// builds over HTTP; by default none. Other variables OTEL_* set headers, resource attributes and sampling
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    otlp_endpoint: Option<String>,
    /// URL to which traces are sent as it is, such as http://collector.monitoring:4318/v1/traces, instead of --otlp-endpoint
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")]
    otlp_traces_endpoint: Option<String>,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    log_format: logs::Format,
    /// Also read repositories of the local file system, for tests and measurements
    #[arg(long, hide = true)]
    allow_local: bool,
}

/// Returns the address of the collector. An empty variable counts as absent, as OpenTelemetry specifies.
fn endpoint(arguments: &Arguments) -> Option<Endpoint<'_>> {
    let [traces, collector] = [&arguments.otlp_traces_endpoint, &arguments.otlp_endpoint]
        .map(|url| url.as_deref().filter(|url| !url.is_empty()));
    traces.map(Endpoint::Traces).or_else(|| collector.map(Endpoint::Collector))
}

pub(super) async fn run(arguments: Arguments) -> Result<Exit, Error> {
    logs::start(arguments.log_format, "info");
    local_directory::check(&arguments.data)?;
    let _exporting = endpoint(&arguments).map(mainstay_traces::start).transpose().map_err(Error::Traces)?;
    // Invalid variables are reported before any part starts.
    let base = arguments.receiver_url.unwrap_or(BaseUrl::Unknown);
    let receive = arguments.receive.map(|address| agent::Receive::bind(address, Reach::Anyone, base)).transpose()?;
    let bind = |address| agent::Admit::bind(address, Reach::Anyone);
    let mut admit = arguments.admit.map(bind).transpose()?;
    if let (Some(admit), Some(file)) = (&mut admit, arguments.admit_client_ca) {
        admit.client_authorities = Some(authorities(&file)?);
    }
    let functions = mainstay_function::Settings::from_env(mainstay_function::Settings::default(), variables())
        .map_err(Error::Settings)?;
    let components = components(&arguments.components)?;
    let stop = stop::on_signal()?;
    let cluster = arguments.connection.connect().await?;
    let identity = arguments.identity.map_or_else(|| LeaseIdentity::of(&arguments.data), LeaseIdentity::given);
    let mut source = mainstay_git::Settings::new(arguments.data);
    source.allow_local = arguments.allow_local;
    source.budget = arguments.mirror_budget;
    source.egress.allowed = arguments.allow_networks;
    source.egress.proxies = mainstay_object::egress::proxy_hosts(variables());
    source.clouds.environment =
        variables().filter(|(name, _)| mainstay_git::CLOUD_VARIABLES.contains(&name.as_str())).collect();
    let settings = agent::Settings {
        namespace: arguments.connection.namespace(&cluster),
        allow_namespaces: arguments.allow_namespaces,
        default_service_account: arguments.default_service_account,
        identity: identity.name().to_owned(),
        pod: arguments.pod,
        listen: arguments.listen,
        receive,
        admit,
        limits: Limits::default(),
        source,
        functions,
        components,
        profile: arguments.profile,
        namespaces: arguments.namespaces,
        exposure: arguments.exposure.settings(arguments.default_domain),
        elect: true,
        shards: arguments.shards,
        timing: mainstay_cluster::Timing::default(),
        stuck_after: liveness::STUCK_AFTER,
        memory: arguments.memory,
        nudge: agent::Nudge::default(),
        audit: arguments.audit_interval,
        renderer: arguments.renderer,
        words: Words::Reduced,
    };
    agent::run(settings, cluster, Emitter::default(), stop).await?;
    Ok(Exit::Fine)
}

/// Returns the chosen components; all components if none is specified.
pub(super) fn components(chosen: &[Component]) -> Result<Components, Error> {
    if chosen.is_empty() {
        return Ok(Components::default());
    }
    Components::of(chosen).map_err(Error::Components)
}

/// Reads at least one certificate from a PEM file.
fn authorities(file: &Path) -> Result<Arc<RootCertStore>, Error> {
    let failed = |cause: std::io::Error| Error::ClientAuthorities { path: file.to_owned(), cause };
    let wrong = |why: String| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, why));
    let mut authorities = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        authorities.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if authorities.is_empty() {
        return Err(wrong("it has no certificate".to_owned()));
    }
    Ok(Arc::new(authorities))
}

/// Parses the name of a ServiceAccount.
fn service_account(text: &str) -> Result<String, String> {
    let is_name = ServiceAccount::new("default", text).is_some();
    if is_name { Ok(text.to_owned()) } else { Err("write lower case letters, digits, - and .".to_owned()) }
}

/// Parses a duration such as `1h`, or `0`.
fn audit_interval(text: &str) -> Result<Duration, String> {
    let read = if text == "0" { Ok(Duration::ZERO) } else { text.parse::<Span>().map(|span| span.0) };
    match read {
        Ok(interval) if interval.is_zero() || (LEAST_INTERVAL..=MOST_INTERVAL).contains(&interval) => Ok(interval),
        Ok(_) => Err("write at least 1m and at most 168h, or 0 to turn it off".to_owned()),
        Err(error) => Err(format!("{error}; write a time such as 1h, or 0 to turn it off")),
    }
}

/// Parses a size such as `900Mi` or `5Gi`. Returns it in bytes.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40)];
    let read = units.iter().find_map(|(unit, bits)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(1 << bits)
    });
    read.filter(|bytes| *bytes > 0).ok_or_else(|| "write a size such as 900Mi or 5Gi".to_owned())
}

/// Parses a size such as `900Mi`, or a number of bytes, as in a container's resource fields.
fn memory(text: &str) -> Result<usize, String> {
    let read = text.parse().or_else(|_| bytes(text))?;
    usize::try_from(read).map_err(|_| "write a size such as 160Mi".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_time_in_which_everything_is_audited() {
        for (text, expected) in [("1h", 3600), ("1m", 60), ("168h", 604_800), ("0", 0), ("0s", 0)] {
            assert_eq!(audit_interval(text), Ok(Duration::from_secs(expected)), "{text}");
        }
        assert_eq!(audit_interval("1s").unwrap_err(), "write at least 1m and at most 168h, or 0 to turn it off");
        for text in ["", "1", "-1h", "169h", "hourly"] {
            assert!(audit_interval(text).unwrap_err().contains("0 to turn it off"), "{text}");
        }
    }

    #[test]
    fn reads_sizes() {
        for (text, expected) in [("1Ki", Some(1 << 10)), ("1792Mi", Some(1792 << 20)), ("5Gi", Some(5 << 30))] {
            assert_eq!(bytes(text).ok(), expected, "{text}");
        }
        for text in ["", "5", "0Gi", "-1Gi", "1.5Gi", "5 Gi", "5GB", "99999999999Ti"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!((memory("167772160"), memory("160Mi")), (Ok(160 << 20), Ok(160 << 20)));
        assert!(memory("much").is_err());
    }
}
