//! PersistentVolumeClaims get a volume at once; neither goes while it is in use.

use serde_json::{Value, json};

use super::hands::{CONTROLLER, finalizers_without, has_finalizer, is_terminating, text};
use super::{Actor, Hands, Subject, Wishes};
use crate::history::{Change, Event};

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";

/// The provisioner, the binder and the finalizers of storage.
pub(super) struct Volumes;

impl Actor for Volumes {
    fn notice(&mut self, event: &Event, wishes: &mut Wishes<'_>) {
        match &*event.storage {
            VOLUMES if event.change() != Change::Deleted => wishes.now(Subject::of(event)),
            CLAIMS => {
                wishes.now(Subject::of(event));
                let old = event.old.as_ref().filter(|_| event.new.is_none()).map(|stored| stored.value());
                if let Some(volume) = old.as_ref().map(|claim| text(claim, "/spec/volumeName")) {
                    wishes.now(Subject::new(VOLUMES, "", volume));
                }
            }
            "pods" if event.change() == Change::Deleted => {
                let Some(pod) = event.old.as_ref().map(|stored| stored.value()) else { return };
                for name in claims(&pod) {
                    wishes.now(Subject::new(CLAIMS, event.key.namespace(), name));
                }
            }
            _ => {}
        }
    }

    fn look(&mut self, hands: &Hands, subject: &Subject, _: &mut Wishes<'_>) {
        let Some(object) = hands.get(subject) else { return };
        let is_claim = &*subject.storage == CLAIMS;
        if is_terminating(&object) {
            let_go(hands, subject, &object);
        } else if is_claim && text(&object, "/status/phase") == "Pending" {
            bind(hands, subject, &object);
        } else if !is_claim {
            follow_claim(hands, subject, &object);
        }
    }
}

/// The claims that a pod mounts.
fn claims(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str())
}

fn let_go(hands: &Hands, subject: &Subject, object: &Value) {
    let (finalizer, used) = if &*subject.storage == VOLUMES {
        (VOLUME, claim_of(hands, object).is_some())
    } else {
        let pods = hands.list("pods", subject.key.namespace());
        (CLAIM, pods.iter().any(|pod| claims(pod).any(|name| name == subject.key.name())))
    };
    if !used && has_finalizer(object, finalizer) {
        let patch = json!({"metadata": {"finalizers": finalizers_without(object, finalizer)}});
        hands.merge(CONTROLLER, subject, patch);
    }
}

/// The live claim that a volume is bound to.
fn claim_of(hands: &Hands, volume: &Value) -> Option<std::sync::Arc<Value>> {
    let reference = &volume["spec"]["claimRef"];
    let claim = hands.get(&Subject::new(CLAIMS, text(reference, "/namespace"), text(reference, "/name")))?;
    (claim["metadata"]["uid"] == reference["uid"]).then_some(claim)
}

/// Makes the volume of a claim and binds both.
fn bind(hands: &Hands, subject: &Subject, claim: &Value) {
    let name = match text(claim, "/spec/volumeName") {
        "" => format!("pvc-{}", text(claim, "/metadata/uid")),
        wanted => wanted.to_owned(),
    };
    let spec = &claim["spec"];
    let capacity = json!({"storage": spec["resources"]["requests"]["storage"]});
    if hands.get(&Subject::new(VOLUMES, "", &name)).is_none() {
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
        if hands.create(CONTROLLER, VOLUMES, "", volume).is_err() {
            return;
        }
    }
    if text(claim, "/spec/volumeName").is_empty() {
        let mut bound = claim.clone();
        bound["spec"]["volumeName"] = name.into();
        bound["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes".into();
        hands.update(CONTROLLER, subject, bound);
        return;
    }
    let status = json!({"phase": "Bound", "accessModes": spec["accessModes"], "capacity": capacity});
    hands.set_status(CONTROLLER, subject, claim, status);
}

/// A volume is bound while its claim is there; a provisioned one goes with it.
fn follow_claim(hands: &Hands, subject: &Subject, volume: &Value) {
    let claimed = !volume["spec"]["claimRef"]["uid"].is_null();
    let phase = match (claimed, claim_of(hands, volume).is_some()) {
        (_, true) => "Bound",
        (true, false) => "Released",
        (false, _) => "Available",
    };
    if phase == "Released" && text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete" {
        hands.delete(subject, volume, None, None);
    } else if text(volume, "/status/phase") != phase {
        let status = json!({"phase": phase, "lastPhaseTransitionTime": hands.stamp()});
        hands.set_status(CONTROLLER, subject, volume, status);
    }
}
