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
        let mut targets = Targets::default();
        let mut synced = false;
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
            };
            // The workloads of which something else may be known now.
            let mut affected = Vec::new();
            match event {
                Some(WatchEvent::Begin) => {
                    targets = Targets::default();
                    synced = false;
                }
                Some(WatchEvent::Initial(live) | WatchEvent::Applied(live)) => {
                    if let Some(key) = kind.key_of(&live) {
                        affected = targets.set(key, Autoscaler::read(&live));
                    }
                }
                Some(WatchEvent::Deleted(live)) => {
                    if let Some(key) = kind.key_of(&live) {
                        affected = targets.set(key, None);
                    }
                }
                Some(WatchEvent::Synced(_)) => {
                    synced = true;
                    affected.extend(self.writer.store().autoscaled().cloned());
                    affected.extend(targets.workloads().cloned());
                }
                // A cluster that does not let us see its autoscalers is treated as having none.
                Some(WatchEvent::Failed(_) | WatchEvent::Unreadable(..) | WatchEvent::Resumed) => {
                    self.writer.autoscalers_are_known();
                }
                None => return,
            }
            if synced {
                for workload in affected {
                    self.know_autoscaler(&workload, targets.of(&workload));
                }
                self.writer.autoscalers_are_known();
            }
        }
    }

    fn know_autoscaler(&self, workload: &Key, autoscaler: Option<Autoscaler>) {
        let looks = self.writer.store().set_autoscaler(workload, autoscaler);
        let Some(is_outdated) = looks else { return };
        if is_outdated {
            self.writer.store().mark_outdated(workload);
        }
        self.look_now(workload);
    }
}

/// What each autoscaler scales.
#[derive(Debug, Default)]
struct Targets(HashMap<Key, (Key, Autoscaler)>);

impl Targets {
    /// What an autoscaler scales now, if it is there. The workloads of which that changes something.
    fn set(&mut self, key: Key, target: Option<(Key, Autoscaler)>) -> Vec<Key> {
        if self.0.get(&key) == target.as_ref() {
            return Vec::new();
        }
        let new = target.as_ref().map(|(workload, _)| workload.clone());
        let old = match target {
            Some(target) => self.0.insert(key, target),
            None => self.0.remove(&key),
        };
        old.map(|(workload, _)| workload).into_iter().chain(new).collect()
    }

    fn workloads(&self) -> impl Iterator<Item = &Key> {
        self.0.values().map(|(workload, _)| workload)
    }

    /// What scales a workload. Of several, that with the first name.
    fn of(&self, workload: &Key) -> Option<Autoscaler> {
        let scaling = self.0.iter().filter(|(_, (other, _))| other == workload);
        scaling.min_by(|(a, _), (b, _)| a.cmp(b)).map(|(_, (_, autoscaler))| *autoscaler)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_changes_nothing_concerns_nobody() {
        let key = |name: &str| Key::new("autoscaling", "HorizontalPodAutoscaler", Some("shop"), name);
        let of = |workload: &str, least: i64| {
            let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": workload});
            let live = json!({
                "metadata": {"namespace": "shop"}, "spec": {"minReplicas": least, "scaleTargetRef": target},
            });
            Autoscaler::read(&live)
        };
        let names = |affected: Vec<Key>| affected.iter().map(|key| key.name.to_string()).collect::<Vec<_>>();
        let mut targets = Targets::default();
        assert_eq!(names(targets.set(key("a"), of("web", 1))), ["web"]);
        assert_eq!(names(targets.set(key("a"), of("web", 1))), [""; 0]);
        assert_eq!(names(targets.set(key("b"), of("web", 2))), ["web"]);
        let web = of("web", 1).unwrap().0;
        assert_eq!(targets.of(&web), of("web", 1).map(|(_, autoscaler)| autoscaler));
        assert_eq!(names(targets.set(key("a"), of("api", 1))), ["web", "api"]);
        assert_eq!(targets.of(&web), of("web", 2).map(|(_, autoscaler)| autoscaler));
        assert_eq!(names(targets.set(key("b"), None)), ["web"], "one that is gone, or scales nothing any more");
        assert_eq!(targets.of(&web), None);
    }
}
