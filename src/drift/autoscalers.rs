//! The watch of the autoscalers: which workloads they scale.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use super::Drift;
use crate::cluster::{Kind, Scope, Selection, WatchEvent};
use crate::managed::autoscaler::Autoscaler;
use crate::object::Key;

impl Drift {
    /// Follows which workloads an autoscaler scales.
    pub(super) async fn follow_autoscalers(self, stop: CancellationToken) {
        let (version, plural) = ("autoscaling/v2", "horizontalpodautoscalers");
        let kind = Arc::new(Kind::fixed(version, "HorizontalPodAutoscaler", plural, Scope::Namespaced));
        let mut events = self.writer.cluster().watch(&kind, Selection::default());
        let mut targets: HashMap<Key, (Key, Autoscaler)> = HashMap::new();
        let mut synced = false;
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                Some(WatchEvent::Begin) => {
                    targets.clear();
                    synced = false;
                }
                Some(WatchEvent::Initial(live) | WatchEvent::Applied(live)) => {
                    if let (Some(key), Some(target)) = (kind.key_of(&live), Autoscaler::read(&live)) {
                        targets.insert(key, target);
                    }
                }
                Some(WatchEvent::Deleted(live)) => {
                    if let Some(key) = kind.key_of(&live) {
                        targets.remove(&key);
                    }
                }
                Some(WatchEvent::Synced(_)) => synced = true,
                // A cluster that does not let us see its autoscalers is treated as having none.
                Some(WatchEvent::Failed(_) | WatchEvent::Unreadable(..) | WatchEvent::Resumed) => {
                    self.writer.autoscalers_are_known();
                }
                None => return,
            }
            if synced {
                let changed = self.writer.store().set_autoscaled(targets.values().cloned().collect());
                for (key, is_outdated) in changed {
                    if is_outdated {
                        self.writer.store().mark_outdated(&key);
                    }
                    self.look_now(&key);
                }
                self.writer.autoscalers_are_known();
            }
        }
    }
}
