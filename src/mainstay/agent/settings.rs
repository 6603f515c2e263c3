//! The settings of the agent.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::listening::{Admit, Receive};
use crate::Components;
use mainstay_cluster::Timing;
use mainstay_cluster::listener::Limits;
use mainstay_manifest::render::Words;

/// The agent's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The agent's own namespace, with its Lease and the GitSyncs that may apply everything.
    pub namespace: String,
    /// Further namespaces whose GitSyncs may apply everything.
    pub allow_namespaces: Vec<String>,
    /// ServiceAccount to impersonate for GitSyncs of other namespaces that specify no ServiceAccount. With `None`, such
    /// GitSyncs are confined to their own namespace.
    pub default_service_account: Option<String>,
    /// The agent's identity in the Lease.
    pub identity: String,
    /// The agent's own pod. The pod is labelled while its agent leads and receives deliveries.
    pub pod: Option<String>,
    /// Address for health and metrics.
    pub listen: Option<SocketAddr>,
    /// The listener for deliveries of webhooks, if any.
    pub receive: Option<Receive>,
    /// The listener for admission requests, if any.
    pub admit: Option<Admit>,
    /// Limits for clients of health, metrics and webhooks.
    pub limits: Limits,
    /// Settings for Git.
    pub source: mainstay_git::Settings,
    /// Settings for Functions.
    pub functions: mainstay_function::Settings,
    /// The parts of Mainstay that the agent runs.
    pub components: Components,
    /// Whether the agent has its own permissions to apply objects.
    pub profile: Profile,
    /// Namespaces besides its own in which the agent sees objects; empty means all namespaces.
    pub namespaces: Vec<String>,
    /// Settings for the hosts of APIRules.
    pub exposure: mainstay_exposure::Settings,
    /// Whether the agent must hold the Lease to act.
    pub elect: bool,
    /// The number of agents that share the GitSyncs; `None` without shards. Shards need `elect`.
    pub shards: Option<u8>,
    /// The durations of Leases.
    pub timing: Timing,
    /// How long a component may make no progress before `/healthz` fails:
    /// [`STUCK_AFTER`](mainstay_cluster::liveness::STUCK_AFTER), except in tests.
    pub stuck_after: Duration,
    /// Memory limit of the process, in bytes. Three tenths of the limit are for objects kept for GitSyncs and
    /// Functions.
    pub memory: usize,
    /// Makes the agent poll every remote immediately.
    pub nudge: Nudge,
    /// Interval in which each managed object is audited once; 0 disables audits.
    pub audit: Duration,
    /// The directory shared with the container that renders kustomizations and charts; `None` renders them in this
    /// process's container.
    pub renderer: Option<PathBuf>,
    /// The part of the messages of kustomize and Helm that a status shows.
    pub words: Words,
}

/// The rights that an agent is installed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// May apply everything, and impersonate any ServiceAccount.
    #[default]
    Full,
    /// May apply nothing itself: each GitSync names a ServiceAccount, and the agent may impersonate only a few.
    Restricted,
}

/// Default interval in which each managed object is audited once.
pub const AUDIT: Duration = Duration::from_secs(3600);

/// Makes the agent poll every remote immediately, because a local repository has a new commit.
#[derive(Clone, Debug, Default)]
pub struct Nudge(pub(super) watch::Sender<u64>);

impl Nudge {
    /// Makes the agent poll now.
    pub fn look_now(&self) {
        self.0.send_modify(|count| *count += 1);
    }
}

impl Settings {
    /// Returns the namespaces in which the agent sees objects; `None` for all.
    pub(super) fn scope(&self) -> Option<Arc<[String]>> {
        let all: BTreeSet<String> = std::iter::once(&self.namespace).chain(&self.namespaces).cloned().collect();
        (!self.namespaces.is_empty()).then(|| all.into_iter().collect())
    }
}
