//! EndpointSlices: which pods a Service leads to.
//!
//! Deliberately absent: the old Endpoints twin, and slices for Services without selector, which are made by hand.

use serde_json::{Value, json};

use super::hands::{CONTROLLER, controller_reference, is_terminating, is_true, subject, text};
use super::{Actor, Hands, Subject, Wishes};
use crate::history::{Change, Event};
use crate::kinds::hooks;

const SERVICES: &str = "services";
const SLICES: &str = "endpointslices.discovery.k8s.io";
const SERVICE: &str = "kubernetes.io/service-name";
/// All Services of a namespace; no Service can be named so.
const EVERY: &str = "";

/// The controller of EndpointSlices.
pub(super) struct Endpoints;

impl Actor for Endpoints {
    fn notice(&mut self, event: &Event, wishes: &mut Wishes<'_>) {
        match &*event.storage {
            SERVICES if event.change() != Change::Deleted => wishes.now(Subject::of(event)),
            "pods" => wishes.now(Subject::new(SERVICES, event.key.namespace(), EVERY)),
            _ => {}
        }
    }

    fn look(&mut self, hands: &Hands, subject: &Subject, wishes: &mut Wishes<'_>) {
        if subject.key.name() == EVERY {
            for service in hands.list(SERVICES, subject.key.namespace()) {
                if selector(&service).is_some() {
                    wishes.now(super::hands::subject(SERVICES, &service));
                }
            }
            return;
        }
        let Some(service) = hands.get(subject).filter(|service| !is_terminating(service)) else { return };
        if selector(&service).is_some() {
            publish(hands, &service);
        }
    }
}

fn selector(service: &Value) -> Option<&Value> {
    service["spec"].get("selector").filter(|s| s.as_object().is_some_and(|s| !s.is_empty()))
}

fn publish(hands: &Hands, service: &Value) {
    let (namespace, name) = (text(service, "/metadata/namespace"), text(service, "/metadata/name"));
    let labels = json!({"matchLabels": selector(service)});
    let mut pods = hands.list("pods", namespace);
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
