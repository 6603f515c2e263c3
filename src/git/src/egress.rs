//! Messages for refused hosts of repositories.

use std::sync::Arc;

use mainstay_object::egress::{EgressPolicy, EgressRefusal, MACHINE_REFUSED, METADATA_REFUSED};

/// The message for a host that a confined namespace may not connect to. A host that does not exist gets the same
/// message; otherwise a tenant could probe for host names in the cluster.
pub(super) const REFUSED: &str = "the host is not found, or has an address of the cluster, of the machine or of a private network, which \
     repositories of this namespace are not read from; the operator of the agent allows networks with --allow-network";

/// The egress policy of the agent.
pub(super) type SharedPolicy = Arc<EgressPolicy>;

/// Returns the message for a refusal.
pub(super) fn sentence(refusal: EgressRefusal) -> &'static str {
    match refusal {
        EgressRefusal::Metadata => METADATA_REFUSED,
        EgressRefusal::Internal => REFUSED,
        EgressRefusal::Machine => MACHINE_REFUSED,
    }
}
