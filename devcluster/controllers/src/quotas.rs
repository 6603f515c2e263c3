//! ResourceQuotas: what is allowed, and what is used of it.
//!
//! Admission charges what it lets in ([`devcluster_apiserver::quota`]); here it is counted again whenever something in a namespace
//! with a quota changes, so that what has gone or came to nothing is given back.

use std::collections::{BTreeSet, HashMap};

use serde_json::json;

use super::controller::{Controller, Queue};
use devcluster_apiserver::client::CONTROLLER;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
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
