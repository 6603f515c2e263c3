//! Lets go of PersistentVolumeClaims that no pod uses, and of PersistentVolumes that no claim uses.

use serde_json::{Value, json};

use super::hands::{CONTROLLER, finalizers_without, has_finalizer, is_terminating, text};
use super::{Actor, Hands, Subject, Wishes};
use crate::history::{Change, Event};

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";

/// The finalizers of storage.
pub(super) struct Protection;

impl Actor for Protection {
    fn notice(&mut self, event: &Event, wishes: &mut Wishes<'_>) {
        let terminating = || event.new.as_ref().is_some_and(|stored| is_terminating(&stored.value()));
        match &*event.storage {
            "persistentvolumeclaims" | "persistentvolumes" if terminating() => wishes.now(Subject::of(event)),
            "pods" if event.change() == Change::Deleted => {
                let Some(pod) = event.old.as_ref().map(|stored| stored.value()) else { return };
                for name in claims(&pod) {
                    wishes.now(Subject::new("persistentvolumeclaims", event.key.namespace(), name));
                }
            }
            _ => {}
        }
    }

    fn look(&mut self, hands: &Hands, subject: &Subject, _: &mut Wishes<'_>) {
        let Some(object) = hands.get(subject).filter(|object| is_terminating(object)) else { return };
        let finalizer = if &*subject.storage == "persistentvolumes" { VOLUME } else { CLAIM };
        let used = match finalizer {
            VOLUME => text(&object, "/status/phase") == "Bound",
            _ => hands
                .list("pods", subject.key.namespace())
                .iter()
                .any(|pod| claims(pod).any(|name| name == subject.key.name())),
        };
        if !used && has_finalizer(&object, finalizer) {
            let patch = json!({"metadata": {"finalizers": finalizers_without(&object, finalizer)}});
            hands.merge(CONTROLLER, subject, patch);
        }
    }
}

/// The claims that a pod mounts.
fn claims(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str())
}
