//! Namespaces: creates their default objects, and deletes the contents of a namespace before the namespace.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::controller::{Controller, Queue};
use devcluster_apiserver::client::CONTROLLER;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::object::{conditions, is_terminating};
use devcluster_apiserver::verbs::delete::Propagation;

/// How long a terminating namespace stays unchanged before its contents are deleted.
const RESPITE: Duration = Duration::from_millis(100);
/// Interval of checks while finalizers hold a namespace.
const PATIENCE: Duration = Duration::from_millis(500);

/// Placeholder of a CA bundle. Each listener of this API server has its own self-signed certificate.
const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n";

/// The controller of namespaces, and the namespaces that terminate.
#[derive(Default)]
pub(super) struct Namespaces {
    terminating: HashSet<String>,
}

impl Controller for Namespaces {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        let (namespace, name) = (event.key.namespace(), event.key.name());
        let deleted = event.change() == Change::Deleted;
        match &*event.storage {
            "namespaces" if deleted => {
                self.terminating.remove(name);
            }
            "namespaces" => {
                let going = event.new.as_ref().is_some_and(|stored| is_terminating(&stored.value()));
                let begins = going && self.terminating.insert(name.to_owned());
                queue.add_after(Subject::of(event), if begins { RESPITE } else { Duration::ZERO });
            }
            _ if !deleted => {}
            _ if self.terminating.contains(namespace) => queue.add(Subject::new("namespaces", "", namespace)),
            "serviceaccounts" if name == "default" => queue.add(Subject::new("namespaces", "", namespace)),
            "configmaps" if name == "kube-root-ca.crt" => queue.add(Subject::new("namespaces", "", namespace)),
            _ => {}
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>) {
        let Some(namespace) = client.get(subject) else { return };
        if is_terminating(&namespace) {
            if !empty(client, subject, &namespace) {
                queue.add_after(subject.clone(), PATIENCE);
            }
        } else {
            furnish(client, subject.key.name());
        }
    }
}

/// Creates the default ServiceAccount and the CA ConfigMap of a namespace.
fn furnish(client: &Client, namespace: &str) {
    let missing = |storage: &str, name: &str| client.get(&Subject::new(storage, namespace, name)).is_none();
    if missing("serviceaccounts", "default") {
        let _ = client.create(CONTROLLER, "serviceaccounts", namespace, json!({"metadata": {"name": "default"}}));
    }
    if missing("configmaps", "kube-root-ca.crt") {
        let note = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";
        let object = json!({
            "metadata": {"name": "kube-root-ca.crt", "annotations": {"kubernetes.io/description": note}},
            "data": {"ca.crt": AUTHORITY},
        });
        let _ = client.create(CONTROLLER, "configmaps", namespace, object);
    }
}

/// Deletes the contents of a namespace, then finalizes it. Returns false while objects remain.
fn empty(client: &Client, subject: &Subject, namespace: &Value) -> bool {
    let name = subject.key.name();
    let mut remaining: BTreeMap<String, usize> = BTreeMap::new();
    let mut holding: BTreeMap<String, usize> = BTreeMap::new();
    for kind in client.kinds().iter().filter(|k| k.namespaced && k.allows("delete")) {
        for object in client.list(&kind.storage, name) {
            let what = devcluster_apiserver::client::subject(&kind.storage, &object);
            if !is_terminating(&object) {
                client.delete(&what, &object, Some(Propagation::Background), None);
            }
            let Some(left) = client.get(&what) else { continue };
            *remaining.entry(format!("{}.{}", kind.plural, kind.group)).or_default() += 1;
            for finalizer in left["metadata"]["finalizers"].as_array().into_iter().flatten() {
                *holding.entry(finalizer.as_str().unwrap_or_default().to_owned()).or_default() += 1;
            }
        }
    }
    // The deletions above did not change the namespace itself.
    let done = remaining.is_empty();
    let status = status(client, namespace, &remaining, &holding);
    if !client.set_status(CONTROLLER, subject, namespace, status) {
        return false;
    }
    if done && let Some(current) = client.get(subject) {
        let mut object = (*current).clone();
        object["spec"]["finalizers"] = json!([]);
        client.update_on(CONTROLLER, subject, "finalize", object);
    }
    done
}

fn status(
    client: &Client,
    namespace: &Value,
    remaining: &BTreeMap<String, usize>,
    holding: &BTreeMap<String, usize>,
) -> Value {
    let listed = |counts: &BTreeMap<String, usize>, what: &str| {
        let parts: Vec<String> =
            counts.iter().map(|(name, n)| format!("{name} {what} {n} resource instances")).collect();
        parts.join(", ")
    };
    let content = if remaining.is_empty() {
        ("False", "ContentRemoved", "All content successfully removed".to_owned())
    } else {
        ("True", "SomeResourcesRemain", format!("Some resources are remaining: {}", listed(remaining, "has")))
    };
    let finalizers = if holding.is_empty() {
        ("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished".to_owned())
    } else {
        let message = format!("Some content in the namespace has finalizers remaining: {}", listed(holding, "in"));
        ("True", "SomeFinalizersRemain", message)
    };
    let fine = |reason: &'static str, message: &str| ("False", reason, message.to_owned());
    let wanted = [
        ("NamespaceDeletionDiscoveryFailure", fine("ResourcesDiscovered", "All resources successfully discovered")),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            fine("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        (
            "NamespaceDeletionContentFailure",
            fine("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        ("NamespaceContentRemaining", content),
        ("NamespaceFinalizersRemaining", finalizers),
    ];
    let list: Vec<Value> = wanted
        .into_iter()
        .map(|(kind, (status, reason, message))| {
            let old = conditions(namespace).iter().find(|c| c["type"] == kind && c["status"] == status);
            let since = old.map_or_else(|| client.stamp(), |c| c["lastTransitionTime"].clone());
            json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
        })
        .collect();
    json!({"phase": "Terminating", "conditions": list})
}
