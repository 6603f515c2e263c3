//! DaemonSets: one pod, because there is one node.

use serde_json::{Value, json};

use super::hands::{CONTROLLER, is_terminating, is_true, subject, text};
use super::replica_sets::{Availability, is_active, pod_from};
use super::{Actor, Hands, Subject, Wishes, revisions};
use crate::history::{Change, Event};
use crate::store::Stored;

const SETS: &str = "daemonsets.apps";
const SOURCE: &str = "daemonset-controller";
const HASH: &str = "controller-revision-hash";

/// The controller of DaemonSets.
pub(super) struct DaemonSets;

impl Actor for DaemonSets {
    fn notice(&mut self, event: &Event, wishes: &mut Wishes<'_>) {
        match &*event.storage {
            SETS if event.change() != Change::Deleted => wishes.now(Subject::of(event)),
            "pods" => {
                let owner = event.latest().and_then(Stored::controller);
                if let Some(owner) = owner.filter(|owner| owner.kind == "DaemonSet") {
                    wishes.now(Subject::new(SETS, event.key.namespace(), &owner.name));
                }
            }
            _ => {}
        }
    }

    fn look(&mut self, hands: &Hands, subject: &Subject, wishes: &mut Wishes<'_>) {
        let Some(set) = hands.get(subject) else { return };
        let pods = hands.controlled("pods", subject.key.namespace(), &set);
        let live: Vec<&Value> = pods.iter().map(|pod| &**pod).filter(|pod| is_active(pod)).collect();
        let revision = revisions::of(hands, &set);
        let hash = revision.rsplit('-').next().unwrap_or_default();
        let node = hands.get(&Subject::new("nodes", "", super::pods::NODE));
        let wanted = usize::from(node.is_some_and(|node| wants_node(&node, &set)));
        if !is_terminating(&set) {
            step(hands, &set, &live, (pods.len(), wanted), hash);
        }
        let available = Availability::of(&set, &live, hands.now());
        if let Some(wait) = available.next {
            wishes.after(subject.clone(), wait);
        }
        let status = status(&set, &live, hash, (available.count, wanted));
        hands.set_status(CONTROLLER, subject, &set, status);
    }
}

/// Whether the node is one of those that the DaemonSet is for.
fn wants_node(node: &Value, set: &Value) -> bool {
    let selector = set["spec"]["template"]["spec"]["nodeSelector"].as_object();
    selector.into_iter().flatten().all(|(key, value)| node["metadata"]["labels"][key] == *value)
}

fn step(hands: &Hands, set: &Value, live: &[&Value], (all, wanted): (usize, usize), hash: &str) {
    if all < wanted {
        let mut pod = pod_from(&set["spec"]["template"], set);
        pod["metadata"]["labels"][HASH] = hash.into();
        match hands.create(CONTROLLER, "pods", text(set, "/metadata/namespace"), pod) {
            Ok(pod) => {
                let message = format!("Created pod: {}", text(&pod, "/metadata/name"));
                hands.report(set, SOURCE, "Normal", "SuccessfulCreate", &message);
            }
            Err(refusal) => {
                let message = format!("Error creating: {}", refusal.message);
                hands.report(set, SOURCE, "Warning", "FailedCreate", &message);
            }
        }
    }
    let rolling = text(set, "/spec/updateStrategy/type") == "RollingUpdate";
    for (place, pod) in live.iter().enumerate() {
        let old = rolling && pod["metadata"]["labels"][HASH] != hash;
        if old || place >= wanted {
            hands.delete(&subject("pods", pod), pod, None, None);
            let message = format!("Deleted pod: {}", text(pod, "/metadata/name"));
            hands.report(set, SOURCE, "Normal", "SuccessfulDelete", &message);
        }
    }
}

fn status(set: &Value, live: &[&Value], hash: &str, (available, wanted): (usize, usize)) -> Value {
    let mut status = json!({
        "observedGeneration": set["metadata"]["generation"], "currentNumberScheduled": live.len().min(wanted),
        "desiredNumberScheduled": wanted, "numberMisscheduled": live.len().saturating_sub(wanted),
        "numberReady": live.iter().filter(|pod| is_true(pod, "Ready")).count(),
    });
    let updated = live.iter().filter(|pod| pod["metadata"]["labels"][HASH] == hash).count();
    for (field, number) in [
        ("updatedNumberScheduled", updated),
        ("numberAvailable", available),
        ("numberUnavailable", wanted.saturating_sub(available)),
    ] {
        if number > 0 {
            status[field] = number.into();
        }
    }
    status
}
