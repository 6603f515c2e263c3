//! EndpointSlices that mirror manually created Endpoints of Services without a selector.

use serde_json::{Map, Value, json};

use super::controller::{Controller, Queue};
use devcluster_apiserver::client::{CONTROLLER, subject};
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::Event;
use devcluster_apiserver::object::{controller_reference, is_terminating, text};

const ENDPOINTS: &str = "endpoints";
const SERVICES: &str = "services";
const SLICES: &str = "endpointslices.discovery.k8s.io";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// The controller of mirrored EndpointSlices.
pub(super) struct EndpointMirrors;

impl Controller for EndpointMirrors {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        if matches!(&*event.storage, ENDPOINTS | SERVICES) {
            queue.add(Subject { storage: ENDPOINTS.into(), key: event.key.clone() });
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, _: &mut Queue<'_>) {
        let Some(endpoints) = client.get(subject).filter(|endpoints| !is_terminating(endpoints)) else { return };
        let (namespace, name) = (subject.key.namespace(), subject.key.name());
        let service = client.get(&Subject::new(SERVICES, namespace, name));
        let by_hand = service.is_some_and(|service| {
            service["spec"]["selector"].as_object().is_none_or(Map::is_empty)
                && service["spec"]["type"] != "ExternalName"
        });
        let known = client.controlled(SLICES, namespace, &endpoints);
        let subsets = endpoints["subsets"].as_array().filter(|_| by_hand).map_or(&[][..], Vec::as_slice);
        for (place, subset) in subsets.iter().enumerate() {
            let (list, ports) = (addresses(subset), ports(subset));
            match known.get(place) {
                Some(slice) if slice["endpoints"] != list || slice["ports"] != ports => {
                    let mut next = (**slice).clone();
                    next["endpoints"] = list;
                    next["ports"] = ports;
                    client.update(CONTROLLER, &self::subject(SLICES, slice), next);
                }
                Some(_) => {}
                None => {
                    // Fails if the namespace terminates. The next event of the Endpoints retries.
                    let _ = client.create(CONTROLLER, SLICES, namespace, slice(&endpoints, list, ports));
                }
            }
        }
        for slice in known.iter().skip(subsets.len()) {
            client.delete(&self::subject(SLICES, slice), slice, None, None);
        }
    }
}

fn slice(endpoints: &Value, list: Value, ports: Value) -> Value {
    let name = text(endpoints, "/metadata/name");
    let mut labels = endpoints["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.insert("kubernetes.io/service-name".to_owned(), name.into());
    labels.insert(MANAGED_BY.to_owned(), "endpointslicemirroring-controller.k8s.io".into());
    let kind = if text(&list, "/0/addresses/0").contains(':') { "IPv6" } else { "IPv4" };
    json!({
        "metadata": {
            "generateName": format!("{name}-"), "labels": labels, "ownerReferences": [controller_reference(endpoints)],
        },
        "addressType": kind, "endpoints": list, "ports": ports,
    })
}

fn addresses(subset: &Value) -> Value {
    let of = |field: &str, ready: bool| -> Vec<Value> {
        let list = subset[field].as_array().into_iter().flatten();
        let endpoint = |address: &Value| {
            let mut endpoint = json!({"addresses": [address["ip"]], "conditions": {"ready": ready}});
            for field in ["hostname", "nodeName", "targetRef"] {
                if let Some(value) = address.get(field) {
                    endpoint[field] = value.clone();
                }
            }
            endpoint
        };
        list.map(endpoint).collect()
    };
    [of("addresses", true), of("notReadyAddresses", false)].concat().into()
}

fn ports(subset: &Value) -> Value {
    let list = subset["ports"].as_array().into_iter().flatten();
    let port = |port: &Value| json!({"name": text(port, "/name"), "port": port["port"], "protocol": port["protocol"]});
    list.map(port).collect::<Vec<_>>().into()
}
