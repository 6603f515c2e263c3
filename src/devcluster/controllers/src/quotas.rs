//! ResourceQuotas: recounts the usage when objects are deleted, finish or change.
//!
//! Admission charges objects when it admits them ([`devcluster_apiserver::quota`]). This controller releases usage that
//! is no longer needed.
//!
//! Invariant: a charge does not trigger a recount, because its object may not be stored yet.

use std::collections::{BTreeSet, HashMap};

use serde_json::json;

use super::controller::{Controller, Queue};
use devcluster_apiserver::client::CONTROLLER;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::object::{is_terminating, text};
use devcluster_apiserver::quota;
use devcluster_apiserver::store::Key;

/// The controller of ResourceQuotas.
#[derive(Default)]
pub(super) struct Quotas {
    /// The quotas of each namespace.
    quotas: HashMap<String, BTreeSet<Key>>,
}

impl Controller for Quotas {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        let namespace = event.key.namespace();
        if &*event.storage == quota::STORAGE {
            let known = self.quotas.entry(namespace.to_owned()).or_default();
            if event.change() == Change::Deleted {
                known.remove(&event.key);
            } else {
                known.insert(event.key.clone());
            }
        }
        if !may_give_back(event) {
            return;
        }
        for key in self.quotas.get(namespace).into_iter().flatten() {
            queue.add(Subject { storage: quota::STORAGE.into(), key: key.clone() });
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, _: &mut Queue<'_>) {
        let Some(quota) = client.get(subject) else { return };
        let hard = quota["spec"].get("hard").cloned().unwrap_or_else(|| json!({}));
        let used = quota::used(&quota["spec"], client.now(), |group, plural| {
            let kind = client.kinds().into_iter().find(|k| k.namespaced && k.group == group && k.plural == plural)?;
            Some(client.list(&kind.storage, subject.key.namespace()))
        });
        client.set_status(CONTROLLER, subject, &quota, json!({"hard": hard, "used": used}));
    }
}

/// Whether a write may lower the usage, or changes a quota itself.
fn may_give_back(event: &Event) -> bool {
    let (Some(old), Some(new)) = (&event.old, &event.new) else {
        return event.new.is_none() || &*event.storage == quota::STORAGE;
    };
    match &*event.storage {
        // Admission charges by a status write.
        quota::STORAGE => old.value()["spec"] != new.value()["spec"],
        "pods" => {
            let pod = new.value();
            is_terminating(&pod) || matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed")
        }
        _ => true,
    }
}
