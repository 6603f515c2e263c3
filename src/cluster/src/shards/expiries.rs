//! Follows the expired Leases that members show, for a candidate that waits for one.
//!
//! A candidate that has just started would observe the Lease of a dead member for the duration of a Lease. Other members have
//! observed it longer.

use std::sync::Arc;

use futures::StreamExt as _;

use super::seen::Seen;
use crate::connect::Cluster;
use crate::kind::{Kind, Scope};
use crate::reflector::{Delta, Shown, name_of};
use crate::selection::Selection;
use mainstay_api::names::SHARD_LEASE;
use mainstay_object::failure::chain;

/// Records the expired Leases that the members of a namespace show. If the Leases cannot be watched, the candidate still
/// reads them.
pub(crate) async fn follow_expiries(cluster: &Cluster, namespace: &str, seen: &Seen) {
    let kind = Arc::new(Kind::fixed("coordination.k8s.io/v1", "Lease", "leases", Scope::Namespaced));
    let mut events = cluster.watch(&kind, Selection::with_label(SHARD_LEASE).within(namespace));
    let mut shown = Shown::default();
    while let Some(event) = events.next().await {
        match shown.take(event, name_of) {
            Some(Delta::Listed(_, lease) | Delta::Changed(_, lease)) => seen.see_expired(&lease),
            Some(Delta::Failed(error)) => {
                tracing::debug!(why = chain(&error), "the Leases of shards cannot be watched");
            }
            Some(Delta::Gone(..) | Delta::Unreadable(..) | Delta::Complete(_) | Delta::Resumed) | None => {}
        }
    }
}
