//! PersistentVolumeClaims: provisions and binds volumes, and protects volumes and claims that are in use.

use serde_json::{Value, json};

use super::controller::{Controller, Queue};
use devcluster_apiserver::client::CONTROLLER;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::object::{finalizers_without, has_finalizer, is_terminating, text};

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";

/// The provisioner, the binder and the protection finalizers.
pub(super) struct Volumes;

impl Controller for Volumes {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        match &*event.storage {
            VOLUMES if event.change() != Change::Deleted => queue.add(Subject::of(event)),
            CLAIMS => {
                queue.add(Subject::of(event));
                let old = event.old.as_ref().filter(|_| event.new.is_none()).map(|stored| stored.value());
                if let Some(volume) = old.as_ref().map(|claim| text(claim, "/spec/volumeName")) {
                    queue.add(Subject::new(VOLUMES, "", volume));
                }
            }
            "pods" if event.change() == Change::Deleted => {
                let Some(pod) = event.old.as_ref().map(|stored| stored.value()) else { return };
                for name in claims(&pod) {
                    queue.add(Subject::new(CLAIMS, event.key.namespace(), name));
                }
            }
            _ => {}
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, _: &mut Queue<'_>) {
        let Some(object) = client.get(subject) else { return };
        let is_claim = &*subject.storage == CLAIMS;
        if is_terminating(&object) {
            let_go(client, subject, &object);
        } else if is_claim && text(&object, "/status/phase") == "Pending" {
            bind(client, subject, &object);
        } else if !is_claim {
            follow_claim(client, subject, &object);
        }
    }
}

/// Names of the claims that a pod mounts.
fn claims(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str())
}

fn let_go(client: &Client, subject: &Subject, object: &Value) {
    let (finalizer, used) = if &*subject.storage == VOLUMES {
        (VOLUME, claim_of(client, object).is_some())
    } else {
        let pods = client.list("pods", subject.key.namespace());
        (CLAIM, pods.iter().any(|pod| claims(pod).any(|name| name == subject.key.name())))
    };
    if !used && has_finalizer(object, finalizer) {
        let patch = json!({"metadata": {"finalizers": finalizers_without(object, finalizer)}});
        client.merge(CONTROLLER, subject, patch);
    }
}

/// Returns the existing claim that a volume is bound to.
fn claim_of(client: &Client, volume: &Value) -> Option<std::sync::Arc<Value>> {
    let reference = &volume["spec"]["claimRef"];
    let claim = client.get(&Subject::new(CLAIMS, text(reference, "/namespace"), text(reference, "/name")))?;
    (claim["metadata"]["uid"] == reference["uid"]).then_some(claim)
}

/// Creates the volume of a claim and binds both.
fn bind(client: &Client, subject: &Subject, claim: &Value) {
    let name = match text(claim, "/spec/volumeName") {
        "" => format!("pvc-{}", text(claim, "/metadata/uid")),
        wanted => wanted.to_owned(),
    };
    let spec = &claim["spec"];
    let capacity = json!({"storage": spec["resources"]["requests"]["storage"]});
    if client.get(&Subject::new(VOLUMES, "", &name)).is_none() {
        let mut volume = json!({
            "metadata": {"name": name},
            "spec": {
                "capacity": capacity, "accessModes": spec["accessModes"], "volumeMode": spec["volumeMode"],
                "persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": format!("/devcluster/{name}")},
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": subject.key.namespace(),
                    "name": subject.key.name(), "uid": claim["metadata"]["uid"],
                },
            },
        });
        if let Some(class) = spec.get("storageClassName") {
            volume["spec"]["storageClassName"] = class.clone();
        }
        if client.create(CONTROLLER, VOLUMES, "", volume).is_err() {
            return;
        }
    }
    if text(claim, "/spec/volumeName").is_empty() {
        let mut bound = claim.clone();
        bound["spec"]["volumeName"] = name.into();
        bound["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes".into();
        client.update(CONTROLLER, subject, bound);
        return;
    }
    let status = json!({"phase": "Bound", "accessModes": spec["accessModes"], "capacity": capacity});
    client.set_status(CONTROLLER, subject, claim, status);
}

/// Sets the phase of a volume. A released volume with the policy Delete is deleted.
fn follow_claim(client: &Client, subject: &Subject, volume: &Value) {
    let claimed = !volume["spec"]["claimRef"]["uid"].is_null();
    let phase = match (claimed, claim_of(client, volume).is_some()) {
        (_, true) => "Bound",
        (true, false) => "Released",
        (false, _) => "Available",
    };
    if phase == "Released" && text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete" {
        client.delete(subject, volume, None, None);
    } else if text(volume, "/status/phase") != phase {
        let status = json!({"phase": phase, "lastPhaseTransitionTime": client.stamp()});
        client.set_status(CONTROLLER, subject, volume, status);
    }
}
