//! EndpointSlices: which pods a Service leads to.
//!
//! Deliberately absent: the old Endpoints twin, and slices for Services without selector, which are made by hand.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};

use super::hands::{CONTROLLER, controller_reference, is_terminating, is_true, subject, text};
use super::{Actor, Hands, Subject, Wishes};
use crate::history::{Change, Event};
use crate::kinds::hooks;
use crate::store::{Key, Stored};

const SERVICES: &str = "services";
const SLICES: &str = "endpointslices.discovery.k8s.io";
const SERVICE: &str = "kubernetes.io/service-name";

/// Namespace, and a label with its value.
type Asked = (String, String, String);

/// The controller of EndpointSlices. It knows which Services ask for a label, so that a pod costs those alone.
#[derive(Default)]
pub(super) struct Endpoints {
    /// One label of each Service's selector, which every pod of it has.
    labels: HashMap<Key, Asked>,
    services: HashMap<Asked, BTreeSet<Key>>,
}

impl Endpoints {
    /// Remembers what a Service asks for, or that it is gone.
    fn learn(&mut self, key: &Key, service: Option<&Value>) {
        if let Some(asked) = self.labels.remove(key)
            && let Some(services) = self.services.get_mut(&asked)
        {
            services.remove(key);
            if services.is_empty() {
                self.services.remove(&asked);
            }
        }
        if let Some((label, value)) = service.and_then(rarest) {
            let asked = (key.namespace().to_owned(), label.to_owned(), value.to_owned());
            self.services.entry(asked.clone()).or_default().insert(key.clone());
            self.labels.insert(key.clone(), asked);
        }
    }

    /// The Services that may lead to a pod.
    fn leading_to(&self, namespace: &str, pod: &Stored) -> impl Iterator<Item = &Key> {
        let asked = |(label, value): &(String, String)| (namespace.to_owned(), label.clone(), value.clone());
        pod.labels.iter().filter_map(move |pair| self.services.get(&asked(pair))).flatten()
    }
}

impl Actor for Endpoints {
    fn notice(&mut self, event: &Event, wishes: &mut Wishes<'_>) {
        match &*event.storage {
            SERVICES => {
                self.learn(&event.key, event.new.as_ref().map(|stored| stored.value()).as_deref());
                if event.change() != Change::Deleted {
                    wishes.now(Subject::of(event));
                }
            }
            "pods" => {
                for pod in event.old.iter().chain(&event.new) {
                    for service in self.leading_to(event.key.namespace(), pod) {
                        wishes.now(Subject { storage: SERVICES.into(), key: service.clone() });
                    }
                }
            }
            _ => {}
        }
    }

    fn look(&mut self, hands: &Hands, subject: &Subject, _: &mut Wishes<'_>) {
        let Some(service) = hands.get(subject).filter(|service| !is_terminating(service)) else { return };
        if let Some((label, value)) = rarest(&service) {
            publish(hands, &service, hands.pods_labelled(subject.key.namespace(), label, value));
        }
    }
}

fn selector(service: &Value) -> Option<&Value> {
    service["spec"].get("selector").filter(|s| s.as_object().is_some_and(|s| !s.is_empty()))
}

/// The label of a Service's selector that the fewest pods have: probably the one with the longest value.
fn rarest(service: &Value) -> Option<(&str, &str)> {
    let pairs = selector(service)?.as_object()?.iter();
    pairs.filter_map(|(label, value)| Some((label.as_str(), value.as_str()?))).max_by_key(|(_, value)| value.len())
}

/// Says which of the pods, among which are all that the Service leads to, it leads to.
fn publish(hands: &Hands, service: &Value, mut pods: Vec<Arc<Value>>) {
    let (namespace, name) = (text(service, "/metadata/namespace"), text(service, "/metadata/name"));
    let labels = json!({"matchLabels": selector(service)});
    pods.retain(|pod| hooks::selects(&labels, &pod["metadata"]["labels"]) && !text(pod, "/status/podIP").is_empty());
    let endpoints: Vec<Value> = pods.iter().map(|pod| endpoint(pod)).collect();
    let mut ports: Vec<Value> = Vec::new();
    for port in service["spec"]["ports"].as_array().into_iter().flatten() {
        let number = pods.iter().find_map(|pod| target(port, pod)).or_else(|| port["targetPort"].as_i64());
        ports.push(json!({"name": text(port, "/name"), "port": number, "protocol": port["protocol"]}));
    }
    let known = hands.controlled(SLICES, namespace, service);
    if let Some(slice) = known.first() {
        let mut next = (**slice).clone();
        next["endpoints"] = endpoints.into();
        next["ports"] = ports.into();
        if next["endpoints"] != slice["endpoints"] || next["ports"] != slice["ports"] {
            hands.update(CONTROLLER, &subject(SLICES, slice), next);
        }
        return;
    }
    let object = json!({
        "metadata": {
            "generateName": format!("{name}-"), "ownerReferences": [controller_reference(service)],
            "labels": {SERVICE: name, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
        },
        "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
    });
    // The namespace may be going away; otherwise the next event of the Service or its pods tries again.
    let _ = hands.create(CONTROLLER, SLICES, namespace, object);
}

fn endpoint(pod: &Value) -> Value {
    let serving = is_true(pod, "Ready");
    let going = is_terminating(pod);
    json!({
        "addresses": [pod["status"]["podIP"]], "nodeName": pod["spec"]["nodeName"],
        "conditions": {"ready": serving && !going, "serving": serving, "terminating": going},
        "targetRef": {
            "kind": "Pod", "namespace": pod["metadata"]["namespace"], "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        },
    })
}

/// The number of a named target port in a pod.
fn target(port: &Value, pod: &Value) -> Option<i64> {
    let name = port["targetPort"].as_str()?;
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.flat_map(|c| c["ports"].as_array().into_iter().flatten());
    ports.find(|p| p["name"] == name).and_then(|p| p["containerPort"].as_i64())
}
