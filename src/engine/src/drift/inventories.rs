//! Watches the ConfigMaps with inventories, so that the writer finds them without a request.

use std::sync::Arc;

use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use super::Drift;
use mainstay_api::names::INVENTORY_LABEL;
use mainstay_cluster::reflector::Shown;
use mainstay_cluster::{Kind, Scope, Selection};

impl Drift {
    /// Runs the watch until `stop`.
    pub(super) async fn follow_inventories(self, stop: CancellationToken) {
        let kind = Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced));
        let mut events = self.writer.cluster().watch(&kind, Selection::with_label(INVENTORY_LABEL).metadata_only());
        let mut shown = Shown::default();
        while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
            if let Some(delta) = shown.take(event, |live| kind.key_of(live)) {
                self.writer.see_inventory(&delta);
            }
        }
    }
}
