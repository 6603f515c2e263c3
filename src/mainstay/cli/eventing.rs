//! `mainstay eventing`: the process that accepts and delivers events, and the list of undeliverable ones.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};

use super::{Error, Exit, connection::Connection, local_directory, logs, output::OutputArgument, stop};
use loopback::{Reach, Reserved};
use mainstay_eventing::{Resolve, SubscriberId};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Accept events over HTTP, and deliver them to the Services of Triggers and Subscriptions
    Run(Box<RunArguments>),
    /// List the events that could not be delivered; json and yaml include their data in base64
    DeadLetters(ListArguments),
    /// Deliver these events to a subscriber again, through the running process
    Replay(ReplayArguments),
}

#[derive(Args, Debug)]
struct RunArguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    data: DataArgument,
    #[command(flatten)]
    nats: NatsArguments,
    /// Maximum size of the pending events of one namespace on NATS, such as 64Mi; beyond it, its events are refused
    /// with 507
    #[arg(long, value_name = "SIZE", default_value = "64Mi", value_parser = super::agent::bytes)]
    nats_share: u64,
    /// Copies of each stream, on servers of a NATS cluster
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=5))]
    nats_replicas: u8,
    /// Part of the work of this process, with NATS. Each part can have any number of processes. By default both
    #[arg(long, value_name = "ROLE", value_enum, requires = "nats_url")]
    role: Option<Role>,
    /// Address at which events are accepted, and probes are answered
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// Address at which metrics for Prometheus are served, at /metrics; by default none
    #[arg(long, value_name = "ADDR")]
    metrics_listen: Option<SocketAddr>,
    /// Maximum size of pending events on disk, such as 256Mi; beyond it, events are refused with 507
    #[arg(long, value_name = "SIZE", default_value = "256Mi", value_parser = super::agent::bytes)]
    budget: u64,
    /// Address of a Service, for use outside of a cluster, such as team/web:80=127.0.0.1:8081; may be repeated. Other
    /// Services are then not reached
    #[arg(long = "service", value_name = "NS/NAME:PORT=ADDR", value_parser = service)]
    services: Vec<(Service, SocketAddr)>,
    /// Who may publish at the endpoints that name a namespace
    #[arg(long, value_name = "WHO", value_enum, default_value_t)]
    publisher_auth: PublisherAuth,
    /// Namespace whose ServiceAccounts may publish for another one, such as team=shop; may be repeated; by default none.
    /// `*` is any namespace
    #[arg(long = "allow-publishers", value_name = "ACCOUNTS=NS")]
    publishers: Vec<mainstay_eventing::Grant>,
    /// Namespace whose Triggers and Subscriptions receive the events of another one, such as team=shop; may be
    /// repeated; by default none. `*` is any namespace, and kyma-system stands for events that name none, as on
    /// /publish
    #[arg(long = "allow-subscriptions", value_name = "SUBSCRIBERS=PUBLISHERS")]
    grants: Vec<mainstay_eventing::Grant>,
    /// Namespace, or *, in which the Service of a subscriber may have no selector; may be repeated; by default none.
    /// Authors of its endpoints can send the events to any address
    #[arg(long = "allow-written-endpoints", value_name = "NS")]
    written_endpoints: Vec<String>,
    /// Name of this process in Events, such as the name of its pod
    #[arg(long, value_name = "NAME", env = "MAINSTAY_POD", default_value = "mainstay-eventing")]
    instance: String,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    log_format: logs::Format,
}

/// Who may publish at the endpoints that name a namespace. Kyma's endpoints, such as `/publish`, ask for no token.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default)]
enum PublisherAuth {
    /// ServiceAccounts of that namespace, with a token for the audience mainstay-eventing
    #[default]
    Token,
    /// Every client, without a token
    None,
}

/// Part of the work.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Role {
    /// Accept events
    Publisher,
    /// Deliver events, and write the statuses of Triggers and Subscriptions
    Dispatcher,
}

/// Where NATS is.
#[derive(Args, Debug)]
struct NatsArguments {
    /// Address of NATS with JetStream, such as tls://nats.messaging:4222; separate several servers by commas. It then
    /// stores the events, instead of --data
    #[arg(long, value_name = "URL", env = "MAINSTAY_NATS_URL")]
    nats_url: Option<String>,
    /// Directory with the login for NATS: nats.creds, or token, or username and password; and ca.crt, or tls.crt and
    /// tls.key
    #[arg(long, value_name = "DIR", env = "MAINSTAY_NATS_CREDENTIALS", requires = "nats_url")]
    nats_credentials: Option<PathBuf>,
}

impl NatsArguments {
    fn nats(self) -> Option<mainstay_eventing::Nats> {
        let Self { nats_url, nats_credentials } = self;
        nats_url.map(|url| mainstay_eventing::Nats { url, credentials: nats_credentials })
    }
}

#[derive(Args, Debug)]
struct DataArgument {
    /// Directory of pending events, and of those that could not be delivered
    #[arg(long, value_name = "DIR", env = "MAINSTAY_EVENTING_DATA", default_value = local_directory::EVENTING)]
    data: PathBuf,
}

#[derive(Args, Debug)]
struct ListArguments {
    #[command(flatten)]
    data: DataArgument,
    #[command(flatten)]
    nats: NatsArguments,
    /// Subscriber whose events are listed, such as trigger/team/mine; by default all
    #[arg(value_name = "SUBSCRIBER", value_parser = subscriber)]
    subscriber: Option<SubscriberId>,
    #[command(flatten)]
    output: OutputArgument,
}

#[derive(Args, Debug)]
struct ReplayArguments {
    #[command(flatten)]
    data: DataArgument,
    #[command(flatten)]
    nats: NatsArguments,
    /// Subscriber, such as trigger/team/mine or subscription/team/mine
    #[arg(value_name = "SUBSCRIBER", value_parser = subscriber)]
    subscriber: SubscriberId,
}

/// Namespace, name and port.
type Service = (String, String, u16);

pub(super) async fn run(arguments: Arguments) -> Result<Exit, Error> {
    let data = match &arguments.what {
        What::Run(arguments) => &arguments.data,
        What::DeadLetters(arguments) => &arguments.data,
        What::Replay(arguments) => &arguments.data,
    };
    local_directory::check(&data.data)?;
    match arguments.what {
        What::Run(arguments) => serve(*arguments).await,
        What::DeadLetters(arguments) => list(arguments).await,
        What::Replay(arguments) => {
            let to = &arguments.subscriber;
            let number = match arguments.nats.nats() {
                Some(nats) => mainstay_eventing::replay_on(&nats, to).await?,
                None => mainstay_eventing::replay(&arguments.data.data, to).await?,
            };
            super::output::print(&format!("{number} delivered again to {}\n", arguments.subscriber))?;
            Ok(Exit::Fine)
        }
    }
}

async fn serve(arguments: RunArguments) -> Result<Exit, Error> {
    logs::start(arguments.log_format, "info");
    let stop = stop::on_signal()?;
    let listener = Reserved::bind(arguments.listen, Reach::Anyone)
        .map_err(|cause| mainstay_eventing::Error::Io { what: "the address of --listen", cause })?;
    let metrics = arguments.metrics_listen.map(|address| Reserved::bind(address, Reach::Anyone)).transpose();
    let metrics =
        metrics.map_err(|cause| mainstay_eventing::Error::Io { what: "the address of --metrics-listen", cause })?;
    let cluster = arguments.connection.connect().await?;
    let limits =
        mainstay_eventing::Limits { share: arguments.nats_share, replicas: usize::from(arguments.nats_replicas) };
    let settings = mainstay_eventing::Settings {
        data: arguments.data.data,
        budget: arguments.budget,
        nats: arguments.nats.nats().map(|nats| mainstay_eventing::OnNats { nats, limits }),
        listener,
        metrics,
        resolve: resolve(arguments.services),
        publishers: match arguments.publisher_auth {
            PublisherAuth::Token => mainstay_eventing::PublisherAuth::Accounts(arguments.publishers),
            PublisherAuth::None => mainstay_eventing::PublisherAuth::Anyone,
        },
        grants: arguments.grants,
        written_endpoints: arguments.written_endpoints,
        instance: arguments.instance,
        role: match arguments.role {
            None => mainstay_eventing::Role::Whole,
            Some(Role::Publisher) => mainstay_eventing::Role::Publisher,
            Some(Role::Dispatcher) => mainstay_eventing::Role::Dispatcher,
        },
    };
    mainstay_eventing::run(settings, cluster, stop).await?;
    Ok(Exit::Fine)
}

fn resolve(services: Vec<(Service, SocketAddr)>) -> Option<Resolve> {
    if services.is_empty() {
        return None;
    }
    let services: BTreeMap<Service, SocketAddr> = services.into_iter().collect();
    Some(Arc::new(move |namespace, name, port| {
        services.get(&(namespace.to_owned(), name.to_owned(), port)).copied().into_iter().collect()
    }))
}

async fn list(arguments: ListArguments) -> Result<Exit, Error> {
    let path = &arguments.data.data;
    let all = match arguments.nats.nats() {
        Some(nats) => mainstay_eventing::dead_letters_on(&nats).await?,
        None => mainstay_eventing::dead_letters(path).map_err(|cause| Error::ReadFile { path: path.clone(), cause })?,
    };
    let wanted = arguments.subscriber.as_ref().map(ToString::to_string);
    let all: Vec<_> =
        all.into_iter().filter(|letter| wanted.as_ref().is_none_or(|wanted| letter.subscriber == *wanted)).collect();
    let facts = serde_json::to_value(&all).map_err(Error::WriteJson)?;
    let text = || {
        let attribute = |letter: &mainstay_eventing::DeadLetter, name: &str| {
            letter.attributes.get(name).cloned().unwrap_or_default()
        };
        let line = |letter: &mainstay_eventing::DeadLetter| {
            let (id, of) = (attribute(letter, "id"), attribute(letter, "type"));
            let text = format!("{}  {}  {id}  {of}  {}", letter.time, letter.subscriber, letter.reason);
            format!("{}\n", mainstay_object::printable(&text))
        };
        all.iter().map(line).collect()
    };
    arguments.output.print(&facts, text)?;
    Ok(Exit::Fine)
}

fn subscriber(text: &str) -> Result<SubscriberId, String> {
    SubscriberId::parse(text).ok_or_else(|| "write trigger/NAMESPACE/NAME or subscription/NAMESPACE/NAME".to_owned())
}

fn service(text: &str) -> Result<(Service, SocketAddr), String> {
    let read = || {
        let (service, address) = text.split_once('=')?;
        let (namespace, rest) = service.split_once('/')?;
        let (name, port) = rest.split_once(':')?;
        Some(((namespace.to_owned(), name.to_owned(), port.parse().ok()?), address.parse().ok()?))
    };
    read().ok_or_else(|| "write NAMESPACE/NAME:PORT=ADDRESS:PORT, such as team/web:80=127.0.0.1:8081".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_where_a_service_is() {
        let read = service("team/web:80=127.0.0.1:8081").unwrap();
        assert_eq!(read, (("team".into(), "web".into(), 80), "127.0.0.1:8081".parse().unwrap()));
        for text in ["", "web:80=127.0.0.1:1", "team/web=127.0.0.1:1", "team/web:80", "team/web:80=here"] {
            assert!(service(text).unwrap_err().contains("such as"), "{text}");
        }
    }
}
