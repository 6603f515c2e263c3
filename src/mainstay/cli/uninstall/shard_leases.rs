//! Deletes the Leases of shards, which the agents create without Mainstay's label.

use std::sync::Arc;

use super::Uninstall;
use crate::cli::{Error, lease};
use mainstay_api::names;
use mainstay_cluster::Selection;
use mainstay_cluster::shards::Member;

impl Uninstall<'_> {
    /// Deletes the Leases of shards.
    pub(super) async fn delete_shard_leases(&self) -> Result<(), Error> {
        let kind = Arc::new(lease::kind());
        let leases = self.list(&kind, Selection::default().within(self.namespace)).await?;
        for lease in leases.iter().filter_map(|lease| lease.name.as_deref()).filter(|name| is_shard_lease(name)) {
            self.delete(&kind, Some(self.namespace), lease, |_| true).await?;
        }
        Ok(())
    }
}

/// Whether a Lease has the name of that of a shard: `mainstay-shard-0` and so on.
pub(super) fn is_shard_lease(name: &str) -> bool {
    let shard = name.strip_prefix(names::LEASE).and_then(|rest| rest.strip_prefix('-'));
    shard.and_then(Member::parse).is_some()
}
