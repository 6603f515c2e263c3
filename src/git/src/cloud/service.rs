//! Services of clouds to which the agent sends messages.

use super::place::{Place, Provider};

/// A service of a cloud that receives messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloudService {
    /// The commit statuses of Azure DevOps.
    AzureDevops,
    /// Azure Event Hubs.
    EventHubs,
    /// Google Pub/Sub.
    PubSub,
}

impl CloudService {
    pub(super) fn provider(self) -> Provider {
        match self {
            Self::AzureDevops | Self::EventHubs => Provider::Azure,
            Self::PubSub => Provider::Google,
        }
    }

    pub(super) fn place(self) -> Place {
        match self {
            Self::AzureDevops => Place::DevOps,
            Self::EventHubs => Place::EventHubs,
            Self::PubSub => Place::PubSub,
        }
    }
}
