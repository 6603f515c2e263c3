//! DaemonSets: at most one pod each, because there is one node.

use serde_json::{Value, json};

use super::controller::{Controller, Queue};
use super::replica_sets::{Availability, is_active, pod_from};
use super::revisions;
use devcluster_apiserver::client::{CONTROLLER, subject};
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::object::{is_terminating, is_true, text};
use devcluster_apiserver::store::Stored;

const SETS: &str = "daemonsets.apps";
const SOURCE: &str = "daemonset-controller";
const HASH: &str = "controller-revision-hash";

/// The controller of DaemonSets.
pub(super) struct DaemonSets;

impl Controller for DaemonSets {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        match &*event.storage {
            SETS if event.change() != Change::Deleted => queue.add(Subject::of(event)),
            "pods" => {
                let owner = event.latest().and_then(Stored::controller);
                if let Some(owner) = owner.filter(|owner| owner.kind == "DaemonSet") {
                    queue.add(Subject::new(SETS, event.key.namespace(), &owner.name));
                }
            }
            _ => {}
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>) {
        let Some(set) = client.get(subject) else { return };
        let pods = client.controlled("pods", subject.key.namespace(), &set);
        let live: Vec<&Value> = pods.iter().map(|pod| &**pod).filter(|pod| is_active(pod)).collect();
        let revision = revisions::of(client, &set);
        let hash = revision.rsplit('-').next().unwrap_or_default();
        let node = client.get(&Subject::new("nodes", "", devcluster_apiserver::kubelet::NODE));
        let wanted = usize::from(node.is_some_and(|node| wants_node(&node, &set)));
        if !is_terminating(&set) {
            step(client, &set, &live, (pods.len(), wanted), hash);
        }
        let available = Availability::of(&set, &live, client.now());
        if let Some(wait) = available.next {
            queue.add_after(subject.clone(), wait);
        }
        let status = status(&set, &live, hash, (available.count, wanted));
        client.set_status(CONTROLLER, subject, &set, status);
    }
}

/// Whether the node matches the template's node selector.
fn wants_node(node: &Value, set: &Value) -> bool {
    let selector = set["spec"]["template"]["spec"]["nodeSelector"].as_object();
    selector.into_iter().flatten().all(|(key, value)| node["metadata"]["labels"][key] == *value)
}

fn step(client: &Client, set: &Value, live: &[&Value], (all, wanted): (usize, usize), hash: &str) {
    if all < wanted {
        let mut pod = pod_from(&set["spec"]["template"], set);
        pod["metadata"]["labels"][HASH] = hash.into();
        match client.create(CONTROLLER, "pods", text(set, "/metadata/namespace"), pod) {
            Ok(pod) => {
                let message = format!("Created pod: {}", text(&pod, "/metadata/name"));
                client.report(set, SOURCE, "Normal", "SuccessfulCreate", &message);
            }
            Err(refusal) => {
                let message = format!("Error creating: {}", refusal.message);
                client.report(set, SOURCE, "Warning", "FailedCreate", &message);
            }
        }
    }
    let rolling = text(set, "/spec/updateStrategy/type") == "RollingUpdate";
    for (place, pod) in live.iter().enumerate() {
        let old = rolling && pod["metadata"]["labels"][HASH] != hash;
        if old || place >= wanted {
            client.delete(&subject("pods", pod), pod, None, None);
            let message = format!("Deleted pod: {}", text(pod, "/metadata/name"));
            client.report(set, SOURCE, "Normal", "SuccessfulDelete", &message);
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
