//! The flags for events on NATS.

/// The flags for events on NATS.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Events on NATS")]
pub(super) struct EventFlags {
    /// `embedded` installs a NATS that stores events instead of a volume: --nats-replicas servers, with TLS, and a login
    /// that the agent makes. For the component eventing
    #[arg(long, value_name = "embedded")]
    pub(super) nats: Option<String>,
    /// Image of the servers of --nats embedded, with its digest; by default NATS's own, by the digest that this version
    /// was released with
    #[arg(long, value_name = "IMAGE@DIGEST")]
    pub(super) nats_image: Option<String>,
    /// Address of an existing NATS with JetStream that stores events instead of a volume, such as
    /// tls://nats.messaging:4222; separate several servers by commas. For the component eventing
    #[arg(long, value_name = "URL")]
    pub(super) nats_url: Option<String>,
    /// Secret in kyma-system with the login for NATS: nats.creds, or token, or username and password; and ca.crt, or
    /// tls.crt and tls.key
    #[arg(long, value_name = "SECRET")]
    pub(super) nats_credentials: Option<String>,
    /// Maximum size of the pending events of one namespace on NATS [default: 64Mi]
    #[arg(long, value_name = "SIZE")]
    pub(super) nats_share: Option<String>,
    /// Copies of each stream, on servers of a NATS cluster [default: 1]. With --nats embedded also the number of servers:
    /// 1 or 3
    #[arg(long, value_name = "NUMBER")]
    pub(super) nats_replicas: Option<u32>,
    /// Number of processes that accept events [default: 2]
    #[arg(long, value_name = "NUMBER")]
    pub(super) event_publishers: Option<u32>,
    /// Number of processes that deliver events [default: 2]
    #[arg(long, value_name = "NUMBER")]
    pub(super) event_dispatchers: Option<u32>,
    /// Also deliver the events that an installation without NATS has left on its volume
    #[arg(long)]
    pub(super) drain_journal: bool,
}
