//! Hashes of templates, and ControllerRevisions: the numbered templates of StatefulSets and DaemonSets.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use devcluster_apiserver::client::CONTROLLER;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::object::{controller_reference, text};

const REVISIONS: &str = "controllerrevisions.apps";

/// Hashes a template to ten characters without vowels. Each collision yields a different hash.
pub(super) fn hash(template: &Value, collisions: i64) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let digest = Sha256::digest(format!("{template}{collisions}"));
    digest.iter().take(10).map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}

/// Returns the revision name of a workload's current template, and records it if it is new.
pub(super) fn of(client: &Client, workload: &Value) -> String {
    let template = &workload["spec"]["template"];
    let hash = hash(template, 0);
    let (namespace, owner) = (text(workload, "/metadata/namespace"), text(workload, "/metadata/name"));
    let name = format!("{owner}-{hash}");
    if client.get(&Subject::new(REVISIONS, namespace, &name)).is_none() {
        let known = client.controlled(REVISIONS, namespace, workload);
        let last = known.iter().filter_map(|revision| revision["revision"].as_i64()).max().unwrap_or(0);
        let mut labels = template["metadata"]["labels"].clone();
        labels["controller-revision-hash"] = hash.into();
        let object = json!({
            "metadata": {"name": name, "labels": labels, "ownerReferences": [controller_reference(workload)]},
            "data": {"spec": {"template": template}}, "revision": last + 1,
        });
        // A failed create is retried by the next reconcile.
        let _ = client.create(CONTROLLER, REVISIONS, namespace, object);
    }
    name
}
