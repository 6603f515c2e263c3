//! Services of clouds to which the agent sends messages.

use super::place::{Place, Provider};

/// A service of a cloud that receives messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloudService {
    /// The commit statuses of Azure DevOps.
    AzureDevops,
    /// A namespace of Azure Event Hubs.
    EventHubs {
        /// The host of the namespace, which belongs to Azure. A token is valid for this host only.
        host: String,
    },
    /// Google Pub/Sub.
    PubSub,
}

impl CloudService {
    pub(super) fn provider(&self) -> Provider {
        match self {
            Self::AzureDevops | Self::EventHubs { .. } => Provider::Azure,
            Self::PubSub => Provider::Google,
        }
    }

    pub(super) fn place(&self) -> Place {
        match self {
            Self::AzureDevops => Place::DevOps,
            Self::EventHubs { host } => Place::EventHubs { host: host.clone() },
            Self::PubSub => Place::PubSub,
        }
    }
}
