//! Watches HorizontalPodAutoscalers and stores the workloads that they scale.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use super::Drift;
use crate::managed::autoscaler::Autoscaler;
use mainstay_cluster::reflector::{Delta, List, Shown};
use mainstay_cluster::{Kind, Scope, Selection};
use mainstay_object::Key;

impl Drift {
    /// Runs the watch until `stop`.
    pub(super) async fn follow_autoscalers(self, stop: CancellationToken) {
        let (version, plural) = ("autoscaling/v2", "horizontalpodautoscalers");
        let kind = Arc::new(Kind::fixed(version, "HorizontalPodAutoscaler", plural, Scope::Namespaced));
        let mut events = self.writer.cluster().watch(&kind, Selection::default());
        let (mut shown, mut targets) = (Shown::default(), Targets::default());
        let mut synced = false;
        while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
            // Workloads whose autoscaler may have changed.
            let mut affected = Vec::new();
            match shown.take(event, |live| kind.key_of(live)) {
                Some(Delta::Listed(key, live) | Delta::Changed(key, live)) => {
                    affected = targets.set(key, Autoscaler::read(&live));
                }
                Some(Delta::Gone(key, _)) => affected = targets.set(key, None),
                Some(Delta::Complete(list)) => {
                    synced = true;
                    affected = targets.retain(&list);
                    affected.extend(self.writer.store().autoscaled().cloned());
                    affected.extend(targets.workloads().cloned());
                }
                // If the autoscalers cannot be listed, the writer waits for them no longer.
                Some(Delta::Failed(_) | Delta::Unreadable(..) | Delta::Resumed) => self.writer.autoscalers_are_known(),
                None => continue,
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

/// The target of each autoscaler, and the autoscalers of each workload.
#[derive(Debug, Default)]
struct Targets {
    of: HashMap<Key, (Key, Autoscaler)>,
    scaling: HashMap<Key, BTreeMap<Key, Autoscaler>>,
}

impl Targets {
    /// Sets or removes the target of an autoscaler. Returns the workloads that this affects.
    fn set(&mut self, key: Key, target: Option<(Key, Autoscaler)>) -> Vec<Key> {
        if self.of.get(&key) == target.as_ref() {
            return Vec::new();
        }
        let mut affected = Vec::new();
        if let Some((workload, _)) = self.of.remove(&key) {
            if let Entry::Occupied(mut scaling) = self.scaling.entry(workload.clone()) {
                scaling.get_mut().remove(&key);
                if scaling.get().is_empty() {
                    scaling.remove();
                }
            }
            affected.push(workload);
        }
        if let Some((workload, autoscaler)) = target {
            self.scaling.entry(workload.clone()).or_default().insert(key.clone(), autoscaler);
            self.of.insert(key, (workload.clone(), autoscaler));
            if !affected.contains(&workload) {
                affected.push(workload);
            }
        }
        affected
    }

    /// Removes autoscalers that a list lacks. Returns the workloads that this affects.
    fn retain(&mut self, list: &List<Key>) -> Vec<Key> {
        let gone: Vec<Key> = self.of.keys().filter(|key| list.lacks(key)).cloned().collect();
        gone.into_iter().flat_map(|key| self.set(key, None)).collect()
    }

    fn workloads(&self) -> impl Iterator<Item = &Key> {
        self.scaling.keys()
    }

    /// Returns the autoscaler of a workload; the first by name if there are several.
    fn of(&self, workload: &Key) -> Option<Autoscaler> {
        self.scaling_it(workload).next().copied()
    }

    /// Returns all autoscalers of a workload without a scan of the others.
    fn scaling_it(&self, workload: &Key) -> impl Iterator<Item = &Autoscaler> {
        self.scaling.get(workload).into_iter().flat_map(BTreeMap::values)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_without_a_change_concerns_no_autoscaler() {
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

    #[test]
    fn ten_thousand_autoscalers_are_each_read_once() {
        let key = |kind: &str, number: usize| Key::new("", kind, Some("shop"), format!("a-{number:05}"));
        let live = |number: usize| {
            let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": format!("a-{number:05}")});
            Autoscaler::read(&json!({"metadata": {"namespace": "shop"}, "spec": {"scaleTargetRef": target}}))
        };
        let mut targets = Targets::default();
        let affected = (0..10_000).flat_map(|number| targets.set(key("HorizontalPodAutoscaler", number), live(number)));
        let affected: Vec<_> = affected.collect();
        let looked_at = |workload: &Key| targets.scaling_it(workload).count();
        assert_eq!((affected.len(), affected.iter().map(looked_at).sum::<usize>()), (10_000, 10_000));
        assert_eq!(targets.workloads().count(), 10_000);
        for number in 0..10_000 {
            targets.set(key("HorizontalPodAutoscaler", number), None);
        }
        assert!(targets.of.is_empty() && targets.scaling.is_empty(), "what is gone leaves nothing behind");
    }
}
