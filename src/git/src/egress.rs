//! What is said of a host that is refused as the host of a repository.

use std::sync::Arc;

use mainstay_object::egress::{EgressPolicy, EgressRefusal, METADATA_REFUSED};

/// What is said of a host that a confined namespace may not have connected to. Nothing is said of what is there, and the same is
/// said of a name that nobody has: or the names within the cluster could be found out one by one.
pub(super) const REFUSED: &str = "the host is not found, or has an address of the cluster, of the machine or of a private network, which \
     repositories of this namespace are not read from; the operator of the agent allows networks with --allow-network";

/// The policy of an agent.
pub(super) type SharedPolicy = Arc<EgressPolicy>;

/// The sentence for a refusal.
pub(super) fn sentence(refusal: EgressRefusal) -> &'static str {
    match refusal {
        EgressRefusal::Metadata => METADATA_REFUSED,
        EgressRefusal::Internal => REFUSED,
    }
}
